/* SPDX-License-Identifier: Apache-2.0 */
#include "doors/onnx/shape.h"

#include "base/mem.h"

#include <string.h>

static int64_t elements_of(const struct extent *extent)
{
	int64_t elements = 1;

	for (int d = 0; d < extent->dims; d++)
		elements *= extent->size[d];
	return elements;
}

bool extent_reshaped(const struct extent *from, const struct array *to, bool zero_allowed,
		     struct extent *extent_p)
{
	int64_t known = 1, all = elements_of(from);
	int open = -1;

	if (to->dims != 1 || to->elements > PD_ONNX_DIMS || !array_counts(to))
		return false;
	extent_p->dims = (int)to->elements;
	for (int d = 0; d < extent_p->dims; d++) {
		int64_t size = to->integers[d];

		if (size == 0 && !zero_allowed)
			size = d < from->dims ? from->size[d] : -2;
		if (size < -1 || (size == -1 && open >= 0))
			return false;
		extent_p->size[d] = size;
		if (size == -1)
			open = d;
		else if (!pd_mul(known, size, &known))
			return false;
	}
	if (open < 0)
		return known == all;
	if (known == 0 || all % known != 0)
		return false;
	extent_p->size[open] = all / known;
	return true;
}

bool extent_axes(const struct pd_onnx_node *node, const struct array *given, int dims,
		 bool chosen[PD_ONNX_DIMS])
{
	const struct pd_onnx_attribute *axes = pd_onnx_attribute(node, "axes", PD_ONNX_INTEGERS);
	int64_t count = given ? given->elements : axes ? (int64_t)axes->count : 0;

	memset(chosen, 0, PD_ONNX_DIMS * sizeof(*chosen));
	for (int64_t i = 0; i < count; i++) {
		int axis = array_axis(given ? array_integer(given, i) : axes->integers[i], dims);

		if (axis < 0 || chosen[axis])
			return false;
		chosen[axis] = true;
	}
	return count > 0;
}

static int64_t within(int64_t place, int64_t size)
{
	if (place < 0)
		place = place < -size ? 0 : place + size;
	return place > size ? size : place;
}

bool extent_sliced(const struct extent *from, const struct array *const constants[4], struct part *part_p)
{
	const struct array *starts = constants[0], *ends = constants[1], *axes = constants[2],
		*steps = constants[3];

	for (int d = 0; d < from->dims; d++) {
		part_p->start[d] = 0;
		part_p->end[d] = from->size[d];
		part_p->step[d] = 1;
	}
	if (!starts || !ends || starts->elements != ends->elements ||
	    (axes && axes->elements != starts->elements) || (steps && steps->elements != starts->elements))
		return false;
	for (int64_t i = 0; i < starts->elements; i++) {
		int axis = array_axis(axes ? array_integer(axes, i) : i, from->dims);

		if (axis < 0)
			return false;
		part_p->start[axis] = within(array_integer(starts, i), from->size[axis]);
		part_p->end[axis] = within(array_integer(ends, i), from->size[axis]);
		part_p->step[axis] = steps ? array_integer(steps, i) : 1;
		if (part_p->step[axis] < 1)
			return false;
		if (part_p->end[axis] < part_p->start[axis])
			part_p->end[axis] = part_p->start[axis];
	}
	return true;
}
