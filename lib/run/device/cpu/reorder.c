/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reorders convert an argument to the layout or type that a kernel wants.  oneDNN is not asked to
 * convert types: numbers are widened to f32, reordered, and narrowed.
 */
#include "base/mem.h"
#include "run/device/cpu/cpu.h"

int pd_primitive_prepare(struct pd_compiled_layer *l, struct pd_primitive *op, size_t *offset_p,
			 size_t *bytes_p, struct pd_error *err)
{
	if (!l->slow_kernel && pd_primitive_is_slow(op))
		l->slow_kernel = pd_primitive_kernel(op);
	*offset_p = pd_take(bytes_p, pd_primitive_scratch_bytes(op));
	return pd_primitive_compile(op, err);
}

int pd_reorder_between(struct pd_compiled_layer *l, struct pd_reorder *reorder,
		       const struct pd_layout *from, const struct pd_layout *to, size_t *bytes_p,
		       struct pd_error *err)
{
	struct pd_onednn *dnn = l->net->engine;
	const struct pd_layout *full_from = pd_layout_full(dnn, from);
	const struct pd_layout *full_to = pd_layout_full(dnn, to);
	bool alike = pd_layout_is_full(from) == pd_layout_is_full(to);

	*reorder = (struct pd_reorder){ .converts = !pd_layout_same(from, to) };
	if (!reorder->converts)
		return 0;
	if (!alike || pd_onednn_widens(dnn)) {
		reorder->widens = pd_layout_is_full(from) ? 0
			: pd_layout_bytes(full_from) / sizeof(float);
		reorder->narrows = pd_layout_is_full(to) ? 0
			: pd_layout_bytes(full_to) / sizeof(float);
		from = full_from;
		to = full_to;
	}
	if (reorder->widens)
		reorder->wide_from = pd_take(bytes_p, pd_layout_bytes(full_from));
	if (reorder->narrows)
		reorder->wide_to = pd_take(bytes_p, pd_layout_bytes(full_to));
	if (pd_layout_same(from, to))
		return 0;
	reorder->primitive = pd_primitive_reorder(dnn, from, to, err);
	return reorder->primitive ? pd_primitive_prepare(l, reorder->primitive,
							 &reorder->scratch_offset, bytes_p,
							 err) : -1;
}

int pd_reorder_prepare(struct pd_compiled_layer *l, struct pd_reorder *reorder,
		       const struct pd_layout *from, const struct pd_layout *to, bool output,
		       size_t *bytes_p, struct pd_error *err)
{
	size_t offset = 0;

	if (!pd_layout_same(from, to))
		offset = pd_take(bytes_p, pd_layout_bytes(output ? from : to));
	if (pd_reorder_between(l, reorder, from, to, bytes_p, err) < 0)
		return -1;
	reorder->offset = offset;
	return 0;
}

int pd_reorder_convert(struct pd_compiled_layer *l, const struct pd_reorder *reorder,
		       const void *from, void *to, struct pd_error *err)
{
	enum pd_dtype dtype = l->net->dtype;
	char *scratch = l->temporary;
	const void *args[PD_ARGS] = { NULL };
	void *next;

	if (reorder->widens) {
		next = reorder->primitive || reorder->narrows ? scratch + reorder->wide_from : to;
		pd_cpu_widen(dtype, next, from, reorder->widens);
		from = next;
	}
	if (reorder->primitive) {
		next = reorder->narrows ? scratch + reorder->wide_to : to;
		args[PD_ARG_SRC] = from;
		args[PD_ARG_DST] = next;
		args[PD_ARG_SCRATCH] = scratch + reorder->scratch_offset;
		if (pd_primitive_run(reorder->primitive, args, err) < 0)
			return -1;
		from = next;
	}
	if (reorder->narrows)
		pd_cpu_narrow(dtype, to, from, reorder->narrows);
	return 0;
}

const void *pd_reorder_in(struct pd_compiled_layer *l, const struct pd_reorder *reorder,
			  const void *ptr, struct pd_error *err)
{
	void *to = (char *)l->temporary + reorder->offset;

	if (!reorder->converts)
		return ptr;
	return pd_reorder_convert(l, reorder, ptr, to, err) < 0 ? NULL : to;
}

void *pd_reorder_buffer(const struct pd_compiled_layer *l, const struct pd_reorder *reorder,
			void *ptr)
{
	return reorder->converts ? (char *)l->temporary + reorder->offset : ptr;
}

int pd_reorder_out(struct pd_compiled_layer *l, const struct pd_reorder *reorder, void *ptr,
		   struct pd_error *err)
{
	return reorder->converts
		? pd_reorder_convert(l, reorder, (char *)l->temporary + reorder->offset, ptr, err)
			: 0;
}
