/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes that make images larger. */
#include "doors/onnx/image.h"

int translate_conv_transpose(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	const struct pd_onnx_tensor *weight, *bias;
	int64_t groups = integer_of(node, "group", 1), more[2];
	struct extent sample;
	const struct view *view;
	struct window w;
	int base;

	if (image_in(g, node, &view, &base, &sample, err) < 0 || image_window(node, &w, err) < 0 ||
	    image_weights(g, node, 4, &weight, &bias, err) < 0)
		return -1;
	if (pd_onnx_attribute(node, "output_shape", PD_ONNX_INTEGERS))
		return graph_error(node, err, "says its output_shape: expected output_padding");
	for (size_t d = 0; d < 2; d++) {
		w.kernel[d] = weight->size[d + 2];
		more[d] = listed(node, "output_padding", d, 0);
		sample.size[d + 1] = (sample.size[d + 1] - 1) * w.stride[d] - 2 * w.padding[d] +
				     w.dilation[d] * (w.kernel[d] - 1) + 1 + more[d];
		if (more[d] < 0 || more[d] > 1 << 30 || sample.size[d + 1] < 1 || sample.size[d + 1] > 1 << 30 ||
		    groups < 1 || groups > 1 << 30)
			return graph_error(node, err, "expected an image of 1 to 2^30 rows and columns");
	}
	sample.size[0] = weight->size[1] * groups;
	return image_convolve(g, node, "conv_transpose2d", base, &sample, &w, more, weight, bias, err);
}

/* Says how places of the output are found in the input; NULL: in none of the ways that the kind knows. */
static json_t *resize_mode(const struct pd_onnx_node *node)
{
	const char *mode = text_of(node, "mode", "nearest");
	const char *places = text_of(node, "coordinate_transformation_mode", "half_pixel");
	const char *rounded = text_of(node, "nearest_mode", "round_prefer_floor");

	if (integer_of(node, "antialias", 0) || integer_of(node, "exclude_outside", 0) ||
	    strcmp(text_of(node, "keep_aspect_ratio_policy", "stretch"), "stretch") != 0)
		return NULL;
	if (strcmp(mode, "nearest") == 0)
		return strcmp(places, "asymmetric") == 0 && strcmp(rounded, "floor") == 0 ? json_object() : NULL;
	if (strcmp(mode, "linear") != 0)
		return NULL;
	if (strcmp(places, "align_corners") == 0)
		return json_pack("{s:s, s:b}", "mode", "bilinear", "align_corners", 1);
	return strcmp(places, "half_pixel") == 0 || strcmp(places, "pytorch_half_pixel") == 0
		? json_pack("{s:s}", "mode", "bilinear") : NULL;
}

/* Sets the size of the output, or by how much it is larger: of four axes, the first two stay. */
static int resize_to(const struct graph *g, const struct pd_onnx_node *node, struct extent *sample,
		     json_t *attributes, struct pd_error *err)
{
	const struct array *scales = graph_constant(g, node, 2), *sizes = graph_constant(g, node, 3);
	const struct array *said = sizes && sizes->elements == 4 ? sizes : scales;
	int64_t to[2];
	double by[2];

	if (!said || said->elements != 4 || pd_onnx_attribute(node, "axes", PD_ONNX_INTEGERS) ||
	    array_real(said, 0) != (said == sizes ? (double)g->batch : 1) ||
	    array_real(said, 1) != (said == sizes ? (double)sample->size[0] : 1))
		return graph_error(node, err, "expected a size, or scales, of four axes that are constants, of which "
				   "samples and channels stay");
	for (int d = 0; d < 2; d++) {
		by[d] = array_real(said, d + 2);
		to[d] = said == sizes ? array_integer(sizes, d + 2) : array_cut((double)sample->size[d + 1] * by[d]);
		if (to[d] < 1 || to[d] > 1 << 30)
			return graph_error(node, err, "expected an image of 1 to 2^30 rows and columns");
		sample->size[d + 1] = to[d];
	}
	if (said == sizes)
		image_pair(attributes, "size", to, 0);
	else
		pd_json_set(attributes, "scale_factor", by[0] == by[1] ? json_real(shortest(by[0]))
			    : json_pack("[f, f]", shortest(by[0]), shortest(by[1])));
	return 0;
}

int translate_resize(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	json_t *attributes = resize_mode(node);
	struct extent sample;
	const struct view *view;
	int base;

	if (!attributes)
		return graph_error(node, err, "makes images larger as upsample does not: expected nearest, or bilinear "
				   "with or without align_corners");
	if (image_in(g, node, &view, &base, &sample, err) < 0 || resize_to(g, node, &sample, attributes, err) < 0) {
		json_decref(attributes);
		return -1;
	}
	return image_set(g, node, layer_add_one(g, "upsample", node, base, &sample, attributes), &sample, err);
}
