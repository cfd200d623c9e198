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
		{ "Exp", "exp" }, { "Log", "log" }, { "Abs", "abs" }, { "Softplus", "softplus" }, { "Sin", "sin" },
		{ "Cos", "cos" }, { "Erf", "erf" },
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

/* max(0, min(1, alpha x + beta)) */
static int sloped(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	const struct view *view;
	struct view line;

	if (graph_scaled_view(g, node, 0, &view, err) < 0)
		return -1;
	line = *view;
	view_scale(&line, number_of(node, "alpha", 0.2), number_of(node, "beta", 0.5));
	return translate_elements(g, node, &line, "clamp",
				  json_pack("{s:f, s:f}", "min", 0.0, "max", 1.0), err);
}

int translate_hardsigmoid(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	if (!translate_sixth(node))
		return sloped(g, node, err);
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
	json_t *attributes;

	if ((node->inputs > 1 && *node->input[1] && !array_scalar(least, &low)) ||
	    (node->inputs > 2 && *node->input[2] && !array_scalar(most, &high)))
		return graph_error(node, err, "expected bounds that are constants");
	if (low == 0 && (high == 6 || high >= 3e38))
		return plain(g, node, high == 6 ? "relu6" : "relu", NULL, err);
	attributes = json_object();
	if (low > -3e38)
		pd_json_set(attributes, "min", json_real(shortest(low)));
	if (high < 3e38)
		pd_json_set(attributes, "max", json_real(shortest(high)));
	return plain(g, node, "clamp", attributes, err);
}

/* The node's output, as it is so far. */
static const struct view *made(const struct graph *g, const struct pd_onnx_node *node)
{
	return graph_find(g, node->output[0])->view;
}

/* Gives the node's output x by + plus of what it is so far. */
static int scaled_more(struct graph *g, const struct pd_onnx_node *node, double by, double plus)
{
	struct view out = *made(g, node);

	view_scale(&out, by, plus);
	return graph_set(g, node, &out);
}

static int power(struct graph *g, const struct pd_onnx_node *node, const struct view *view,
		 double exponent, struct pd_error *err)
{
	return translate_elements(g, node, view, "pow",
				  json_pack("{s:f}", "exponent", shortest(exponent)), err);
}

int translate_power(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	bool root = is_op(node, "Sqrt"), inverse = is_op(node, "Reciprocal");
	double exponent = root ? 0.5 : -1;
	const struct view *view;

	if (graph_view(g, node, 0, &view, err) < 0)
		return -1;
	if (!root && !inverse && !array_scalar(graph_constant(g, node, 1), &exponent))
		return graph_error(node, err, "is a power whose exponent is computed: expected a constant");
	return power(g, node, view, exponent, err);
}

/* A quotient is a product with an inverse; that of a number is one with a number. */
int translate_quotient(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	const struct view *over, *under;
	double number;

	if (node->inputs != 2 || graph_view(g, node, 1, &under, err) < 0 ||
	    power(g, node, under, -1, err) < 0)
		return node->inputs != 2 ? NOT_THIS : -1;
	if (array_scalar(graph_constant(g, node, 0), &number) && isfinite(number) &&
	    graph_constant(g, node, 0)->dims <= under->axes)
		return scaled_more(g, node, number, 0);
	return graph_view(g, node, 0, &over, err) < 0 ? -1
		: translate_pair(g, node, "mul", over, made(g, node), err);
}

/* x / (1 + |x|) */
int translate_softsign(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	const struct view *view;

	if (graph_view(g, node, 0, &view, err) < 0 ||
	    translate_elements(g, node, view, "abs", NULL, err) < 0 ||
	    scaled_more(g, node, 1, 1) < 0 || power(g, node, made(g, node), -1, err) < 0)
		return -1;
	return translate_pair(g, node, "mul", view, made(g, node), err);
}

/* x tanh(log(1 + exp(x))) */
int translate_mish(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	const struct view *view;

	if (graph_view(g, node, 0, &view, err) < 0 ||
	    translate_elements(g, node, view, "softplus", NULL, err) < 0 ||
	    translate_elements(g, node, made(g, node), "tanh", NULL, err) < 0)
		return -1;
	return translate_pair(g, node, "mul", view, made(g, node), err);
}

/* An elu times a number. */
int translate_selu(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	double alpha = shortest(number_of(node, "alpha", 1.67326319));

	return plain(g, node, "elu", json_pack("{s:f}", "alpha", alpha), err) < 0 ? -1
		: scaled_more(g, node, number_of(node, "gamma", 1.05070102), 0);
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
	/* Before opset 13 it was taken over all axes from one on. */
	axis = named_axis(node, view, g->onnx->opset > 0 && g->onnx->opset < 13 ? 1 : -1);
	if (g->onnx->opset > 0 && g->onnx->opset < 13 && axis != view->axes - 1)
		return graph_error(node, err, "is taken over several axes: expected opset 13 or later");
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
	if ((!weight && !graph_constant_is(g, node, 1, 1)) || (!weight && bias) ||
	    (!bias && node->inputs > 2 && *node->input[2] && !graph_constant_is(g, node, 2, 0)))
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
	if (!weight && !graph_constant_is(g, node, 1, 1))
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
