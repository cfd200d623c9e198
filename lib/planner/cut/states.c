/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/cut/states.h"

#include "base/mem.h"
#include "plan/memory.h"
#include "planner/cut/lattice.h"

#include <stdlib.h>
#include <string.h>

/* Tests for states: layers that share parameters, and sums of gradients, stay whole. */
struct tests {
	const struct pd_profile *profile;
	struct pd_uses uses;            /* of each layer's output */
};

static bool keeps_shares(const struct tests *tests, const uint64_t *set)
{
	const struct pd_model *model = tests->profile->model;

	for (int l = 0; model && l < tests->profile->layer_count; l++)
		if (model->layers[l].shares >= 0 &&
		    pd_set_has(set, l) != pd_set_has(set, model->layers[l].shares))
			return false;
	return true;
}

/*
 * Tells whether sums of gradients stay the same.  The gradients of n uses are added from the last
 * to the first.  With the uses sorted by stage, and in the profile's order inside a stage, the sum
 * stays the same if at most the last two change places: a + b = b + a.
 */
static bool keeps_sums(const struct tests *tests, const uint64_t *set)
{
	for (int l = 0; tests->profile->model && l < tests->profile->layer_count; l++) {
		const int *user = &tests->uses.users[tests->uses.first[l]];
		size_t n = tests->uses.first[l + 1] - tests->uses.first[l], u = 0;

		while (u + 2 < n && pd_set_has(set, user[u]))
			u++;
		if (u + 2 >= n)
			continue;
		for (; u < n; u++)
			if (pd_set_has(set, user[u]))
				return false;
	}
	return true;
}

/* A set, with the numbers by which it is sorted. */
struct entry {
	const uint64_t *set;
	size_t words;
	int64_t compute_ns;
	int layers;
};

static int by_contents(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	if (x->compute_ns != y->compute_ns)
		return x->compute_ns < y->compute_ns ? -1 : 1;
	if (x->layers != y->layers)
		return x->layers < y->layers ? -1 : 1;
	for (size_t w = x->words; w-- > 0;)
		if (x->set[w] != y->set[w])
			return x->set[w] < y->set[w] ? -1 : 1;
	return 0;
}

static struct entry entry_of(const struct pd_lattice *lattice, int number)
{
	struct entry entry = {
		.set = &lattice->sets[(size_t)number * lattice->words],
		.words = lattice->words,
	};

	for (int l = 0; l < lattice->profile->layer_count; l++) {
		const struct pd_profile_layer *layer = &lattice->profile->layers[l];

		if (!pd_set_has(entry.set, l))
			continue;
		entry.layers++;
		entry.compute_ns += layer->forward_ns + layer->backward_ns + layer->update_ns;
	}
	return entry;
}

/* Sorts the sets that are states into states->sets. */
static void take(struct pd_states *states, const struct pd_lattice *lattice, bool copies)
{
	struct entry *entries = pd_calloc((size_t)lattice->count, sizeof(*entries));
	struct tests tests = { .profile = lattice->profile };

	pd_profile_uses(tests.profile, &tests.uses);
	for (int i = 0; i < lattice->count; i++) {
		const uint64_t *set = &lattice->sets[(size_t)i * lattice->words];

		if ((copies || keeps_shares(&tests, set)) && keeps_sums(&tests, set))
			entries[states->count++] = entry_of(lattice, i);
	}
	pd_uses_release(&tests.uses);
	qsort(entries, (size_t)states->count, sizeof(*entries), by_contents);
	states->sets = pd_calloc((size_t)states->count * lattice->words, sizeof(*states->sets));
	states->layer_count = pd_calloc((size_t)states->count, sizeof(*states->layer_count));
	states->compute_ns = pd_calloc((size_t)states->count, sizeof(*states->compute_ns));
	for (int i = 0; i < states->count; i++) {
		memcpy(&states->sets[(size_t)i * lattice->words], entries[i].set,
		       lattice->words * sizeof(*states->sets));
		states->layer_count[i] = entries[i].layers;
		states->compute_ns[i] = entries[i].compute_ns;
	}
	free(entries);
}

/* Sets the bytes of parameters inside, and of tensors made inside and used outside. */
static void count_bytes(struct pd_states *states, bool copies)
{
	const struct pd_profile *profile = states->profile;
	/* Per layer: the last state for which its output was counted, plus 1. */
	int *counted = pd_calloc((size_t)profile->layer_count, sizeof(*counted));

	states->parameter_bytes = pd_calloc((size_t)states->count, sizeof(int64_t));
	states->cut_bytes = pd_calloc((size_t)states->count, sizeof(int64_t));
	for (int s = 0; s < states->count; s++)
		for (int l = 0; l < profile->layer_count; l++) {
			const struct pd_profile_layer *layer = &profile->layers[l];
			bool own = !profile->model || profile->model->layers[l].shares < 0;

			if (pd_states_has(states, s, l)) {
				states->parameter_bytes[s] += copies ? pd_memory_copy(profile, l)
							    : own ? layer->parameter_bytes : 0;
				continue;
			}
			for (int i = 0; i < layer->input_count; i++) {
				int t = layer->inputs[i];

				if (counted[t] == s + 1 || !pd_states_has(states, s, t))
					continue;
				counted[t] = s + 1;
				states->cut_bytes[s] += profile->layers[t].activation_bytes;
			}
		}
	free(counted);
}

/* Starts a lattice of at most `most` sets, or fewer if memory is limited. */
static void start(struct pd_lattice *lattice, const struct pd_profile *profile, int most)
{
	int64_t bytes = (int64_t)(((size_t)profile->layer_count + 63) / 64 * sizeof(uint64_t));

	if (most > PD_STATES_BYTES / bytes)
		most = (int)(PD_STATES_BYTES / bytes);
	pd_lattice_init(lattice, profile, most < 4 ? 4 : most);
}

/*
 * Adds some of the states; there are always some, since every order has the empty and the whole
 * one.
 */
static void fill_some(struct pd_lattice *lattice, const struct pd_profile *profile)
{
	uint64_t *empty = pd_calloc(((size_t)profile->layer_count + 63) / 64, sizeof(*empty));

	start(lattice, profile, PD_STATES_SOME);
	if (!pd_lattice_fill(lattice, PD_STATES_ALL, true)) {
		pd_lattice_release(lattice);
		start(lattice, profile, PD_STATES_SOME);
		pd_lattice_add(lattice, empty);
		lattice->most /= 2;
		pd_lattice_add_order(lattice, PD_ORDER_PROFILE);
		lattice->most *= 2;
		pd_lattice_add_ideals(lattice);
	}
	free(empty);
	for (int which = 0; which < PD_ORDERS; which++)
		pd_lattice_add_order(lattice, (enum pd_lattice_order)which);
	for (int before = -1; before < lattice->count && lattice->count < lattice->most;) {
		before = lattice->count;
		pd_lattice_add_next(lattice);
	}
}

void pd_states_init(struct pd_states *states, const struct pd_profile *profile,
		    enum pd_states_rule rule)
{
	struct pd_lattice lattice;

	*states = (struct pd_states){
		.profile = profile,
		.words = ((size_t)profile->layer_count + 63) / 64,
	};
	start(&lattice, profile, PD_STATES_MOST);
	states->whole = pd_lattice_fill(&lattice, rule, false);
	if (!states->whole) {
		pd_lattice_release(&lattice);
		fill_some(&lattice, profile);
	}
	take(states, &lattice, rule == PD_STATES_COPIES);
	pd_lattice_release(&lattice);
	count_bytes(states, rule == PD_STATES_COPIES);
}

void pd_states_release(struct pd_states *states)
{
	free(states->sets);
	free(states->layer_count);
	free(states->compute_ns);
	free(states->parameter_bytes);
	free(states->cut_bytes);
	*states = (struct pd_states){ 0 };
}

bool pd_states_within(const struct pd_states *states, int a, int b)
{
	const uint64_t *x = pd_states_set(states, a), *y = pd_states_set(states, b);

	for (size_t w = 0; w < states->words; w++)
		if (x[w] & ~y[w])
			return false;
	return true;
}

void pd_states_layers(const struct pd_states *states, const int *ends, int stage_count,
		      int **layers_p, int **order_p)
{
	int n = states->profile->layer_count, at = 0, l = 0;

	*layers_p = pd_calloc((size_t)stage_count, sizeof(**layers_p));
	*order_p = pd_calloc((size_t)n, sizeof(**order_p));
	for (int s = 0, before = 0; s < stage_count; before = ends[s++]) {
		int first = at;

		for (int i = 0; i < n; i++)
			if (pd_states_has(states, ends[s], i) && !pd_states_has(states, before, i))
				(*order_p)[at++] = i;
		(*layers_p)[s] = at - first;
	}
	while (l < n && (*order_p)[l] == l)
		l++;
	if (l < n)
		return;
	free(*order_p);
	*order_p = NULL;
}
