/* SPDX-License-Identifier: Apache-2.0 */
/* This file infers the shapes of a layer's output, parameters and states from its inputs. */
#include "model/infer.h"

#include "base/mem.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

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

struct pd_shape pd_shape_plane(const struct pd_shape *shape)
{
	return shape->dims == 2 ? (struct pd_shape){ 3, { shape->size[0], 1, shape->size[1] } } : *shape;
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

struct pd_axis pd_shape_repeats(const struct pd_shape *in, const struct pd_shape *out)
{
	int first = 0, last = out->dims - 1;
	struct pd_axis a = { 1, 1, 1 };

	while (first <= last && in->size[first] == out->size[first])
		a.outer *= out->size[first++];
	while (last > first && in->size[last] == out->size[last])
		a.inner *= out->size[last--];
	for (int d = first; d <= last; d++)
		a.extent = in->size[d] == 1 ? a.extent * out->size[d] : 0;
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

int infer_error(const struct infer *w, const char *fmt, ...)
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

static int add_tensor(const struct infer *w, struct pd_layer_tensor *tensor, const char *list,
		      const char *name, int dims, const int64_t *size)
{
	*tensor = (struct pd_layer_tensor){ .name = name, .dims = dims, .elements = 1,
					    .zero_row = -1 };
	for (int d = 0; d < dims; d++) {
		tensor->size[d] = size[d];
		if (!pd_mul(tensor->elements, size[d], &tensor->elements) ||
		    tensor->elements >= PD_MAX_ELEMENTS)
			return infer_error(w, "has 2^40 or more elements in its %s", name);
	}
	set_beginning(tensor, list);
	return 0;
}

int infer_parameter(const struct infer *w, const char *name, int dims, const int64_t *size)
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

int infer_state(const struct infer *w, const char *name, int dims, const int64_t *size)
{
	const struct pd_kind *kind = &pd_kinds[w->layer->kind];
	struct pd_layer *layer = w->layer;

	if (!layer->states)
		layer->states = pd_calloc((size_t)pd_kind_states(layer->kind),
					  sizeof(*layer->states));
	return add_tensor(w, &layer->states[layer->state_count++], kind->states, name, dims, size);
}

int infer_uniform(const struct infer *w, const char *name, int dims, const int64_t *size,
		  int64_t inputs)
{
	struct pd_layer_tensor *added;

	if (infer_parameter(w, name, dims, size) < 0)
		return -1;
	added = &w->layer->parameters[w->layer->parameter_count - 1];
	added->begins = PD_BEGINS_UNIFORM;
	added->value = 1 / sqrtf((float)inputs);
	return 0;
}

/* ---- inputs ---- */

const struct pd_shape *infer_input(const struct infer *w, int input)
{
	return pd_model_shape(w->model, w->layer->inputs[input]);
}

int infer_needs_axis(const struct infer *w)
{
	return w->in->dims > 0 ? 0 : infer_error(w, "needs an input of one dimension or more, found a "
					      "scalar");
}

int infer_needs_alike(const struct infer *w, int64_t but)
{
	char one[PD_SHAPE_TEXT], other[PD_SHAPE_TEXT];

	for (int i = 1; i < w->layer->input_count; i++) {
		const struct pd_shape *in = infer_input(w, i);
		bool same = in->dims == w->in->dims;

		for (int d = 0; same && d < in->dims; d++)
			same = d == but || in->size[d] == w->in->size[d];
		if (!same)
			return infer_error(w, "needs inputs of one shape%s, found %s and %s",
					but >= 0 ? " but for its dim" : "",
					pd_shape_text(w->in, one), pd_shape_text(in, other));
	}
	return 0;
}

int infer_needs_lengths(const struct infer *w, int input, int64_t longest)
{
	char text[PD_SHAPE_TEXT];

	w->layer->index_limit = longest + 1;
	return infer_input(w, input)->dims == 0 ? 0 :
	       infer_error(w, "needs one length for each sample, found %s",
			     pd_shape_text(infer_input(w, input), text));
}

/* ---- all of them ---- */

static int (*const infer[PD_LAYER_KINDS])(const struct infer *w) = {
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
static int check_inputs(const struct infer *w)
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

		if (found != wanted && pd_kind_input(layer->kind, i) != 'a')
			return infer_error(w, "cannot take \"%.60s\" as its input number %d: expected "
					"%s, found %s",
					pd_model_tensor_name(w->model, layer->inputs[i]), i + 1,
					pd_dtype_name[wanted], pd_dtype_name[found]);
	}
	return 0;
}

static int check_elements(const struct infer *w)
{
	const struct pd_shape *output = &w->layer->output;
	int64_t elements = 1;
	char text[PD_SHAPE_TEXT];

	for (int d = 0; d < output->dims; d++)
		if (output->size[d] > PD_MAX_EXTENT ||
		    !pd_mul(elements, output->size[d], &elements) || elements >= PD_MAX_ELEMENTS)
			return infer_error(w, "has an output of %s: expected at most 2^30 along an "
					"axis and fewer than 2^40 elements",
					pd_shape_text(output, text));
	return 0;
}

int pd_layer_infer(const struct pd_place *place, const struct pd_model *model,
		   struct pd_layer *layer, struct pd_error *err)
{
	const struct infer w = {
		.place = place, .model = model, .layer = layer,
		.in = pd_model_shape(model, layer->inputs[0]), .err = err,
	};

	layer->index_other = PD_NO_NUMBER;
	return check_inputs(&w) < 0 || infer[layer->kind](&w) < 0 || check_elements(&w) < 0 ||
	       pd_beginnings_read(place, layer, err) < 0 ? -1 : 0;
}
