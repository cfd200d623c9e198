/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/cut/states.h"

#include "base/mem.h"
#include "base/sort.h"
#include "memory/memory.h"

#include <stdlib.h>
#include <string.h>

/* Sets of layers, each once, and how they grow. */
struct lattice {
	const struct pd_profile *profile;
	size_t words;
	int most, count;
	uint64_t *sets;                 /* [most][words] */
	int *table;                     /* hash table: number of a set, plus 1 */
	size_t table_size;              /* a power of two */
	uint64_t *needs;                /* [layer][words]: the layer and all layers before it */
	int *tail;                      /* the end of the chain that begins with a layer, which may be
					   the layer itself; -1: it is inside of one */
	uint64_t *grown;                /* scratch: a set */
};

static const uint64_t *set_of(const struct lattice *lattice, int number)
{
	return &lattice->sets[(size_t)number * lattice->words];
}

static uint64_t *needs_of(const struct lattice *lattice, int layer)
{
	return &lattice->needs[(size_t)layer * lattice->words];
}

/* Returns a limit of the number of sets: less where memory is. */
static int room_of(const struct lattice *lattice, int most)
{
	int64_t room = PD_STATES_BYTES / (int64_t)(lattice->words * sizeof(uint64_t));

	return most <= room ? most : room < 4 ? 4 : (int)room;
}

static void lattice_init(struct lattice *lattice, const struct pd_profile *profile)
{
	size_t n = (size_t)profile->layer_count;

	*lattice = (struct lattice){ .profile = profile, .words = (n + 63) / 64, .table_size = 64 };
	lattice->most = room_of(lattice, PD_STATES_MOST);
	while (lattice->table_size < 2 * (size_t)lattice->most)
		lattice->table_size *= 2;
	lattice->table = pd_calloc(lattice->table_size, sizeof(*lattice->table));
	lattice->sets = pd_calloc((size_t)lattice->most * lattice->words, sizeof(*lattice->sets));
	lattice->tail = pd_calloc(n, sizeof(*lattice->tail));
	lattice->needs = pd_calloc(n * lattice->words, sizeof(*lattice->needs));
	lattice->grown = pd_calloc(lattice->words, sizeof(*lattice->grown));
	for (size_t l = 0; l < n; l++) {
		const struct pd_profile_layer *layer = &profile->layers[l];
		uint64_t *needs = needs_of(lattice, (int)l);

		for (int i = 0; i < layer->input_count; i++)
			for (size_t w = 0; w < lattice->words; w++)
				needs[w] |= needs_of(lattice, layer->inputs[i])[w];
		pd_set_put(needs, (int)l);
		lattice->tail[l] = (int)l;
	}
}

static void lattice_release(struct lattice *lattice)
{
	free(lattice->sets);
	free(lattice->table);
	free(lattice->needs);
	free(lattice->tail);
	free(lattice->grown);
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

/* Adds a set unless it is there; returns false if there is no room for it. */
static bool add(struct lattice *lattice, const uint64_t *set)
{
	size_t words = lattice->words, mask = lattice->table_size - 1;
	size_t at = (size_t)hash(set, words) & mask;

	for (; lattice->table[at]; at = (at + 1) & mask)
		if (memcmp(set_of(lattice, lattice->table[at] - 1), set, words * sizeof(*set)) == 0)
			return true;
	if (lattice->count == lattice->most)
		return false;
	memcpy(&lattice->sets[(size_t)lattice->count * words], set, words * sizeof(*set));
	lattice->table[at] = ++lattice->count;
	return true;
}

/* Leaves only the empty set. */
static void clear(struct lattice *lattice)
{
	memset(lattice->table, 0, lattice->table_size * sizeof(*lattice->table));
	memset(lattice->grown, 0, lattice->words * sizeof(*lattice->grown));
	lattice->count = 0;
	add(lattice, lattice->grown);
}

static int only_input(const struct pd_profile_layer *layer)
{
	for (int i = 1; i < layer->input_count; i++)
		if (layer->inputs[i] != layer->inputs[0])
			return -1;
	return layer->input_count > 0 ? layer->inputs[0] : -1;
}

/*
 * Makes one of each chain: a layer follows its input in a chain if each is the other's only neighbour
 * there.
 */
static void find_chains(struct lattice *lattice)
{
	const struct pd_profile *profile = lattice->profile;
	int n = profile->layer_count, *tail = lattice->tail;
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

		if (input >= 0 && users[input] == 1) {
			tail[input] = tail[l];
			tail[l] = -1;
		}
	}
	free(users);
}

/* Tells whether a set may grow by layer l, and the rest of its chain. */
static bool grows(const struct lattice *lattice, const uint64_t *set, int l,
		  enum pd_states_rule rule)
{
	const struct pd_profile_layer *layer = &lattice->profile->layers[l];
	int inside = 0;

	if (pd_set_has(set, l) || lattice->tail[l] < 0)
		return false;
	for (int i = 0; i < layer->input_count; i++)
		inside += pd_set_has(set, layer->inputs[i]);
	return rule == PD_STATES_RELEASED ? inside > 0 : inside == layer->input_count;
}

static bool add_grown(struct lattice *lattice, const uint64_t *set, int l)
{
	const uint64_t *needs = needs_of(lattice, lattice->tail[l]);

	for (size_t w = 0; w < lattice->words; w++)
		lattice->grown[w] = set[w] | needs[w];
	return add(lattice, lattice->grown);
}

/*
 * Adds the successors of a set.  If the released rule has none, it takes the first missing layer.
 */
static bool expand(struct lattice *lattice, int at, enum pd_states_rule rule)
{
	const uint64_t *set = set_of(lattice, at);
	int n = lattice->profile->layer_count, first = -1;
	bool grown = false;

	for (int l = 0; l < n; l++) {
		if (first < 0 && !pd_set_has(set, l))
			first = l;
		if (!grows(lattice, set, l, rule))
			continue;
		grown = true;
		if (!add_grown(lattice, set, l))
			return false;
	}
	return grown || first < 0 || add_grown(lattice, set, first);
}

/* Adds all sets of a rule; returns false if there is no room for them. */
static bool fill(struct lattice *lattice, enum pd_states_rule rule)
{
	bool room = lattice->profile->layer_count <= PD_STATES_MOST;

	clear(lattice);
	for (int at = 0; at < lattice->count && room; at++)
		room = expand(lattice, at, rule);
	return room;
}

/* Adds each set with one more layer, in an order that neglects none for long, as far as there is room. */
static void add_next(struct lattice *lattice)
{
	int count = lattice->count;
	bool room = true;

	for (int step = 16, from = 15; from >= 0 && room; from--)
		for (int at = from; at < count && room; at += step)
			room = expand(lattice, at, PD_STATES_ALL);
}

/* Adds as many sets on the way of the profile's order as there is room for, the whole network among them. */
static void add_order(struct lattice *lattice)
{
	int64_t n = lattice->profile->layer_count, pieces = lattice->most - lattice->count;
	uint64_t *set = pd_calloc(lattice->words, sizeof(*set));

	for (int64_t l = 0; l < n; l++) {
		pd_set_put(set, (int)l);
		if ((l + 1) * pieces / n > l * pieces / n)
			add(lattice, set);
	}
	free(set);
}

/*
 * Adds some of the states; there are always some, since the profile's order has the empty and the
 * whole one.
 */
static void fill_some(struct lattice *lattice)
{
	int n = lattice->profile->layer_count, before = -1;
	bool few = n <= PD_STATES_MOST;

	lattice->most = room_of(lattice, PD_STATES_SOME);
	find_chains(lattice);
	if (!fill(lattice, PD_STATES_ALL)) {
		clear(lattice);
		lattice->most /= 2;
		add_order(lattice);
		lattice->most *= 2;
		for (int l = 0; l < n && few && add(lattice, needs_of(lattice, l)); l++)
			;               /* each layer with all that it needs */
	}
	add_order(lattice);
	for (int l = 0; l < n; l++)
		lattice->tail[l] = l;
	for (; few && before < lattice->count && lattice->count < lattice->most; add_next(lattice))
		before = lattice->count;
}

/* Tests for states: layers that share parameters, and sums of gradients, stay whole. */
struct tests {
	const struct pd_profile *profile;
	struct pd_uses uses;            /* of each layer's output */
};

static bool keeps_shares(const struct tests *tests, const uint64_t *set)
{
	for (int l = 0; tests->profile->shared_count > 0 && l < tests->profile->layer_count; l++)
		if (pd_set_has(set, l) != pd_set_has(set, pd_profile_owner(tests->profile, l)))
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

	PD_ORDER(x->compute_ns, y->compute_ns);
	PD_ORDER(x->layers, y->layers);
	for (size_t w = x->words; w-- > 0;)
		PD_ORDER(x->set[w], y->set[w]);
	return 0;
}

static struct entry entry_of(const struct lattice *lattice, int number)
{
	struct entry entry = {
		.set = set_of(lattice, number),
		.words = lattice->words,
	};

	for (int l = 0; l < lattice->profile->layer_count; l++) {
		if (!pd_set_has(entry.set, l))
			continue;
		entry.layers++;
		entry.compute_ns += pd_profile_step_ns(&lattice->profile->layers[l]);
	}
	return entry;
}

/* Sorts the sets that are states into states->sets. */
static void sort_sets(struct pd_states *states, const struct lattice *lattice, bool copies)
{
	struct entry *entries = pd_calloc((size_t)lattice->count, sizeof(*entries));
	struct tests tests = { .profile = lattice->profile };

	pd_profile_uses(tests.profile, &tests.uses);
	for (int i = 0; i < lattice->count; i++) {
		const uint64_t *set = set_of(lattice, i);

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
	/* the last state for which a layer's output was counted, plus 1 */
	int *counted = pd_calloc((size_t)profile->layer_count, sizeof(*counted));

	states->parameter_bytes = pd_calloc((size_t)states->count, sizeof(int64_t));
	states->cut_bytes = pd_calloc((size_t)states->count, sizeof(int64_t));
	for (int s = 0; s < states->count; s++)
		for (int l = 0; l < profile->layer_count; l++) {
			const struct pd_profile_layer *layer = &profile->layers[l];

			if (pd_states_has(states, s, l)) {
				states->parameter_bytes[s] += pd_memory_parameters(profile, l, copies);
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

void pd_states_init(struct pd_states *states, const struct pd_profile *profile,
		    enum pd_states_rule rule)
{
	struct lattice lattice;

	lattice_init(&lattice, profile);
	*states = (struct pd_states){ .profile = profile, .words = lattice.words };
	states->whole = fill(&lattice, rule);
	if (!states->whole)
		fill_some(&lattice);
	sort_sets(states, &lattice, rule == PD_STATES_COPIES);
	lattice_release(&lattice);
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
