/* SPDX-License-Identifier: Apache-2.0 */
#include "ref_kind.h"

#include "base/mem.h"
#include "base/rng.h"

#include <stdlib.h>
#include <string.h>

size_t ref_elements(const struct ref *r, int tensor)
{
	return (size_t)(r->batch * pd_shape_elements(pd_model_shape(r->model, tensor)));
}

static int owner(const struct ref *r, int l)
{
	return r->model->layers[l].shares >= 0 ? r->model->layers[l].shares : l;
}

static double **new_tensors(const struct pd_layer_tensor *tensors, int count)
{
	double **all = pd_calloc((size_t)count, sizeof(*all));

	for (int i = 0; i < count; i++) {
		all[i] = pd_calloc((size_t)tensors[i].elements, sizeof(**all));
		for (int64_t e = 0; e < tensors[i].elements && tensors[i].begins == PD_BEGINS_CONSTANT; e++)
			all[i][e] = (double)tensors[i].value;
	}
	return all;
}

static void free_tensors(double **all, int count)
{
	for (int i = 0; i < count; i++)
		free(all[i]);
	free(all);
}

struct ref *ref_new(const struct pd_model *model, int64_t batch, uint64_t seed)
{
	struct ref *r = pd_zalloc(sizeof(*r));
	size_t layers = (size_t)model->layer_count, tensors = (size_t)pd_model_tensors(model);

	r->model = model;
	r->batch = r->valid = batch;
	r->seed = seed;
	r->x = pd_calloc(tensors, sizeof(*r->x));
	r->dx = pd_calloc(tensors, sizeof(*r->dx));
	r->w = pd_calloc(layers, sizeof(*r->w));
	r->dw = pd_calloc(layers, sizeof(*r->dw));
	r->terms = pd_calloc(layers, sizeof(*r->terms));
	r->state = pd_calloc(layers, sizeof(*r->state));
	r->kept = pd_calloc(layers, sizeof(*r->kept));
	for (size_t t = 0; t < tensors; t++) {
		r->x[t] = pd_calloc(ref_elements(r, (int)t), sizeof(double));
		r->dx[t] = pd_calloc(ref_elements(r, (int)t), sizeof(double));
	}
	for (size_t l = 0; l < layers; l++) {
		const struct pd_layer *layer = &model->layers[l];

		r->w[l] = new_tensors(layer->parameters, layer->parameter_count);
		r->dw[l] = new_tensors(layer->parameters, layer->parameter_count);
		r->terms[l] = new_tensors(layer->parameters, layer->parameter_count);
		r->state[l] = new_tensors(layer->states, layer->state_count);
		r->kept[l] = pd_calloc(7 * ref_elements(r, model->input_count + (int)l) +
				       2 * (size_t)(layer->lanes * layer->hidden_size),
				       sizeof(double));
	}
	return r;
}

void ref_free(struct ref *r)
{
	for (int t = 0; t < pd_model_tensors(r->model); t++) {
		free(r->x[t]);
		free(r->dx[t]);
	}
	for (int l = 0; l < r->model->layer_count; l++) {
		const struct pd_layer *layer = &r->model->layers[l];

		free_tensors(r->w[l], layer->parameter_count);
		free_tensors(r->dw[l], layer->parameter_count);
		free_tensors(r->terms[l], layer->parameter_count);
		free_tensors(r->state[l], layer->state_count);
		free(r->kept[l]);
	}
	free(r->x);
	free(r->dx);
	free(r->w);
	free(r->dw);
	free(r->terms);
	free(r->state);
	free(r->kept);
	free(r);
}

double ref_weight_factor(const struct ref_job *j, int64_t number)
{
	double p = j->layer->weight_dropout;
	struct pd_random4 four = pd_random(j->r->seed, PD_RNG_DROPOUT + (uint64_t)j->index,
					   (uint32_t)j->r->first_sample, (uint32_t)(number / 4));

	if (p == 0 || j->r->evaluate)
		return 1;
	return pd_unit(four.v[number % 4]) >= (float)p ? 1 / (1 - p) : 0;
}

static void (*const work[PD_LAYER_KINDS])(const struct ref_job *) = {
#define LAYER_KIND(name, shape, inputs, attributes, parameters, states, flags, what) \
	[PD_LAYER_##name] = ref_##shape,
#include "model/layer_kind.def"
#undef LAYER_KIND
};

void ref_run(struct ref *r, int l, bool back)
{
	const struct pd_layer *layer = &r->model->layers[l];
	int in = layer->inputs[0], out = r->model->input_count + l, o = owner(r, l);

	work[layer->kind](&(struct ref_job){
		.r = r, .layer = layer, .index = l, .back = back,
		.in = pd_model_shape(r->model, in),
		.x = r->x[in], .dy = r->dx[out], .y = r->x[out], .dx = r->dx[in],
		.w = r->w[o], .dw = r->dw[o], .terms = r->terms[o],
		.state = r->state[l], .kept = r->kept[l],
	});
}

static void round_tensor(const struct ref *r, double *values, int tensor)
{
	size_t n = ref_elements(r, tensor);

	for (size_t i = 0; r->round && i < n; i++)
		values[i] = r->round(values[i]);
}

void ref_forward(struct ref *r)
{
	r->loss = 0;
	r->correct = r->rows = 0;
	for (int l = 0; l < r->model->layer_count; l++) {
		int out = r->model->input_count + l;

		memset(r->x[out], 0, ref_elements(r, out) * sizeof(double));
		ref_run(r, l, false);
		if (!pd_layer_is(&r->model->layers[l], PD_KIND_LOSS))
			round_tensor(r, r->x[out], out);
	}
}

void ref_backward(struct ref *r)
{
	for (int t = 0; t < pd_model_tensors(r->model); t++)
		memset(r->dx[t], 0, ref_elements(r, t) * sizeof(double));
	for (int l = 0; l < r->model->layer_count; l++)
		for (int p = 0; p < r->model->layers[l].parameter_count; p++) {
			size_t n = (size_t)r->model->layers[l].parameters[p].elements;

			memset(r->dw[l][p], 0, n * sizeof(double));
			memset(r->terms[l][p], 0, n * sizeof(double));
		}
	for (int l = r->model->layer_count - 1; l >= 0; l--) {
		const struct pd_layer *layer = &r->model->layers[l];

		ref_run(r, l, true);
		for (int i = 0; i < layer->input_count; i++)
			round_tensor(r, r->dx[layer->inputs[i]], layer->inputs[i]);
	}
}
