/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What torch.onnx leaves to be computed when it is told not to optimize: shapes, positions, masks.  All of
 * it is small.
 */
#include "doors/onnx/fold_rows.h"

#include "base/mem.h"

#include <stdlib.h>

/* Reads truth values by way of integers. */
static bool read_truths(const struct pd_onnx *onnx, struct pd_onnx_tensor *tensor, struct array *out)
{
	int64_t *integers = pd_calloc((size_t)out->elements + 1, sizeof(*integers));
	struct pd_error unread;
	bool read = pd_onnx_read_integers(onnx, tensor, integers, &unread) == 0;

	for (int64_t i = 0; i < out->elements; i++)
		out->truths[i] = integers[i] != 0;
	free(integers);
	return read;
}

struct array *fold_tensor(struct constants *constants, const struct pd_onnx *onnx,
			  struct pd_onnx_tensor *tensor)
{
	struct array like = { .whole = pd_onnx_is_integer(tensor->type),
			      .truth = tensor->type == PD_ONNX_BOOL };
	struct array *out = like.whole || pd_onnx_is_float(tensor->type)
				    ? array_new(constants, &like, tensor->dims, tensor->size) : NULL;
	struct pd_error unread;

	if (!out || !(like.truth ? read_truths(onnx, tensor, out)
		      : like.whole ? pd_onnx_read_integers(onnx, tensor, out->integers, &unread) == 0
		      : pd_onnx_read_doubles(onnx, tensor, out->reals, &unread) == 0))
		return NULL;
	return out;
}

struct array *fold_constant(const struct fold *f, int unused)
{
	const struct pd_onnx_attribute *value = f->node->attributes ? &f->node->attribute[0] : NULL;
	int64_t count = value ? (int64_t)value->count : 0;
	struct array *out = NULL;

	(void)unused;
	if (!value)
		return NULL;
	if (value->kind == PD_ONNX_TENSOR)
		return fold_tensor(f->constants, f->onnx, value->tensor);
	if (value->kind == PD_ONNX_INTEGER || value->kind == PD_ONNX_INTEGERS)
		out = array_integers(f->constants, value->kind == PD_ONNX_INTEGERS, &count);
	else if (value->kind == PD_ONNX_NUMBER || value->kind == PD_ONNX_NUMBERS)
		out = take(f, &(struct array){ 0 }, value->kind == PD_ONNX_NUMBERS, &count);
	for (int64_t i = 0; out && i < out->elements; i++) {
		if (out->whole)
			out->integers[i] = out->dims ? value->integers[i] : value->integer;
		else
			out->reals[i] = out->dims ? (double)value->numbers[i] : (double)value->number;
	}
	return out;
}

struct array *fold_filled(const struct fold *f, int unused)
{
	const struct pd_onnx_attribute *value = pd_onnx_attribute(f->node, "value", PD_ONNX_TENSOR);
	const struct array *shape = in(f, 0);
	struct array zero = { 0 }, *one = value ? fold_tensor(f->constants, f->onnx, value->tensor) : NULL;
	struct array *out;

	(void)unused;
	if (!array_counts(shape) || shape->dims != 1 || shape->elements > PD_ONNX_DIMS || (value && !one) ||
	    (one && one->elements != 1))
		return NULL;
	out = take(f, one ? one : &zero, (int)shape->elements, shape->integers);
	for (int64_t i = 0; one && out && i < out->elements; i++)
		array_copy(out, i, one, 0);
	return out;
}

struct array *fold_same(const struct fold *f, int unused)
{
	struct extent extent = extent_of(in(f, 0));

	(void)unused;
	return shaped(f, in(f, 0), &extent);
}

struct array *fold_cast(const struct fold *f, int unused)
{
	int to = (int)integer_of(f->node, "to", 0);
	struct array like = { .whole = f->whole, .truth = f->truth };
	const struct array *from = in(f, 0);
	struct array *out;

	(void)unused;
	if (is_op(f->node, "Cast"))
		like = (struct array){ .whole = pd_onnx_is_integer(to), .truth = to == PD_ONNX_BOOL };
	out = take(f, &like, from->dims, from->size);
	for (int64_t i = 0; out && i < out->elements; i++)
		array_set(out, i, array_real(from, i),
			  like.truth ? array_real(from, i) != 0 : array_integer(from, i));
	return out;
}

static const struct {
	const char *op;
	struct array *(*make)(const struct fold *f, int argument);
	int argument;
} rows[] = {
#define FOLD(op, function, argument) { #op, fold_##function, argument },
#include "doors/onnx/fold.def"
#undef FOLD
};

bool fold_knows(const char *op)
{
	for (size_t i = 0; i < PD_COUNT(rows); i++)
		if (strcmp(rows[i].op, op) == 0)
			return true;
	return false;
}

struct array *fold(const struct fold *f)
{
	bool constant = is_op(f->node, "Constant");

	if (!constant && !in(f, 0))
		return NULL;
	for (size_t i = 0; i < PD_COUNT(rows); i++)
		if (strcmp(rows[i].op, f->node->op) == 0)
			return rows[i].make(f, rows[i].argument);
	return NULL;
}
