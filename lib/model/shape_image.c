/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes of layers that look at planes of pixels. */
#include "model/infer.h"

#include <inttypes.h>
#include <string.h>

static int need_plane(const struct infer *w)
{
	char text[PD_SHAPE_TEXT];

	return w->in->dims == 3 ? 0 : infer_error(w, "needs an input of three dimensions (channels x "
					       "height x width), found %s",
					       pd_shape_text(w->in, text));
}

/*
 * Sets the output's size along an axis to the number of windows that fit (floor mode).  All factors
 * are at most 2^30, so (kernel - 1) * dilation stays below 2^60.
 */
static int windows(const struct infer *w, int axis, int64_t dilation)
{
	const struct pd_layer *layer = w->layer;
	int64_t reach = (layer->kernel[axis] - 1) * dilation + 1;
	int64_t padded = w->in->size[1 + axis] + 2 * layer->padding[axis];

	if (reach > padded)
		return infer_error(w, "has a window of %s %" PRId64
				", larger than its padded input of %" PRId64,
				axis ? "width" : "height", reach, padded);
	w->layer->output.size[1 + axis] = (padded - reach) / layer->stride[axis] + 1;
	return 0;
}

int infer_conv2d(const struct infer *w)
{
	struct pd_layer *layer = w->layer;
	int64_t out = layer->out_channels;

	if (need_plane(w) < 0)
		return -1;
	if (w->in->size[0] % layer->groups || out % layer->groups)
		return infer_error(w, "has %" PRId64 " groups: expected a divisor of its %" PRId64
				" input and %" PRId64 " output channels", layer->groups,
				w->in->size[0], out);
	layer->output = (struct pd_shape){ 3, { out } };
	for (int axis = 0; axis < 2; axis++)
		if (windows(w, axis, layer->dilation[axis]) < 0)
			return -1;
	if (infer_parameter(w, "weight", 4,
			  (int64_t[]){ out, w->in->size[0] / layer->groups, layer->kernel[0],
				       layer->kernel[1] }) < 0)
		return -1;
	return layer->bias ? infer_parameter(w, "bias", 1, &out) : 0;
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

int infer_batchnorm(const struct infer *w)
{
	const int64_t *channels = w->in->size;

	w->layer->output = *w->in;
	return need_plane(w) < 0 || infer_parameter(w, "weight", 1, channels) < 0 ||
	       infer_parameter(w, "bias", 1, channels) < 0 ||
	       infer_state(w, "running_mean", 1, channels) < 0 ||
	       infer_state(w, "running_var", 1, channels) < 0 ? -1 : 0;
}

