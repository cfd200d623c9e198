/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to this folder: the functions of fold.def, and what they have in common.  Each makes the first output
 * of a node, or returns NULL; there is an input 0, but for Constant.
 */
#pragma once

#include "doors/onnx/attribute.h"
#include "doors/onnx/fold.h"
#include "doors/onnx/shape.h"

#define FOLD(op, function, argument) struct array *fold_##function(const struct fold *f, int argument_of_row);
#include "doors/onnx/fold.def"
#undef FOLD

static inline struct array *take(const struct fold *f, const struct array *like, int dims, const int64_t *size)
{
	return array_new(f->constants, like, dims, size);
}

static inline const struct array *in(const struct fold *f, size_t i)
{
	return i < f->inputs ? f->in[i] : NULL;
}

static inline struct extent extent_of(const struct array *array)
{
	struct extent extent = { .dims = array->dims };

	memcpy(extent.size, array->size, sizeof(extent.size));
	return extent;
}

/* The same elements in another shape. */
static inline struct array *shaped(const struct fold *f, const struct array *from, const struct extent *extent)
{
	struct array *out = take(f, from, extent->dims, extent->size);

	if (!out || out->elements != from->elements)
		return NULL;
	memcpy(out->data, from->data, (size_t)(out->elements * array_width(out)));
	return out;
}
