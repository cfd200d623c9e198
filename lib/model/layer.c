/* SPDX-License-Identifier: Apache-2.0 */
#include "model/layer.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

const char *const pd_layer_kind_name[PD_LAYER_KINDS + 1] = {
#define LAYER_KIND(name, inputs, attributes, what) #name,
#include "model/layer_kind.def"
#undef LAYER_KIND
	NULL
};

static const char *const kind_attributes[PD_LAYER_KINDS] = {
#define LAYER_KIND(name, inputs, attributes, what) attributes,
#include "model/layer_kind.def"
#undef LAYER_KIND
};

static const int kind_inputs[PD_LAYER_KINDS] = {
#define LAYER_KIND(name, inputs, attributes, what) inputs,
#include "model/layer_kind.def"
#undef LAYER_KIND
};

enum attribute_type { COUNT, PAIR, FLAG, REAL };

static const struct attribute {
	const char *name;
	enum attribute_type type;
	size_t at;                      /* in struct pd_layer */
	int64_t min;
	double max;
} attributes[] = {
	{ "out_channels", COUNT, offsetof(struct pd_layer, out_channels), 1, PD_MAX_EXTENT },
	{ "out_features", COUNT, offsetof(struct pd_layer, out_channels), 1, PD_MAX_EXTENT },
	{ "kernel", PAIR, offsetof(struct pd_layer, kernel), 1, PD_MAX_EXTENT },
	{ "stride", PAIR, offsetof(struct pd_layer, stride), 1, PD_MAX_EXTENT },
	{ "padding", PAIR, offsetof(struct pd_layer, padding), 0, PD_MAX_EXTENT },
	{ "dilation", PAIR, offsetof(struct pd_layer, dilation), 1, PD_MAX_EXTENT },
	{ "output_size", PAIR, offsetof(struct pd_layer, output_size), 1, PD_MAX_EXTENT },
	{ "groups", COUNT, offsetof(struct pd_layer, groups), 1, PD_MAX_EXTENT },
	{ "bias", FLAG, offsetof(struct pd_layer, bias), 0, 0 },
	{ "count_include_pad", FLAG, offsetof(struct pd_layer, count_include_pad), 0, 0 },
	{ "eps", REAL, offsetof(struct pd_layer, eps), 0, 1 },
	{ "momentum", REAL, offsetof(struct pd_layer, momentum), 0, 1 },
	/* not 1: what is kept is divided by 1 - p */
	{ "p", REAL, offsetof(struct pd_layer, p), 0, 0.999 },
};

int pd_layer_kind_find(const char *name)
{
	for (int kind = 0; kind < PD_LAYER_KINDS; kind++)
		if (strcmp(pd_layer_kind_name[kind], name) == 0)
			return kind;
	return -1;
}

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

/* [h, w], or one number for both */
static int read_pair(const struct pd_place *place, const struct attribute *attribute,
		     int64_t pair[2], struct pd_error *err)
{
	size_t count;

	if (json_is_integer(place->value)) {
		if (pd_json_int(place, attribute->min, (int64_t)attribute->max, &pair[0], err) < 0)
			return -1;
		pair[1] = pair[0];
		return 0;
	}
	if (!json_is_array(place->value) || pd_json_array(place, &count, err) < 0 || count != 2)
		return pd_place_expected(place, err, "[height, width] or one whole number for "
					 "both");
	for (size_t i = 0; i < 2; i++) {
		struct pd_place element = pd_place_index(place, i);

		if (pd_json_int(&element, attribute->min, (int64_t)attribute->max, &pair[i],
				err) < 0)
			return -1;
	}
	return 0;
}

static int read_attribute(const struct pd_place *place, const struct attribute *attribute,
			  struct pd_layer *layer, struct pd_error *err)
{
	void *at = (char *)layer + attribute->at;

	switch (attribute->type) {
	case COUNT:
		return pd_json_int(place, attribute->min, (int64_t)attribute->max, at, err);
	case PAIR:
		return read_pair(place, attribute, at, err);
	case FLAG:
		return pd_json_bool(place, at, err);
	case REAL:
		return pd_json_real(place, (double)attribute->min, attribute->max, at, err);
	}
	pd_bug("attribute \"%s\" has no type", attribute->name);
}

/* PyTorch's, where the kind has the attribute; the stride of a pool is its kernel (below). */
static void set_defaults(struct pd_layer *layer)
{
	switch (layer->kind) {
	case PD_LAYER_conv2d:
		layer->stride[0] = layer->stride[1] = layer->dilation[0] = layer->dilation[1] = 1;
		layer->groups = 1;
		layer->bias = true;
		break;
	case PD_LAYER_linear:
		layer->bias = true;
		break;
	case PD_LAYER_avgpool2d:
		layer->count_include_pad = true;
		break;
	case PD_LAYER_batchnorm2d:
		layer->eps = 1e-5;
		layer->momentum = 0.1;
		break;
	case PD_LAYER_dropout:
		layer->p = 0.5;
		break;
	default:
		break;
	}
}

static const struct attribute *find_attribute(const char *name)
{
	for (size_t a = 0; a < PD_COUNT(attributes); a++)
		if (strcmp(attributes[a].name, name) == 0)
			return &attributes[a];
	pd_bug("attribute \"%s\" of layer_kind.def is not in the table", name);
}

int pd_layer_read(const struct pd_place *place, struct pd_layer *layer, struct pd_error *err)
{
	const char *known[24] = { "name", "kind", "inputs", "shares" };
	char names[128], *rest = names, *name;
	bool required[PD_COUNT(known)] = { false };
	int count = 4;

	snprintf(names, sizeof(names), "%s", kind_attributes[layer->kind]);
	while ((name = strsep(&rest, " ")))
		if (*name) {
			size_t length = strlen(name);

			required[count] = name[length - 1] == '!';
			name[length - required[count]] = 0;
			known[count++] = name;
		}
	known[count] = NULL;
	if (pd_json_keys(place, known, err) < 0)
		return -1;
	set_defaults(layer);
	for (int k = 4; k < count; k++) {
		struct pd_place at = pd_place_key(place, known[k]);

		if ((required[k] || at.value) &&
		    read_attribute(&at, find_attribute(known[k]), layer, err) < 0)
			return -1;
	}
	if ((layer->kind == PD_LAYER_maxpool2d || layer->kind == PD_LAYER_avgpool2d) &&
	    layer->stride[0] == 0)
		memcpy(layer->stride, layer->kernel, sizeof(layer->stride));
	return 0;
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
				"label, found \"%.60s\"", pd_model_tensor_name(model, layer->inputs[1]));
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
					"(channels x height x width), found %s", pd_shape_text(in, text));
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
