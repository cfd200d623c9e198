/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes of layers that look at planes of pixels. */
#include "model/infer.h"

#include "base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static int need_plane(const struct infer *w)
{
	char text[PD_SHAPE_TEXT];

	return w->in->dims == 3 ? 0 : infer_error(w, "needs an input of three dimensions (channels x "
					       "height x width), found %s",
					       pd_shape_text(w->in, text));
}

/*
 * Sets the output's size along an axis to the number of windows that fit into planes (floor mode).  All
 * factors are at most 2^30, so (kernel - 1) * dilation stays below 2^60.
 */
static int windows(const struct infer *w, int axis, int64_t dilation)
{
	const struct pd_layer *layer = w->layer;
	const struct pd_shape in = pd_shape_plane(w->in);
	int64_t reach = (layer->kernel[axis] - 1) * dilation + 1;
	int64_t padded = in.size[1 + axis] + 2 * layer->padding[axis];

	if (reach > padded)
		return infer_error(w, "has a window of %s %" PRId64
				", larger than its padded input of %" PRId64,
				axis ? "width" : "height", reach, padded);
	w->layer->output.size[1 + axis] = (padded - reach) / layer->stride[axis] + 1;
	return 0;
}

/*
 * Sets the output's size along an axis to that of which a convolution makes the input.  A row more of padding
 * than its stride would be a window more.
 */
static int spread(const struct infer *w, int axis)
{
	const struct pd_layer *layer = w->layer;
	int64_t reach = (layer->kernel[axis] - 1) * layer->dilation[axis] + 1;
	int64_t size = (w->in->size[1 + axis] - 1) * layer->stride[axis] + reach +
		       layer->output_padding[axis] - 2 * layer->padding[axis];

	if (layer->output_padding[axis] >= layer->stride[axis])
		return infer_error(w, "has an output_padding of %" PRId64 ": expected less than its stride of %"
				PRId64, layer->output_padding[axis], layer->stride[axis]);
	if (size < 1)
		return infer_error(w, "has padding %" PRId64 ", which leaves none of its output's %s",
				layer->padding[axis], axis ? "width" : "height");
	w->layer->output.size[1 + axis] = size;
	return 0;
}

/*
 * A convolution of planes, or of lines, which are planes of height 1.  The weight has the channels of the one
 * end, and by groups of the other; outputs have a bias.
 */
static int infer_convolution(const struct infer *w, int64_t one, int64_t other)
{
	struct pd_layer *layer = w->layer;
	int64_t out = layer->out_channels, wide = layer->kernel[1];
	bool lines = w->in->dims == 2;

	if (w->in->size[0] % layer->groups || out % layer->groups)
		return infer_error(w, "has %" PRId64 " groups: expected a divisor of its %" PRId64
				" input and %" PRId64 " output channels", layer->groups,
				w->in->size[0], out);
	layer->output = (struct pd_shape){ 3, { out } };
	for (int axis = 0; axis < 2; axis++)
		if ((layer->transposed ? spread(w, axis) : windows(w, axis, layer->dilation[axis])) < 0)
			return -1;
	if (lines)
		layer->output = (struct pd_shape){ 2, { out, layer->output.size[2] } };
	if (infer_parameter(w, "weight", lines ? 3 : 4,
			  (int64_t[]){ one, other / layer->groups, lines ? wide : layer->kernel[0], wide }) < 0)
		return -1;
	return layer->bias ? infer_parameter(w, "bias", 1, &out) : 0;
}

int infer_conv2d(const struct infer *w)
{
	return need_plane(w) < 0 ? -1 : infer_convolution(w, w->layer->out_channels, w->in->size[0]);
}

int infer_conv_transpose2d(const struct infer *w)
{
	w->layer->transposed = true;
	return need_plane(w) < 0 ? -1 : infer_convolution(w, w->in->size[0], w->layer->out_channels);
}

int infer_conv1d(const struct infer *w)
{
	static const char *const keys[] = { "kernel", "stride", "padding", "dilation" };
	struct pd_layer *layer = w->layer;
	char text[PD_SHAPE_TEXT];

	for (size_t k = 0; k < PD_COUNT(keys); k++)
		if (json_is_array(json_object_get(w->place->value, keys[k])))
			return infer_error(w, "has a %s of two: expected one whole number", keys[k]);
	if (w->in->dims != 2)
		return infer_error(w, "needs an input of two dimensions (channels x places), found %s",
				   pd_shape_text(w->in, text));
	layer->kernel[0] = layer->stride[0] = layer->dilation[0] = 1;
	layer->padding[0] = 0;
	return infer_convolution(w, layer->out_channels, w->in->size[0]);
}

int infer_pool(const struct infer *w)
{
	struct pd_layer *layer = w->layer;

	if (need_plane(w) < 0)
		return -1;
	layer->output = *w->in;
	for (int axis = 0; axis < 2; axis++) {
		if (windows(w, axis, 1) < 0)
			return -1;
		if (2 * layer->padding[axis] > layer->kernel[axis])
			return infer_error(w, "has padding %" PRId64 ": expected at most half its "
					"kernel of %" PRId64, layer->padding[axis],
					layer->kernel[axis]);
	}
	return 0;
}

int infer_adaptive_pool(const struct infer *w)
{
	struct pd_layer *layer = w->layer;

	layer->output = *w->in;
	memcpy(&layer->output.size[1], layer->output_size, sizeof(layer->output_size));
	return need_plane(w);
}

int infer_upsample(const struct infer *w)
{
	struct pd_layer *layer = w->layer;
	bool sized = layer->output_size[0] > 0, scaled = layer->scale_factor[0] > 0 && layer->scale_factor[1] > 0;

	if (need_plane(w) < 0)
		return -1;
	if (sized == scaled)
		return infer_error(w, "needs a size or a scale_factor above 0, and not both");
	if (layer->align_corners && layer->mode != PD_RESIZE_BILINEAR)
		return infer_error(w, "has align_corners, which only mode \"bilinear\" knows");
	layer->output = *w->in;
	for (int axis = 0; axis < 2; axis++) {
		double scaled_size = floor((double)w->in->size[1 + axis] * layer->scale_factor[axis]);

		layer->output.size[1 + axis] = scaled ? (int64_t)scaled_size : layer->output_size[axis];
		if (layer->output.size[1 + axis] < 1)
			return infer_error(w, "has a scale_factor that leaves none of its output's %s",
					   axis ? "width" : "height");
	}
	return 0;
}

int infer_groupnorm(const struct infer *w)
{
	const int64_t *channels = w->in->size, groups = w->layer->num_groups;

	w->layer->output = *w->in;
	if (infer_needs_axis(w) < 0)
		return -1;
	if (*channels % groups)
		return infer_error(w, "has %" PRId64 " groups: expected a divisor of its %" PRId64
				" channels", groups, *channels);
	return w->layer->elementwise_affine && (infer_parameter(w, "weight", 1, channels) < 0 ||
						infer_parameter(w, "bias", 1, channels) < 0) ? -1 : 0;
}

int infer_prelu(const struct infer *w)
{
	int64_t count = w->layer->out_channels;
	char text[PD_SHAPE_TEXT];

	w->layer->output = *w->in;
	if (count > 1 && (w->in->dims == 0 || w->in->size[0] != count))
		return infer_error(w, "has num_parameters %" PRId64 ": expected 1, or the channels of its input "
				   "of %s", count, pd_shape_text(w->in, text));
	return infer_parameter(w, "weight", 1, &count);
}

int infer_batchnorm(const struct infer *w)
{
	const int64_t *channels = w->in->size;

	w->layer->output = *w->in;
	return need_plane(w) < 0 || infer_parameter(w, "weight", 1, channels) < 0 ||
	       infer_parameter(w, "bias", 1, channels) < 0 ||
	       infer_state(w, "running_mean", 1, channels) < 0 ||
	       infer_state(w, "running_var", 1, channels) < 0 ? -1 : 0;
}

