/* SPDX-License-Identifier: Apache-2.0 */
#include "doors/onnx/image.h"

#include <inttypes.h>

int image_in(struct graph *g, const struct pd_onnx_node *node, const struct view **view_p, int *base_p,
		 struct extent *sample_p, struct pd_error *err)
{
	if (graph_view(g, node, 0, view_p, err) < 0)
		return -1;
	if ((*view_p)->axes != 4 || !view_counts(*view_p, 0))
		return graph_error(node, err, "expected an image, with axes for samples, channels, height and width; "
				   "found %d axes", (*view_p)->axes);
	return place(g, *view_p, node, base_p, sample_p, err);
}

int image_set(struct graph *g, const struct pd_onnx_node *node, int layer, const struct extent *sample,
	      struct pd_error *err)
{
	struct view out;

	if (!view_whole(&out, layer, sample, 0, g->batch))
		return graph_error(node, err, "makes too large an image");
	return graph_set(g, node, &out);
}

void image_pair(json_t *attributes, const char *key, const int64_t pair[2], int64_t usual)
{
	if (pair[0] == pair[1] && pair[0] == usual)
		return;
	pd_json_set(attributes, key, pair[0] == pair[1] ? json_integer(pair[0])
		    : json_pack("[I, I]", (json_int_t)pair[0], (json_int_t)pair[1]));
}

int image_window(const struct pd_onnx_node *node, struct window *w, struct pd_error *err)
{
	const char *automatic = text_of(node, "auto_pad", "NOTSET");

	if (strcmp(automatic, "NOTSET") != 0 && strcmp(automatic, "VALID") != 0)
		return graph_error(node, err, "pads by auto_pad %.20s: expected numbers", automatic);
	for (size_t d = 0; d < 2; d++) {
		w->stride[d] = listed(node, "strides", d, 1);
		w->dilation[d] = listed(node, "dilations", d, 1);
		w->padding[d] = listed(node, "pads", d, 0);
		w->kernel[d] = listed(node, "kernel_shape", d, 0);
		if (listed(node, "pads", d + 2, 0) != w->padding[d])
			return graph_error(node, err, "pads %" PRId64 " on one side and %" PRId64 " on the other: "
					   "expected the same", w->padding[d], listed(node, "pads", d + 2, 0));
		if (w->stride[d] < 1 || w->dilation[d] < 1 || w->padding[d] < 0 || w->kernel[d] < 0 ||
		    w->kernel[d] > 1 << 30 || w->padding[d] > 1 << 30 || w->dilation[d] > 1 << 30 ||
		    w->stride[d] > 1 << 30)
			return graph_error(node, err, "expected kernel, strides, dilations and pads of windows");
	}
	return 0;
}

int image_weights(struct graph *g, const struct pd_onnx_node *node, int dims,
		  const struct pd_onnx_tensor **weight_p, const struct pd_onnx_tensor **bias_p,
		  struct pd_error *err)
{
	const struct array *zero = graph_constant(g, node, 2);
	bool none = node->inputs < 3 || !*node->input[2] || (zero && array_all(zero, 0));

	*weight_p = translate_whole(g, node, 1);
	*bias_p = translate_whole(g, node, 2);
	if (!*weight_p || (*weight_p)->dims != dims || (!*bias_p && !none))
		return graph_error(node, err, "expected weight and bias that are parameters");
	return 0;
}

int image_bias(struct graph *g, const struct pd_onnx_node *node, int layer,
	       const struct pd_onnx_tensor *bias)
{
	const struct extent sample = g->layers[layer].sample;
	struct extent each = sample;
	json_t *shape = json_array();
	int parameter;

	for (int d = 0; d < each.dims; d++) {
		each.size[d] = d == 0 ? bias->elements : 1;
		pd_json_add(shape, json_integer(each.size[d]));
	}
	parameter = layer_add_one(g, "parameter", node, g->first_input, &each,
				  json_pack("{s:o}", "shape", shape));
	layer_parameter(g, parameter, "weight", bias,
			json_pack("{s:[I]}", "shape", (json_int_t)bias->elements));
	g->layers[parameter].own = bias->name;
	return layer_add(g, "add", node, 2, (int[]){ layer, parameter }, &sample, NULL);
}

int image_convolve(struct graph *g, const struct pd_onnx_node *node, const char *kind, int base,
		   const struct extent *sample, const struct window *w, const int64_t more[2],
		   const struct pd_onnx_tensor *weight, const struct pd_onnx_tensor *bias, struct pd_error *err)
{
	json_t *attributes = json_pack("{s:I}", "out_channels", (json_int_t)sample->size[0]);
	int64_t groups = integer_of(node, "group", 1);
	const struct pd_onnx_tensor *behind = NULL;
	int layer;

	if (bias && layer_keeps(weight) != layer_keeps(bias)) {
		behind = bias;
		bias = NULL;
	}

	image_pair(attributes, "kernel", w->kernel, 0);
	image_pair(attributes, "stride", w->stride, 1);
	image_pair(attributes, "padding", w->padding, 0);
	if (more)
		image_pair(attributes, "output_padding", more, 0);
	image_pair(attributes, "dilation", w->dilation, 1);
	if (groups != 1)
		pd_json_set(attributes, "groups", json_integer(groups));
	if (!bias)
		pd_json_set(attributes, "bias", json_false());
	layer = layer_add_one(g, kind, node, base, sample, attributes);
	layer_parameter(g, layer, "weight", weight, NULL);
	if (bias)
		layer_parameter(g, layer, "bias", bias, NULL);
	return image_set(g, node, behind ? image_bias(g, node, layer, behind) : layer, sample, err);
}
