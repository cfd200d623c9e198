/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes: of what a layer makes of its inputs, and of its parameters. */
#include "model/layer.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const int kind_inputs[PD_LAYER_KINDS] = {
#define LAYER_KIND(name, inputs, attributes, what) inputs,
#include "model/layer_kind.def"
#undef LAYER_KIND
};

int64_t pd_shape_elements(const struct pd_shape *shape)
{
	int64_t elements = 1;

	for (int d = 0; d < shape->dims; d++)
		elements *= shape->size[d];
	return elements;
}

const char *pd_shape_text(const struct pd_shape *shape, char *buf)
{
	size_t used = 0;

	snprintf(buf, 64, "a scalar");
	for (int d = 0; d < shape->dims; d++)
		used += (size_t)snprintf(buf + used, 64 - used, "%s%" PRId64, d ? " x " : "",
					 shape->size[d]);
	return buf;
}

/* A complaint about a layer begins with its path, kind and name. */
__attribute__((format(printf, 4, 5)))
static int complain(const struct pd_place *place, const struct pd_layer *layer,
		    struct pd_error *err, const char *fmt, ...)
{
	char text[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return pd_place_error(place, err, "%s \"%.60s\" %s", pd_layer_kind_name[layer->kind],
			      layer->name, text);
}

/* One more parameter tensor. */
static int add_parameter(const struct pd_place *place, struct pd_layer *layer, const char *name,
			 int dims, const int64_t *size, struct pd_error *err)
{
	struct pd_parameter *parameter = &layer->parameters[layer->parameter_count++];

	*parameter = (struct pd_parameter){ .name = name, .dims = dims, .elements = 1 };
	for (int d = 0; d < dims; d++) {
		parameter->size[d] = size[d];
		if (!pd_mul(parameter->elements, size[d], &parameter->elements) ||
		    parameter->elements >= PD_MAX_ELEMENTS)
			return complain(place, layer, err, "has 2^40 or more elements in its %s",
					name);
	}
	layer->parameter_elements += parameter->elements;
	return 0;
}

/*
 * Places at which a window of `kernel` fits, floor mode.  All are at most 2^30, so
 * (kernel - 1) * dilation stays below 2^60.
 */
static int windows(const struct pd_place *place, const struct pd_layer *layer, int axis,
		   int64_t in, int64_t *out_p, struct pd_error *err)
{
	int64_t dilation = layer->dilation[axis] ? layer->dilation[axis] : 1;
	int64_t reach = (layer->kernel[axis] - 1) * dilation + 1;
	int64_t padded = in + 2 * layer->padding[axis];

	if (reach > padded)
		return complain(place, layer, err, "has a window of %s %" PRId64
				", larger than its padded input of %" PRId64,
				axis ? "width" : "height", reach, padded);
	if (layer->kind != PD_LAYER_conv2d && 2 * layer->padding[axis] > layer->kernel[axis])
		return complain(place, layer, err, "has padding %" PRId64
				": expected at most half its kernel of %" PRId64,
				layer->padding[axis], layer->kernel[axis]);
	*out_p = (padded - reach) / layer->stride[axis] + 1;
	return 0;
}

static int infer_conv2d(const struct pd_place *place, struct pd_layer *layer,
			const struct pd_shape *in, struct pd_error *err)
{
	int64_t out = layer->out_channels;

	if (in->size[0] % layer->groups || out % layer->groups)
		return complain(place, layer, err, "has %" PRId64 " groups: expected a divisor of "
				"its %" PRId64 " input and %" PRId64 " output channels",
				layer->groups, in->size[0], out);
	layer->output = (struct pd_shape){ 3, { out } };
	for (int axis = 0; axis < 2; axis++)
		if (windows(place, layer, axis, in->size[1 + axis], &layer->output.size[1 + axis],
			    err) < 0)
			return -1;
	if (add_parameter(place, layer, "weight", 4,
			  (int64_t[]){ out, in->size[0] / layer->groups, layer->kernel[0],
				       layer->kernel[1] }, err) < 0)
		return -1;
	return layer->bias ? add_parameter(place, layer, "bias", 1, &out, err) : 0;
}

static int infer_linear(const struct pd_place *place, struct pd_layer *layer,
			const struct pd_shape *in, struct pd_error *err)
{
	int64_t out = layer->out_channels;

	layer->output = (struct pd_shape){ 1, { out } };
	if (add_parameter(place, layer, "weight", 2, (int64_t[]){ out, in->size[0] }, err) < 0)
		return -1;
	return layer->bias ? add_parameter(place, layer, "bias", 1, &out, err) : 0;
}

static int infer_pool(const struct pd_place *place, struct pd_layer *layer,
		      const struct pd_shape *in, struct pd_error *err)
{
	layer->output = *in;
	if (layer->kind == PD_LAYER_adaptive_avgpool2d) {
		memcpy(&layer->output.size[1], layer->output_size, sizeof(layer->output_size));
		return 0;
	}
	for (int axis = 0; axis < 2; axis++)
		if (windows(place, layer, axis, in->size[1 + axis], &layer->output.size[1 + axis],
			    err) < 0)
			return -1;
	return 0;
}

static int infer_batchnorm(const struct pd_place *place, struct pd_layer *layer,
			   const struct pd_shape *in, struct pd_error *err)
{
	layer->output = *in;
	if (add_parameter(place, layer, "weight", 1, in->size, err) < 0)
		return -1;
	return add_parameter(place, layer, "bias", 1, in->size, err);
}

/* add and concat: all inputs like the first, but for concat's first axis. */
static int infer_join(const struct pd_place *place, const struct pd_model *model,
		      struct pd_layer *layer, struct pd_error *err)
{
	bool concat = layer->kind == PD_LAYER_concat;
	const struct pd_shape *first = pd_model_shape(model, layer->inputs[0]);
	char one[64], other[64];

	if (concat && first->dims == 0)
		return complain(place, layer, err, "needs inputs of one dimension or more, found a "
				"scalar");
	layer->output = *first;
	for (int i = 1; i < layer->input_count; i++) {
		const struct pd_shape *in = pd_model_shape(model, layer->inputs[i]);
		bool same = in->dims == first->dims;

		for (int d = concat; same && d < first->dims; d++)
			same = in->size[d] == first->size[d];
		if (!same)
			return complain(place, layer, err, "needs inputs of one shape%s, found %s "
					"and %s",
					concat ? " but for the first axis" : "",
					pd_shape_text(first, one), pd_shape_text(in, other));
		/* each is at most 2^30 and the sum is checked every time: no overflow */
		layer->output.size[0] += concat ? in->size[0] : 0;
		if (layer->output.size[0] > PD_MAX_EXTENT)
			return complain(place, layer, err, "has an output of more than 2^30 "
					"channels");
	}
	return 0;
}

static int infer_loss(const struct pd_place *place, const struct pd_model *model,
		      struct pd_layer *layer, struct pd_error *err)
{
	const struct pd_shape *logits = pd_model_shape(model, layer->inputs[0]);
	const struct pd_shape *label = pd_model_shape(model, layer->inputs[1]);
	char text[64];

	if (logits->dims != 1)
		return complain(place, layer, err, "needs logits of one dimension, found %s: add a "
				"flatten layer", pd_shape_text(logits, text));
	if (pd_model_dtype(model, layer->inputs[1]) != PD_I32 || label->dims != 0)
		return complain(place, layer, err, "needs a scalar i32 input of the model as its "
				"label, found \"%.60s\"",
				pd_model_tensor_name(model, layer->inputs[1]));
	layer->output = (struct pd_shape){ 0 };
	return 0;
}

/* How many inputs, and that numbers that are labels are used only as such. */
static int check_inputs(const struct pd_place *place, const struct pd_model *model,
			const struct pd_layer *layer, struct pd_error *err)
{
	struct pd_place inputs = pd_place_key(place, "inputs");
	int expected = kind_inputs[layer->kind];

	if (expected < 0 ? layer->input_count < 2 : layer->input_count != expected)
		return pd_place_error(&inputs, err, "expected %s%.0d input%s for %s, found %d",
				      expected < 0 ? "two or more" : "",
				      expected < 0 ? 0 : expected,
				      expected == 1 ? "" : "s", pd_layer_kind_name[layer->kind],
				      layer->input_count);
	for (int i = 0; i < layer->input_count; i++)
		if (pd_model_dtype(model, layer->inputs[i]) == PD_I32 &&
		    !(layer->kind == PD_LAYER_softmax_cross_entropy && i == 1))
			return complain(place, layer, err, "cannot take \"%.60s\": an i32 input "
					"can only be the label of a softmax_cross_entropy",
					pd_model_tensor_name(model, layer->inputs[i]));
	return 0;
}

static int infer_flatten(const struct pd_place *place, struct pd_layer *layer,
			 const struct pd_shape *in, struct pd_error *err)
{
	layer->output = (struct pd_shape){ 1, { pd_shape_elements(in) } };
	if (layer->output.size[0] > PD_MAX_EXTENT)
		return complain(place, layer, err, "has an output of more than 2^30 features");
	return 0;
}

static int check_elements(const struct pd_place *place, const struct pd_layer *layer,
			  struct pd_error *err)
{
	int64_t elements = 1;
	char text[64];

	for (int d = 0; d < layer->output.dims; d++)
		if (layer->output.size[d] > PD_MAX_EXTENT ||
		    !pd_mul(elements, layer->output.size[d], &elements) ||
		    elements >= PD_MAX_ELEMENTS)
			return complain(place, layer, err, "has an output of %s: expected at most "
					"2^30 along an axis and fewer than 2^40 elements",
					pd_shape_text(&layer->output, text));
	return 0;
}

static int infer(const struct pd_place *place, const struct pd_model *model,
		 struct pd_layer *layer, struct pd_error *err)
{
	const struct pd_shape *in = pd_model_shape(model, layer->inputs[0]);
	char text[64];

	switch (layer->kind) {
	case PD_LAYER_conv2d:
	case PD_LAYER_maxpool2d:
	case PD_LAYER_avgpool2d:
	case PD_LAYER_adaptive_avgpool2d:
	case PD_LAYER_batchnorm2d:
		if (in->dims != 3)
			return complain(place, layer, err, "needs an input of three dimensions "
					"(channels x height x width), found %s",
					pd_shape_text(in, text));
		if (layer->kind == PD_LAYER_conv2d)
			return infer_conv2d(place, layer, in, err);
		if (layer->kind == PD_LAYER_batchnorm2d)
			return infer_batchnorm(place, layer, in, err);
		return infer_pool(place, layer, in, err);
	case PD_LAYER_linear:
		if (in->dims != 1)
			return complain(place, layer, err, "needs an input of one dimension, found "
					"%s: add a flatten layer", pd_shape_text(in, text));
		return infer_linear(place, layer, in, err);
	case PD_LAYER_add:
	case PD_LAYER_concat:
		return infer_join(place, model, layer, err);
	case PD_LAYER_flatten:
		return infer_flatten(place, layer, in, err);
	case PD_LAYER_softmax_cross_entropy:
		return infer_loss(place, model, layer, err);
	default:                        /* element by element */
		layer->output = *in;
		return 0;
	}
}

int pd_layer_infer(const struct pd_place *place, const struct pd_model *model,
		   struct pd_layer *layer, struct pd_error *err)
{
	if (check_inputs(place, model, layer, err) < 0 || infer(place, model, layer, err) < 0)
		return -1;
	return check_elements(place, layer, err);
}
