/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a kernel wants another layout or another type than the tensor has.  Between types oneDNN
 * is not asked: on the way are f32 and a reorder of that.
 */
#include "base/mem.h"
#include "device/cpu/cpu.h"

static size_t take(size_t *bytes_p, size_t bytes)
{
	size_t offset = *bytes_p;

	*bytes_p += pd_align(bytes);
	return offset;
}

int pd_op_prepare(struct pd_compiled_layer *l, struct pd_op *op, size_t *offset_p, size_t *bytes_p,
		  struct pd_error *err)
{
	if (!l->slow_kernel && pd_op_is_slow(op))
		l->slow_kernel = pd_op_kernel(op);
	*offset_p = take(bytes_p, pd_op_scratch_bytes(op));
	return pd_op_compile(op, err);
}

int pd_via_between(struct pd_compiled_layer *l, struct pd_via *via, const struct pd_layout *from,
		   const struct pd_layout *to, size_t *bytes_p, struct pd_error *err)
{
	struct pd_onednn *dnn = l->net->engine;
	const struct pd_layout *full_from = pd_layout_full(dnn, from);
	const struct pd_layout *full_to = pd_layout_full(dnn, to);
	bool alike = pd_layout_is_full(from) == pd_layout_is_full(to);

	*via = (struct pd_via){ .converts = !pd_layout_same(from, to) };
	if (!via->converts)
		return 0;
	if (!alike || pd_onednn_widens(dnn)) {
		via->widens = pd_layout_is_full(from) ? 0 : pd_layout_bytes(full_from) / sizeof(float);
		via->narrows = pd_layout_is_full(to) ? 0 : pd_layout_bytes(full_to) / sizeof(float);
		from = full_from;
		to = full_to;
	}
	if (via->widens)
		via->wide_from = take(bytes_p, pd_layout_bytes(full_from));
	if (via->narrows)
		via->wide_to = take(bytes_p, pd_layout_bytes(full_to));
	if (pd_layout_same(from, to))
		return 0;
	via->reorder = pd_op_reorder(dnn, from, to, err);
	return via->reorder ? pd_op_prepare(l, via->reorder, &via->scratch_offset, bytes_p, err) : -1;
}

int pd_via_prepare(struct pd_compiled_layer *l, struct pd_via *via, const struct pd_layout *from,
		   const struct pd_layout *to, bool output, size_t *bytes_p, struct pd_error *err)
{
	size_t offset = 0;

	if (!pd_layout_same(from, to))
		offset = take(bytes_p, pd_layout_bytes(output ? from : to));
	if (pd_via_between(l, via, from, to, bytes_p, err) < 0)
		return -1;
	via->offset = offset;
	return 0;
}

int pd_via_convert(struct pd_compiled_layer *l, const struct pd_via *via, const void *from,
		   void *to, struct pd_error *err)
{
	enum pd_dtype dtype = l->net->dtype;
	char *scratch = l->temporary;
	const void *args[PD_ARGS] = { NULL };
	void *next;

	if (via->widens) {
		next = via->reorder || via->narrows ? scratch + via->wide_from : to;
		pd_cpu_widen(dtype, next, from, via->widens);
		from = next;
	}
	if (via->reorder) {
		next = via->narrows ? scratch + via->wide_to : to;
		args[PD_ARG_SRC] = from;
		args[PD_ARG_DST] = next;
		args[PD_ARG_SCRATCH] = scratch + via->scratch_offset;
		if (pd_op_run(via->reorder, args, err) < 0)
			return -1;
		from = next;
	}
	if (via->narrows)
		pd_cpu_narrow(dtype, to, from, via->narrows);
	return 0;
}

const void *pd_via_in(struct pd_compiled_layer *l, const struct pd_via *via, const void *ptr,
		      struct pd_error *err)
{
	void *to = (char *)l->temporary + via->offset;

	if (!via->converts)
		return ptr;
	return pd_via_convert(l, via, ptr, to, err) < 0 ? NULL : to;
}

void *pd_via_room(const struct pd_compiled_layer *l, const struct pd_via *via, void *ptr)
{
	return via->converts ? (char *)l->temporary + via->offset : ptr;
}

int pd_via_out(struct pd_compiled_layer *l, const struct pd_via *via, void *ptr,
	       struct pd_error *err)
{
	return via->converts
		? pd_via_convert(l, via, (char *)l->temporary + via->offset, ptr, err) : 0;
}
