/* SPDX-License-Identifier: Apache-2.0 */
/* This file infers the shapes of a layer's output, parameters and states from its inputs. */
#include "model/layer.h"

#include "base/mem.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A layer whose shapes are being worked out. */
struct work {
	const struct pd_place *place;
	const struct pd_model *model;
	struct pd_layer *layer;
	const struct pd_shape *in;      /* shape of the first input */
	struct pd_error *err;
};

int64_t pd_shape_elements(const struct pd_shape *shape)
{
	int64_t elements = 1;

	for (int d = 0; d < shape->dims; d++)
		elements *= shape->size[d];
	return elements;
}

int64_t pd_shape_width(const struct pd_shape *shape)
{
	return shape->size[shape->dims - 1];
}

int64_t pd_shape_rows(const struct pd_shape *shape)
{
	return pd_shape_elements(shape) / pd_shape_width(shape);
}

struct pd_axis pd_shape_axis(const struct pd_shape *shape, int64_t axis)
{
	struct pd_axis a = { 1, shape->size[axis], 1 };

	for (int d = 0; d < axis; d++)
		a.outer *= shape->size[d];
	for (int64_t d = axis + 1; d < shape->dims; d++)
		a.inner *= shape->size[d];
	return a;
}

const char *pd_shape_text(const struct pd_shape *shape, char *buf)
{
	size_t used = 0;

	snprintf(buf, PD_SHAPE_TEXT, "a scalar");
	for (int d = 0; d < shape->dims; d++)
		used += (size_t)snprintf(buf + used, PD_SHAPE_TEXT - used, "%s%" PRId64,
					 d ? " x " : "", shape->size[d]);
	return buf;
}

/* A complaint about a layer begins with its path, kind and name. */
__attribute__((format(printf, 2, 3)))
static int complain(const struct work *w, const char *fmt, ...)
{
	char text[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return pd_place_error(w->place, w->err, "%s \"%.60s\" %s",
			      pd_layer_kind_name[w->layer->kind], w->layer->name, text);
}

/* ---- parameters and states ---- */

/* Sets the initial value that the kind's row gives. */
static void set_beginning(struct pd_layer_tensor *tensor, const char *list)
{
	struct pd_word word;

	if (!pd_word_find(list, tensor->name, strlen(tensor->name), &word))
		pd_bug("layer_kind.def has no \"%s\" among \"%s\"", tensor->name, list);
	if (!pd_beginning_read(word.value, tensor))
		pd_bug("layer_kind.def: \"%s\" is no way to begin", word.value);
}

static int add_tensor(const struct work *w, struct pd_layer_tensor *tensor, const char *list,
		      const char *name, int dims, const int64_t *size)
{
	*tensor = (struct pd_layer_tensor){ .name = name, .dims = dims, .elements = 1,
					    .zero_row = -1 };
	for (int d = 0; d < dims; d++) {
		tensor->size[d] = size[d];
		if (!pd_mul(tensor->elements, size[d], &tensor->elements) ||
		    tensor->elements >= PD_MAX_ELEMENTS)
			return complain(w, "has 2^40 or more elements in its %s", name);
	}
	set_beginning(tensor, list);
	return 0;
}

/* Adds a parameter; name is one of its kind's. */
static int add_parameter(const struct work *w, const char *name, int dims, const int64_t *size)
{
	const struct pd_kind *kind = &pd_kinds[w->layer->kind];
	struct pd_layer *layer = w->layer;
	struct pd_layer_tensor *tensor;

	if (!layer->parameters)
		layer->parameters = pd_calloc((size_t)pd_kind_parameters(layer->kind),
					      sizeof(*layer->parameters));
	tensor = &layer->parameters[layer->parameter_count++];
	if (add_tensor(w, tensor, kind->parameters, name, dims, size) < 0)
		return -1;
	layer->parameter_elements += tensor->elements;
	return 0;
}

static int add_state(const struct work *w, const char *name, int dims, const int64_t *size)
{
	const struct pd_kind *kind = &pd_kinds[w->layer->kind];
	struct pd_layer *layer = w->layer;

	if (!layer->states)
		layer->states = pd_calloc((size_t)pd_kind_states(layer->kind),
					  sizeof(*layer->states));
	return add_tensor(w, &layer->states[layer->state_count++], kind->states, name, dims, size);
}

/* ---- the kinds ---- */

static int need_plane(const struct work *w)
{
	char text[PD_SHAPE_TEXT];

	return w->in->dims == 3 ? 0 : complain(w, "needs an input of three dimensions (channels x "
					       "height x width), found %s",
					       pd_shape_text(w->in, text));
}

static int need_axis(const struct work *w)
{
	return w->in->dims > 0 ? 0 : complain(w, "needs an input of one dimension or more, found a "
					      "scalar");
}

/*
 * Sets the output's size along an axis to the number of windows that fit (floor mode).  All factors
 * are at most 2^30, so (kernel - 1) * dilation stays below 2^60.
 */
static int windows(const struct work *w, int axis, int64_t dilation)
{
	const struct pd_layer *layer = w->layer;
	int64_t reach = (layer->kernel[axis] - 1) * dilation + 1;
	int64_t padded = w->in->size[1 + axis] + 2 * layer->padding[axis];

	if (reach > padded)
		return complain(w, "has a window of %s %" PRId64
				", larger than its padded input of %" PRId64,
				axis ? "width" : "height", reach, padded);
	w->layer->output.size[1 + axis] = (padded - reach) / layer->stride[axis] + 1;
	return 0;
}

static int infer_conv2d(const struct work *w)
{
	struct pd_layer *layer = w->layer;
	int64_t out = layer->out_channels;

	if (need_plane(w) < 0)
		return -1;
	if (w->in->size[0] % layer->groups || out % layer->groups)
		return complain(w, "has %" PRId64 " groups: expected a divisor of its %" PRId64
				" input and %" PRId64 " output channels", layer->groups,
				w->in->size[0], out);
	layer->output = (struct pd_shape){ 3, { out } };
	for (int axis = 0; axis < 2; axis++)
		if (windows(w, axis, layer->dilation[axis]) < 0)
			return -1;
	if (add_parameter(w, "weight", 4,
			  (int64_t[]){ out, w->in->size[0] / layer->groups, layer->kernel[0],
				       layer->kernel[1] }) < 0)
		return -1;
	return layer->bias ? add_parameter(w, "bias", 1, &out) : 0;
}

static int infer_linear(const struct work *w)
{
	struct pd_layer *layer = w->layer;
	int64_t out = layer->out_channels;

	if (need_axis(w) < 0)
		return -1;
	layer->output = *w->in;
	layer->output.size[w->in->dims - 1] = out;
	if (add_parameter(w, "weight", 2, (int64_t[]){ out, pd_shape_width(w->in) }) < 0)
		return -1;
	return layer->bias ? add_parameter(w, "bias", 1, &out) : 0;
}

static int infer_pool(const struct work *w)
{
	struct pd_layer *layer = w->layer;

	if (need_plane(w) < 0)
		return -1;
	layer->output = *w->in;
	for (int axis = 0; axis < 2; axis++) {
		if (windows(w, axis, 1) < 0)
			return -1;
		if (2 * layer->padding[axis] > layer->kernel[axis])
			return complain(w, "has padding %" PRId64 ": expected at most half its "
					"kernel of %" PRId64, layer->padding[axis],
					layer->kernel[axis]);
	}
	return 0;
}

static int infer_adaptive_pool(const struct work *w)
{
	struct pd_layer *layer = w->layer;

	layer->output = *w->in;
	memcpy(&layer->output.size[1], layer->output_size, sizeof(layer->output_size));
	return need_plane(w);
}

static int infer_batchnorm(const struct work *w)
{
	const int64_t *channels = w->in->size;

	w->layer->output = *w->in;
	return need_plane(w) < 0 || add_parameter(w, "weight", 1, channels) < 0 ||
	       add_parameter(w, "bias", 1, channels) < 0 ||
	       add_state(w, "running_mean", 1, channels) < 0 ||
	       add_state(w, "running_var", 1, channels) < 0 ? -1 : 0;
}

static int infer_layernorm(const struct work *w)
{
	struct pd_shape *shape = &w->layer->normalized_shape;
	char is[PD_SHAPE_TEXT], expected[PD_SHAPE_TEXT];
	const int64_t *last;

	w->layer->output = *w->in;
	if (need_axis(w) < 0)
		return -1;
	if (shape->dims == 0)           /* the default: the last axis */
		*shape = (struct pd_shape){ 1, { pd_shape_width(w->in) } };
	last = w->in->size + w->in->dims - shape->dims;
	if (shape->dims > w->in->dims ||
	    memcmp(shape->size, last, (size_t)shape->dims * sizeof(*last)) != 0)
		return complain(w, "normalises over %s: expected the last axes of its input of %s",
				pd_shape_text(shape, is), pd_shape_text(w->in, expected));
	if (!w->layer->elementwise_affine)
		return 0;
	if (add_parameter(w, "weight", shape->dims, shape->size) < 0)
		return -1;
	return w->layer->bias ? add_parameter(w, "bias", shape->dims, shape->size) : 0;
}

/* Infers the output of a layer that computes element by element. */
static int infer_same(const struct work *w)
{
	w->layer->output = *w->in;
	return 0;
}

/* ---- attention ---- */

static const struct pd_shape *input_shape(const struct work *w, int input)
{
	return pd_model_shape(w->model, w->layer->inputs[input]);
}

/* Rows of features, and a length for each sample, which is at most so many rows. */
static int need_sequences(const struct work *w, int sequences, int64_t limit)
{
	char text[PD_SHAPE_TEXT];

	for (int i = 0; i < sequences; i++)
		if (input_shape(w, i)->dims != 2)
			return complain(w, "needs sequences (positions x features), found %s",
					pd_shape_text(input_shape(w, i), text));
	if (w->layer->input_count == sequences)
		return 0;
	if (input_shape(w, sequences)->dims != 0)
		return complain(w, "needs one length for each sample, found %s",
				pd_shape_text(input_shape(w, sequences), text));
	w->layer->limit = limit + 1;
	return 0;
}

/* Do heads divide what they share? */
static int need_heads(const struct work *w)
{
	const struct pd_layer *layer = w->layer;
	int64_t queries = w->in->size[1], keys = input_shape(w, 1)->size[1];
	int64_t values = input_shape(w, 2)->size[1];

	if (queries % layer->heads)
		return complain(w, "has %" PRId64 " heads: expected a divisor of its queries' %" PRId64
				" features", layer->heads, queries);
	if (layer->heads % layer->kv_heads)
		return complain(w, "has %" PRId64 " heads of keys and values: expected a divisor of "
				"its %" PRId64 " heads", layer->kv_heads, layer->heads);
	if (keys != queries / layer->heads * layer->kv_heads)
		return complain(w, "has keys of %" PRId64 " features: expected %" PRId64 ", as many "
				"for each head as its queries have", keys,
				queries / layer->heads * layer->kv_heads);
	if (values % layer->kv_heads)
		return complain(w, "has values of %" PRId64 " features: expected a multiple of its %"
				PRId64 " heads of keys and values", values, layer->kv_heads);
	return 0;
}

static int infer_attention(const struct work *w)
{
	const struct pd_shape *keys = input_shape(w, 1), *values = input_shape(w, 2);
	struct pd_layer *layer = w->layer;
	int64_t draws;

	if (need_sequences(w, 3, keys->size[0]) < 0)
		return -1;
	if (keys->size[0] != values->size[0])
		return complain(w, "has %" PRId64 " keys and %" PRId64 " values: expected as many",
				keys->size[0], values->size[0]);
	if (need_heads(w) < 0)
		return -1;
	layer->output = (struct pd_shape){ 2, { w->in->size[0] } };
	/* at most 2^30 heads of 2^30 features */
	layer->output.size[1] = values->size[1] / layer->kv_heads * layer->heads;
	if (layer->scale == 0)
		layer->scale = 1 / sqrt((double)(w->in->size[1] / layer->heads));
	if (layer->p > 0 && (!pd_mul(layer->heads * w->in->size[0], keys->size[0], &draws) ||
			     draws >= PD_MAX_ELEMENTS))
		return complain(w, "has 2^40 or more probabilities in a sample, too many for "
				"dropout");
	return 0;
}

/* Adds a parameter that begins with random numbers, as a linear layer of PyTorch's does. */
static int add_uniform(const struct work *w, const char *name, int dims, const int64_t *size)
{
	struct pd_layer_tensor *added;

	if (add_parameter(w, name, dims, size) < 0)
		return -1;
	added = &w->layer->parameters[w->layer->parameter_count - 1];
	added->begins = PD_BEGINS_UNIFORM;
	added->value = 1 / sqrtf((float)size[0]);
	return 0;
}

static int infer_additive_attention(const struct work *w)
{
	const struct pd_shape *keys = input_shape(w, 1);
	struct pd_layer *layer = w->layer;
	int64_t square[2];

	if (need_sequences(w, 2, keys->size[0]) < 0)
		return -1;
	if (keys->size[1] != w->in->size[1])
		return complain(w, "has keys of %" PRId64 " features: expected %" PRId64
				", as its queries have", keys->size[1], w->in->size[1]);
	square[0] = square[1] = w->in->size[1];
	layer->output = *w->in;
	if (add_uniform(w, "query_weight", 2, square) < 0 ||
	    add_uniform(w, "key_weight", 2, square) < 0 || add_uniform(w, "weight", 1, square) < 0 ||
	    add_parameter(w, "scale", 1, (int64_t[]){ 1 }) < 0 ||
	    add_parameter(w, "bias", 1, square) < 0)
		return -1;
	layer->parameters[3].value = 1 / sqrtf((float)square[0]);
	return 0;
}

/*
 * An axis as documents count them, of a shape of so many dimensions, becomes one from 0; `name` is
 * the attribute's.
 */
static int find_axis(const struct work *w, const char *name, int dims, int64_t *axis_p)
{
	int64_t axis = *axis_p > 0 ? *axis_p - 1 : dims + *axis_p;

	if (*axis_p == 0 || axis < 0 || axis >= dims)
		return complain(w, "has %s %" PRId64 ": expected 1 to %d, or -1 for the last axis to "
				"-%d, since 0 is that of the samples", name, *axis_p, dims, dims);
	*axis_p = axis;
	return 0;
}

/* Checks that all inputs have the shape of the first; axis `but` (or PD_NO_AXIS) may differ. */
static int need_alike(const struct work *w, int64_t but)
{
	char one[PD_SHAPE_TEXT], other[PD_SHAPE_TEXT];

	for (int i = 1; i < w->layer->input_count; i++) {
		const struct pd_shape *in = pd_model_shape(w->model, w->layer->inputs[i]);
		bool same = in->dims == w->in->dims;

		for (int d = 0; same && d < in->dims; d++)
			same = d == but || in->size[d] == w->in->size[d];
		if (!same)
			return complain(w, "needs inputs of one shape%s, found %s and %s",
					but >= 0 ? " but for its dim" : "",
					pd_shape_text(w->in, one), pd_shape_text(in, other));
	}
	return 0;
}

static int infer_add(const struct work *w)
{
	w->layer->output = *w->in;
	return need_alike(w, PD_NO_AXIS);
}

static int infer_concat(const struct work *w)
{
	struct pd_layer *layer = w->layer;

	if (need_axis(w) < 0 || find_axis(w, "dim", w->in->dims, &layer->dim) < 0 ||
	    need_alike(w, layer->dim) < 0)
		return -1;
	layer->output = *w->in;
	/* each is at most 2^30 and the sum is checked every time: no overflow */
	for (int i = 1; i < layer->input_count; i++) {
		const struct pd_shape *in = pd_model_shape(w->model, layer->inputs[i]);

		layer->output.size[layer->dim] += in->size[layer->dim];
		if (layer->output.size[layer->dim] > PD_MAX_EXTENT)
			return complain(w, "has an output of more than 2^30 along its dim");
	}
	return 0;
}

static int infer_flatten(const struct work *w)
{
	w->layer->output = (struct pd_shape){ 1, { pd_shape_elements(w->in) } };
	return w->layer->output.size[0] > PD_MAX_EXTENT
		? complain(w, "has an output of more than 2^30 features") : 0;
}

static int infer_reshape(const struct work *w)
{
	char in[PD_SHAPE_TEXT], out[PD_SHAPE_TEXT];
	int64_t elements = 1;

	w->layer->output = w->layer->shape;
	for (int d = 0; d < w->layer->output.dims; d++)
		if (!pd_mul(elements, w->layer->output.size[d], &elements))
			elements = -1;
	return elements == pd_shape_elements(w->in) ? 0 :
	       complain(w, "has the shape %s: expected one of as many elements as its input of %s",
			pd_shape_text(&w->layer->output, out), pd_shape_text(w->in, in));
}

static int infer_transpose(const struct work *w)
{
	struct pd_layer *layer = w->layer;

	layer->output = *w->in;
	if (need_axis(w) < 0 || find_axis(w, "dim0", w->in->dims, &layer->dim0) < 0 ||
	    find_axis(w, "dim1", w->in->dims, &layer->dim1) < 0)
		return -1;
	layer->output.size[layer->dim0] = w->in->size[layer->dim1];
	layer->output.size[layer->dim1] = w->in->size[layer->dim0];
	return 0;
}

static int infer_slice(const struct work *w)
{
	struct pd_layer *layer = w->layer;
	int64_t extent;

	layer->output = *w->in;
	if (need_axis(w) < 0 || find_axis(w, "dim", w->in->dims, &layer->dim) < 0)
		return -1;
	extent = w->in->size[layer->dim];
	if (layer->end == 0)            /* left out */
		layer->end = extent;
	if (layer->start >= layer->end || layer->end > extent)
		return complain(w, "is from %" PRId64 " to %" PRId64 ": expected a part of an axis "
				"of %" PRId64, layer->start, layer->end, extent);
	layer->output.size[layer->dim] = layer->end - layer->start;
	return 0;
}

static int infer_mean(const struct work *w)
{
	struct pd_layer *layer = w->layer;
	struct pd_shape *out = &layer->output;

	*out = *w->in;
	if (need_axis(w) < 0 || find_axis(w, "dim", w->in->dims, &layer->dim) < 0)
		return -1;
	out->size[layer->dim] = 1;
	if (layer->keepdim)
		return 0;
	out->dims--;
	memmove(&out->size[layer->dim], &out->size[layer->dim + 1],
		sizeof(*out->size) * (size_t)(out->dims - layer->dim));
	return 0;
}

static int infer_dropout(const struct work *w)
{
	w->layer->output = *w->in;
	if (w->layer->shared_dim == 0) {        /* left out */
		w->layer->shared_dim = PD_NO_AXIS;
		return 0;
	}
	return find_axis(w, "shared_dim", w->in->dims, &w->layer->shared_dim);
}

static int infer_embedding(const struct work *w)
{
	struct pd_layer *layer = w->layer;
	char text[PD_SHAPE_TEXT];

	if (w->in->dims == PD_MAX_DIMS)
		return complain(w, "needs an input of fewer than %d dimensions, found %s",
				PD_MAX_DIMS, pd_shape_text(w->in, text));
	if (layer->padding_idx >= layer->num_embeddings)
		return complain(w, "has padding_idx %" PRId64 ": expected one below its %" PRId64
				" embeddings", layer->padding_idx, layer->num_embeddings);
	layer->output = *w->in;
	layer->output.size[layer->output.dims++] = layer->embedding_dim;
	layer->limit = layer->num_embeddings;
	if (add_parameter(w, "weight", 2,
			  (int64_t[]){ layer->num_embeddings, layer->embedding_dim }) < 0)
		return -1;
	layer->parameters[0].zero_row = layer->padding_idx;
	return 0;
}

static int need_positions(const struct work *w)
{
	char text[PD_SHAPE_TEXT];

	return w->in->dims >= 2 ? 0 : complain(w, "needs an input of two dimensions or more "
					       "(positions first, features last), found %s",
					       pd_shape_text(w->in, text));
}

static int infer_position_embedding(const struct work *w)
{
	struct pd_layer *layer = w->layer;
	struct pd_shape weight = *w->in;

	layer->output = *w->in;
	if (need_positions(w) < 0)
		return -1;
	if (layer->num_embeddings == 0)         /* left out */
		layer->num_embeddings = w->in->size[0];
	if (layer->num_embeddings < w->in->size[0])
		return complain(w, "has %" PRId64 " embeddings: expected at least its %" PRId64
				" positions", layer->num_embeddings, w->in->size[0]);
	weight.size[0] = layer->num_embeddings;
	return add_parameter(w, "weight", weight.dims, weight.size);
}

static int infer_bias(const struct work *w)
{
	w->layer->output = *w->in;
	return need_axis(w) < 0 ||
	       add_parameter(w, "bias", 1, (int64_t[]){ pd_shape_width(w->in) }) < 0 ? -1 : 0;
}

static int infer_rope(const struct work *w)
{
	struct pd_layer *layer = w->layer;
	int64_t width;

	layer->output = *w->in;
	if (need_positions(w) < 0)
		return -1;
	width = pd_shape_width(w->in);
	if (layer->head_dim == 0)       /* left out */
		layer->head_dim = width;
	return layer->head_dim % 2 == 0 && width % layer->head_dim == 0 ? 0 :
	       complain(w, "has head_dim %" PRId64 ": expected an even divisor of its %" PRId64
			" features", layer->head_dim, width);
}

static int infer_mse(const struct work *w)
{
	w->layer->output = (struct pd_shape){ 0 };
	return need_alike(w, PD_NO_AXIS);
}

/* A parameter of one direction; each begins as in PyTorch. */
static int add_gates(const struct work *w, const char *name, int dims, int64_t columns)
{
	struct pd_layer *layer = w->layer;
	struct pd_layer_tensor *added;

	if (add_parameter(w, name, dims, (int64_t[]){ 4 * layer->hidden_size, columns }) < 0)
		return -1;
	added = &layer->parameters[layer->parameter_count - 1];
	added->begins = PD_BEGINS_UNIFORM;
	added->value = 1 / sqrtf((float)layer->hidden_size);
	return 0;
}

static int add_direction(const struct work *w, const char *const names[4])
{
	const struct pd_layer *layer = w->layer;

	if (add_gates(w, names[0], 2, w->in->size[1]) < 0 ||
	    add_gates(w, names[1], 2, layer->hidden_size) < 0)
		return -1;
	for (int64_t b = 0; b < layer->biases; b++)
		if (add_gates(w, names[2 + b], 1, 0) < 0)
			return -1;
	return 0;
}

static int check_lengths(const struct work *w)
{
	const struct pd_shape *lengths;
	char text[PD_SHAPE_TEXT];

	if (w->layer->input_count < 2)
		return 0;
	lengths = pd_model_shape(w->model, w->layer->inputs[1]);
	w->layer->least = 1;
	w->layer->limit = w->in->size[0] + 1;
	return lengths->dims == 0 ? 0 : complain(w, "needs one length for each sample, found %s",
						 pd_shape_text(lengths, text));
}

static int infer_lstm(const struct work *w)
{
	static const char *const names[2][4] = {
		{ "weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0" },
		{ "weight_ih_l0_reverse", "weight_hh_l0_reverse", "bias_ih_l0_reverse",
		  "bias_hh_l0_reverse" },
	};
	struct pd_layer *layer = w->layer;
	int64_t size[] = { layer->lanes, layer->hidden_size };
	char text[PD_SHAPE_TEXT];

	if (w->in->dims != 2)
		return complain(w, "needs an input of two dimensions (steps x features), found %s",
				pd_shape_text(w->in, text));
	if (layer->lanes > 0 && layer->bidirectional)
		return complain(w, "has lanes and is bidirectional: expected one of the two, since "
				"the reversed direction begins at the end");
	if (!layer->bias)
		layer->biases = 0;
	layer->output = (struct pd_shape){ 2, { w->in->size[0],
						layer->hidden_size * (layer->bidirectional ? 2 : 1) } };
	if (check_lengths(w) < 0 || add_direction(w, names[0]) < 0 ||
	    (layer->bidirectional && add_direction(w, names[1]) < 0))
		return -1;
	return layer->lanes == 0 ? 0 : add_state(w, "hidden", 2, size) < 0 ||
					add_state(w, "cell", 2, size) < 0 ? -1 : 0;
}

static int infer_loss(const struct work *w)
{
	const struct pd_shape *label = pd_model_shape(w->model, w->layer->inputs[1]);
	char logits[PD_SHAPE_TEXT], found[PD_SHAPE_TEXT];
	bool same = label->dims == w->in->dims - 1;

	if (need_axis(w) < 0)
		return -1;
	for (int d = 0; same && d < label->dims; d++)
		same = label->size[d] == w->in->size[d];
	w->layer->output = *label;
	w->layer->limit = pd_shape_width(w->in);
	w->layer->other = w->layer->ignore_index;
	return same ? 0 : complain(w, "needs a label for each row of its logits of %s, found labels "
				   "of %s", pd_shape_text(w->in, logits),
				   pd_shape_text(label, found));
}

/* ---- all of them ---- */

static int (*const infer[PD_LAYER_KINDS])(const struct work *w) = {
#define LAYER_KIND(name, shape, inputs, attributes, parameters, states, flags, what) \
	[PD_LAYER_##name] = infer_##shape,
#include "model/layer_kind.def"
#undef LAYER_KIND
};

/* "2", "2 or more", "2 to 3" */
static void count_text(char text[32], int fewest, int most)
{
	if (most == INT_MAX)
		snprintf(text, 32, "%d or more", fewest);
	else if (most > fewest)
		snprintf(text, 32, "%d to %d", fewest, most);
	else
		snprintf(text, 32, "%d", fewest);
}

/* Checks the number of inputs and their types. */
static int check_inputs(const struct work *w)
{
	struct pd_place inputs = pd_place_key(w->place, "inputs");
	const struct pd_layer *layer = w->layer;
	const char *kind = pd_layer_kind_name[layer->kind];
	int fewest, most;
	char text[32];

	pd_kind_inputs(layer->kind, &fewest, &most);
	count_text(text, fewest, most);
	if (layer->input_count < fewest || layer->input_count > most)
		return pd_place_error(&inputs, w->err, "expected %s input%s for %s, found %d",
				      text, most == 1 ? "" : "s", kind, layer->input_count);
	for (int i = 0; i < layer->input_count; i++) {
		enum pd_dtype found = pd_model_dtype(w->model, layer->inputs[i]);
		enum pd_dtype wanted = pd_kind_input(layer->kind, i) == 'i' ? PD_I32 : PD_F32;

		if (found != wanted)
			return complain(w, "cannot take \"%.60s\" as its input number %d: expected "
					"%s, found %s",
					pd_model_tensor_name(w->model, layer->inputs[i]), i + 1,
					pd_dtype_name[wanted], pd_dtype_name[found]);
	}
	return 0;
}

static int check_elements(const struct work *w)
{
	const struct pd_shape *output = &w->layer->output;
	int64_t elements = 1;
	char text[PD_SHAPE_TEXT];

	for (int d = 0; d < output->dims; d++)
		if (output->size[d] > PD_MAX_EXTENT ||
		    !pd_mul(elements, output->size[d], &elements) || elements >= PD_MAX_ELEMENTS)
			return complain(w, "has an output of %s: expected at most 2^30 along an "
					"axis and fewer than 2^40 elements",
					pd_shape_text(output, text));
	return 0;
}

int pd_layer_infer(const struct pd_place *place, const struct pd_model *model,
		   struct pd_layer *layer, struct pd_error *err)
{
	const struct work w = {
		.place = place, .model = model, .layer = layer,
		.in = pd_model_shape(model, layer->inputs[0]), .err = err,
	};

	layer->other = PD_NO_NUMBER;
	return check_inputs(&w) < 0 || infer[layer->kind](&w) < 0 || check_elements(&w) < 0 ||
	       pd_beginnings_read(place, layer, err) < 0 ? -1 : 0;
}
