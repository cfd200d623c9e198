/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes that compute element by element, or row by row. */
#include "doors/onnx/translate.h"

#include <math.h>

/* A node whose kind has no attributes. */
static int plain(struct graph *g, const struct pd_onnx_node *node, const char *kind, json_t *attributes,
		 struct pd_error *err)
{
	const struct view *view;

	if (graph_view(g, node, 0, &view, err) < 0) {
		json_decref(attributes);
		return -1;
	}
	return translate_elements(g, node, view, kind, attributes, err);
}

int translate_curve(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	static const char *const kinds[][2] = {
		{ "Relu", "relu" }, { "Sigmoid", "sigmoid" }, { "Tanh", "tanh" }, { "HardSwish", "hardswish" },
	};

	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
		if (is_op(node, kinds[i][0]))
			return plain(g, node, kinds[i][1], NULL, err);
	return NOT_THIS;
}

bool translate_sixth(const struct pd_onnx_node *node)
{
	return fabs(number_of(node, "alpha", 0.2) - 1.0 / 6) < 1e-6 && number_of(node, "beta", 0.5) == 0.5;
}

int translate_hardsigmoid(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	if (!translate_sixth(node))
		return graph_error(node, err, "is max(0, min(1, %g x + %g)): expected x / 6 + 0.5",
				   number_of(node, "alpha", 0.2), number_of(node, "beta", 0.5));
	return plain(g, node, "hardsigmoid", NULL, err);
}

int translate_leaky_relu(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	return plain(g, node, "leaky_relu",
		     json_pack("{s:f}", "negative_slope", shortest(number_of(node, "alpha", 0.01))), err);
}

int translate_elu(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	return plain(g, node, "elu", json_pack("{s:f}", "alpha", shortest(number_of(node, "alpha", 1))), err);
}

int translate_gelu_node(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	bool curved = strcmp(text_of(node, "approximate", "none"), "tanh") == 0;

	return plain(g, node, "gelu", curved ? json_pack("{s:s}", "approximate", "tanh") : NULL, err);
}

int translate_clip(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	const struct array *least = graph_constant(g, node, 1), *most = graph_constant(g, node, 2);
	double low = -INFINITY, high = INFINITY;

	if ((node->inputs > 1 && *node->input[1] && !array_scalar(least, &low)) ||
	    (node->inputs > 2 && *node->input[2] && !array_scalar(most, &high)))
		return graph_error(node, err, "expected bounds that are constants");
	if (low != 0 || (high != 6 && high < 3e38))
		return graph_error(node, err, "has bounds %g and %g: expected 0 and 6 (relu6), or 0 alone (relu)", low,
				   high);
	return plain(g, node, high == 6 ? "relu6" : "relu", NULL, err);
}

int translate_dropout(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	const struct array *ratio = graph_constant(g, node, 1), *training = graph_constant(g, node, 2);
	double p = 0.5, on = 0;
	const struct view *view;

	if ((node->inputs > 1 && *node->input[1] && !array_scalar(ratio, &p)) ||
	    (node->inputs > 2 && *node->input[2] && !array_scalar(training, &on)))
		return graph_error(node, err, "expected a probability that is a constant");
	if (graph_view(g, node, 0, &view, err) < 0)
		return -1;
	if (on == 0 || p == 0)
		return graph_set(g, node, view);
	return translate_elements(g, node, view, "dropout", json_pack("{s:f}", "p", shortest(p)), err);
}

/* An axis that a node names, from its first input's axes; -1: there is none. */
static int named_axis(const struct pd_onnx_node *node, const struct view *view, int64_t otherwise)
{
	return array_axis(integer_of(node, "axis", otherwise), view->axes);
}

int translate_softmax(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	const struct view *view;
	int axis, dim;

	if (graph_view(g, node, 0, &view, err) < 0)
		return -1;
	axis = named_axis(node, view, -1);
	dim = axis < 0 || axis == view_samples(view) ? -1 : place_axis(view, axis);
	if (dim < 0)
		return graph_error(node, err, "is taken over the samples: expected another axis");
	return translate_rows(g, node, view, "softmax", json_pack("{s:i}", "dim", dim + 1), NULL, err);
}

/* The attributes of a normalisation over the last axes, from `axis` on; eps is taken by its key. */
static json_t *normalized(const struct pd_onnx_node *node, const struct view *view, int axis, double eps)
{
	json_t *attributes = json_pack("{s:f}", "eps", shortest(eps)), *shape = json_array();

	(void)node;
	for (int a = axis; a < view->axes; a++)
		pd_json_add(shape, json_integer(view_size(view, a)));
	if (json_array_size(shape) > 1)
		pd_json_set(attributes, "normalized_shape", json_incref(shape));
	json_decref(shape);
	return attributes;
}

/* Is input i a constant in which all are this number? */
static bool all_are(const struct graph *g, const struct pd_onnx_node *node, size_t i, double number)
{
	const struct array *constant = graph_constant(g, node, i);

	return constant && array_all(constant, number);
}

static int last_axes(const struct pd_onnx_node *node, const struct view *view, struct pd_error *err)
{
	int axis = named_axis(node, view, -1), samples = view_samples(view);

	return axis < 0 || samples >= axis ? graph_error(node, err, "normalises over the samples, too") : axis;
}

int translate_layernorm(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	const struct pd_onnx_tensor *weight = translate_whole(g, node, 1), *bias = translate_whole(g, node, 2);
	const struct view *view;
	json_t *attributes;
	int axis, layer;

	if (graph_view(g, node, 0, &view, err) < 0 || (axis = last_axes(node, view, err)) < 0)
		return -1;
	if ((!weight && !all_are(g, node, 1, 1)) || (!weight && bias) ||
	    (!bias && node->inputs > 2 && *node->input[2] && !all_are(g, node, 2, 0)))
		return graph_error(node, err, "expected scale and shift that are parameters");
	attributes = normalized(node, view, axis, number_of(node, "epsilon", 1e-5));
	if (!weight)
		pd_json_set(attributes, "elementwise_affine", json_false());
	else if (!bias)
		pd_json_set(attributes, "bias", json_false());
	if (translate_rows(g, node, view, "layernorm", attributes, &layer, err) < 0)
		return -1;
	if (weight)
		layer_parameter(g, layer, "weight", weight, NULL);
	if (bias)
		layer_parameter(g, layer, "bias", bias, NULL);
	return 0;
}

int translate_rmsnorm_node(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	const struct pd_onnx_tensor *weight = translate_whole(g, node, 1);
	const struct view *view;
	json_t *attributes;
	int axis, layer;

	if (graph_view(g, node, 0, &view, err) < 0 || (axis = last_axes(node, view, err)) < 0)
		return -1;
	if (!weight && !all_are(g, node, 1, 1))
		return graph_error(node, err, "expected a scale that is a parameter");
	attributes = normalized(node, view, axis, number_of(node, "epsilon", 1e-5));
	if (!weight)
		pd_json_set(attributes, "elementwise_affine", json_false());
	if (translate_rows(g, node, view, "rmsnorm", attributes, &layer, err) < 0)
		return -1;
	if (weight)
		layer_parameter(g, layer, "weight", weight, NULL);
	return 0;
}
