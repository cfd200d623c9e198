/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/memory.h"

#include "base/mem.h"

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

void pd_memory_of(const struct pd_profile *profile, int first, int count, int replicas,
		  int warmup, int64_t in_bytes, int64_t out_bytes, struct pd_memory *out_p)
{
	int64_t parameters = 0, stash = 0, workspace = 0, slots = (int64_t)warmup + 1;
	struct pd_memory memory;

	for (int l = first; l < first + count; l++) {
		const struct pd_profile_layer *layer = &profile->layers[l];

		/* a layer that shares another's parameters has none of its own */
		if (!profile->model || profile->model->layers[l].shares < 0)
			parameters += layer->parameter_bytes;
		stash += layer->stash_bytes;
		if (layer->workspace_bytes > workspace)
			workspace = layer->workspace_bytes;
	}
	memory = (struct pd_memory){
		.weights_bytes = times(slots, parameters),
		.gradient_bytes = parameters,
		.optimizer_bytes = parameters,
		.stash_bytes = times(slots, plus(stash, in_bytes)),
		.transfer_bytes = plus(times(2, plus(in_bytes, out_bytes)),
				       replicas > 1 ? parameters : 0),
		.workspace_bytes = workspace,
	};
	memory.total_bytes = plus(plus(plus(memory.weights_bytes, memory.gradient_bytes),
				       plus(memory.optimizer_bytes, memory.stash_bytes)),
				  plus(memory.transfer_bytes, memory.workspace_bytes));
	*out_p = memory;
}
