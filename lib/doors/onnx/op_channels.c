/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes that know of channels, whatever lies behind them. */
#include "doors/onnx/image.h"

/* Sets the view of input 0, whose axes are samples, channels and others. */
static int channels(struct graph *g, const struct pd_onnx_node *node, const struct view **view_p,
		    struct pd_error *err)
{
	if (graph_view(g, node, 0, view_p, err) < 0)
		return -1;
	if ((*view_p)->axes < 2 || !view_counts(*view_p, 0))
		return graph_error(node, err, "expected axes for samples and channels, which come first");
	return 0;
}

struct line {
	int64_t stride, padding, dilation, groups;
};

static int read_line(const struct pd_onnx_node *node, struct line *line, struct pd_error *err)
{
	*line = (struct line){ listed(node, "strides", 0, 1), listed(node, "pads", 0, 0),
			       listed(node, "dilations", 0, 1), integer_of(node, "group", 1) };
	if (line->padding != listed(node, "pads", 1, 0) ||
	    strcmp(text_of(node, "auto_pad", "NOTSET"), "NOTSET") != 0)
		return graph_error(node, err, "expected the same pads at both ends");
	if (line->stride < 1 || line->stride > 1 << 30 || line->padding < 0 || line->padding > 1 << 30 ||
	    line->dilation < 1 || line->dilation > 1 << 30)
		return graph_error(node, err, "expected strides, dilations and pads up to 2^30");
	return 0;
}

static json_t *line_attributes(const struct line *line, const struct pd_onnx_tensor *weight, bool bias)
{
	json_t *attributes = json_pack("{s:I, s:I}", "out_channels", (json_int_t)weight->size[0], "kernel",
				       (json_int_t)weight->size[2]);

	if (line->stride != 1)
		pd_json_set(attributes, "stride", json_integer(line->stride));
	if (line->padding != 0)
		pd_json_set(attributes, "padding", json_integer(line->padding));
	if (line->dilation != 1)
		pd_json_set(attributes, "dilation", json_integer(line->dilation));
	if (line->groups != 1)
		pd_json_set(attributes, "groups", json_integer(line->groups));
	if (!bias)
		pd_json_set(attributes, "bias", json_false());
	return attributes;
}

/* A convolution of one axis. */
int translate_conv1d(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	const struct pd_onnx_tensor *weight = translate_whole(g, node, 1), *bias;
	struct extent sample;
	const struct view *view;
	struct line line;
	struct view out;
	int base, layer;
	int64_t room;
	bool apart;

	if (!weight || weight->dims != 3)
		return NOT_THIS;
	if (image_weights(g, node, 3, &weight, &bias, err) < 0 || channels(g, node, &view, err) < 0 ||
	    read_line(node, &line, err) < 0 || place(g, view, node, &base, &sample, err) < 0)
		return -1;
	room = sample.dims == 2 ? sample.size[1] + 2 * line.padding - line.dilation * (weight->size[2] - 1) - 1 : -1;
	if (room < 0)
		return graph_error(node, err, "expected channels and places, of these no fewer than the kernel has");
	sample = (struct extent){ 2, { weight->size[0], room / line.stride + 1 } };
	apart = bias && layer_keeps(weight) != layer_keeps(bias);
	layer = layer_add_one(g, "conv1d", node, base, &sample,
			      line_attributes(&line, weight, bias && !apart));
	layer_parameter(g, layer, "weight", weight, NULL);
	if (apart)
		layer = image_bias(g, node, layer, bias);
	else if (bias)
		layer_parameter(g, layer, "bias", bias, NULL);
	if (!view_whole(&out, layer, &sample, 0, g->batch))
		return graph_error(node, err, "makes too much");
	return graph_set(g, node, &out);
}

int translate_groupnorm(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	const struct pd_onnx_tensor *weight = translate_whole(g, node, 1), *bias = translate_whole(g, node, 2);
	const struct array *one = graph_constant(g, node, 1), *zero = graph_constant(g, node, 2);
	const struct view *view;
	json_t *attributes;
	int layer;

	if (channels(g, node, &view, err) < 0)
		return -1;
	if (!(weight && bias) && !(one && zero && array_all(one, 1) && array_all(zero, 0)))
		return graph_error(node, err, "expected scale and shift that are parameters");
	attributes = json_pack("{s:I, s:f}", "num_groups", (json_int_t)integer_of(node, "num_groups", 1), "eps",
			       shortest(number_of(node, "epsilon", 1e-5)));
	if (!weight)
		pd_json_set(attributes, "affine", json_false());
	if (translate_rows(g, node, view, "groupnorm", attributes, &layer, err) < 0)
		return -1;
	if (weight)
		layer_parameter(g, layer, "weight", weight, NULL);
	if (weight)
		layer_parameter(g, layer, "bias", bias, NULL);
	return 0;
}

/* Is a slope one number, or one for each channel of what it is joined with? */
static bool is_slope(const struct view *slope, const struct pd_onnx_tensor *tensor, const struct view *view)
{
	int axis = 1 + slope->axes - view->axes;

	return tensor && tensor->dims == 1 && slope->axes <= view->axes &&
	       (tensor->elements == 1 || (axis >= 0 && view_size(slope, axis) == tensor->elements &&
					  view_size(view, 1) == tensor->elements));
}

int translate_prelu(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	const struct view *view, *slope;
	const struct pd_onnx_tensor *tensor;
	int layer;

	if (channels(g, node, &view, err) < 0 || graph_view(g, node, 1, &slope, err) < 0)
		return -1;
	tensor = graph_parameter(g, slope);
	if (!is_slope(slope, tensor, view))
		return graph_error(node, err, "expected a slope that is a parameter, of one number or one for each "
				   "channel");
	if (translate_rows(g, node, view, "prelu", tensor->elements == 1 ? NULL
			   : json_pack("{s:I}", "num_parameters", (json_int_t)tensor->elements), &layer, err) < 0)
		return -1;
	layer_parameter(g, layer, "weight", tensor, NULL);
	return 0;
}
