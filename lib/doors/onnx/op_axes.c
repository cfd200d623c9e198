/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes that move elements about, or leave some out: none of them makes a layer. */
#include "doors/onnx/translate.h"

#include "base/mem.h"

#include <inttypes.h>
#include <limits.h>

/* What a node's view becomes, or why not. */
static int set(struct graph *g, const struct pd_onnx_node *node, bool shown, const struct view *out,
	       struct pd_error *err)
{
	if (!shown)
		return graph_error(node, err, "moves axes about in a way that is not followed");
	return graph_set(g, node, out);
}

/* The type that Cast, or CastLike, makes of numbers. */
static int cast_to(const struct graph *g, const struct pd_onnx_node *node)
{
	const struct value *like = graph_in(g, node, 1);

	if (is_op(node, "Cast"))
		return (int)integer_of(node, "to", 0);
	if (like && like->constant)
		return like->constant->truth ? PD_ONNX_BOOL : like->constant->whole ? PD_ONNX_I64 : PD_ONNX_F32;
	return like && like->view && !g->layers[like->view->base].whole ? PD_ONNX_F32 : PD_ONNX_I64;
}

int translate_same(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	const struct value *from = graph_in(g, node, 0);
	int to = is_op(node, "Identity") ? PD_ONNX_F32 : cast_to(g, node);
	const struct view *view;

	if (graph_scaled_view(g, node, 0, &view, err) < 0)
		return -1;
	if (!is_op(node, "Identity") && !pd_onnx_is_float(to) &&
	    !(pd_onnx_is_integer(to) && to != PD_ONNX_BOOL && g->layers[view->base].whole))
		return graph_error(node, err, "makes %s numbers of those of %.100s: layers compute with reals",
				   pd_onnx_type_name(to), from->name);
	return graph_set(g, node, view);
}

/*
 * Shows a view in another shape.  Where it cannot, what it shows becomes a layer, which has its elements side
 * by side.
 */
static int reshape(struct graph *g, const struct pd_onnx_node *node, const struct view *view,
		   const struct extent *to, struct pd_error *err)
{
	struct view out, plain;
	struct extent sample;
	int base;

	if (view_reshaped(&out, view, to))
		return graph_set(g, node, &out);
	if (place(g, view, node, &base, &sample, err) < 0)
		return -1;
	view_alike(&plain, base, view, -1, 0);
	view_scale_as(&plain, view);
	return set(g, node, view_reshaped(&out, &plain, to), &out, err);
}

int translate_reshape(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	const struct array *shape = graph_constant(g, node, 1);
	struct extent from, to;
	const struct view *view;

	if (graph_scaled_view(g, node, 0, &view, err) < 0)
		return -1;
	from = view_extent(view);
	if (!shape || !extent_reshaped(&from, shape, integer_of(node, "allowzero", 0) != 0, &to))
		return graph_error(node, err, "has a shape that is not known before samples are: export with a "
				   "static batch, without dynamic_shapes");
	return reshape(g, node, view, &to, err);
}

int translate_flatten(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	struct extent from, to = { 2, { 1, 1 } };
	const struct view *view;
	int64_t axis;

	if (graph_scaled_view(g, node, 0, &view, err) < 0)
		return -1;
	from = view_extent(view);
	axis = integer_of(node, "axis", 1);
	axis = axis < 0 ? axis + from.dims : axis;
	for (int d = 0; d < from.dims; d++)
		to.size[d >= axis] *= from.size[d];
	return reshape(g, node, view, &to, err);
}

int translate_transpose(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	int order[PD_ONNX_DIMS];
	bool seen[PD_ONNX_DIMS] = { 0 };
	const struct view *view;
	struct view out;

	if (graph_scaled_view(g, node, 0, &view, err) < 0)
		return -1;
	for (int d = 0; d < view->axes; d++) {
		order[d] = array_axis(listed(node, "perm", (size_t)d, view->axes - 1 - d), view->axes);
		if (order[d] < 0 || seen[order[d]])
			return graph_error(node, err, "expected an order of %d axes", view->axes);
		seen[order[d]] = true;
	}
	return set(g, node, view_permuted(&out, view, order), &out, err);
}

int translate_squeeze(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	bool chosen[PD_ONNX_DIMS], named, shown = true;
	const struct view *view;
	struct view out, next;

	if (graph_scaled_view(g, node, 0, &view, err) < 0)
		return -1;
	named = extent_axes(node, graph_constant(g, node, 1), view->axes, chosen);
	if (!named && node->inputs > 1)
		return graph_error(node, err, "expected axes that are constants");
	out = *view;
	for (int a = view->axes - 1; shown && a >= 0; a--)
		if (named ? chosen[a] : view_size(view, a) == 1) {
			shown = view_removed(&next, &out, a);
			out = next;
		}
	return set(g, node, shown, &out, err);
}

int translate_unsqueeze(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	const struct pd_onnx_attribute *axes = pd_onnx_attribute(node, "axes", PD_ONNX_INTEGERS);
	const struct array *given = graph_constant(g, node, 1);
	int64_t more = given ? given->elements : axes ? (int64_t)axes->count : 0;
	bool chosen[PD_ONNX_DIMS], shown = true;
	const struct view *view;
	struct view out, next;
	int dims;

	if (graph_scaled_view(g, node, 0, &view, err) < 0)
		return -1;
	if (more > PD_ONNX_DIMS - view->axes || !extent_axes(node, given, dims = view->axes + (int)more, chosen))
		return graph_error(node, err, "expected axes that are constants");
	out = *view;
	for (int a = 0; shown && a < dims; a++)
		if (chosen[a]) {
			shown = view_inserted(&next, &out, a);
			out = next;
		}
	return set(g, node, shown, &out, err);
}

int translate_expand(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	const struct array *shape = graph_constant(g, node, 1);
	const struct view *view;
	struct view out;

	if (graph_scaled_view(g, node, 0, &view, err) < 0)
		return -1;
	if (!array_counts(shape) || shape->dims != 1 || shape->elements > PD_ONNX_DIMS)
		return graph_error(node, err, "has a shape that is not known before samples are: export with a "
				   "static batch, without dynamic_shapes");
	return set(g, node, view_expanded(&out, view, (int)shape->elements, shape->integers), &out, err);
}

/* Shows a part of an axis; what cannot be shown so becomes a layer first. */
static int show_part(struct graph *g, const struct pd_onnx_node *node, const struct view *view, int axis,
		     int64_t start, int64_t end, struct view *out, struct pd_error *err)
{
	struct extent sample;
	struct view plain;
	int base;

	if (view_part(out, view, axis, start, end))
		return 0;
	if (place(g, view, node, &base, &sample, err) < 0)
		return -1;
	view_alike(&plain, base, view, -1, 0);
	view_scale_as(&plain, view);
	return view_part(out, &plain, axis, start, end)
		? 0 : graph_error(node, err, "takes a part of an axis that has the samples in it");
}

int translate_slice(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	const struct array *said[4];
	const struct view *view;
	struct view out, next;
	struct extent from;
	struct part part;

	if (graph_scaled_view(g, node, 0, &view, err) < 0)
		return -1;
	from = view_extent(view);
	for (size_t i = 0; i < 4; i++)
		said[i] = graph_constant(g, node, i + 1);
	if (!extent_sliced(&from, said, &part))
		return graph_error(node, err, "expected a slice with constant bounds");
	out = *view;
	for (int a = 0; a < from.dims; a++) {
		if (part.step[a] != 1)
			return graph_error(node, err, "takes some places of an axis, %" PRId64 " apart: expected all",
					   part.step[a]);
		if (part.end[a] - part.start[a] == from.size[a])
			continue;
		if (part.end[a] == part.start[a]) {
			graph_find(g, node->output[0])->empty = true;
			return graph_error(node, err, "leaves nothing of an axis: expected something");
		}
		if (show_part(g, node, &out, a, part.start[a], part.end[a], &next, err) < 0)
			return -1;
		out = next;
	}
	return graph_set(g, node, &out);
}

/* Where part k of an axis that is cut begins, and ends; sizes: NULL for equal parts, or one, or all. */
static bool part_bounds(const struct array *sizes, int64_t count, int64_t size, int64_t k, int64_t *start_p,
			int64_t *end_p)
{
	int64_t each = sizes && sizes->elements == 1 && sizes->dims == 0 ? array_integer(sizes, 0)
			: sizes || count == 0 ? 0 : (size + count - 1) / count;

	*start_p = 0;
	if (each > 0) {
		if (k > size / each)
			return false;
		*start_p = k * each;
		*end_p = *start_p + each < size ? *start_p + each : size;
		return k >= 0 && *start_p < size;
	}
	if (!sizes || k < 0 || k >= sizes->elements)
		return false;
	for (int64_t i = 0; i < k; i++)
		if (array_integer(sizes, i) < 0 || !pd_add(*start_p, array_integer(sizes, i), start_p))
			return false;
	return array_integer(sizes, k) > 0 && pd_add(*start_p, array_integer(sizes, k), end_p) && *end_p <= size;
}

int translate_split(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	const struct array *sizes = graph_constant(g, node, 1);
	const struct view *view;
	int axis;

	if (graph_scaled_view(g, node, 0, &view, err) < 0)
		return -1;
	axis = array_axis(integer_of(node, "axis", 0), view->axes);
	for (size_t k = 0; axis >= 0 && k < node->outputs; k++) {
		struct view *out = pd_arena_take(&g->constants.arena, 1, sizeof(*out));
		int64_t start, end;

		if (!part_bounds(sizes, (int64_t)node->outputs, view_size(view, axis), (int64_t)k, &start, &end))
			return graph_error(node, err, "expected parts of constant sizes");
		if (show_part(g, node, view, axis, start, end, out, err) < 0)
			return -1;
		if (*node->output[k])
			graph_find(g, node->output[k])->view = out;
	}
	return axis < 0 ? graph_error(node, err, "expected an axis") : 0;
}

/* SequenceAt(SplitToSequence(x, sizes), k): one of the parts. */
int translate_part(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	const struct value *sequence = graph_in(g, node, 0);
	const struct pd_onnx_node *split = sequence && is_op(sequence->node, "SplitToSequence") ? sequence->node
												: NULL;
	const struct array *which = graph_constant(g, node, 1);
	const struct view *view;
	int64_t start, end;
	struct view out;
	int axis;

	if (!split || !which || which->elements != 1 || !integer_of(split, "keepdims", 1))
		return NOT_THIS;
	if (graph_scaled_view(g, split, 0, &view, err) < 0)
		return -1;
	axis = array_axis(integer_of(split, "axis", 0), view->axes);
	if (axis < 0 || !part_bounds(graph_constant(g, split, 1), 0, view_size(view, axis),
				     array_integer(which, 0), &start, &end))
		return graph_error(node, err, "expected parts of constant sizes");
	return show_part(g, node, view, axis, start, end, &out, err) < 0 ? -1 : graph_set(g, node, &out);
}

/* Along which axis of the indices do they count up by 1?  The others repeat; -1: they are all the same; -2: no. */
static int counting_axis(const struct array *which)
{
	int counts = -1;
	int64_t step = 1;

	for (int d = which->dims - 1; d >= 0; step *= which->size[d], d--)
		if (which->size[d] > 1 && which->integers[step] != which->integers[0]) {
			if (counts >= 0)
				return -2;
			counts = d;
		}
	step = counts < 0 ? 1 : array_part(which, counts + 1, which->dims);
	for (int64_t i = 0; i < which->elements; i++)
		if ((int64_t)((uint64_t)which->integers[i] - (uint64_t)which->integers[0]) !=
		    (counts < 0 ? 0 : i / step % which->size[counts]))
			return -2;
	return counts;
}

/* Do the indices name all places of an axis, in their order?  Then it is only seen in another shape. */
static bool names_all(const struct array *which, int64_t size)
{
	if (which->elements != size)
		return false;
	for (int64_t i = 0; i < size; i++)
		if (which->integers[i] != i)
			return false;
	return true;
}

static bool put_axes(struct view *out, const struct view *from, int axis, const struct view *part,
		     const struct array *which, int counts)
{
	*out = (struct view){ .base = part->base, .offset = part->offset };
	view_scale_as(out, part);
	if (counts < 0 && view_factors(part, axis) > 0)
		return false;
	for (int a = 0; a < axis; a++)
		if (!view_axis_of(out, from, a))
			return false;
	for (int d = 0; d < which->dims; d++)
		if (d == counts ? !view_axis_of(out, part, axis)
				: !view_axis(out) || !view_factor(out, which->size[d], REPEATED))
			return false;
	for (int a = axis + 1; a < from->axes; a++)
		if (!view_axis_of(out, from, a))
			return false;
	return true;
}

int translate_gather(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	const struct array *which = graph_constant(g, node, 1);
	const struct view *view;
	struct view out, part;
	struct extent to = { 0 };
	int64_t size, start;
	int axis, counts;

	if (graph_scaled_view(g, node, 0, &view, err) < 0)
		return -1;
	axis = array_axis(integer_of(node, "axis", 0), view->axes);
	if (axis < 0 || !array_counts(which) || which->elements < 1 || view->axes + which->dims > PD_ONNX_DIMS)
		return graph_error(node, err, "takes places of an axis that are not constants");
	size = view_size(view, axis);
	if (names_all(which, size)) {
		for (int a = 0; a < view->axes; a++)
			for (int d = 0; d < (a == axis ? which->dims : 1); d++)
				to.size[to.dims++] = a == axis ? which->size[d] : view_size(view, a);
		return reshape(g, node, view, &to, err);
	}
	counts = counting_axis(which);
	start = which->integers[0] < 0 ? which->integers[0] + size : which->integers[0];
	if (counts < -1 || start < 0 || start + (counts < 0 ? 1 : which->size[counts]) > size)
		return graph_error(node, err, "takes places of an axis in another order than they lie in");
	if (show_part(g, node, view, axis, start, start + (counts < 0 ? 1 : which->size[counts]), &part, err) < 0)
		return -1;
	return set(g, node, put_axes(&out, &part, axis, &part, which, counts), &out, err);
}
