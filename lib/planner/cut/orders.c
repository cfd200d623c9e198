/* SPDX-License-Identifier: Apache-2.0 */
/* Finds states on the way of a few topological orders, for networks with too many states. */
#include "planner/cut/lattice.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

struct walk {
	const struct pd_profile *profile;
	struct pd_uses uses;            /* of each layer's output */
	int *missing;                   /* per layer: inputs that are not there yet */
	int *wanted;                    /* per layer: uses of its output that are not there yet */
	int *ready, ready_count;        /* a stack */
};

static void walk_init(struct walk *walk, const struct pd_profile *profile)
{
	size_t n = (size_t)profile->layer_count;
	int **inputs = pd_calloc(n, sizeof(*inputs)), *counts = pd_calloc(n, sizeof(*counts));

	*walk = (struct walk){
		.profile = profile,
		.missing = pd_calloc(n, sizeof(int)),
		.wanted = pd_calloc(n, sizeof(int)),
		.ready = pd_calloc(n, sizeof(int)),
	};
	for (size_t l = 0; l < n; l++) {
		inputs[l] = profile->layers[l].inputs;
		counts[l] = walk->missing[l] = profile->layers[l].input_count;
	}
	pd_uses_init(&walk->uses, (int)n, (int)n, inputs, counts);
	for (size_t l = 0; l < n; l++)
		walk->wanted[l] = (int)(walk->uses.first[l + 1] - walk->uses.first[l]);
	for (size_t l = n; l-- > 0;)
		if (!walk->missing[l])
			walk->ready[walk->ready_count++] = (int)l;
	free(inputs);
	free(counts);
}

static void walk_release(struct walk *walk)
{
	pd_uses_release(&walk->uses);
	free(walk->missing);
	free(walk->wanted);
	free(walk->ready);
}

/* Counts the layer's uses of its inputs as done; returns the bytes that are not used any more. */
static int64_t take_inputs(struct walk *walk, int l)
{
	const struct pd_profile_layer *layer = &walk->profile->layers[l];
	int64_t bytes = 0;

	for (int i = 0; i < layer->input_count; i++)
		if (--walk->wanted[layer->inputs[i]] == 0)
			bytes += walk->profile->layers[layer->inputs[i]].activation_bytes;
	return bytes;
}

static void give_back_inputs(struct walk *walk, int l)
{
	const struct pd_profile_layer *layer = &walk->profile->layers[l];

	for (int i = 0; i < layer->input_count; i++)
		walk->wanted[layer->inputs[i]]++;
}

/* Returns by how much the cut grows when it goes behind a layer. */
static int64_t more_bytes(struct walk *walk, int l)
{
	int64_t gone = take_inputs(walk, l);

	give_back_inputs(walk, l);
	return (walk->wanted[l] ? walk->profile->layers[l].activation_bytes : 0) - gone;
}

static int pick(struct walk *walk, enum pd_lattice_order which)
{
	int best = walk->ready_count - 1, layer;
	int64_t least = INT64_MAX;

	for (int r = walk->ready_count - 1; which == PD_ORDER_LEAST_BYTES && r >= 0; r--) {
		int64_t more = more_bytes(walk, walk->ready[r]);

		if (more < least) {
			least = more;
			best = r;
		}
	}
	layer = walk->ready[best];
	walk->ready_count--;
	memmove(&walk->ready[best], &walk->ready[best + 1],
		(size_t)(walk->ready_count - best) * sizeof(*walk->ready));
	return layer;
}

static void make_order(struct walk *walk, enum pd_lattice_order which, int *order)
{
	int n = walk->profile->layer_count;

	for (int at = 0; at < n; at++) {
		size_t first, end;
		int l = order[at] = which == PD_ORDER_PROFILE ? at : pick(walk, which);

		take_inputs(walk, l);
		first = walk->uses.first[l];
		end = walk->uses.first[l + 1];
		for (size_t k = 0; k < end - first && which != PD_ORDER_PROFILE; k++) {
			/* the one pushed last comes first */
			int user = walk->uses.users[which == PD_ORDER_LAST_BRANCH_FIRST
						    ? first + k : end - 1 - k];

			if (--walk->missing[user] == 0)
				walk->ready[walk->ready_count++] = user;
		}
	}
	for (int l = 0; l < n; l++)
		give_back_inputs(walk, l);
}

/*
 * Chooses the states: ends[p] is the number of layers of the one in piece p; the last is the whole
 * network.
 */
static int choose_ends(struct walk *walk, const int *order, int pieces, int *ends)
{
	const struct pd_profile *profile = walk->profile;
	int n = profile->layer_count, count = 0;
	double total = 0, done = 0, next = 0;
	int64_t cut = 0, least = INT64_MAX;

	for (int l = 0; l < n; l++)
		total += (double)(profile->layers[l].forward_ns + profile->layers[l].backward_ns) + 1;
	for (int at = 0; at < n; at++) {
		const struct pd_profile_layer *layer = &profile->layers[order[at]];

		cut += walk->wanted[order[at]] ? layer->activation_bytes : 0;
		cut -= take_inputs(walk, order[at]);
		done += (double)(layer->forward_ns + layer->backward_ns) + 1;
		if (count < pieces && (done >= next || n <= pieces)) {      /* a new piece */
			count++;
			next = total * count / pieces;
			least = INT64_MAX;
		}
		if (cut < least || at == n - 1) {
			least = cut;
			ends[count - 1] = at + 1;
		}
	}
	for (int l = 0; l < n; l++)
		give_back_inputs(walk, l);
	return count;
}

void pd_lattice_add_order(struct pd_lattice *lattice, enum pd_lattice_order which)
{
	int n = lattice->profile->layer_count, pieces = lattice->most - lattice->count, count;
	int *order, *ends;
	uint64_t *set;
	struct walk walk;

	if (pieces < 1 || (which != PD_ORDER_PROFILE && n > PD_STATES_MOST))
		return;
	order = pd_calloc((size_t)n, sizeof(*order));
	ends = pd_calloc((size_t)pieces, sizeof(*ends));
	set = pd_calloc(lattice->words, sizeof(*set));
	walk_init(&walk, lattice->profile);
	make_order(&walk, which, order);
	count = choose_ends(&walk, order, pieces, ends);
	for (int p = 0, at = 0; p < count; p++) {
		while (at < ends[p])
			pd_set_put(set, order[at++]);
		pd_lattice_add(lattice, set);
	}
	walk_release(&walk);
	free(order);
	free(ends);
	free(set);
}
