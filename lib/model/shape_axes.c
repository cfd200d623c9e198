/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes of layers that move elements or combine tensors, by axes. */
#include "model/infer.h"

#include "base/mem.h"

#include <inttypes.h>
#include <string.h>

/*
 * An axis as documents count them, of a shape of so many dimensions, becomes one from 0; `name` is
 * the attribute's.
 */
static int find_axis(const struct infer *w, const char *name, int dims, int64_t *axis_p)
{
	int64_t axis = *axis_p > 0 ? *axis_p - 1 : dims + *axis_p;

	if (*axis_p == 0 || axis < 0 || axis >= dims)
		return infer_error(w, "has %s %" PRId64 ": expected 1 to %d, or -1 for the last axis to "
				"-%d, since 0 is that of the samples", name, *axis_p, dims, dims);
	*axis_p = axis;
	return 0;
}

/* Two inputs, along whose axes one may have one place where the other has more. */
static int broadcast(const struct infer *w)
{
	const struct pd_shape *other = infer_input(w, 1);
	char one[PD_SHAPE_TEXT], two[PD_SHAPE_TEXT];
	struct pd_shape *out = &w->layer->output;

	for (int d = 0; d < out->dims && d < other->dims; d++)
		if (out->size[d] < other->size[d])
			out->size[d] = other->size[d];
	if (other->dims == out->dims && pd_shape_repeats(w->in, out).extent > 0 &&
	    pd_shape_repeats(other, out).extent > 0)
		return 0;
	return infer_error(w, "needs inputs of one shape, or 1 along axes side by side where the other has "
			   "more, found %s and %s", pd_shape_text(w->in, one), pd_shape_text(other, two));
}

int infer_broadcast(const struct infer *w)
{
	const struct pd_shape *other = infer_input(w, 1);

	w->layer->output = *w->in;
	w->layer->broadcasts = w->layer->input_count == 2 &&
			       (other->dims != w->in->dims ||
				memcmp(other->size, w->in->size,
				       sizeof(*other->size) * (size_t)other->dims) != 0);
	return w->layer->broadcasts ? broadcast(w) : infer_needs_alike(w, PD_NO_AXIS);
}

int infer_own(const struct infer *w)
{
	w->layer->output = w->layer->shape;
	return infer_parameter(w, "weight", w->layer->shape.dims, w->layer->shape.size);
}

int infer_concat(const struct infer *w)
{
	struct pd_layer *layer = w->layer;

	if (infer_needs_axis(w) < 0 || find_axis(w, "dim", w->in->dims, &layer->dim) < 0 ||
	    infer_needs_alike(w, layer->dim) < 0)
		return -1;
	layer->output = *w->in;
	/* each is at most 2^30 and the sum is checked every time: no overflow */
	for (int i = 1; i < layer->input_count; i++) {
		const struct pd_shape *in = infer_input(w, i);

		layer->output.size[layer->dim] += in->size[layer->dim];
		if (layer->output.size[layer->dim] > PD_MAX_EXTENT)
			return infer_error(w, "has an output of more than 2^30 along its dim");
	}
	return 0;
}

int infer_flatten(const struct infer *w)
{
	w->layer->output = (struct pd_shape){ 1, { pd_shape_elements(w->in) } };
	return w->layer->output.size[0] > PD_MAX_EXTENT
		? infer_error(w, "has an output of more than 2^30 features") : 0;
}

int infer_reshape(const struct infer *w)
{
	char in[PD_SHAPE_TEXT], out[PD_SHAPE_TEXT];
	int64_t elements = 1;

	w->layer->output = w->layer->shape;
	for (int d = 0; d < w->layer->output.dims; d++)
		if (!pd_mul(elements, w->layer->output.size[d], &elements))
			elements = -1;
	return elements == pd_shape_elements(w->in) ? 0 :
	       infer_error(w, "has the shape %s: expected one of as many elements as its input of %s",
			pd_shape_text(&w->layer->output, out), pd_shape_text(w->in, in));
}

int infer_transpose(const struct infer *w)
{
	struct pd_layer *layer = w->layer;

	layer->output = *w->in;
	if (infer_needs_axis(w) < 0 || find_axis(w, "dim0", w->in->dims, &layer->dim0) < 0 ||
	    find_axis(w, "dim1", w->in->dims, &layer->dim1) < 0)
		return -1;
	layer->output.size[layer->dim0] = w->in->size[layer->dim1];
	layer->output.size[layer->dim1] = w->in->size[layer->dim0];
	return 0;
}

int infer_slice(const struct infer *w)
{
	struct pd_layer *layer = w->layer;
	int64_t extent;

	layer->output = *w->in;
	if (infer_needs_axis(w) < 0 || find_axis(w, "dim", w->in->dims, &layer->dim) < 0)
		return -1;
	extent = w->in->size[layer->dim];
	if (layer->end == 0)            /* left out */
		layer->end = extent;
	if (layer->start >= layer->end || layer->end > extent)
		return infer_error(w, "is from %" PRId64 " to %" PRId64 ": expected a part of an axis "
				"of %" PRId64, layer->start, layer->end, extent);
	layer->output.size[layer->dim] = layer->end - layer->start;
	return 0;
}

int infer_mean(const struct infer *w)
{
	struct pd_layer *layer = w->layer;
	struct pd_shape *out = &layer->output;

	*out = *w->in;
	if (infer_needs_axis(w) < 0 || find_axis(w, "dim", w->in->dims, &layer->dim) < 0)
		return -1;
	out->size[layer->dim] = 1;
	if (layer->keepdim)
		return 0;
	out->dims--;
	memmove(&out->size[layer->dim], &out->size[layer->dim + 1],
		sizeof(*out->size) * (size_t)(out->dims - layer->dim));
	return 0;
}

int infer_softmax(const struct infer *w)
{
	w->layer->output = *w->in;
	return infer_needs_axis(w) < 0 ? -1 : find_axis(w, "dim", w->in->dims, &w->layer->dim);
}

int infer_dropout(const struct infer *w)
{
	struct pd_shape axes = w->layer->mask, *mask = &w->layer->mask;
	char text[PD_SHAPE_TEXT];

	*mask = w->layer->output = *w->in;
	for (int a = 0; a < axes.dims; a++) {
		if (find_axis(w, "shared_dim", w->in->dims, &axes.size[a]) < 0)
			return -1;
		mask->size[axes.size[a]] = 1;
	}
	return pd_shape_repeats(mask, w->in).extent > 0 ? 0 :
	       infer_error(w, "has a mask of %s: expected a shared_dim of axes side by side",
			   pd_shape_text(mask, text));
}

