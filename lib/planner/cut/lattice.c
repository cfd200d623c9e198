/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/cut/lattice.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

void pd_lattice_init(struct pd_lattice *lattice, const struct pd_profile *profile, int most)
{
	size_t size = 64;

	while (size < 2 * (size_t)most)
		size *= 2;
	*lattice = (struct pd_lattice){
		.profile = profile,
		.words = ((size_t)profile->layer_count + 63) / 64,
		.most = most,
		.table = pd_calloc(size, sizeof(*lattice->table)),
		.table_size = size,
	};
}

void pd_lattice_release(struct pd_lattice *lattice)
{
	free(lattice->sets);
	free(lattice->table);
	*lattice = (struct pd_lattice){ 0 };
}

static uint64_t hash(const uint64_t *set, size_t words)
{
	uint64_t h = 0;

	for (size_t w = 0; w < words; w++) {
		h = (h ^ set[w]) * UINT64_C(0x9E3779B97F4A7C15);
		h ^= h >> 29;
	}
	return h;
}

bool pd_lattice_add(struct pd_lattice *lattice, const uint64_t *set)
{
	size_t words = lattice->words, mask = lattice->table_size - 1;
	size_t at = (size_t)hash(set, words) & mask;

	for (; lattice->table[at]; at = (at + 1) & mask)
		if (memcmp(&lattice->sets[(size_t)(lattice->table[at] - 1) * words], set,
			   words * sizeof(*set)) == 0)
			return true;
	if (lattice->count == lattice->most)
		return false;
	lattice->sets = pd_grow(lattice->sets, &lattice->capacity, (size_t)lattice->count + 1,
				words * sizeof(*set));
	memcpy(&lattice->sets[(size_t)lattice->count * words], set, words * sizeof(*set));
	lattice->table[at] = ++lattice->count;
	return true;
}

/* The layers as a graph, prepared for enumeration. */
struct graph {
	const struct pd_profile *profile;
	size_t words;
	uint64_t *needs;                /* [layer][words]: the layer and all layers before it */
	int *tail;                      /* the end of its chain, or the layer itself */
	bool *head;                     /* whether a chain begins with it */
};

static int only_input(const struct pd_profile_layer *layer)
{
	for (int i = 1; i < layer->input_count; i++)
		if (layer->inputs[i] != layer->inputs[0])
			return -1;
	return layer->input_count > 0 ? layer->inputs[0] : -1;
}

/*
 * Finds chains: a layer follows its input in a chain if each is the other's only neighbour there.
 */
static void find_chains(struct graph *graph)
{
	const struct pd_profile *profile = graph->profile;
	int n = profile->layer_count;
	int *users = pd_calloc((size_t)n, sizeof(*users));      /* number of layers that use it */

	for (int l = 0; l < n; l++)
		for (int i = 0; i < profile->layers[l].input_count; i++) {
			bool again = false;

			for (int k = 0; k < i; k++)
				again |= profile->layers[l].inputs[k] == profile->layers[l].inputs[i];
			users[profile->layers[l].inputs[i]] += !again;
		}
	for (int l = n - 1; l >= 0; l--) {
		int input = only_input(&profile->layers[l]);

		graph->tail[l] = graph->tail[l] ? graph->tail[l] - 1 : l;
		graph->head[l] = input < 0 || users[input] != 1;
		if (!graph->head[l])
			graph->tail[input] = graph->tail[l] + 1;        /* 0 means not known yet */
	}
	free(users);
}

static void graph_init(struct graph *graph, const struct pd_profile *profile, bool chains)
{
	int n = profile->layer_count;

	*graph = (struct graph){
		.profile = profile,
		.words = ((size_t)n + 63) / 64,
		.tail = pd_calloc((size_t)n, sizeof(*graph->tail)),
		.head = pd_calloc((size_t)n, sizeof(*graph->head)),
	};
	graph->needs = pd_calloc((size_t)n * graph->words, sizeof(*graph->needs));
	for (int l = 0; l < n; l++) {
		uint64_t *needs = &graph->needs[(size_t)l * graph->words];

		for (int i = 0; i < profile->layers[l].input_count; i++) {
			const uint64_t *input = &graph->needs[(size_t)profile->layers[l].inputs[i] *
							      graph->words];

			for (size_t w = 0; w < graph->words; w++)
				needs[w] |= input[w];
		}
		pd_set_put(needs, l);
		graph->tail[l] = chains ? 0 : l;
		graph->head[l] = true;
	}
	if (chains)
		find_chains(graph);
}

static void graph_release(struct graph *graph)
{
	free(graph->needs);
	free(graph->tail);
	free(graph->head);
}

/* Tells whether the set may grow by layer l, and the rest of its chain. */
static bool grows(const struct graph *graph, const uint64_t *set, int l, enum pd_states_rule rule)
{
	const struct pd_profile_layer *layer = &graph->profile->layers[l];
	int inside = 0;

	if (pd_set_has(set, l) || !graph->head[l])
		return false;
	for (int i = 0; i < layer->input_count; i++)
		inside += pd_set_has(set, layer->inputs[i]);
	return rule == PD_STATES_RELEASED ? inside > 0 : inside == layer->input_count;
}

static bool add_grown(struct pd_lattice *lattice, const struct graph *graph, const uint64_t *set,
		      int l, uint64_t *scratch)
{
	const uint64_t *needs = &graph->needs[(size_t)graph->tail[l] * graph->words];

	for (size_t w = 0; w < graph->words; w++)
		scratch[w] = set[w] | needs[w];
	return pd_lattice_add(lattice, scratch);
}

/*
 * Adds the successors of a set.  If the released rule has none, it takes the first missing layer.
 */
static bool expand(struct pd_lattice *lattice, const struct graph *graph, int at,
		   enum pd_states_rule rule, uint64_t *set, uint64_t *scratch)
{
	int n = lattice->profile->layer_count, first = -1;
	bool grown = false;

	/* use a copy, since sets move when the array grows */
	memcpy(set, &lattice->sets[(size_t)at * lattice->words],
	       lattice->words * sizeof(*set));
	for (int l = 0; l < n; l++) {
		if (first < 0 && !pd_set_has(set, l))
			first = l;
		if (!grows(graph, set, l, rule))
			continue;
		grown = true;
		if (!add_grown(lattice, graph, set, l, scratch))
			return false;
	}
	return grown || first < 0 || add_grown(lattice, graph, set, first, scratch);
}

bool pd_lattice_fill(struct pd_lattice *lattice, enum pd_states_rule rule, bool chains)
{
	uint64_t *set, *scratch;
	struct graph graph;
	bool room;

	if (lattice->profile->layer_count > PD_STATES_MOST)
		return false;
	graph_init(&graph, lattice->profile, chains);
	set = pd_calloc(lattice->words, sizeof(*set));
	scratch = pd_calloc(lattice->words, sizeof(*scratch));
	room = pd_lattice_add(lattice, set);
	for (int at = 0; at < lattice->count && room; at++)
		room = expand(lattice, &graph, at, rule, set, scratch);
	free(set);
	free(scratch);
	graph_release(&graph);
	return room;
}

void pd_lattice_add_ideals(struct pd_lattice *lattice)
{
	struct graph graph;

	if (lattice->profile->layer_count > PD_STATES_MOST)
		return;
	graph_init(&graph, lattice->profile, false);
	for (int l = 0; l < lattice->profile->layer_count; l++)
		if (!pd_lattice_add(lattice, &graph.needs[(size_t)l * graph.words]))
			break;
	graph_release(&graph);
}

/* Adds each set with one more layer, in an order that neglects none for long. */
void pd_lattice_add_next(struct pd_lattice *lattice)
{
	uint64_t *set, *scratch;
	struct graph graph;
	int count = lattice->count;
	bool room = true;

	if (lattice->profile->layer_count > PD_STATES_MOST)
		return;
	graph_init(&graph, lattice->profile, false);
	set = pd_calloc(lattice->words, sizeof(*set));
	scratch = pd_calloc(lattice->words, sizeof(*scratch));
	for (int step = 16, from = 15; from >= 0 && room; from--)
		for (int at = from; at < count && room; at += step)
			room = expand(lattice, &graph, at, PD_STATES_ALL, set, scratch);
	free(set);
	free(scratch);
	graph_release(&graph);
}

/* What follows finds states on the way of a few topological orders, for networks with too many. */

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
