/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the states of random graphs against all subsets of their layers. */
#include "base/mem.h"
#include "planner/cut/states.h"

#include "memory/memory.h"
#include "small_profile.h"
#include "tap.h"

#include <stdlib.h>
#include <string.h>

static uint32_t seed = 7;

static int below(int n)
{
	seed = seed * 1664525 + 1013904223;
	return (int)((seed >> 8) % (uint32_t)n);
}

/* Returns layers as in "a<x b<a c<ab", with up to three inputs each, sometimes none, or one twice. */
static struct pd_profile *random_graph(int layers)
{
	char text[2048] = "", part[16];

	for (int l = 0; l < layers; l++) {
		int inputs = l == 0 ? 0 : below(8) == 0 ? 0 : 1 + below(l < 3 ? l : 3);

		snprintf(part, sizeof(part), "%s%c<", l ? " " : "", 'a' + l);
		strcat(text, part);
		if (!inputs)
			strcat(text, "x");
		for (int i = 0; i < inputs; i++) {
			snprintf(part, sizeof(part), "%c", 'a' + below(l));
			strcat(text, part);
		}
	}
	return small_profile(text);
}

static bool closed(const struct pd_profile *profile, uint64_t set)
{
	for (int l = 0; l < profile->layer_count; l++)
		for (int i = 0; set >> l & 1 && i < profile->layers[l].input_count; i++)
			if (!(set >> profile->layers[l].inputs[i] & 1))
				return false;
	return true;
}

/* Tells whether a plan that is cut at the set adds up the gradients of all tensors in the same order. */
static bool same_sums(const struct pd_profile *profile, uint64_t set)
{
	for (int t = 0; t < profile->layer_count; t++) {
		int uses[2][64], n = 0, m = 0;

		for (int l = 0; l < profile->layer_count; l++)
			for (int i = 0; i < profile->layers[l].input_count; i++)
				if (profile->layers[l].inputs[i] == t)
					uses[0][n++] = l;
		for (int side = 1; side >= 0; side--)
			for (int u = 0; u < n; u++)
				if ((int)(set >> uses[0][u] & 1) == side)
					uses[1][m++] = uses[0][u];
		/* The sum goes from the last use to the first, so that the last two may be swapped. */
		for (int u = 0; u + 2 < n; u++)
			if (uses[0][u] != uses[1][u])
				return false;
	}
	return true;
}

static bool agrees(const struct pd_states *states, int s, bool copies)
{
	const struct pd_profile *profile = states->profile;
	uint64_t set = pd_states_set(states, s)[0];
	int64_t ns = 0, parameters = 0, cut = 0;

	for (int l = 0; l < profile->layer_count; l++) {
		bool outside = false;

		for (int u = 0; u < profile->layer_count; u++)
			for (int i = 0; i < profile->layers[u].input_count; i++)
				outside |= !(set >> u & 1) && profile->layers[u].inputs[i] == l;
		if (!(set >> l & 1))
			continue;
		ns += profile->layers[l].forward_ns + profile->layers[l].backward_ns;
		parameters += copies ? pd_memory_copy(profile, l) : profile->layers[l].parameter_bytes;
		cut += outside ? profile->layers[l].activation_bytes : 0;
	}
	return closed(profile, set) && states->compute_ns[s] == ns &&
		states->parameter_bytes[s] == parameters && states->cut_bytes[s] == cut &&
		states->layer_count[s] == __builtin_popcountll(set);
}

/* Tells whether a state is contained only in states of higher numbers, and none is there twice. */
static bool sorted(const struct pd_states *states)
{
	for (int a = 0; a < states->count; a++)
		for (int b = 0; b < states->count; b++) {
			uint64_t x = pd_states_set(states, a)[0], y = pd_states_set(states, b)[0];

			if (pd_states_within(states, a, b) != ((x & ~y) == 0))
				return false;
			if (a < b ? x == y || (y & ~x) == 0 : a > b && (x & ~y) == 0)
				return false;
		}
	return states->layer_count[0] == 0 &&
		states->layer_count[states->count - 1] == states->profile->layer_count;
}

static void test_all(void)
{
	int good = 0, cases = 200;

	for (int n = 0; n < cases; n++) {
		struct pd_profile *profile = random_graph(1 + below(10));
		struct pd_layer layers[10] = { 0 };
		struct pd_model model = { .layer_count = 10, .layers = layers };
		struct pd_states states;
		int expected = 0;
		bool fine, copies = n % 4 == 3;

		profile->shared_count = copies ? profile->layer_count : 0;
		for (int l = 0; l < profile->shared_count; l++)
			profile->layers[l].shared = true;       /* with layer 0 */
		if (n % 2)
			profile->model = &model;
		pd_states_init(&states, profile, copies ? PD_STATES_COPIES : PD_STATES_ALL);
		for (uint64_t set = 0; set < UINT64_C(1) << profile->layer_count; set++)
			expected += closed(profile, set) &&
				(!profile->model || same_sums(profile, set));
		fine = states.whole && states.count == expected && sorted(&states);
		for (int s = 0; s < states.count; s++)
			fine = fine && agrees(&states, s, copies);
		good += fine;
		pd_states_release(&states);
		profile->model = NULL;
		pd_profile_free(profile);
	}
	is_int(good, cases, "all sets that contain their inputs, each once, those inside first");
}

/* Tests the states of the released program, by its rule on sets of names. */
static void test_released(void)
{
	/* b reads a; s is another source, which c reads; d reads s alone. */
	struct pd_profile *profile = small_profile("a<x b<a s<x c<bs d<s");
	struct pd_states states;
	/* The sets are none, a, ab, absc, abscd. */
	uint64_t expected[] = { 0, 1, 3, 15, 31 };
	bool fine = true;

	pd_states_init(&states, profile, PD_STATES_RELEASED);
	is_int(states.count, 5, "a source comes with the layer that uses it");
	for (int s = 0; s < states.count && s < 5; s++)
		fine = fine && pd_states_set(&states, s)[0] == expected[s];
	ok(fine, "and what uses it alone afterwards");
	pd_states_release(&states);
	pd_profile_free(profile);
	profile = small_profile("a<x b<a s<x t<s");
	pd_states_init(&states, profile, PD_STATES_RELEASED);
	ok(states.whole && states.layer_count[states.count - 1] == 4,
	   "a second network beside the first is not forgotten");
	pd_states_release(&states);
	pd_profile_free(profile);
}

static void test_order(void)
{
	struct pd_profile *profile = small_profile("a<x b<a c<a d<b e<c f<de");
	struct pd_states states;
	int ends[3] = { 0 }, *order, *counts;

	pd_states_init(&states, profile, PD_STATES_ALL);
	for (int s = 0; s < states.count; s++) {
		uint64_t set = pd_states_set(&states, s)[0];

		ends[0] = set == (1 | 4 | 16) ? s : ends[0];            /* a c e */
		ends[1] = set == (1 | 2 | 4 | 8 | 16) ? s : ends[1];    /* a b c d e */
		ends[2] = set == 63 ? s : ends[2];
	}
	pd_states_layers(&states, ends, 3, &counts, &order);
	ok(order && memcmp(order, (int[]){ 0, 2, 4, 1, 3, 5 }, 6 * sizeof(*order)) == 0 &&
	   memcmp(counts, (int[]){ 3, 2, 1 }, 3 * sizeof(*counts)) == 0,
	   "the order of a plan's layers: by stage, then as in the profile");
	free(order);
	free(counts);
	pd_states_release(&states);
	pd_profile_free(profile);
}

/* Returns blocks of branches of `length` layers each, between a first layer and a last one. */
static struct pd_profile *wide_profile(int blocks, int branches, int length)
{
	int layers = 1 + blocks * (branches * length + 1), at = 0, from = 0;
	struct pd_profile *profile = pd_zalloc(sizeof(*profile));

	profile->layers = pd_calloc((size_t)layers, sizeof(*profile->layers));
	profile->layer_count = layers;
	for (int l = 0; l < layers; l++) {
		profile->layers[l].inputs = pd_calloc((size_t)branches, sizeof(int));
		profile->layers[l].forward_ns = 1 + below(1000);
		profile->layers[l].activation_bytes = 1 + below(1000);
	}
	for (int k = 0; k < blocks; k++) {
		struct pd_profile_layer *join = &profile->layers[from + branches * length + 1];

		for (int b = 0; b < branches; b++) {
			for (int i = 0; i < length; i++) {
				profile->layers[++at].input_count = 1;
				profile->layers[at].inputs[0] = i ? at - 1 : from;
			}
			join->inputs[join->input_count++] = at;
		}
		from = ++at;
	}
	return profile;
}

static void test_many(const char *what, int blocks, int branches, int length, int chains)
{
	struct pd_profile *profile = wide_profile(blocks, branches, length);
	struct pd_states states;
	int bad = 0, prefixes = 0;

	pd_states_init(&states, profile, PD_STATES_ALL);
	for (int s = 0; s < states.count; s++) {
		bool prefix = true;

		for (int l = 0; l < profile->layer_count; l++) {
			for (int i = 0; i < profile->layers[l].input_count; i++)
				bad += pd_states_has(&states, s, l) &&
					!pd_states_has(&states, s, profile->layers[l].inputs[i]);
			prefix = prefix && pd_states_has(&states, s, l) == (l < states.layer_count[s]);
		}
		prefixes += prefix;
	}
	diag("%s: %d layers, %d states, %d of them prefixes", what, profile->layer_count,
	     states.count, prefixes);
	ok(!states.whole && bad == 0 && states.count <= PD_STATES_SOME &&
	   states.layer_count[0] == 0 &&
	   states.layer_count[states.count - 1] == profile->layer_count,
	   "%s: a part of the states, all of them states", what);
	ok(chains ? states.count >= chains && prefixes == profile->layer_count + 1
		  : prefixes >= PD_STATES_SOME / 4 || prefixes == profile->layer_count + 1,
	   "%s: enough of them", what);
	pd_states_release(&states);
	pd_profile_free(profile);
}

int main(void)
{
	test_all();
	test_released();
	test_order();
	test_many("blocks of branches", 11, 4, 6, 11 * 15);
	test_many("many branches", 10, 40, 3, 0);
	test_many("a long chain", 5000, 1, 1, 0);
	return done_testing();
}
