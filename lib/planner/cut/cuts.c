/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cut before layer p of the profile is firm, in every topological order, if all the layers
 * before it are needed, directly or not, by all from p on.  Of those before, it is enough to look
 * at the ends, which no other of them uses; of those behind, at the beginnings, which use no
 * other of them: each beginning must use every end.
 *
 * Layer t is a beginning for the p that are above its last input and up to t; layer x is an end
 * for those that are above x and up to its first use.  In a chain that is one p each.
 */
#include "planner/cut/cuts.h"

#include "base/mem.h"

#include <stdlib.h>

static int *first_uses(const struct pd_profile *profile)
{
	int *first = pd_calloc((size_t)profile->layer_count, sizeof(*first));

	for (int l = 0; l < profile->layer_count; l++)
		first[l] = profile->layer_count;
	for (int l = profile->layer_count - 1; l >= 0; l--)
		for (int i = 0; i < profile->layers[l].input_count; i++)
			first[profile->layers[l].inputs[i]] = l;
	return first;
}

/* Counts the ends before each p (layer_count + 1 entries). */
static int *count_ends(const struct pd_profile *profile, const int *first_use)
{
	int n = profile->layer_count;
	int *ends = pd_calloc((size_t)n + 2, sizeof(*ends));

	for (int x = 0; x < n; x++) {
		ends[x + 1]++;
		ends[first_use[x] + 1]--;
	}
	for (int p = 1; p <= n; p++)
		ends[p] += ends[p - 1];
	return ends;
}

/* Returns how many of a layer's inputs are ends for p, each once. */
static int ends_used(const struct pd_profile_layer *layer, const int *first_use, int p)
{
	int count = 0;

	for (int i = 0; i < layer->input_count; i++) {
		bool again = false;

		for (int k = 0; k < i; k++)
			again |= layer->inputs[k] == layer->inputs[i];
		count += !again && first_use[layer->inputs[i]] >= p;
	}
	return count;
}

static bool *firm_layers(const struct pd_profile *profile)
{
	int n = profile->layer_count;
	bool *firm = pd_calloc((size_t)n + 1, sizeof(*firm));
	int *first_use = first_uses(profile), *ends = count_ends(profile, first_use);

	for (int p = 0; p <= n; p++)
		firm[p] = true;
	for (int t = 0; t < n; t++) {
		const struct pd_profile_layer *layer = &profile->layers[t];
		int last = 0;

		for (int i = 0; i < layer->input_count; i++)
			last = layer->inputs[i] + 1 > last ? layer->inputs[i] + 1 : last;
		for (int p = last > 0 ? last : 1; p <= t; p++)
			firm[p] &= ends_used(layer, first_use, p) == ends[p];
	}
	free(first_use);
	free(ends);
	return firm;
}

/* Tells whether the layers between two firm cuts can be put in another order. */
static bool can_change(const struct pd_costs *costs, const bool *firm, int from, int to)
{
	for (int l = costs->first[from] + 1; l < costs->first[to]; l++)
		if (!firm[l])
			return true;
	return false;
}

void pd_cuts_init(struct pd_cuts *cuts, const struct pd_costs *costs)
{
	bool *firm = firm_layers(costs->profile);
	int before = 0;

	cuts->count = 1;
	cuts->any_soft = false;
	cuts->list = pd_calloc(2 * (size_t)costs->unit_count + 1, sizeof(*cuts->list));
	for (int u = 1; u <= costs->unit_count; u++) {
		if (!firm[costs->first[u]])
			continue;
		if (can_change(costs, firm, before, u))
			cuts->list[cuts->count++] = (struct pd_cut){ true, before, u };
		cuts->any_soft |= cuts->list[cuts->count - 1].soft;
		cuts->list[cuts->count++] = (struct pd_cut){ false, u, u };
		before = u;
	}
	free(firm);
}

void pd_cuts_release(struct pd_cuts *cuts)
{
	free(cuts->list);
	cuts->list = NULL;
}

void pd_cuts_around(const struct pd_cuts *cuts, const struct pd_costs *costs,
		    const struct pd_states *states, int state, struct pd_cut *out_p)
{
	int layers = states->layer_count[state];

	*out_p = (struct pd_cut){ true, 0, costs->unit_count };
	for (int i = 0; i < cuts->count; i++) {
		const struct pd_cut *cut = &cuts->list[i];
		int before = costs->first[cut->last];

		if (cut->soft)
			continue;
		/* if firm, one contains the other */
		if (before <= layers)
			out_p->last = cut->last;
		if (before >= layers) {
			out_p->first = cut->last;
			break;
		}
	}
	out_p->soft = out_p->last != out_p->first;
}
