/* SPDX-License-Identifier: Apache-2.0 */
/* Reorders where a kernel wants another layout than the tensor has. */
#include "base/mem.h"
#include "device/cpu/cpu.h"

static size_t take(size_t *bytes_p, size_t bytes)
{
	size_t offset = *bytes_p;

	*bytes_p += pd_align(bytes);
	return offset;
}

int pd_op_prepare(struct pd_op *op, size_t *offset_p, size_t *bytes_p, struct pd_error *err)
{
	*offset_p = take(bytes_p, pd_op_scratch_bytes(op));
	return pd_op_compile(op, err);
}

int pd_via_prepare(struct pd_compiled_layer *l, struct pd_via *via, const struct pd_layout *from,
		   const struct pd_layout *to, bool output, size_t *bytes_p, struct pd_error *err)
{
	via->reorder = NULL;
	if (pd_layout_same(from, to))
		return 0;
	via->reorder = pd_op_reorder(l->net->engine, from, to, err);
	if (!via->reorder)
		return -1;
	via->offset = take(bytes_p, pd_layout_bytes(output ? from : to));
	return pd_op_prepare(via->reorder, &via->scratch_offset, bytes_p, err);
}

static int convert(struct pd_compiled_layer *l, const struct pd_via *via, const void *from,
		   void *to, struct pd_error *err)
{
	const void *args[PD_ARGS] = {
		[PD_ARG_SRC] = from,
		[PD_ARG_DST] = to,
		[PD_ARG_SCRATCH] = (char *)l->temporary + via->scratch_offset,
	};

	return pd_op_run(via->reorder, args, err);
}

const void *pd_via_in(struct pd_compiled_layer *l, const struct pd_via *via, const void *ptr,
		      struct pd_error *err)
{
	void *to = (char *)l->temporary + via->offset;

	if (!via->reorder)
		return ptr;
	return convert(l, via, ptr, to, err) < 0 ? NULL : to;
}

void *pd_via_room(const struct pd_compiled_layer *l, const struct pd_via *via, void *ptr)
{
	return via->reorder ? (char *)l->temporary + via->offset : ptr;
}

int pd_via_out(struct pd_compiled_layer *l, const struct pd_via *via, void *ptr,
	       struct pd_error *err)
{
	return via->reorder ? convert(l, via, (char *)l->temporary + via->offset, ptr, err) : 0;
}
