/* SPDX-License-Identifier: Apache-2.0 */
#include "doors/onnx/view.h"

#include "base/mem.h"

#include <string.h>

#define MOST_ELEMENTS (INT64_C(1) << 48)         /* of a view */

static void begin(struct view *view, const struct view *from)
{
	*view = (struct view){ .base = from->base, .offset = from->offset };
	view_scale_as(view, from);
}

bool view_axis(struct view *view)
{
	if (view->axes == PD_ONNX_DIMS)
		return false;
	view->first[view->axes + 1] = view->first[view->axes];
	view->axes++;
	return true;
}

bool view_factor(struct view *view, int64_t size, int64_t stride)
{
	int *end = &view->first[view->axes], begins = view->first[view->axes - 1];
	struct factor *last = *end > begins ? &view->factor[*end - 1] : NULL;
	int64_t all = size;

	for (int k = 0; k < *end; k++)
		if (!pd_mul(all, view->factor[k].size, &all))
			return false;
	if (all > MOST_ELEMENTS)
		return false;
	if (size == 1 && stride != SAMPLES)
		return true;
	if (last && stride >= 0 && last->stride == stride * size) {
		last->size *= size;
		last->stride = stride;
		return true;
	}
	if (*end == MOST_FACTORS)
		return false;
	view->factor[(*end)++] = (struct factor){ size, stride };
	return true;
}

bool view_axis_of(struct view *view, const struct view *from, int axis)
{
	bool room = view_axis(view);

	for (int k = from->first[axis]; room && k < from->first[axis + 1]; k++)
		room = view_factor(view, from->factor[k].size, from->factor[k].stride);
	return room;
}

int64_t view_size(const struct view *view, int axis)
{
	int64_t size = 1;

	for (int k = view->first[axis]; k < view->first[axis + 1]; k++)
		size *= view->factor[k].size;
	return size;
}

int view_samples(const struct view *view)
{
	for (int a = 0; a < view->axes; a++)
		for (int k = view->first[a]; k < view->first[a + 1]; k++)
			if (view->factor[k].stride == SAMPLES)
				return a;
	return -1;
}

bool view_counts(const struct view *view, int axis)
{
	return view_factors(view, axis) == 1 && view->factor[view->first[axis]].stride == SAMPLES;
}

bool view_repeats(const struct view *view, int axis)
{
	for (int k = view->first[axis]; k < view->first[axis + 1]; k++)
		if (view->factor[k].stride != REPEATED)
			return false;
	return true;
}

struct extent view_extent(const struct view *view)
{
	struct extent extent = { .dims = view->axes };

	for (int a = 0; a < view->axes; a++)
		extent.size[a] = view_size(view, a);
	return extent;
}

bool view_same(const struct view *a, const struct view *b)
{
	return a->base == b->base && a->offset == b->offset && a->axes == b->axes &&
	       a->scaled == b->scaled && (!a->scaled || (a->by == b->by && a->plus == b->plus)) &&
	       memcmp(a->first, b->first, sizeof(a->first)) == 0 &&
	       memcmp(a->factor, b->factor, (size_t)a->first[a->axes] * sizeof(*a->factor)) == 0;
}

bool view_whole(struct view *view, int base, const struct extent *sample, int at, int64_t batch)
{
	int64_t stride = 1;
	bool room = true;

	*view = (struct view){ .base = base };
	for (int d = 0; d < sample->dims; d++)
		if (!pd_mul(stride, sample->size[d], &stride) || stride > MOST_ELEMENTS)
			return false;
	for (int d = 0; room && d <= sample->dims; d++) {
		if (d == at)
			room = view_axis(view) && view_factor(view, batch, SAMPLES);
		if (!room || d == sample->dims)
			break;
		stride /= sample->size[d];
		room = view_axis(view) && view_factor(view, sample->size[d], stride);
	}
	return room;
}

bool view_alike(struct view *view, int base, const struct view *like, int but, int64_t size)
{
	const struct view from = *like;
	int64_t stride = 1;

	*view = (struct view){ .base = base };
	for (int a = 0; a < from.axes; a++)
		if (!(a == but ? view_axis(view) && view_factor(view, size, 1) : view_axis_of(view, &from, a)))
			return false;
	for (int k = view->first[view->axes] - 1; k >= 0; k--) {
		if (view->factor[k].stride <= 0)
			continue;
		view->factor[k].stride = stride;
		stride *= view->factor[k].size;
	}
	return true;
}

bool view_permuted(struct view *view, const struct view *from, const int *order)
{
	begin(view, from);
	for (int a = 0; a < from->axes; a++)
		if (!view_axis_of(view, from, order[a]))
			return false;
	return true;
}

/*
 * Takes factors, of which *next_p is the first that is not taken and *left_p what is left of its size, until
 * the axis has `size`.  A factor is cut where the axis ends within it.
 */
static bool take_factors(struct view *view, const struct view *from, int *next_p, int64_t *left_p, int64_t size)
{
	int end = from->first[from->axes];
	int64_t need = size;

	while (*next_p < end) {
		const struct factor *factor = &from->factor[*next_p];
		int64_t inner, part;

		if (need == 1 && !(factor->stride == SAMPLES && factor->size == 1))
			return true;
		if (*left_p == 0)
			*left_p = factor->size;
		part = *left_p <= need ? *left_p : need;
		inner = *left_p / part;
		if (need % part != 0 || *left_p % part != 0 || (factor->stride == SAMPLES && inner != 1) ||
		    !view_factor(view, part, factor->stride > 0 ? factor->stride * inner : factor->stride))
			return false;
		need /= part;
		*left_p = inner == 1 ? 0 : inner;
		*next_p += inner == 1;
		if (need == 1)
			return true;
	}
	return need == 1;
}

bool view_reshaped(struct view *view, const struct view *from, const struct extent *to)
{
	int next = 0, end = from->first[from->axes];
	int64_t left = 0;

	begin(view, from);
	for (int d = 0; d < to->dims; d++)
		if (!view_axis(view) || !take_factors(view, from, &next, &left, to->size[d]))
			return false;
	/* One sample may be counted behind all other axes. */
	while (next < end && from->factor[next].size == 1 && view->axes > 0)
		if (!view_factor(view, 1, from->factor[next++].stride))
			return false;
	return next == end && left == 0;
}

bool view_part(struct view *view, const struct view *from, int axis, int64_t start, int64_t end)
{
	int64_t count = end - start, inner = view_size(from, axis);
	int k = from->first[axis];

	if (count == inner) {
		*view = *from;
		return true;
	}
	begin(view, from);
	for (int a = 0; a < axis; a++)
		if (!view_axis_of(view, from, a))
			return false;
	if (!view_axis(view))
		return false;
	/* Outer factors have one place each, until one has a part whose places are whole. */
	for (; k < from->first[axis + 1] && count < inner; k++) {
		const struct factor *factor = &from->factor[k];
		int64_t place, places;

		if (factor->stride == SAMPLES && factor->size == 1) {
			if (!view_factor(view, 1, SAMPLES))
				return false;
			continue;
		}
		inner /= factor->size;
		place = start / inner;
		places = start % inner == 0 && count % inner == 0 ? count / inner : 1;
		if (factor->stride == SAMPLES || (places == 1 && (end - 1) / inner != place) ||
		    !view_factor(view, places, factor->stride))
			return false;
		view->offset += place * factor->stride;
		start -= place * inner;
		end -= place * inner;
		if (count == places * inner)
			count = inner;
	}
	for (; k < from->first[axis + 1]; k++)
		if (!view_factor(view, from->factor[k].size, from->factor[k].stride))
			return false;
	for (int a = axis + 1; a < from->axes; a++)
		if (!view_axis_of(view, from, a))
			return false;
	return true;
}

bool view_inserted(struct view *view, const struct view *from, int axis)
{
	begin(view, from);
	for (int a = 0; a <= from->axes; a++)
		if ((a == axis && !view_axis(view)) || (a < from->axes && !view_axis_of(view, from, a)))
			return false;
	return true;
}

bool view_removed(struct view *view, const struct view *from, int axis)
{
	struct extent to = { 0 };

	if (view_size(from, axis) != 1)
		return false;
	for (int a = 0; a < from->axes; a++)
		if (a != axis)
			to.size[to.dims++] = view_size(from, a);
	if (to.dims == 0 && view_factors(from, axis) > 0)
		return false;
	return view_reshaped(view, from, &to);
}

bool view_expanded(struct view *view, const struct view *from, int dims, const int64_t *size)
{
	int more = dims - from->axes;

	begin(view, from);
	for (int d = 0; d < (more > 0 ? dims : from->axes); d++) {
		int a = more > 0 ? d - more : d;
		int64_t is = a < 0 ? 1 : view_size(from, a), to = more < 0 && d < -more ? 1
					: size[more < 0 ? d + more : d];

		if (to != is && to != 1 && is != 1)
			return false;
		if (is == 1 && to > 1 && (a < 0 || view_factors(from, a) == 0)) {
			if (!view_axis(view) || !view_factor(view, to, REPEATED))
				return false;
		} else if (is == 1 && to > 1) {
			return false;
		} else if (!(a < 0 ? view_axis(view) : view_axis_of(view, from, a))) {
			return false;
		}
	}
	return true;
}
