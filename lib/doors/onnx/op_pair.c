/* SPDX-License-Identifier: Apache-2.0 */
/* Sums, products, tensors side by side, and rows of parameters that are chosen. */
#include "doors/onnx/translate.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

/* Does an axis count the samples, or could it? */
static bool may_count(const struct graph *g, const struct view *view, int axis)
{
	int64_t size = view_size(view, axis);

	return view_samples(view) < 0 && view_repeats(view, axis) && (size == 1 || size == g->batch);
}

/*
 * Shows a view with `axes` axes, more of them in front, of which `samples` counts the samples, as it does in
 * what it is joined with.
 */
static int beside(struct graph *g, const struct pd_onnx_node *node, const struct view *view, int axes, int samples,
		  struct view *out, struct pd_error *err)
{
	int more = axes - view->axes;

	*out = (struct view){ .base = view->base, .offset = view->offset };
	view_scale_as(out, view);
	for (int a = 0; a < axes; a++) {
		bool counts = a == samples && (a < more ? view_samples(view) < 0 : may_count(g, view, a - more));

		if (counts ? !view_axis(out) || !view_factor(out, g->batch, SAMPLES)
			   : a < more ? !view_axis(out) : !view_axis_of(out, view, a - more))
			return graph_error(node, err, "has too many axes");
	}
	if (samples >= 0 && view_samples(out) != samples)
		return graph_error(node, err, "joins tensors whose samples are along different axes");
	return 0;
}

/* Gives a node the view of a layer that joins two; an axis that both repeat is repeated again. */
static int set_joined(struct graph *g, const struct pd_onnx_node *node, const struct view shown[2],
		      const struct view *made, struct pd_error *err)
{
	struct extent a = view_extent(&shown[0]), b = view_extent(&shown[1]), both;
	struct view out;

	if (!array_broadcast(a.dims, a.size, b.dims, b.size, &both.dims, both.size) ||
	    !view_expanded(&out, made, both.dims, both.size))
		return graph_error(node, err, "joins tensors that do not fit each other");
	return graph_set(g, node, &out);
}

int translate_pair(struct graph *g, const struct pd_onnx_node *node, const char *kind, const struct view *a,
		   const struct view *b, struct pd_error *err)
{
	int axes = a->axes > b->axes ? a->axes : b->axes, base[2], layer;
	int in_a = view_samples(a), in_b = view_samples(b);
	int samples = in_a >= 0 ? in_a + axes - a->axes : in_b >= 0 ? in_b + axes - b->axes : -1;
	struct extent sample[2], both;
	struct view shown[2], out;

	if (beside(g, node, a, axes, samples, &shown[0], err) < 0 ||
	    beside(g, node, b, axes, samples, &shown[1], err) < 0)
		return -1;
	for (int i = 0; i < 2; i++)
		if (place(g, &shown[i], node, &base[i], &sample[i], err) < 0)
			return -1;
	if (!array_broadcast(sample[0].dims, sample[0].size, sample[1].dims, sample[1].size, &both.dims, both.size) ||
	    sample[0].dims != sample[1].dims)
		return graph_error(node, err, "joins tensors that do not fit each other");
	layer = layer_add(g, kind, node, 2, base, &both, NULL);
	for (int i = 0; i < 2; i++)
		if (memcmp(sample[i].size, both.size, (size_t)both.dims * sizeof(*both.size)) == 0) {
			view_alike(&out, layer, &shown[i], -1, 0);
			return set_joined(g, node, shown, &out, err);
		}
	if (!view_whole(&out, layer, &both, samples, g->batch) || out.axes != axes)
		return graph_error(node, err, "joins tensors that do not fit each other");
	return set_joined(g, node, shown, &out, err);
}

static int pair(struct graph *g, const struct pd_onnx_node *node, const char *kind,
		struct pd_error *err)
{
	const struct view *a, *b;

	if (node->inputs != 2)
		return NOT_THIS;
	return graph_view(g, node, 0, &a, err) < 0 || graph_view(g, node, 1, &b, err) < 0
		? -1 : translate_pair(g, node, kind, a, b, err);
}

/*
 * Is it a constant with one number in all places, which does not repeat what a view of these axes shows?  Other
 * constants are arrays.
 */
static bool one_number(const struct array *constant, const struct view *view, double *number_p)
{
	if (!constant || constant->elements == 0 || constant->dims > view->axes)
		return false;
	*number_p = array_real(constant, 0);
	for (int d = 0; d < constant->dims; d++)
		if (constant->size[d] != 1 &&
		    constant->size[d] != view_size(view, view->axes - constant->dims + d))
			return false;
	return isfinite(*number_p) && array_all(constant, *number_p);
}

/* -x: no layer yet. */
int translate_negative(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	const struct view *view;
	struct view out;

	if (graph_scaled_view(g, node, 0, &view, err) < 0)
		return -1;
	out = *view;
	view_scale(&out, -1, 0);
	return graph_set(g, node, &out);
}

/* A sum or product with one number is no layer yet: more of them are one, and attention can multiply. */
int translate_scaled(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	bool less = is_op(node, "Sub"), divided = is_op(node, "Div"), sum = less || is_op(node, "Add");

	(void)err;
	for (size_t i = 0; i < (divided ? 1 : 2) && node->inputs == 2; i++) {
		const struct value *value = graph_in(g, node, i);
		struct view out;
		double number;

		if (!value || !value->view || !one_number(graph_constant(g, node, 1 - i), value->view, &number) ||
		    (divided && number == 0))
			continue;
		out = *value->view;
		if (sum)
			view_scale(&out, less && i == 1 ? -1 : 1, less && i == 0 ? -number : number);
		else
			view_scale(&out, divided ? 1 / number : number, 0);
		return graph_set(g, node, &out);
	}
	return NOT_THIS;
}

int translate_product(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	return pair(g, node, "mul", err);
}

int translate_sum(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	return pair(g, node, "add", err);
}

/* a - b: a sum with -b. */
int translate_difference(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	const struct view *a, *b;
	struct view negative;

	if (node->inputs != 2)
		return NOT_THIS;
	if (graph_view(g, node, 0, &a, err) < 0 || graph_scaled_view(g, node, 1, &b, err) < 0)
		return -1;
	negative = *b;
	view_scale(&negative, -1, 0);
	return translate_pair(g, node, "add", a, &negative, err);
}

/*
 * Does a view show rows of a parameter from the first on, one for each place of the sample's first axis?  Then
 * it is the parameter, else NULL.
 */
static const struct pd_onnx_tensor *rows_of(const struct graph *g, const struct view *view,
					    const struct extent *sample)
{
	const struct pd_onnx_tensor *tensor = graph_parameter(g, view);
	int64_t elements = 1, stride = 1;

	for (int d = 0; d < sample->dims; d++)
		elements *= sample->size[d];
	if (!tensor || view->offset != 0 || sample->dims < 2)
		return NULL;
	for (int k = view->first[view->axes] - 1; k >= 0; k--) {
		if (view->factor[k].stride == REPEATED)
			continue;
		if (view->factor[k].stride != stride)
			return NULL;
		stride *= view->factor[k].size;
	}
	if (stride != elements)
		return NULL;
	/* The last axes are those of the sample, and only samples see the same. */
	for (int d = 1; d <= sample->dims; d++)
		if (view->axes < d || view_size(view, view->axes - d) != sample->size[sample->dims - d] ||
		    (sample->size[sample->dims - d] > 1 && view_repeats(view, view->axes - d)))
			return NULL;
	return tensor;
}

int translate_positions(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	for (size_t i = 0; i < 2; i++) {
		const struct value *table = graph_in(g, node, i), *value = graph_in(g, node, 1 - i);
		const struct pd_onnx_tensor *tensor;
		struct extent sample;
		json_t *more = NULL;
		int64_t inner = 1;
		int base, layer;

		if (!table || !value || !table->view || !value->view || !graph_parameter(g, table->view) ||
		    graph_parameter(g, value->view) || value->view->axes < 1 || !view_counts(value->view, 0))
			continue;
		if (place(g, value->view, node, &base, &sample, err) < 0)
			return -1;
		tensor = rows_of(g, table->view, &sample);
		if (!tensor)
			continue;
		for (int d = 1; d < sample.dims; d++)
			inner *= sample.size[d];
		if (tensor->dims != sample.dims) {
			more = json_pack("{s:[]}", "shape");
			for (int d = 0; d < tensor->dims; d++)
				pd_json_add(json_object_get(more, "shape"), json_integer(tensor->size[d]));
		}
		if (translate_rows(g, node, value->view, "position_embedding",
				   tensor->elements / inner == sample.size[0] ? NULL
				   : json_pack("{s:I}", "num_embeddings", (json_int_t)(tensor->elements / inner)),
				   &layer, err) < 0)
			return -1;
		/* The table is looked up in a module of its own, if there is one. */
		if (table->node)
			g->layers[layer].node = table->node;
		layer_parameter(g, layer, "weight", tensor, more);
		return 0;
	}
	return NOT_THIS;
}

/* Lists the inputs of a node that have elements. */
static size_t with_elements(const struct graph *g, const struct pd_onnx_node *node, size_t *which)
{
	size_t count = 0;

	for (size_t i = 0; i < node->inputs; i++) {
		const struct value *value = graph_in(g, node, i);

		if (!value || !value->empty)
			which[count++] = i;
	}
	return count;
}

/* Places input i of a node as a part along its axis; *dim_p: which axis of the sample that is. */
static int place_part(struct graph *g, const struct pd_onnx_node *node, size_t i, int samples, int *base_p,
		      struct extent *part_p, int *dim_p, struct pd_error *err)
{
	const struct view *view;
	struct view shown;
	int axis;

	if (graph_view(g, node, i, &view, err) < 0 ||
	    beside(g, node, view, view->axes, samples, &shown, err) < 0 ||
	    place(g, &shown, node, base_p, part_p, err) < 0)
		return -1;
	axis = array_axis(integer_of(node, "axis", 0), view->axes);
	*dim_p = axis < 0 ? -1 : place_axis(&shown, axis);
	if (*dim_p < 0 || part_p->size[*dim_p] != view_size(&shown, axis) ||
	    (samples >= 0 && !view_counts(&shown, samples)))
		return graph_error(node, err, "joins tensors along the samples");
	return 0;
}

static int joined(struct graph *g, const struct pd_onnx_node *node, const size_t *which, size_t count, int *base,
		  struct pd_error *err)
{
	struct extent sample = { 0 }, part;
	int samples = -1, dim = -1, layer;
	const struct view *view;
	struct view out;

	for (size_t k = 0; k < count && samples < 0; k++) {
		if (graph_view(g, node, which[k], &view, err) < 0)
			return -1;
		samples = view_samples(view);
	}
	for (size_t k = 0; k < count; k++) {
		if (place_part(g, node, which[k], samples, &base[k], &part, &dim, err) < 0)
			return -1;
		if (k > 0 && part.dims != sample.dims)
			return graph_error(node, err, "joins tensors that do not fit each other");
		part.size[dim] += k > 0 ? sample.size[dim] : 0;
		sample = part;
	}
	layer = layer_add(g, "concat", node, (int)count, base, &sample, json_pack("{s:i}", "dim", dim + 1));
	if (!view_whole(&out, layer, &sample, samples, g->batch))
		return graph_error(node, err, "joins tensors of too many axes");
	return graph_set(g, node, &out);
}

int translate_concat(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	size_t *which = pd_calloc(node->inputs + 1, sizeof(*which)), count = with_elements(g, node, which);
	int *base = pd_calloc(node->inputs + 1, sizeof(*base)), result;
	const struct view *view;

	if (count == 0)
		result = NOT_THIS;
	else if (count > 1)
		result = joined(g, node, which, count, base, err);
	else
		result = graph_view(g, node, which[0], &view, err) < 0 ? -1 : graph_set(g, node, view);
	free(which);
	free(base);
	return result;
}

/* A tensor of one number, as wide as `sample` but along an axis. */
static int filling(struct graph *g, const struct pd_onnx_node *node, const struct extent *sample,
		   int dim, int64_t size, double number)
{
	struct extent shape = *sample;
	json_t *list = json_array();
	int layer;

	shape.size[dim] = size;
	for (int d = 0; d < shape.dims; d++)
		pd_json_add(list, json_integer(shape.size[d]));
	layer = layer_add_one(g, "parameter", node, g->first_input, &shape,
			      json_pack("{s:o}", "shape", list));
	g->layers[layer].frozen = g->layers[layer].owned = true;
	g->layers[layer].init = json_pack("{s:f}", "weight", shortest(number));
	g->layers[layer].names = json_pack("{s:n}", "weight");
	return layer;
}

/* Adds places to an axis of a sample, before and behind. */
static void pad_axis(struct graph *g, const struct pd_onnx_node *node, int *base_p,
		     struct extent *sample, int dim, const int64_t more[2], double number)
{
	int base[3], count = 0;

	if (more[0] > 0)
		base[count++] = filling(g, node, sample, dim, more[0], number);
	base[count++] = *base_p;
	if (more[1] > 0)
		base[count++] = filling(g, node, sample, dim, more[1], number);
	sample->size[dim] += more[0] + more[1];
	*base_p = layer_add(g, "concat", node, count, base, sample, json_pack("{s:i}", "dim", dim + 1));
}

/* What is added to each axis, which is a constant; only those that the third input names have any. */
static int read_pads(const struct graph *g, const struct pd_onnx_node *node, int axes,
		     int64_t pads[][2], struct pd_error *err)
{
	const struct array *given = graph_constant(g, node, 1), *which = graph_constant(g, node, 3);
	int64_t count = given ? given->elements / 2 : 0;

	if (strcmp(text_of(node, "mode", "constant"), "constant") != 0)
		return graph_error(node, err, "pads by %.20s: expected a constant", text_of(node, "mode", ""));
	if (!array_counts(given) || given->elements % 2 != 0 ||
	    (which ? which->elements : axes) != count ||
	    (!which && node->inputs > 3 && *node->input[3]))
		return graph_error(node, err, "expected pads that are constants");
	for (int64_t i = 0; i < count; i++) {
		int axis = which ? array_axis(array_integer(which, i), axes) : (int)i;

		for (int side = 0; side < 2 && axis >= 0; side++)
			pads[axis][side] = given->integers[side * count + i];
		if (axis < 0 || pads[axis][0] < 0 || pads[axis][1] < 0 || pads[axis][0] > 1 << 20 ||
		    pads[axis][1] > 1 << 20)
			return graph_error(node, err, "expected pads of its axes, from 0 to 2^20");
	}
	return 0;
}

int translate_pad(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	int64_t pads[PD_ONNX_DIMS][2] = { { 0 } };
	double number = 0;
	const struct view *view;
	struct extent sample;
	struct view out;
	int base;

	if (place_in(g, node, 0, &view, &base, &sample, err) < 0 ||
	    read_pads(g, node, view->axes, pads, err) < 0)
		return -1;
	if (node->inputs > 2 && *node->input[2] &&
	    (!array_scalar(graph_constant(g, node, 2), &number) || !(fabs(number) < 1e38)))
		return graph_error(node, err, "expected a finite constant to pad with");
	for (int a = 0; a < view->axes; a++) {
		int dim = place_axis(view, a);

		if (pads[a][0] == 0 && pads[a][1] == 0)
			continue;
		if (dim < 0 || sample.size[dim] != view_size(view, a))
			return graph_error(node, err, "pads the samples, or an axis that is repeated");
		pad_axis(g, node, &base, &sample, dim, pads[a], number);
	}
	if (view_samples(view) >= 0 && !view_counts(view, view_samples(view)))
		return graph_error(node, err, "pads what has samples beside others in one axis");
	if (!view_whole(&out, base, &sample, view_samples(view), g->batch) || out.axes != view->axes)
		return graph_error(node, err, "has too many axes");
	return graph_set(g, node, &out);
}

/* Rows of a table, by an input of the network. */
int translate_embedding(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	const struct pd_onnx_tensor *tensor = translate_whole(g, node, 0);
	const struct view *ids;
	struct extent sample;
	struct view out;
	json_t *attributes;
	int base, layer;

	if (!tensor || tensor->dims != 2 || integer_of(node, "axis", 0) != 0 || graph_constant(g, node, 1))
		return NOT_THIS;
	if (place_in(g, node, 1, &ids, &base, &sample, err) < 0)
		return -1;
	if (g->layers[base].kind || !g->layers[base].whole || sample.dims > 3)
		return graph_error(node, err, "looks up numbers that are computed: expected an input of the network, "
				   "of at most three axes beside the batch's");
	sample.size[sample.dims++] = tensor->size[1];
	attributes = json_pack("{s:I, s:I}", "num_embeddings", (json_int_t)tensor->size[0], "embedding_dim",
			       (json_int_t)tensor->size[1]);
	if (node->padding >= 0 && node->padding < tensor->size[0])
		pd_json_set(attributes, "padding_idx", json_integer(node->padding));
	layer = layer_add_one(g, "embedding", node, base, &sample, attributes);
	layer_parameter(g, layer, "weight", tensor, NULL);
	if (!view_inserted(&out, ids, ids->axes) || !view_alike(&out, layer, &out, ids->axes, tensor->size[1]))
		return graph_error(node, err, "has too many axes");
	return graph_set(g, node, &out);
}

/* It has its weights in another order than PyTorch, and without their names. */
int translate_lstm(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	(void)g;
	return graph_error(node, err, "is not read, since the file has the weights of an LSTM in another order and "
			   "without names: write the network as pd-model(5) says; --init takes a state_dict");
}
