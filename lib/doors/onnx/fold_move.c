/* SPDX-License-Identifier: Apache-2.0 */
/* Constants whose numbers move, repeat, or are left out. */
#include "doors/onnx/fold_rows.h"

#include "base/mem.h"

struct array *fold_concat(const struct fold *f, int unused)
{
	const struct array *first = in(f, 0);
	int axis = first ? array_axis(integer_of(f->node, "axis", 0), first->dims) : -1;
	int64_t size[PD_ONNX_DIMS], at = 0;
	struct array *out;

	(void)unused;
	if (axis < 0)
		return NULL;
	memcpy(size, first->size, sizeof(size));
	size[axis] = 0;
	for (size_t k = 0; k < f->inputs; k++) {
		const struct array *from = in(f, k);

		if (!from || from->dims != first->dims || from->whole != first->whole || from->truth != first->truth ||
		    !pd_add(size[axis], from->size[axis], &size[axis]))
			return NULL;
		for (int d = 0; d < first->dims; d++)
			if (d != axis && from->size[d] != first->size[d])
				return NULL;
	}
	out = take(f, first, first->dims, size);
	for (size_t k = 0; out && k < f->inputs; k++) {
		const struct array *from = in(f, k);
		int64_t inner = array_part(from, axis, from->dims), all = array_part(out, axis, out->dims);

		for (int64_t i = 0; i < from->elements; i++)
			array_copy(out, i / inner * all + at + i % inner, from, i);
		at += inner;
	}
	return out;
}

struct array *fold_reshape(const struct fold *f, int unused)
{
	struct extent from = extent_of(in(f, 0)), to;

	(void)unused;
	if (!in(f, 1) || !extent_reshaped(&from, in(f, 1), integer_of(f->node, "allowzero", 0) != 0, &to))
		return NULL;
	return shaped(f, in(f, 0), &to);
}

struct array *fold_squeeze(const struct fold *f, int unused)
{
	const struct array *from = in(f, 0);
	bool chosen[PD_ONNX_DIMS], named = extent_axes(f->node, in(f, 1), from->dims, chosen);
	struct extent to = { 0 };

	(void)unused;
	for (int d = 0; d < from->dims; d++)
		if (named ? !chosen[d] : from->size[d] != 1)
			to.size[to.dims++] = from->size[d];
	return shaped(f, from, &to);
}

struct array *fold_unsqueeze(const struct fold *f, int unused)
{
	const struct array *from = in(f, 0);
	const struct pd_onnx_attribute *axes = pd_onnx_attribute(f->node, "axes", PD_ONNX_INTEGERS);
	int64_t count = in(f, 1) ? in(f, 1)->elements : axes ? (int64_t)axes->count : 0;
	bool chosen[PD_ONNX_DIMS];
	struct extent to = { .dims = from->dims };
	int next = 0;

	(void)unused;
	if (count > PD_ONNX_DIMS - from->dims)
		return NULL;
	to.dims += (int)count;
	if (!extent_axes(f->node, in(f, 1), to.dims, chosen))
		return NULL;
	for (int d = 0; d < to.dims; d++)
		to.size[d] = chosen[d] ? 1 : from->size[next++];
	return shaped(f, from, &to);
}

struct array *fold_transpose(const struct fold *f, int unused)
{
	const struct array *from = in(f, 0);
	int64_t size[PD_ONNX_DIMS], step[PD_ONNX_DIMS];
	bool seen[PD_ONNX_DIMS] = { 0 };
	struct array *out;

	(void)unused;
	for (int d = 0; d < from->dims; d++) {
		int axis = array_axis(listed(f->node, "perm", (size_t)d, from->dims - 1 - d), from->dims);

		if (axis < 0 || seen[axis])
			return NULL;
		seen[axis] = true;
		size[d] = from->size[axis];
		step[d] = array_part(from, axis + 1, from->dims);
	}
	out = take(f, from, from->dims, size);
	for (int64_t n = 0; out && n < out->elements; n++) {
		int64_t rest = n, i = 0;

		for (int d = out->dims - 1; d >= 0; rest /= size[d], d--)
			i += rest % size[d] * step[d];
		array_copy(out, n, from, i);
	}
	return out;
}

struct array *fold_expand(const struct fold *f, int unused)
{
	const struct array *from = in(f, 0), *shape = in(f, 1);
	int64_t size[PD_ONNX_DIMS];
	struct array *out;
	int dims;

	(void)unused;
	if (!array_counts(shape) || shape->dims != 1 || shape->elements > PD_ONNX_DIMS ||
	    !array_broadcast(from->dims, from->size, (int)shape->elements, shape->integers, &dims, size))
		return NULL;
	out = take(f, from, dims, size);
	for (int64_t n = 0; out && n < out->elements; n++)
		array_copy(out, n, from, array_broadcast_index(from, dims, size, n));
	return out;
}

struct array *fold_slice(const struct fold *f, int unused)
{
	const struct array *from = in(f, 0);
	const struct array *const said[] = { in(f, 1), in(f, 2), in(f, 3), in(f, 4) };
	struct extent extent = extent_of(from), to = extent;
	struct array *out;
	struct part part;

	(void)unused;
	if (!extent_sliced(&extent, said, &part))
		return NULL;
	for (int d = 0; d < to.dims; d++)
		to.size[d] = (part.end[d] - part.start[d] + part.step[d] - 1) / part.step[d];
	out = take(f, from, to.dims, to.size);
	for (int64_t n = 0; out && n < out->elements; n++) {
		int64_t rest = n, i = 0, step = 1;

		for (int d = to.dims - 1; d >= 0; rest /= to.size[d], step *= from->size[d], d--)
			i += (part.start[d] + rest % to.size[d] * part.step[d]) * step;
		array_copy(out, n, from, i);
	}
	return out;
}

/* A place on an axis, perhaps counted from the end; -1: there is none. */
static int64_t place_on(int64_t place, int64_t size)
{
	return place < -size || place >= size ? -1 : place < 0 ? place + size : place;
}

struct array *fold_gather(const struct fold *f, int unused)
{
	const struct array *from = in(f, 0), *which = in(f, 1);
	int axis = array_axis(integer_of(f->node, "axis", 0), from->dims);
	struct extent to = { 0 };
	struct array *out;
	int64_t inner;

	(void)unused;
	if (axis < 0 || !array_counts(which) || from->dims - 1 + which->dims > PD_ONNX_DIMS)
		return NULL;
	for (int d = 0; d < axis; d++)
		to.size[to.dims++] = from->size[d];
	for (int d = 0; d < which->dims; d++)
		to.size[to.dims++] = which->size[d];
	for (int d = axis + 1; d < from->dims; d++)
		to.size[to.dims++] = from->size[d];
	out = take(f, from, to.dims, to.size);
	inner = array_part(from, axis + 1, from->dims);
	for (int64_t n = 0; out && n < out->elements; n++) {
		int64_t place = place_on(which->integers[n / inner % which->elements], from->size[axis]);
		int64_t outer = n / inner / which->elements;

		if (place < 0)
			return NULL;
		array_copy(out, n, from, (outer * from->size[axis] + place) * inner + n % inner);
	}
	return out;
}

struct array *fold_elements(const struct fold *f, int unused)
{
	const struct array *from = in(f, 0), *which = in(f, 1);
	int axis = array_axis(integer_of(f->node, "axis", 0), from->dims);
	struct array *out;

	(void)unused;
	if (axis < 0 || !array_counts(which) || which->dims != from->dims)
		return NULL;
	for (int d = 0; d < from->dims; d++)
		if (d != axis && which->size[d] > from->size[d])
			return NULL;
	out = take(f, from, which->dims, which->size);
	for (int64_t n = 0; out && n < out->elements; n++) {
		int64_t rest = n, i = 0, step = 1, place = place_on(which->integers[n], from->size[axis]);

		if (place < 0)
			return NULL;
		for (int d = from->dims - 1; d >= 0; rest /= which->size[d], step *= from->size[d], d--)
			i += (d == axis ? place : rest % which->size[d]) * step;
		array_copy(out, n, from, i);
	}
	return out;
}

/* Each row of the indices, along their last axis, is a place on the first axes. */
struct array *fold_points(const struct fold *f, int unused)
{
	const struct array *from = in(f, 0), *which = in(f, 1);
	int64_t named = which && which->dims > 0 ? which->size[which->dims - 1] : 0, inner;
	struct extent to = { 0 };
	struct array *out;

	(void)unused;
	if (integer_of(f->node, "batch_dims", 0) || named < 1 || named > from->dims || !array_counts(which) ||
	    which->dims - 1 + from->dims - named > PD_ONNX_DIMS)
		return NULL;
	for (int d = 0; d < which->dims - 1; d++)
		to.size[to.dims++] = which->size[d];
	for (int d = (int)named; d < from->dims; d++)
		to.size[to.dims++] = from->size[d];
	out = take(f, from, to.dims, to.size);
	inner = array_part(from, (int)named, from->dims);
	for (int64_t n = 0; out && n < out->elements; n++) {
		int64_t i = 0;

		for (int d = 0; d < named; d++) {
			int64_t place = place_on(which->integers[n / inner * named + d], from->size[d]);

			if (place < 0)
				return NULL;
			i = i * from->size[d] + place;
		}
		array_copy(out, n, from, i * inner + n % inner);
	}
	return out;
}

struct array *fold_triangle(const struct fold *f, int unused)
{
	const struct array *from = in(f, 0);
	bool upper = integer_of(f->node, "upper", 1) != 0;
	double shift = 0;
	struct array *out;

	(void)unused;
	if (from->dims < 2 || (in(f, 1) && !array_scalar(in(f, 1), &shift)))
		return NULL;
	out = take(f, from, from->dims, from->size);
	for (int64_t n = 0; out && n < out->elements; n++) {
		int64_t columns = from->size[from->dims - 1], row = n / columns % from->size[from->dims - 2];
		double right = (double)(n % columns - row) - shift;

		if (upper ? right >= 0 : right <= 0)
			array_copy(out, n, from, n);
	}
	return out;
}
