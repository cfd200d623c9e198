/* SPDX-License-Identifier: Apache-2.0 */
#include "data/dataset.h"

#include "base/mem.h"
#include "data/order.h"

#include <stdlib.h>

#define EVERY_I32 (INT64_C(1) << 31)

int64_t pd_dataset_limit(const struct pd_model *model, int input)
{
	int64_t limit = EVERY_I32;

	for (int i = 0; i < model->layer_count; i++) {
		int64_t own;

		if (!pd_layer_is(&model->layers[i], PD_KIND_LOSS) ||
		    model->layers[i].inputs[1] != input)
			continue;
		own = pd_shape_width(pd_model_shape(model, model->layers[i].inputs[0]));
		if (own < limit)
			limit = own;
	}
	return limit;
}

/* ---- synthetic: a set without files, and without a row among the formats ---- */

struct synthetic {
	const struct pd_model *model;
	uint64_t seed;
	int *limits;                    /* per input of the model */
};

static void read_synthetic(const struct pd_dataset *set, int input, int64_t sample, void *out)
{
	const struct synthetic *s = set->state;
	int64_t elements = pd_shape_elements(&s->model->inputs[input].shape);

	if (s->model->inputs[input].dtype == PD_I32)
		pd_synthetic_i32(s->seed, input, sample, elements, s->limits[input], out);
	else
		pd_synthetic_f32(s->seed, input, sample, elements, out);
}

static void close_synthetic(struct pd_dataset *set)
{
	struct synthetic *s = set->state;

	free(s->limits);
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
	state->limits = pd_calloc((size_t)model->input_count, sizeof(*state->limits));
	for (int i = 0; i < model->input_count; i++) {
		int64_t limit = pd_dataset_limit(model, i);

		/* 0 is all that an input can have which no loss takes for a label */
		state->limits[i] = limit < EVERY_I32 ? (int)limit : 1;
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
