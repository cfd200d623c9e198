/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/chain.h"

#include "base/mem.h"

#include <stdlib.h>

#define MOST_POWERS 32

struct chain_sums {                     /* sums over all layers before one */
	int64_t parameters, stash, state;
};

/*
 * Scratch holds most while some layer is at work (scratch_peak of lib/plan/memory): the gradient
 * of its output, if a layer of the stage wants it, that of its input, if it comes from a layer of
 * the stage, and its workspace.  So it is the same for a layer in all stages of which it is neither
 * the first nor the last, and the most of those between is the larger one of two powers of two of
 * them that overlap.
 */
struct pd_chain {
	const struct pd_profile *profile;
	struct chain_sums *sums;
	int64_t *most[MOST_POWERS];     /* [p][l]: the most of the 2^p layers from l on */
};

static bool is_chain(const struct pd_profile *profile)
{
	int64_t sum = 0;

	for (int l = 0; l < profile->layer_count; l++) {
		const struct pd_profile_layer *layer = &profile->layers[l];

		if (layer->input_count > 1 ||
		    (layer->input_count == 1 && layer->inputs[0] != l - 1))
			return false;
		sum = pd_plus(sum, layer->parameter_bytes);
		sum = pd_plus(sum, pd_plus(layer->stash_bytes, layer->state_bytes));
		sum = pd_plus(sum, pd_plus(layer->activation_bytes, layer->workspace_bytes));
	}
	return !profile->model && sum <= INT64_MAX / 2;
}

/* Tells whether a layer computes the gradient of its input. */
static bool passes_back(const struct pd_profile *profile, int l)
{
	return profile->layers[l].input_count == 1 && profile->layers[l - 1].needs_gradient;
}

/*
 * Returns the scratch while a layer runs, in a stage that begins before it, or (first) with it, and
 * ends behind it, or (last) with it.
 */
static int64_t at_work(const struct pd_profile *profile, int l, bool first, bool last)
{
	const struct pd_profile_layer *layer = &profile->layers[l];
	bool comes = !last && passes_back(profile, l + 1), goes = !first && passes_back(profile, l);
	int64_t bytes = layer->workspace_bytes;

	if (goes)
		bytes += profile->layers[l - 1].activation_bytes;
	/* a layer that keeps nothing passes the gradient on */
	if (comes && !(goes && layer->stash_bytes == 0))
		bytes += layer->activation_bytes;
	return bytes;
}

struct pd_chain *pd_chain_new(const struct pd_profile *profile)
{
	int n = profile->layer_count;
	struct pd_chain *chain;

	if (!is_chain(profile))
		return NULL;
	chain = pd_zalloc(sizeof(*chain));
	chain->profile = profile;
	chain->sums = pd_calloc((size_t)n + 1, sizeof(*chain->sums));
	for (int l = 0; l < n; l++) {
		const struct pd_profile_layer *layer = &profile->layers[l];

		chain->sums[l + 1] = (struct chain_sums){
			chain->sums[l].parameters + layer->parameter_bytes,
			chain->sums[l].stash + layer->stash_bytes,
			chain->sums[l].state + layer->state_bytes,
		};
	}
	for (int p = 0; p < MOST_POWERS && n >> p > 0; p++) {
		int half = p > 0 ? 1 << (p - 1) : 0;

		chain->most[p] = pd_calloc((size_t)n, sizeof(int64_t));
		for (int l = 0; l + (1 << p) <= n; l++) {
			int64_t a = p > 0 ? chain->most[p - 1][l]
					  : at_work(profile, l, false, l + 1 == n);
			int64_t b = p > 0 ? chain->most[p - 1][l + half] : a;

			chain->most[p][l] = a > b ? a : b;
		}
	}
	return chain;
}

void pd_chain_free(struct pd_chain *chain)
{
	if (!chain)
		return;
	for (int p = 0; p < MOST_POWERS; p++)
		free(chain->most[p]);
	free(chain->sums);
	free(chain);
}

/* Returns the most of layers from begin to end - 1, inside a stage; 0 if there are none. */
static int64_t most_between(const struct pd_chain *chain, int begin, int end)
{
	int p = 0;
	int64_t a, b;

	if (begin >= end)
		return 0;
	while (2 << p <= end - begin)
		p++;
	a = chain->most[p][begin];
	b = chain->most[p][end - (1 << p)];
	return a > b ? a : b;
}

void pd_chain_sums(const struct pd_chain *chain, int first, int count,
		   struct pd_memory_sums *sums_p)
{
	const struct chain_sums *from = &chain->sums[first], *to = &chain->sums[first + count];
	int last = first + count - 1;
	int64_t most = most_between(chain, first + 1, last);
	int64_t ends[] = { at_work(chain->profile, first, true, count == 1),
			   at_work(chain->profile, last, count == 1, true) };

	for (int i = 0; i < 2; i++)
		most = ends[i] > most ? ends[i] : most;
	*sums_p = (struct pd_memory_sums){
		.parameters = to->parameters - from->parameters,
		.stash = to->stash - from->stash, .state = to->state - from->state,
		.scratch = most,
	};
}
