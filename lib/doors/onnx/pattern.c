/* SPDX-License-Identifier: Apache-2.0 */
/* Patterns of several nodes that are one kind of layer. */
#include "doors/onnx/translate.h"

#include <math.h>

/* Values pass through these as they are: types of reals make no difference. */
const struct value *pattern_origin(const struct graph *g, const struct value *value)
{
	while (value && value->node && !value->constant &&
	       (is_op(value->node, "Identity") ||
		is_op(value->node, "CastLike") ||
		(is_op(value->node, "Cast") && pd_onnx_is_float((int)integer_of(value->node, "to", 0)))))
		value = graph_in(g, value->node, 0);
	return value;
}

const struct pd_onnx_node *pattern_made(const struct graph *g, const struct value *value, const char *op)
{
	value = pattern_origin(g, value);
	return value && !value->constant && is_op(value->node, op) ? value->node : NULL;
}

const struct value *pattern_in(const struct graph *g, const struct pd_onnx_node *node, size_t i)
{
	return node ? pattern_origin(g, graph_in(g, node, i)) : NULL;
}

/* Is it this number, or near it? */
static bool pattern_number(const struct graph *g, const struct value *value, double number)
{
	double found;

	value = pattern_origin(g, value);
	return value && array_scalar(value->constant, &found) && fabs(found - number) <= 1e-6 * (1 + fabs(number));
}

static bool pattern_same(const struct graph *g, const struct value *a, const struct value *b)
{
	return a && b && pattern_origin(g, a) == pattern_origin(g, b);
}

/* Does op(x, number) make the value, in either order?  Then x, else NULL. */
static const struct value *pattern_with(const struct graph *g, const struct value *value,
					const char *op, double number)
{
	const struct pd_onnx_node *node = pattern_made(g, value, op);

	if (!node || node->inputs != 2)
		return NULL;
	if (pattern_number(g, graph_in(g, node, 1), number))
		return pattern_in(g, node, 0);
	return pattern_number(g, graph_in(g, node, 0), number) && strcmp(op, "Div") != 0 && strcmp(op, "Pow") != 0
		? pattern_in(g, node, 1) : NULL;
}

/* ReduceMean(x * x, -1) + eps, of which a root is taken: returns x. */
static const struct value *mean_square(const struct graph *g, const struct value *value, double *eps_p)
{
	const struct pd_onnx_node *sum = pattern_made(g, value, "Add"), *mean = NULL, *square;
	const struct value *root = NULL;

	for (size_t i = 0; sum && !mean && i < 2; i++) {
		const struct value *eps = pattern_in(g, sum, 1 - i);

		if (eps && array_scalar(eps->constant, eps_p))
			mean = pattern_made(g, graph_in(g, sum, i), "ReduceMean");
	}
	if (!mean || !integer_of(mean, "keepdims", 1))
		return NULL;
	root = pattern_with(g, graph_in(g, mean, 0), "Pow", 2);
	square = pattern_made(g, graph_in(g, mean, 0), "Mul");
	if (!root && square && pattern_same(g, graph_in(g, square, 0), graph_in(g, square, 1)))
		root = pattern_in(g, square, 0);
	return root && root->view && root->view->axes > 0 ? root : NULL;
}

static bool over_last_axis(const struct graph *g, const struct value *normal, int axes)
{
	const struct pd_onnx_node *sum = pattern_made(g, normal, "Add");
	bool chosen[PD_ONNX_DIMS];

	for (size_t i = 0; i < 2; i++) {
		const struct pd_onnx_node *mean = pattern_made(g, graph_in(g, sum, i), "ReduceMean");

		if (!mean || !extent_axes(mean, graph_constant(g, mean, 1), axes, chosen))
			continue;
		for (int a = 0; a < axes - 1; a++)
			if (chosen[a])
				return false;
		return true;
	}
	return false;
}

/* x / sqrt(mean(x * x) + eps), or the same with a reciprocal or a power: returns x. */
static const struct value *normalized(const struct graph *g, const struct value *value, double *eps_p)
{
	const struct pd_onnx_node *product = pattern_made(g, value, "Mul"), *quotient = pattern_made(g, value, "Div");

	for (size_t i = 0; (product || quotient) && i < (product ? 2 : 1); i++) {
		const struct pd_onnx_node *node = product ? product : quotient, *inverse, *root;
		const struct value *x = pattern_in(g, node, i), *other = graph_in(g, node, 1 - i), *square;

		inverse = pattern_made(g, other, "Reciprocal");
		root = pattern_made(g, product ? graph_in(g, inverse ? inverse : node, 0) : other, "Sqrt");
		if (product && !inverse)
			root = NULL;
		square = root ? graph_in(g, root, 0) : product ? pattern_with(g, other, "Pow", -0.5) : NULL;
		if (square && pattern_same(g, mean_square(g, square, eps_p), x) &&
		    over_last_axis(g, square, x->view->axes))
			return x;
	}
	return NULL;
}

int translate_rmsnorm(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	const struct pd_onnx_tensor *weight = NULL;
	const struct value *x = NULL;
	double eps = 0;
	int layer;

	for (size_t i = 0; i < 2 && !x && is_op(node, "Mul") && node->inputs == 2; i++) {
		weight = translate_whole(g, node, i);
		x = weight && weight->dims == 1 ? normalized(g, graph_in(g, node, 1 - i), &eps) : NULL;
	}
	if (!x) {
		weight = NULL;
		x = normalized(g, graph_find(g, node->output[0]), &eps);
	}
	if (!x || graph_parameter(g, x->view) ||
	    (weight && weight->size[0] != view_size(x->view, x->view->axes - 1)))
		return NOT_THIS;
	if (translate_rows(g, node, x->view, "rmsnorm", weight ? json_pack("{s:f}", "eps", shortest(eps))
			   : json_pack("{s:f, s:b}", "eps", shortest(eps), "elementwise_affine", 0), &layer, err) < 0)
		return -1;
	if (weight)
		layer_parameter(g, layer, "weight", weight, NULL);
	return 0;
}

/* 1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)): returns x. */
static const struct value *tanh_part(const struct graph *g, const struct value *value)
{
	const struct pd_onnx_node *curve = pattern_made(g, pattern_with(g, value, "Add", 1), "Tanh");
	const struct pd_onnx_node *sum = curve ? pattern_made(g, pattern_with(g, graph_in(g, curve, 0), "Mul",
							       0.7978845608), "Add") : NULL;

	for (size_t i = 0; sum && i < 2; i++) {
		const struct value *cube = pattern_with(g, graph_in(g, sum, i), "Mul", 0.044715);
		const struct value *x = cube ? pattern_with(g, cube, "Pow", 3) : NULL;

		if (pattern_same(g, x, graph_in(g, sum, 1 - i)))
			return x;
	}
	return NULL;
}

/* 1 + erf(x / sqrt(2)): returns x. */
static const struct value *erf_part(const struct graph *g, const struct value *value)
{
	const struct pd_onnx_node *curve = pattern_made(g, pattern_with(g, value, "Add", 1), "Erf");
	const struct value *in = curve ? graph_in(g, curve, 0) : NULL, *x;

	x = in ? pattern_with(g, in, "Div", 1.4142135624) : NULL;
	return x || !in ? x : pattern_with(g, in, "Mul", 0.7071067812);
}

/* Of x and 1 + f(x), whose product is halved: (0.5 x)(1 + f(x)), or 0.5 (x (1 + f(x))). */
static const struct value *halved(const struct graph *g, const struct pd_onnx_node *node,
				  const struct value *(*part)(const struct graph *, const struct value *))
{
	const struct value *product = pattern_with(g, graph_find(g, node->output[0]), "Mul", 0.5);
	const struct pd_onnx_node *inner = product ? pattern_made(g, product, "Mul") : NULL;

	for (size_t i = 0; i < 2; i++) {
		const struct pd_onnx_node *of = inner ? inner : node;
		const struct value *x = part(g, graph_in(g, of, 1 - i)), *other = pattern_in(g, of, i);

		if (x && pattern_same(g, x, inner ? other : pattern_with(g, other, "Mul", 0.5)))
			return x;
	}
	return NULL;
}

int translate_gelu(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	const struct value *exact, *x;

	if (node->inputs != 2)
		return NOT_THIS;
	exact = halved(g, node, erf_part);
	x = exact ? exact : halved(g, node, tanh_part);
	if (!x || !x->view)
		return NOT_THIS;
	return translate_elements(g, node, x->view, "gelu",
				  exact ? NULL : json_pack("{s:s}", "approximate", "tanh"), err);
}

/* x f(x). */
static const struct value *gated(const struct graph *g, const struct pd_onnx_node *node, const char *op)
{
	for (size_t i = 0; i < 2 && node->inputs == 2; i++) {
		const struct pd_onnx_node *gate = pattern_made(g, graph_in(g, node, i), op);
		const struct value *x = pattern_in(g, gate, 0);

		if (x && x->view && pattern_same(g, x, graph_in(g, node, 1 - i)))
			return x;
	}
	return NULL;
}

int translate_silu(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	const struct value *x = gated(g, node, "Sigmoid");

	return x ? translate_elements(g, node, x->view, "silu", NULL, err) : NOT_THIS;
}

int translate_hardswish(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	const struct value *x = gated(g, node, "HardSigmoid");

	for (size_t i = 0; x && i < 2; i++) {
		const struct pd_onnx_node *gate = pattern_made(g, graph_in(g, node, i), "HardSigmoid");

		if (gate && !translate_sixth(gate))
			return NOT_THIS;
	}
	return x ? translate_elements(g, node, x->view, "hardswish", NULL, err) : NOT_THIS;
}
