/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/memory.h"

#include "base/mem.h"

#include <stdlib.h>

/*
 * Sums over a profile's layers fit (lib/profile checks), products with warm-ups need
 * not: those that do not are as large as can be said, which no device holds.
 */
static int64_t times(int64_t a, int64_t b)
{
	int64_t product;

	return pd_mul(a, b, &product) ? product : INT64_MAX;
}

static int64_t plus(int64_t a, int64_t b)
{
	int64_t sum;

	return pd_add(a, b, &sum) ? sum : INT64_MAX;
}

/*
 * The most that is live in scratch at one time in a backward of the stage: the gradient of
 * an activation from the last layer that uses it to the one that made it, a second one
 * where a layer adds its part to the first, and the workspace of the layer at work.  A
 * layer that keeps nothing of its own (in place, such as relu) passes the gradient on.
 */
static int64_t scratch_peak(const struct pd_profile *profile, int first, int count)
{
	bool *live = pd_calloc((size_t)count, sizeof(*live));
	int64_t held = 0, peak = 0;

	for (int l = first + count - 1; l >= first; l--) {
		const struct pd_profile_layer *layer = &profile->layers[l];
		bool passes = layer->stash_bytes == 0 && live[l - first];
		int64_t at_work = layer->workspace_bytes;

		for (int i = layer->input_count - 1; i >= 0; i--) {
			const struct pd_profile_layer *input = &profile->layers[layer->inputs[i]];

			if (!input->needs_gradient || layer->inputs[i] < first)
				continue;
			if (live[layer->inputs[i] - first]) {
				at_work = plus(at_work, input->activation_bytes);
				continue;
			}
			live[layer->inputs[i] - first] = true;
			if (passes)
				held -= layer->activation_bytes;
			passes = false;
			held = plus(held, input->activation_bytes);
		}
		if (plus(held, at_work) > peak)
			peak = plus(held, at_work);
		if (live[l - first] && (layer->stash_bytes > 0 || passes))
			held -= layer->activation_bytes;
	}
	free(live);
	return peak;
}

/* Of the model's inputs that the stage loads. */
static int64_t loaded_bytes(const struct pd_profile *profile, int first, int count)
{
	const struct pd_model *model = profile->model;
	int64_t bytes = 0;

	for (int t = 0; model && t < model->input_count; t++) {
		bool used = false;

		for (int l = first; l < first + count && !used; l++)
			for (int i = 0; i < model->layers[l].input_count; i++)
				used |= model->layers[l].inputs[i] == t;
		if (used)
			bytes = plus(bytes, times(4 * profile->batch_size,
						  pd_shape_elements(&model->inputs[t].shape)));
	}
	return bytes;
}

void pd_memory_of(const struct pd_profile *profile, int first, int count, int replicas,
		  int warmup, int64_t in_bytes, int64_t out_bytes, struct pd_memory *out_p)
{
	int64_t parameters = 0, stash = 0, slots = (int64_t)warmup + 1;
	int64_t inbox = plus(in_bytes, loaded_bytes(profile, first, count));
	struct pd_memory memory;

	for (int l = first; l < first + count; l++) {
		const struct pd_profile_layer *layer = &profile->layers[l];

		/* a layer that shares another's parameters has none of its own */
		if (!profile->model || profile->model->layers[l].shares < 0)
			parameters += layer->parameter_bytes;
		stash = plus(stash, layer->stash_bytes);
	}
	memory = (struct pd_memory){
		.weights_bytes = times(slots, parameters),
		.gradient_bytes = parameters,
		.optimizer_bytes = parameters,
		.stash_bytes = plus(times(slots, stash), times(slots + 1, inbox)),
		.transfer_bytes = plus(times(2, plus(in_bytes, out_bytes)),
				       replicas > 1 ? parameters : 0),
		.scratch_bytes = scratch_peak(profile, first, count),
	};
	memory.total_bytes = plus(plus(plus(memory.weights_bytes, memory.gradient_bytes),
				       plus(memory.optimizer_bytes, memory.stash_bytes)),
				  plus(memory.transfer_bytes, memory.scratch_bytes));
	*out_p = memory;
}
