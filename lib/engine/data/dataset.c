/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/data/dataset.h"

#include "base/checksum.h"
#include "base/mem.h"
#include "engine/data/order.h"

#include <stdlib.h>

#define EVERY_I32 (INT64_C(1) << 31)
#define SAMPLED 256                     /* the most samples of a checksum */
#define SAMPLED_BYTES (64 << 20)

static bool takes(const struct pd_layer *layer, int tensor)
{
	for (int i = 0; i < layer->input_count; i++)
		if (layer->inputs[i] == tensor)
			return true;
	return false;
}

/* Tells whether all layers that take the input take this number. */
static bool is_taken(const struct pd_model *model, int input, int64_t number)
{
	for (int l = 0; l < model->layer_count; l++) {
		const struct pd_layer *layer = &model->layers[l];
		bool inside = number >= layer->index_least && number < layer->index_limit;

		if (layer->index_limit > 0 && takes(layer, input) && !inside && number != layer->index_other)
			return false;
	}
	return true;
}

struct pd_dataset_range pd_dataset_range(const struct pd_model *model, int input)
{
	struct pd_dataset_range range = { 0, EVERY_I32, 0 };
	int64_t other = PD_NO_NUMBER;

	for (int l = 0; l < model->layer_count; l++) {
		const struct pd_layer *layer = &model->layers[l];

		if (layer->index_limit == 0 || !takes(layer, input))
			continue;
		if (layer->index_least > range.least)
			range.least = layer->index_least;
		if (layer->index_limit < range.limit)
			range.limit = layer->index_limit;
		if (layer->index_other != PD_NO_NUMBER)
			other = layer->index_other;
	}
	range.other = other != PD_NO_NUMBER && is_taken(model, input, other) ? other : range.least;
	return range;
}

/* ---- the synthetic set, which needs no files and no row among the formats ---- */

struct synthetic {
	const struct pd_model *model;
	uint64_t seed;
	struct pd_dataset_range *ranges;        /* per input of the model */
};

static void read_synthetic(const struct pd_dataset *set, int input, int64_t sample, void *out)
{
	const struct synthetic *s = set->state;
	int64_t elements = pd_shape_elements(&s->model->inputs[input].shape);

	if (s->model->inputs[input].dtype == PD_I32)
		pd_synthetic_i32(s->seed, input, sample, elements, s->ranges[input].least,
				 s->ranges[input].limit, out);
	else
		pd_synthetic_f32(s->seed, input, sample, elements, out);
}

static void close_synthetic(struct pd_dataset *set)
{
	struct synthetic *s = set->state;

	free(s->ranges);
	free(s);
}

static const struct pd_data_format synthetic = {
	.name = "synthetic", .read = read_synthetic, .close = close_synthetic,
};

void pd_dataset_synthetic(const struct pd_model *model, int64_t samples, uint64_t seed,
			  struct pd_dataset *out_p)
{
	struct synthetic *state = pd_zalloc(sizeof(*state));

	*state = (struct synthetic){ .model = model, .seed = seed };
	state->ranges = pd_calloc((size_t)model->input_count, sizeof(*state->ranges));
	for (int i = 0; i < model->input_count; i++) {
		state->ranges[i] = pd_dataset_range(model, i);
		/* the least is all that an input has of which no layer says more, or no two alike */
		if (state->ranges[i].limit == EVERY_I32 ||
		    state->ranges[i].limit <= state->ranges[i].least)
			state->ranges[i].limit = state->ranges[i].least + 1;
	}
	*out_p = (struct pd_dataset){ .format = &synthetic, .state = state, .samples = samples,
				      .synthetic = true };
}

void pd_dataset_release(struct pd_dataset *dataset)
{
	if (dataset->format)
		dataset->format->close(dataset);
	*dataset = (struct pd_dataset){ 0 };
}

/* Returns the sum of the elements of all inputs, and the most of one. */
static int64_t sample_elements(const struct pd_model *model, int64_t *most_p)
{
	int64_t all = 0;

	*most_p = 0;
	for (int i = 0; i < model->input_count; i++) {
		int64_t elements = pd_shape_elements(&model->inputs[i].shape);

		all += elements;
		*most_p = elements > *most_p ? elements : *most_p;
	}
	return all;
}

uint64_t pd_dataset_checksum(const struct pd_dataset *dataset, const struct pd_model *model)
{
	int64_t most, elements = sample_elements(model, &most);
	int64_t fit = SAMPLED_BYTES / ((int64_t)sizeof(float) * elements);
	int64_t count = dataset->samples < SAMPLED ? dataset->samples : SAMPLED;
	float *numbers = pd_calloc((size_t)most, sizeof(*numbers));
	struct pd_checksum sum;

	if (count > fit)
		count = fit > 2 ? fit : dataset->samples < 2 ? dataset->samples : 2;
	pd_checksum_begin(&sum, (uint64_t)dataset->samples);
	for (int64_t n = 0; n < count; n++)
		for (int i = 0; i < model->input_count; i++) {
			int64_t sample = count > 1 ? n * (dataset->samples - 1) / (count - 1) : 0;

			elements = pd_shape_elements(&model->inputs[i].shape);
			dataset->format->read(dataset, i, sample, numbers);
			pd_checksum_add(&sum, numbers, (size_t)elements * sizeof(*numbers));
		}
	free(numbers);
	return pd_checksum_end(&sum);
}
