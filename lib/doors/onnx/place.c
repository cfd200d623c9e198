/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A view becomes layers: parts of axes are slices, an order is so many transposes, and reshapes come before
 * and behind.  The axes can be kept apart as the layer has them, or joined as far as they lie side by side:
 * what takes fewer layers is made.
 */
#include "doors/onnx/place.h"

#include "base/mem.h"
#include "doors/onnx/number.h"

#include <string.h>

#define MOST_AXES 4                     /* of a sample, in a model document */

int place_axis(const struct view *view, int axis)
{
	int at = 0;

	for (int a = 0; a < axis; a++)
		at += !view_counts(view, a);
	return view_counts(view, axis) ? -1 : at;
}

/* The shape of the sample, and the factors that are in it. */
static int gather(const struct view *view, struct extent *sample_p, struct factor factors[MOST_FACTORS])
{
	int count = 0;

	*sample_p = (struct extent){ 0 };
	for (int a = 0; a < view->axes; a++) {
		int64_t size = 1;

		for (int k = view->first[a]; k < view->first[a + 1]; k++) {
			const struct factor *factor = &view->factor[k];

			if (factor->stride <= 0)
				continue;
			size *= factor->size;
			if (count > 0 && factors[count - 1].stride == factor->stride * factor->size) {
				factors[count - 1].size *= factor->size;
				factors[count - 1].stride = factor->stride;
			} else {
				factors[count++] = *factor;
			}
		}
		if (place_axis(view, a) >= 0)
			sample_p->size[sample_p->dims++] = size;
	}
	return count;
}

static bool insert(struct factor factors[MOST_FACTORS], int *count_p, int at, struct factor factor)
{
	if (*count_p == MOST_FACTORS)
		return false;
	memmove(&factors[at + 1], &factors[at], (size_t)(*count_p - at) * sizeof(*factors));
	factors[at] = factor;
	++*count_p;
	return true;
}

/*
 * Cuts factors where an axis of the layer begins; an axis of which there is one place alone gets a factor of
 * size 1.  False: there are too many.
 */
static bool cut_at(int64_t stride, struct factor factors[MOST_FACTORS], int *count_p)
{
	for (int k = 0; k < *count_p; k++) {
		int64_t end = factors[k].stride * factors[k].size, outer = end / stride;

		if (stride < factors[k].stride || stride >= end)
			continue;
		if (stride == factors[k].stride || stride % factors[k].stride != 0 || end % stride != 0)
			return true;
		factors[k].size = stride / factors[k].stride;
		return insert(factors, count_p, k, (struct factor){ outer, stride });
	}
	return insert(factors, count_p, *count_p, (struct factor){ 1, stride });
}

/* Keeps the axes of the layer's output apart. */
static bool cut(const struct extent *own, struct factor factors[MOST_FACTORS], int *count_p)
{
	int64_t stride = 1;

	for (int d = own->dims - 1; d >= 0; d--) {
		if (own->size[d] > 1 && !cut_at(stride, factors, count_p))
			return false;
		stride *= own->size[d];
	}
	return true;
}

/* How factors become a tensor: one axis for each, and perhaps one more, in the order in which they lie. */
struct moves {
	int count;                      /* of axes */
	struct extent apart;            /* the layer's output, so cut */
	int64_t start[MOST_AXES + 1], end[MOST_AXES + 1];
	int at[MOST_AXES + 1];          /* where an axis is to be */
	int layers;                     /* that it takes, the last reshape included */
};

/* Sorts from the largest stride to the smallest. */
static void by_stride(const struct factor *factors, int count, int *sorted)
{
	for (int k = 0; k < count; k++) {
		int at = k;

		while (at > 0 && factors[sorted[at - 1]].stride < factors[k].stride) {
			sorted[at] = sorted[at - 1];
			at--;
		}
		sorted[at] = k;
	}
}

/* Counts the exchanges of two that an order takes. */
static int exchanges(const int *at, int count)
{
	bool seen[MOST_AXES + 1] = { 0 };
	int needed = 0;

	for (int k = 0; k < count; k++)
		for (int i = k; !seen[i]; i = at[i]) {
			needed += at[i] != k;
			seen[i] = true;
		}
	return needed;
}

static bool add_axis(struct moves *m, int64_t size, int64_t start, int64_t count)
{
	if (start + count > size || m->count == MOST_AXES)
		return false;
	m->apart.size[m->count] = size;
	m->start[m->count] = start;
	m->end[m->count++] = start + count;
	m->apart.dims = m->count;
	m->layers += count != size;
	return true;
}

/* Axes with one place stay where they are; the others stand in the order of the factors. */
static void order(const struct factor *factors, int count, const int *sorted, struct moves *m)
{
	int places[MOST_AXES], free_places = 0;

	for (int k = 0; k < m->count; k++) {
		m->at[k] = k;
		if (k < count && factors[sorted[k]].size > 1)
			places[free_places++] = k;
	}
	for (int k = 0; k < count; k++) {
		int before = 0;

		for (int i = 0; i < sorted[k]; i++)
			before += factors[i].size > 1;
		if (factors[sorted[k]].size > 1)
			m->at[k] = places[before];
	}
}

static bool same_extent(const struct extent *a, const struct extent *b)
{
	return a->dims == b->dims && memcmp(a->size, b->size, (size_t)a->dims * sizeof(*a->size)) == 0;
}

/* What moves make of the layer's output, `own`, of which the factors are to become `sample`. */
static bool plan_moves(const struct extent *own, int64_t offset, const struct factor *factors, int count,
		       const struct extent *sample, struct moves *m)
{
	struct extent end = { 0 };
	int sorted[MOST_FACTORS];
	int64_t bound = 1;

	*m = (struct moves){ 0 };
	if (count > MOST_AXES)
		return false;
	for (int d = 0; d < own->dims; d++)
		bound *= own->size[d];
	by_stride(factors, count, sorted);
	for (int k = 0; k < count; k++) {
		const struct factor *factor = &factors[sorted[k]];

		if (bound % factor->stride != 0 ||
		    !add_axis(m, bound / factor->stride, offset % bound / factor->stride, factor->size))
			return false;
		bound = factor->stride;
	}
	if (bound > 1 && !add_axis(m, bound, offset % bound, 1))
		return false;
	order(factors, count, sorted, m);
	end.dims = m->count;
	for (int k = 0; k < m->count; k++)
		end.size[m->at[k]] = m->end[k] - m->start[k];
	m->layers += exchanges(m->at, m->count);
	if (m->layers > 0)
		m->layers += !same_extent(&m->apart, own) + !same_extent(&end, sample);
	return true;
}

/* Do the elements that a view shows stand in the order in which they lie? */
static bool lies_in_order(const struct view *view)
{
	struct factor factors[MOST_FACTORS];
	struct extent unused;
	int count = gather(view, &unused, factors);

	return count == 0 || (count == 1 && factors[0].stride == 1);
}

static json_t *sizes(const struct extent *extent)
{
	json_t *list = json_array();

	for (int d = 0; d < extent->dims; d++)
		pd_json_add(list, json_integer(extent->size[d]));
	return list;
}

static int reshaped(struct graph *g, const struct pd_onnx_node *node, int base, const struct extent *to)
{
	int64_t elements = 1;

	for (int d = 0; d < g->layers[base].sample.dims; d++)
		elements *= g->layers[base].sample.size[d];
	/* One number has an axis here, whatever it has there. */
	if (same_extent(&g->layers[base].sample, to) || (to->dims == 0 && elements == 1))
		return base;
	if (to->dims == 1)
		return layer_add_one(g, "flatten", node, base, to, NULL);
	return layer_add_one(g, "reshape", node, base, to, json_pack("{s:o}", "shape", sizes(to)));
}

static int sliced(struct graph *g, const struct pd_onnx_node *node, int base, const struct moves *m)
{
	for (int d = 0; d < m->count; d++) {
		struct extent to = g->layers[base].sample;

		if (m->end[d] - m->start[d] == to.size[d])
			continue;
		to.size[d] = m->end[d] - m->start[d];
		base = layer_add_one(g, "slice", node, base, &to,
				     json_pack("{s:i, s:I, s:I}", "dim", d + 1, "start",
					       (json_int_t)m->start[d], "end", (json_int_t)m->end[d]));
	}
	return base;
}

static int transposed(struct graph *g, const struct pd_onnx_node *node, int base, struct moves *m)
{
	for (int d = 0; d < m->count; d++)
		while (m->at[d] != d) {
			struct extent to = g->layers[base].sample;
			int other = m->at[d];
			int64_t size = to.size[d];

			to.size[d] = to.size[other];
			to.size[other] = size;
			base = layer_add_one(g, "transpose", node, base, &to,
					     json_pack("{s:i, s:i}", "dim0", d + 1, "dim1", other + 1));
			m->at[d] = m->at[other];
			m->at[other] = other;
		}
	return base;
}

static int make(struct graph *g, const struct view *view, const struct pd_onnx_node *node,
		const struct extent *sample, struct pd_error *err)
{
	const struct extent own = g->layers[view->base].sample;
	struct factor factors[MOST_FACTORS];
	struct extent unused;
	struct moves joined, apart;
	int count = gather(view, &unused, factors), base = view->base;
	bool can_join, can_part;

	if (sample->dims > MOST_AXES)
		return graph_error(node, err, "needs a tensor of %d axes beside the batch's: layers have at most %d",
				   sample->dims, MOST_AXES);
	can_join = plan_moves(&own, view->offset, factors, count, sample, &joined);
	can_part = cut(&own, factors, &count) && plan_moves(&own, view->offset, factors, count, sample, &apart);
	if (!can_join && !can_part)
		return graph_error(node, err, "moves axes about in a way that slices, transposes and reshapes of "
				   "up to %d axes do not", MOST_AXES);
	if (can_part && (!can_join || apart.layers <= joined.layers))
		joined = apart;
	if (joined.layers > 0) {
		base = reshaped(g, node, base, &joined.apart);
		base = sliced(g, node, base, &joined);
		base = transposed(g, node, base, &joined);
	}
	return reshaped(g, node, base, sample);
}

/* A parameter has the shape in which it is needed, or its own: one with axes, at least. */
static const struct extent *shape_in(const struct graph *g, const struct view *view, const struct extent *sample,
				     struct extent *whole)
{
	int64_t needed = 1, all = 1;

	*whole = g->layers[view->base].sample;
	for (int d = 0; d < sample->dims; d++)
		needed *= sample->size[d];
	for (int d = 0; d < whole->dims; d++)
		all *= whole->size[d];
	if (sample->dims > 0 && sample->dims <= MOST_AXES && needed == all && lies_in_order(view))
		return sample;
	if (whole->dims == 0)
		*whole = (struct extent){ 1, { 1 } };
	return whole;
}

bool place_shows_all(const struct graph *g, const struct view *view)
{
	int64_t shown = 1, all = 1;

	for (int k = 0; k < view->first[view->axes]; k++)
		shown *= view->factor[k].stride > 0 ? view->factor[k].size : 1;
	for (int d = 0; d < g->layers[view->base].sample.dims; d++)
		all *= g->layers[view->base].sample.size[d];
	return shown == all;
}

int place_plain(struct graph *g, const struct view *view, const struct pd_onnx_node *node,
		struct view *out, struct pd_error *err)
{
	struct extent sample = g->layers[view->base].sample;
	int base = view->base, layer;
	json_t *attributes;
	bool stays;

	*out = *view;
	out->scaled = false;
	if (!view->scaled)
		return 0;
	stays = place_shows_all(g, out) && !graph_parameter(g, out);
	if (!stays && place(g, out, node, &base, &sample, err) < 0)
		return -1;
	attributes = json_pack("{s:f}", "times", shortest(view->by));
	if (view->plus != 0)
		pd_json_set(attributes, "plus", json_real(shortest(view->plus)));
	layer = layer_add_one(g, "affine", node, base, &sample, attributes);
	if (stays)
		out->base = layer;
	else
		view_alike(out, layer, view, -1, 0);
	return 0;
}

int place(struct graph *g, const struct view *view, const struct pd_onnx_node *node, int *base_p,
	  struct extent *sample_p, struct pd_error *err)
{
	struct factor unused[MOST_FACTORS];
	struct extent whole;
	struct placement *made;
	struct view own;

	if (place_plain(g, view, node, &own, err) < 0)
		return -1;
	view = &own;
	gather(&own, sample_p, unused);
	if (graph_parameter(g, view))
		layer_of_parameter(g, &own, node, shape_in(g, &own, sample_p, &whole));
	for (int p = g->layers[own.base].placed; p >= 0; p = g->placements[p].before)
		if (view_same(&g->placements[p].view, &own)) {
			*base_p = g->placements[p].layer;
			return 0;
		}
	*base_p = make(g, &own, node, sample_p, err);
	if (*base_p < 0)
		return -1;
	g->placements = pd_grow(g->placements, &g->placement_room, (size_t)g->placement_count + 1,
				sizeof(*g->placements));
	made = &g->placements[g->placement_count];
	*made = (struct placement){ own, *sample_p, *base_p, g->layers[own.base].placed };
	g->layers[own.base].placed = g->placement_count++;
	return 0;
}

int place_in(struct graph *g, const struct pd_onnx_node *node, size_t i, const struct view **view_p,
	     int *base_p, struct extent *sample_p, struct pd_error *err)
{
	return graph_view(g, node, i, view_p, err) < 0 ? -1 : place(g, *view_p, node, base_p, sample_p, err);
}
