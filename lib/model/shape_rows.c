/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes of layers that compute row by row, or element by element; and of losses. */
#include "model/infer.h"

#include <string.h>

/* Infers the output of a layer that computes element by element. */
int infer_same(const struct infer *w)
{
	w->layer->output = *w->in;
	return 0;
}

int infer_linear(const struct infer *w)
{
	struct pd_layer *layer = w->layer;
	int64_t out = layer->out_channels;

	if (infer_needs_axis(w) < 0)
		return -1;
	layer->output = *w->in;
	layer->output.size[w->in->dims - 1] = out;
	if (infer_parameter(w, "weight", 2, (int64_t[]){ out, pd_shape_width(w->in) }) < 0)
		return -1;
	return layer->bias ? infer_parameter(w, "bias", 1, &out) : 0;
}

int infer_bias(const struct infer *w)
{
	w->layer->output = *w->in;
	return infer_needs_axis(w) < 0 ||
	       infer_parameter(w, "bias", 1, (int64_t[]){ pd_shape_width(w->in) }) < 0 ? -1 : 0;
}

int infer_layernorm(const struct infer *w)
{
	struct pd_shape *shape = &w->layer->normalized_shape;
	char is[PD_SHAPE_TEXT], expected[PD_SHAPE_TEXT];
	const int64_t *last;

	w->layer->output = *w->in;
	if (infer_needs_axis(w) < 0)
		return -1;
	if (shape->dims == 0)           /* the default: the last axis */
		*shape = (struct pd_shape){ 1, { pd_shape_width(w->in) } };
	last = w->in->size + w->in->dims - shape->dims;
	if (shape->dims > w->in->dims ||
	    memcmp(shape->size, last, (size_t)shape->dims * sizeof(*last)) != 0)
		return infer_error(w, "normalises over %s: expected the last axes of its input of %s",
				pd_shape_text(shape, is), pd_shape_text(w->in, expected));
	if (!w->layer->elementwise_affine)
		return 0;
	if (infer_parameter(w, "weight", shape->dims, shape->size) < 0)
		return -1;
	return w->layer->bias ? infer_parameter(w, "bias", shape->dims, shape->size) : 0;
}

int infer_loss(const struct infer *w)
{
	const struct pd_shape *label = infer_input(w, 1);
	char logits[PD_SHAPE_TEXT], found[PD_SHAPE_TEXT];
	bool same = label->dims == w->in->dims - 1;

	if (infer_needs_axis(w) < 0)
		return -1;
	for (int d = 0; same && d < label->dims; d++)
		same = label->size[d] == w->in->size[d];
	w->layer->output = *label;
	w->layer->index_limit = pd_shape_width(w->in);
	w->layer->index_other = w->layer->ignore_index;
	return same ? 0 : infer_error(w, "needs a label for each row of its logits of %s, found labels "
				   "of %s", pd_shape_text(w->in, logits),
				   pd_shape_text(label, found));
}

int infer_mse(const struct infer *w)
{
	w->layer->output = (struct pd_shape){ 0 };
	return infer_needs_alike(w, PD_NO_AXIS);
}

