/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes that see an image: samples of channels, height and width. */
#include "doors/onnx/image.h"

#include "base/names.h"

/* Changes the size of an image to that of the windows' output. */
static int slide(const struct pd_onnx_node *node, const struct window *w, struct extent *sample,
		 struct pd_error *err)
{
	for (int d = 0; d < 2; d++) {
		int64_t room = sample->size[d + 1] + 2 * w->padding[d] - w->dilation[d] * (w->kernel[d] - 1) - 1;

		if (room < 0)
			return graph_error(node, err, "expected an image that is larger than its windows");
		if (room % w->stride[d] != 0 && integer_of(node, "ceil_mode", 0))
			return graph_error(node, err, "rounds the size of its output up (ceil_mode): layers round down");
		sample->size[d + 1] = room / w->stride[d] + 1;
	}
	return 0;
}

int translate_conv(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	const struct pd_onnx_tensor *weight, *bias;
	struct extent sample;
	const struct view *view;
	struct window w;
	int base;

	if (image_in(g, node, &view, &base, &sample, err) < 0 || image_window(node, &w, err) < 0 ||
	    image_weights(g, node, 4, &weight, &bias, err) < 0)
		return -1;
	w.kernel[0] = weight->size[2];
	w.kernel[1] = weight->size[3];
	if (slide(node, &w, &sample, err) < 0)
		return -1;
	sample.size[0] = weight->size[0];
	return image_convolve(g, node, "conv2d", base, &sample, &w, NULL, weight, bias, err);
}

/* Of pools; windows that pad more than half of themselves are refused by the kind. */
static int pool(struct graph *g, const struct pd_onnx_node *node, const char *kind, json_t *attributes,
		struct pd_error *err)
{
	struct extent sample;
	const struct view *view;
	struct window w;
	int base;

	if (image_in(g, node, &view, &base, &sample, err) < 0 || image_window(node, &w, err) < 0 ||
	    (w.dilation[0] != 1 || w.dilation[1] != 1
	     ? graph_error(node, err, "has windows with gaps (dilations): expected none") : 0) < 0 ||
	    slide(node, &w, &sample, err) < 0) {
		json_decref(attributes);
		return -1;
	}
	image_pair(attributes, "kernel", w.kernel, 0);
	if (w.stride[0] != w.kernel[0] || w.stride[1] != w.kernel[1])
		image_pair(attributes, "stride", w.stride, 0);
	image_pair(attributes, "padding", w.padding, 0);
	return image_set(g, node, layer_add_one(g, kind, node, base, &sample, attributes), &sample, err);
}

int translate_maxpool(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	if (node->outputs > 1 && *node->output[1])
		return graph_error(node, err, "says where the maxima are: expected the maxima alone");
	return pool(g, node, "maxpool2d", json_object(), err);
}

int translate_avgpool(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	bool padded = listed(node, "pads", 0, 0) || listed(node, "pads", 1, 0);
	const struct view *view;

	if (listed(node, "kernel_shape", 0, 0) == 1 && listed(node, "kernel_shape", 1, 0) == 1 && !padded &&
	    listed(node, "strides", 0, 1) == 1 && listed(node, "strides", 1, 1) == 1)
		return graph_view(g, node, 0, &view, err) < 0 ? -1 : graph_set(g, node, view);
	return pool(g, node, "avgpool2d", padded && !integer_of(node, "count_include_pad", 0)
		    ? json_pack("{s:b}", "count_include_pad", 0) : json_object(), err);
}

int translate_global_average(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	struct extent sample;
	const struct view *view;
	int base;

	if (image_in(g, node, &view, &base, &sample, err) < 0)
		return -1;
	sample.size[1] = sample.size[2] = 1;
	return image_set(g, node, layer_add_one(g, "adaptive_avgpool2d", node, base, &sample,
						json_pack("{s:i}", "output_size", 1)), &sample, err);
}

/* Leaves out axes of size 1 that were averaged. */
static int without(struct graph *g, const struct pd_onnx_node *node, const struct view *view,
		   const bool chosen[PD_ONNX_DIMS], struct pd_error *err)
{
	struct view out = *view, next;

	for (int a = view->axes - 1; a >= 0; a--) {
		if (!chosen[a])
			continue;
		if (!view_removed(&next, &out, a))
			return graph_error(node, err, "leaves no axis");
		out = next;
	}
	return graph_set(g, node, &out);
}

/* The mean along one axis, or of each channel of an image. */
int translate_mean(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	bool chosen[PD_ONNX_DIMS], channels;
	const struct view *view;
	struct extent sample;
	int base, count = 0, dim = -1, layer;
	struct view out;

	if (graph_view(g, node, 0, &view, err) < 0)
		return -1;
	if (!extent_axes(node, graph_constant(g, node, 1), view->axes, chosen))
		return graph_error(node, err, "expected axes that are constants");
	for (int a = 0; a < view->axes; a++) {
		if (!chosen[a])
			continue;
		count++;
		dim = place_axis(view, a);
		if (a == view_samples(view) || view_factors(view, a) > 1)
			return graph_error(node, err, "takes the mean over samples, or of an axis that was joined");
	}
	channels = count == 2 && view->axes == 4 && chosen[2] && chosen[3] && view_counts(view, 0);
	if (!channels && count != 1)
		return graph_error(node, err, "takes the mean over %d axes: expected one, or height and width", count);
	if (place(g, view, node, &base, &sample, err) < 0)
		return -1;
	out = *view;
	for (int a = 0; a < view->axes; a++)
		if (chosen[a]) {
			sample.size[place_axis(view, a)] = 1;
			view_alike(&out, 0, &out, a, 1);
		}
	layer = channels ? layer_add_one(g, "adaptive_avgpool2d", node, base, &sample,
					 json_pack("{s:i}", "output_size", 1))
		: layer_add_one(g, "mean", node, base, &sample,
				json_pack("{s:i, s:b}", "dim", dim + 1, "keepdim", 1));
	view_alike(&out, layer, &out, -1, 0);
	if (integer_of(node, "keepdims", 1))
		memset(chosen, 0, sizeof(chosen));
	return without(g, node, &out, chosen, err);
}

/* Shows what has only channels, or channels and one axis, as an image. */
static int as_image(struct graph *g, const struct pd_onnx_node *node, struct view *shown, struct pd_error *err)
{
	const struct view *view;
	struct view next;

	if (graph_view(g, node, 0, &view, err) < 0)
		return -1;
	if (view->axes < 2 || view->axes > 4 || !view_counts(view, 0))
		return graph_error(node, err, "expected an axis of samples, one of channels, and up to two more");
	*shown = *view;
	while (shown->axes < 4) {
		if (!view_inserted(&next, shown, 2))
			return graph_error(node, err, "has too many axes");
		*shown = next;
	}
	return 0;
}

/* A layer of a parameter of each channel of an image, which stays as it is. */
static int channel_parameter(struct graph *g, const struct pd_onnx_node *node,
			     const struct pd_onnx_tensor *tensor)
{
	struct pd_onnx_tensor *kept = pd_arena_take(&g->constants.arena, 1, sizeof(*kept));
	const struct extent each = { 3, { tensor->elements, 1, 1 } };
	int layer = layer_add_one(g, "parameter", node, g->first_input, &each,
				  json_pack("{s:[I, i, i]}", "shape", (json_int_t)tensor->elements, 1, 1));

	*kept = *tensor;
	kept->role = PD_ONNX_BUFFER;
	layer_parameter(g, layer, "weight", kept,
			json_pack("{s:[I]}", "shape", (json_int_t)tensor->elements));
	g->layers[layer].own = tensor->name;
	return layer;
}

/*
 * As eval() has it: (x - mean) / sqrt(variance + eps) weight + bias is x scale + shift, and both are of channels alone.
 * Returns the layer.
 */
static int still_batchnorm(struct graph *g, const struct pd_onnx_node *node, int base,
			   const struct extent *sample,
			   const struct pd_onnx_tensor *const tensors[4])
{
	const struct extent each = { 3, { sample->size[0], 1, 1 } };
	int mean = channel_parameter(g, node, tensors[2]), scale, shift;

	scale = layer_add_one(g, "affine", node, channel_parameter(g, node, tensors[3]), &each,
			      json_pack("{s:f}", "plus", shortest(number_of(node, "epsilon", 1e-5))));
	scale = layer_add_one(g, "pow", node, scale, &each, json_pack("{s:f}", "exponent", -0.5));
	if (tensors[0])
		scale = layer_add(g, "mul", node, 2, (int[]){ scale, channel_parameter(g, node, tensors[0]) }, &each, NULL);
	shift = layer_add(g, "mul", node, 2, (int[]){ mean, scale }, &each, NULL);
	shift = layer_add_one(g, "affine", node, shift, &each, json_pack("{s:f}", "times", -1.0));
	if (tensors[1])
		shift = layer_add(g, "add", node, 2, (int[]){ shift, channel_parameter(g, node, tensors[1]) }, &each, NULL);
	base = layer_add(g, "mul", node, 2, (int[]){ base, scale }, sample, NULL);
	return layer_add(g, "add", node, 2, (int[]){ base, shift }, sample, NULL);
}

static int batchnorm(struct graph *g, const struct pd_onnx_node *node, int base,
		     const struct extent *sample, const struct pd_onnx_tensor *const tensors[4])
{
	static const char *const names[] = { "weight", "bias", "running_mean", "running_var" };
	double kept = shortest(number_of(node, "momentum", 0.9));
	int layer = layer_add_one(g, "batchnorm2d", node, base, sample,
				  json_pack("{s:f, s:f}", "eps", shortest(number_of(node, "epsilon", 1e-5)), "momentum",
					    shortest(1 - kept)));

	if (!tensors[0]) {
		/* They begin as 1 and 0, and stay so. */
		g->layers[layer].frozen = g->layers[layer].owned = true;
		g->layers[layer].names = json_pack("{s:n, s:n}", "weight", "bias");
	}
	for (size_t i = 0; i < 4; i++)
		if (tensors[i])
			layer_parameter(g, layer, names[i], tensors[i], NULL);
	return layer;
}

int translate_batchnorm(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	const struct pd_onnx_tensor *tensors[4];
	const struct view *view;
	bool plain;
	struct view shown, out, next;
	struct extent sample;
	int base, layer;

	if (as_image(g, node, &shown, err) < 0 || graph_view(g, node, 0, &view, err) < 0 ||
	    place(g, &shown, node, &base, &sample, err) < 0)
		return -1;
	plain = graph_constant_is(g, node, 1, 1) && graph_constant_is(g, node, 2, 0);
	for (size_t i = 0; i < 4; i++) {
		tensors[i] = translate_whole(g, node, i + 1);
		if (!tensors[i] && !(plain && i < 2))
			return graph_error(node, err, "expected scale, shift, mean and variance that are parameters");
	}
	layer = (pd_names_match(g->frozen, tensors[2]->name) ? still_batchnorm : batchnorm)(g, node, base, &sample,
											    tensors);
	if (!view_whole(&out, layer, &sample, 0, g->batch))
		return graph_error(node, err, "makes too large an image");
	while (out.axes > view->axes) {
		if (!view_removed(&next, &out, 2))
			return graph_error(node, err, "has too many axes");
		out = next;
	}
	return graph_set(g, node, &out);
}
