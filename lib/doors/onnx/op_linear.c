/* SPDX-License-Identifier: Apache-2.0 */
/* Products with a weight, and their biases. */
#include "doors/onnx/translate.h"

/* How a weight lies in the file, as seen by a product over its axis `over` of two. */
enum order { ORDER_NONE, ORDER_OUT_IN, ORDER_IN_OUT };

static enum order order_of(const struct view *view, const struct pd_onnx_tensor *tensor, int over)
{
	int64_t in = view_size(view, over), out = view_size(view, !over);
	bool in_fits = in == 1 || view_factors(view, over) == 1, out_fits = out == 1 || view_factors(view, !over) == 1;
	int64_t in_stride = in == 1 ? -1 : view->factor[view->first[over]].stride;
	int64_t out_stride = out == 1 ? -1 : view->factor[view->first[!over]].stride;

	if (tensor->dims != 2 || view->offset != 0 || !in_fits || !out_fits)
		return ORDER_NONE;
	if (tensor->size[0] == out && tensor->size[1] == in && (in == 1 || in_stride == 1) &&
	    (out == 1 || out_stride == in))
		return ORDER_OUT_IN;
	if (tensor->size[0] == in && tensor->size[1] == out && (out == 1 || out_stride == 1) &&
	    (in == 1 || in_stride == out))
		return ORDER_IN_OUT;
	return ORDER_NONE;
}

/* A layer that shares its weight has the bias of the layer that owns it, or one in a layer behind it. */
static bool takes_bias(const struct graph *g, int layer, const struct pd_onnx_tensor *bias)
{
	const struct layer *of = &g->layers[layer];

	return of->shares < 0 ? of->frozen == layer_keeps(bias) : layer_owner(g, bias) == of->shares;
}

static int bias_behind(struct graph *g, const struct pd_onnx_node *node, const struct view *view,
		       const struct pd_onnx_tensor *bias, struct pd_error *err)
{
	int layer;

	if (translate_rows(g, node, view, "bias", NULL, &layer, err) < 0)
		return -1;
	layer_parameter(g, layer, "bias", bias, NULL);
	g->layers[layer].own = bias->name;
	return 0;
}

static int linear(struct graph *g, const struct pd_onnx_node *node, int over, const struct pd_onnx_tensor *bias,
		  struct pd_error *err)
{
	const struct view *view, *weight;
	const struct pd_onnx_tensor *tensor;
	struct extent sample;
	enum order order;
	int base, layer;
	struct view out;
	int64_t features;

	if (graph_view(g, node, 1, &weight, err) < 0)
		return -1;
	tensor = graph_parameter(g, weight);
	order = tensor && weight->axes == 2 ? order_of(weight, tensor, over) : ORDER_NONE;
	if (!tensor)
		return graph_error(node, err, "multiplies two activations: attention is read where it is one node, as "
				   "scaled_dot_product_attention is with opset_version=23 and in eval mode (in "
				   "transformers, attn_implementation=\"sdpa\" calls it), or softmax of products of "
				   "queries and keys, in heads, times values");
	if (order == ORDER_NONE)
		return graph_error(node, err, "multiplies with a weight that is not the whole of one parameter");
	if (place_in(g, node, 0, &view, &base, &sample, err) < 0)
		return -1;
	features = view_size(weight, !over);
	if (view->axes < 1 || sample.dims < 1 || sample.size[sample.dims - 1] != view_size(weight, over) ||
	    place_axis(view, view->axes - 1) != sample.dims - 1)
		return graph_error(node, err, "multiplies an axis with the samples in it");
	sample.size[sample.dims - 1] = features;
	layer = layer_add_one(g, "linear", node, base, &sample,
			      json_pack("{s:I}", "out_features", (json_int_t)features));
	layer_parameter(g, layer, "weight", tensor,
			order == ORDER_IN_OUT ? json_pack("{s:b}", "transpose", 1) : NULL);
	view_alike(&out, layer, view, view->axes - 1, features);
	if (bias && takes_bias(g, layer, bias)) {
		layer_parameter(g, layer, "bias", bias, NULL);
		return graph_set(g, node, &out);
	}
	pd_json_set(g->layers[layer].attributes, "bias", json_false());
	return bias ? bias_behind(g, node, &out, bias, err) : graph_set(g, node, &out);
}

int translate_linear(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	return linear(g, node, 0, NULL, err);
}

int translate_gemm(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	const struct pd_onnx_tensor *bias = translate_whole(g, node, 2);
	const struct array *constant = graph_constant(g, node, 2);
	bool none = node->inputs < 3 || !*node->input[2] || (constant && array_all(constant, 0));

	if (integer_of(node, "transA", 0) || number_of(node, "alpha", 1) != 1 || number_of(node, "beta", 1) != 1)
		return graph_error(node, err, "is transposed or multiplied: expected alpha and beta of 1, transA of 0");
	if (!none && (!bias || bias->dims != 1))
		return graph_error(node, err, "expected a bias that is a parameter");
	return linear(g, node, integer_of(node, "transB", 0) != 0, bias, err);
}

/* Is a parameter one number for each place of the last axis? */
static const struct pd_onnx_tensor *row_of(const struct graph *g, const struct pd_onnx_node *node, size_t i,
					   const struct view *other)
{
	const struct pd_onnx_tensor *tensor = translate_whole(g, node, i);

	return tensor && tensor->dims == 1 && other->axes > 0 &&
	       tensor->size[0] == view_size(other, other->axes - 1) ? tensor : NULL;
}

/* The linear layer without bias that made a value which nobody else reads, or -1. */
static int made_by_linear(const struct graph *g, const struct value *value)
{
	const struct layer *layer = &g->layers[value->view->base];

	return layer->kind && strcmp(layer->kind, "linear") == 0 && value->uses == 1 &&
	       value->node == layer->node && json_is_false(json_object_get(layer->attributes, "bias"))
		? value->view->base : -1;
}

int translate_bias(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	for (size_t i = 0; i < 2; i++) {
		const struct value *value = graph_in(g, node, 1 - i);
		const struct view *view = value ? value->view : NULL;
		const struct pd_onnx_tensor *bias = view && !graph_parameter(g, view) ? row_of(g, node, i, view) : NULL;
		int layer;

		if (!bias)
			continue;
		layer = made_by_linear(g, value);
		if (layer >= 0 && takes_bias(g, layer, bias)) {
			json_object_del(g->layers[layer].attributes, "bias");
			layer_parameter(g, layer, "bias", bias, NULL);
			return graph_set(g, node, view);
		}
		return bias_behind(g, node, view, bias, err);
	}
	return NOT_THIS;
}
