/* SPDX-License-Identifier: Apache-2.0 */
/* Computes what enters and leaves every stage between two states. */
#include "planner/cut/points.h"

#include "base/mem.h"

#include <stdlib.h>

#define MOST_LAYERS 1024
#define MOST_STATES 1600

struct tensors {
	const struct pd_states *states;
	uint64_t *uses;                 /* per tensor: the set of layers that use it */
	/* Per state: tensors inside that are used outside. */
	int *live, *first;              /* live[first[state]] to live[first[state + 1] - 1] */
};

static const uint64_t *uses_of(const struct tensors *tensors, int t)
{
	return &tensors->uses[(size_t)t * tensors->states->words];
}

/* Tells whether a layer of state b, but not of state a, uses it. */
static bool used_between(const struct tensors *tensors, int t, const uint64_t *a, const uint64_t *b)
{
	const uint64_t *uses = uses_of(tensors, t);

	for (size_t w = 0; w < tensors->states->words; w++)
		if (uses[w] & b[w] & ~a[w])
			return true;
	return false;
}

static bool used_outside(const struct tensors *tensors, int t, const uint64_t *a)
{
	const uint64_t *uses = uses_of(tensors, t);

	for (size_t w = 0; w < tensors->states->words; w++)
		if (uses[w] & ~a[w])
			return true;
	return false;
}

static void tensors_init(struct tensors *tensors, const struct pd_states *states)
{
	int n = states->profile->layer_count, count = 0, room = 0;

	*tensors = (struct tensors){ .states = states };
	tensors->uses = pd_calloc((size_t)n * states->words, sizeof(*tensors->uses));
	for (int l = 0; l < n; l++)
		for (int i = 0; i < states->profile->layers[l].input_count; i++) {
			size_t t = (size_t)states->profile->layers[l].inputs[i];

			tensors->uses[t * states->words + (size_t)l / 64] |= UINT64_C(1) << (l % 64);
		}
	tensors->first = pd_calloc((size_t)states->count + 1, sizeof(*tensors->first));
	for (int pass = 0; pass < 2; pass++) {
		count = 0;
		for (int s = 0; s < states->count; s++) {
			tensors->first[s] = count;
			for (int t = 0; t < n; t++)
				if (pd_states_has(states, s, t) &&
				    used_outside(tensors, t, pd_states_set(states, s))) {
					if (pass)
						tensors->live[count] = t;
					count++;
				}
		}
		tensors->first[states->count] = count;
		room = count;
		if (!pass)
			tensors->live = pd_calloc((size_t)room + 1, sizeof(*tensors->live));
	}
}

static void tensors_release(struct tensors *tensors)
{
	free(tensors->uses);
	free(tensors->live);
	free(tensors->first);
}

/* A stage receives what it uses, and sends on what it made or received (lib/plan/wiring). */
static int64_t stage_bytes(const struct tensors *tensors, int from, int to)
{
	const struct pd_profile_layer *layers = tensors->states->profile->layers;
	const uint64_t *a = pd_states_set(tensors->states, from);
	const uint64_t *b = pd_states_set(tensors->states, to);
	int64_t sum = 0;

	for (int i = tensors->first[from]; i < tensors->first[from + 1]; i++)
		if (used_between(tensors, tensors->live[i], a, b))
			sum += layers[tensors->live[i]].activation_bytes;
	for (int i = tensors->first[to]; i < tensors->first[to + 1]; i++) {
		int t = tensors->live[i];

		if (!pd_states_has(tensors->states, from, t) || used_between(tensors, t, a, b))
			sum += layers[t].activation_bytes;
	}
	return sum;
}

void pd_points_find_traffic(struct pd_points *points)
{
	const struct pd_states *states = points->states;
	struct tensors tensors;

	if (states->profile->layer_count > MOST_LAYERS || states->count > MOST_STATES)
		return;
	points->traffic = pd_calloc(points->first[states->count] + 1, sizeof(*points->traffic));
	tensors_init(&tensors, states);
	for (int u = 0; u < states->count; u++)
		for (size_t i = points->first[u]; i < points->first[u + 1]; i++)
			points->traffic[i] = stage_bytes(&tensors, u, points->next[i]);
	tensors_release(&tensors);
}
