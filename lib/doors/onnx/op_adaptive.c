/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adaptive pooling to a size that is no divisor, as PyTorch writes it: GatherND takes the places of all windows,
 * those behind the end of a window are set to 0, and what is left is summed, place by place, and divided.  It is
 * known by what it makes of an image of numbers.
 */
#include "doors/onnx/image.h"

#include "base/mem.h"

#include <math.h>

#define MOST_SUMMED 4096                /* places of a window */

/* Returns the node that turns an image for GatherND, which what sums or averages it leads back to, or NULL. */
static const struct pd_onnx_node *find_turned(const struct graph *g, const struct value *value)
{
	for (int depth = 0; depth < MOST_SUMMED && value; depth++) {
		const struct pd_onnx_node *node = value->constant ? NULL : value->node;

		if (!node)
			return NULL;
		if (is_op(node, "GatherND"))
			return pattern_made(g, graph_in(g, node, 0), "Transpose");
		if (!is_op(node, "Add") && !is_op(node, "Gather") && !is_op(node, "Transpose") && !is_op(node, "Where"))
			return NULL;
		value = pattern_in(g, node, is_op(node, "Where") ? 2 : 0);
	}
	return NULL;
}

/* Returns the mean of the window of an output along both axes. */
static double mean_of(const struct array *image, const int64_t out[2], int64_t y, int64_t x)
{
	const int64_t *in = &image->size[2];
	int64_t top = y * in[0] / out[0], bottom = ((y + 1) * in[0] + out[0] - 1) / out[0];
	int64_t left = x * in[1] / out[1], right = ((x + 1) * in[1] + out[1] - 1) / out[1];
	double sum = 0;

	for (int64_t r = top; r < bottom; r++)
		for (int64_t c = left; c < right; c++)
			sum += image->reals[r * in[1] + c];
	return sum / (double)((bottom - top) * (right - left));
}

static bool is_adaptive(const struct array *image, const struct array *made)
{
	if (!made || made->whole || made->dims != 4 || made->size[0] != 1 || made->size[1] != 1)
		return false;
	for (int64_t i = 0; i < made->elements; i++)
		if (fabs(made->reals[i] - mean_of(image, &made->size[2], i / made->size[3], i % made->size[3])) > 1e-5)
			return false;
	return true;
}

/* Computes the output of one image of one channel, and sets its size. */
static bool find_size(struct graph *g, const struct value *output, const struct value *image, int64_t out[2])
{
	struct constants room = { .most = g->constants.most };
	const struct array like = { .whole = false }, *made = NULL;
	struct array *is = array_new(&room, &like, 4, (int64_t[]){ 1, 1, view_size(image->view, 2),
								   view_size(image->view, 3) });
	bool found;

	for (int64_t i = 0; is && i < is->elements; i++)
		is->reals[i] = fmod(0.6180339887 * (double)(i + 1), 1);
	if (is)
		made = graph_compute(g, &room, output, image, is);
	found = is && is_adaptive(is, made);
	if (found)
		memcpy(out, &made->size[2], 2 * sizeof(*out));
	constants_release(&room);
	return found;
}

int translate_adaptive(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	const struct pd_onnx_node *turned = find_turned(g, pattern_in(g, node, 0));
	const struct value *image = turned ? graph_in(g, turned, 0) : NULL;
	const struct view *view;
	struct extent sample;
	json_t *size;
	int base;

	if (!image || !image->view || image->view->axes != 4)
		return NOT_THIS;
	if (image_in(g, turned, &view, &base, &sample, err) < 0)
		return -1;
	if (!find_size(g, graph_find(g, node->output[0]), image, &sample.size[1]))
		return graph_error(node, err, "averages parts of an image in a way that is not adaptive_avgpool2d's; for "
				   "AdaptiveAvgPool2d, write its output_size as two whole numbers");
	size = json_pack("{s:[I, I]}", "output_size", (json_int_t)sample.size[1], (json_int_t)sample.size[2]);
	return image_set(g, node, layer_add_one(g, "adaptive_avgpool2d", node, base, &sample, size), &sample, err);
}
