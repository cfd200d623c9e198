/* SPDX-License-Identifier: Apache-2.0 */
#include "model/model.h"

#include "base/mem.h"
#include "model/order.h"

#include <stdlib.h>

int pd_model_tensors(const struct pd_model *model)
{
	return model->input_count + model->layer_count;
}

const struct pd_shape *pd_model_shape(const struct pd_model *model, int tensor)
{
	return tensor < model->input_count ? &model->inputs[tensor].shape
					   : &model->layers[tensor - model->input_count].output;
}

enum pd_dtype pd_model_dtype(const struct pd_model *model, int tensor)
{
	return tensor < model->input_count ? model->inputs[tensor].dtype : PD_F32;
}

int pd_model_producer(const struct pd_model *model, int tensor)
{
	return tensor < model->input_count ? -1 : tensor - model->input_count;
}

const char *pd_model_tensor_name(const struct pd_model *model, int tensor)
{
	return tensor < model->input_count ? model->inputs[tensor].name
					   : model->layers[tensor - model->input_count].name;
}

int pd_model_consumers(const struct pd_model *model, int tensor, int *out)
{
	const struct pd_uses *uses = &model->uses;
	int count = 0;

	for (size_t u = uses->first[tensor]; u < uses->first[tensor + 1]; u++) {
		if (u > uses->first[tensor] && uses->users[u] == uses->users[u - 1])
			continue;       /* this layer takes the tensor twice */
		if (out)
			out[count] = uses->users[u];
		count++;
	}
	return count;
}

int pd_model_find(const struct pd_model *model, const char *name)
{
	json_t *tensor = json_object_get(model->names, name);

	return tensor ? pd_model_producer(model, (int)json_integer_value(tensor)) : -1;
}

bool pd_model_needs_gradient(const struct pd_model *model, int tensor)
{
	return model->gradient[tensor];
}

int64_t pd_model_parameters(const struct pd_model *model)
{
	int64_t sum = 0;

	for (int l = 0; l < model->layer_count; l++)
		if (model->layers[l].shares < 0)
			sum += model->layers[l].parameter_elements;
	return sum;
}

int pd_model_losses(const struct pd_model *model, int first, int count)
{
	int losses = 0;

	for (int l = first; l < first + count; l++)
		losses += pd_layer_is(&model->layers[l], PD_KIND_LOSS);
	return losses;
}

bool pd_model_carries(const struct pd_model *model, int first, int count)
{
	for (int l = first; l < first + count; l++)
		if (model->layers[l].lanes > 0)
			return true;
	return false;
}

int pd_model_check_batch(const struct pd_model *model, int64_t batch_size, struct pd_error *err)
{
	for (int l = 0; l < model->layer_count && batch_size == 1; l++) {
		const struct pd_layer *layer = &model->layers[l];
		const struct pd_shape *in = pd_model_shape(model, layer->inputs[0]);

		if (pd_layer_is(layer, PD_KIND_OVER_BATCH) && pd_shape_elements(in) == in->size[0])
			return pd_error_input(err, "layer \"%s\": a channel has one value in a batch of "
					      "one sample, of which %s would make 0: expected a larger "
					      "batch size", layer->name,
					      pd_layer_kind_name[layer->kind]);
	}
	return 0;
}

int64_t pd_model_lanes(const struct pd_model *model)
{
	for (int l = 0; l < model->layer_count; l++)
		if (model->layers[l].lanes > 0)
			return model->layers[l].lanes;
	return 0;
}

int pd_model_label_input(const struct pd_model *model)
{
	for (int i = 0; i < model->input_count; i++)
		if (model->inputs[i].dtype == PD_I32 && model->inputs[i].shape.dims == 0)
			return i;
	return -1;
}

int pd_model_data_input(const struct pd_model *model)
{
	for (int i = 0; i < model->input_count; i++)
		if (model->inputs[i].dtype == PD_F32)
			return i;
	return -1;
}

static void free_input(struct pd_input *input)
{
	free(input->name);
	free(input->mean);
	free(input->deviation);
}

void pd_model_free(struct pd_model *model)
{
	if (!model)
		return;
	for (int i = 0; i < model->input_count; i++)
		free_input(&model->inputs[i]);
	for (int l = 0; l < model->layer_count; l++) {
		free(model->layers[l].name);
		free(model->layers[l].inputs);
		free(model->layers[l].parameters);
		free(model->layers[l].states);
	}
	free(model->inputs);
	free(model->layers);
	free(model->name);
	free(model->gradient);
	free(model->numbers);
	pd_uses_release(&model->uses);
	json_decref(model->names);
	json_decref(model->json);
	free(model);
}

void pd_model_sort(struct pd_model *model, const int *order)
{
	int count = model->layer_count;
	struct pd_layer *sorted = pd_calloc((size_t)count, sizeof(*sorted));
	int *now = pd_calloc((size_t)count, sizeof(*now));

	for (int n = 0; n < count; n++) {
		sorted[n] = model->layers[order[n]];
		now[order[n]] = n;
		json_integer_set(json_object_get(model->names, sorted[n].name),
				 model->input_count + n);
	}
	for (int n = 0; n < count; n++) {
		if (sorted[n].shares >= 0)
			sorted[n].shares = now[sorted[n].shares];
		for (int i = 0; i < sorted[n].input_count; i++) {
			int *tensor = &sorted[n].inputs[i];

			if (*tensor >= model->input_count)
				*tensor = model->input_count + now[*tensor - model->input_count];
		}
	}
	free(model->layers);
	free(now);
	model->layers = sorted;
}

void pd_model_index(struct pd_model *model)
{
	int count = model->layer_count;
	int **inputs = pd_calloc((size_t)count, sizeof(*inputs));
	int *input_counts = pd_calloc((size_t)count, sizeof(*input_counts));

	model->gradient = pd_calloc((size_t)pd_model_tensors(model), sizeof(*model->gradient));
	for (int l = 0; l < count; l++) {
		const struct pd_layer *layer = &model->layers[l];
		bool *gradient = &model->gradient[model->input_count + l];

		inputs[l] = layer->inputs;
		input_counts[l] = layer->input_count;
		*gradient = pd_layer_learns(layer);
		for (int i = 0; i < layer->input_count; i++)
			*gradient |= model->gradient[layer->inputs[i]];
	}
	pd_uses_init(&model->uses, pd_model_tensors(model), count, inputs, input_counts);
	free(inputs);
	free(input_counts);
}

void pd_model_reorder(struct pd_model *model, const int *order)
{
	int *numbers = pd_calloc((size_t)model->layer_count, sizeof(*numbers));

	for (int n = 0; n < model->layer_count; n++)
		numbers[n] = pd_model_number(model, order[n]);
	free(model->numbers);
	model->numbers = numbers;
	pd_model_sort(model, order);
	free(model->gradient);
	pd_uses_release(&model->uses);
	pd_model_index(model);
}

static struct pd_layer_tensor *copy_tensors(const struct pd_layer_tensor *tensors, int count)
{
	return count ? pd_memdup(tensors, (size_t)count * sizeof(*tensors)) : NULL;
}

static void copy_input(const struct pd_input *input, struct pd_input *copy)
{
	size_t bytes = (size_t)input->channels * sizeof(*input->mean);

	*copy = *input;
	copy->name = pd_strdup(input->name);
	copy->mean = bytes ? pd_memdup(input->mean, bytes) : NULL;
	copy->deviation = bytes ? pd_memdup(input->deviation, bytes) : NULL;
}

struct pd_model *pd_model_in_order(const struct pd_model *model, const int *order)
{
	struct pd_model *copy = pd_zalloc(sizeof(*copy));
	size_t inputs = (size_t)model->input_count, layers = (size_t)model->layer_count;

	copy->name = pd_strdup(model->name);
	copy->input_count = model->input_count;
	copy->layer_count = model->layer_count;
	copy->inputs = pd_calloc(inputs, sizeof(*copy->inputs));
	for (size_t i = 0; i < inputs; i++) {
		copy_input(&model->inputs[i], &copy->inputs[i]);
	}
	copy->layers = pd_calloc(layers, sizeof(*copy->layers));
	copy->numbers = pd_calloc(layers, sizeof(*copy->numbers));
	for (size_t l = 0; l < layers; l++) {
		struct pd_layer *layer = &copy->layers[l];
		size_t bytes = (size_t)model->layers[l].input_count * sizeof(int);

		*layer = model->layers[l];
		layer->name = pd_strdup(layer->name);
		layer->names = NULL;
		layer->inputs = pd_memdup(layer->inputs, bytes);
		layer->parameters = copy_tensors(layer->parameters, layer->parameter_count);
		layer->states = copy_tensors(layer->states, layer->state_count);
		copy->numbers[l] = pd_model_number(model, (int)l);
	}
	pd_model_reorder(copy, order);
	return copy;
}
