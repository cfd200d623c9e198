/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests plans by levels against brute force, which evaluates the formulas word for word, without tables,
 * over all chains of states.
 */
#include "base/mem.h"
#include "planner/formula/levels.h"
#include "small_profile.h"
#include "tap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint32_t seed = 3;

static int below(int n)
{
	seed = seed * 1664525 + 1013904223;
	return (int)((seed >> 8) % (uint32_t)n);
}

static struct pd_profile *random_graph(int layers)
{
	struct pd_profile *profile;
	char text[512] = "", part[16];
	bool nothing = below(20) == 0;          /* layers take no time and have no parameters */

	for (int l = 0; l < layers; l++) {
		snprintf(part, sizeof(part), "%s%c<", l ? " " : "", 'a' + l);
		strcat(text, part);
		if (l == 0 || below(9) == 0)
			strcat(text, "x");
		for (int i = 0; i < 1 + below(2) && text[strlen(text) - 1] != 'x'; i++) {
			snprintf(part, sizeof(part), "%c", 'a' + (below(2) ? l - 1 : below(l)));
			strcat(text, part);
		}
	}
	profile = small_profile(text);
	for (int l = 0; l < layers; l++) {
		profile->layers[l].forward_ns = !nothing && below(4) ? below(1000) : 0;
		profile->layers[l].backward_ns = !nothing && below(4) ? below(2000) : 0;
		profile->layers[l].update_ns = nothing ? 0 : below(50);
		profile->layers[l].activation_bytes = below(1000);
		profile->layers[l].parameter_bytes = nothing ? 0 : below(2) * below(2000);
	}
	return profile;
}

static struct pd_topology random_topology(int levels)
{
	struct pd_topology topology = { .levels = levels, .devices = 1 };

	for (int k = 0; k < levels; k++) {
		topology.level[k] = (struct pd_level){ 1 + below(levels == 3 ? 2 : 4),
						       50000000 * (1 + below(40)), below(50) };
		topology.devices *= topology.level[k].count;
	}
	return topology;
}

/* The arguments of A(), which is A_k(i, j, m) as published, with sets of layers instead of states. */
struct brute {
	const struct pd_states *states;
	const struct pd_topology *topology;
	enum pd_cost_kind kind;
	bool straight;
};

static double A(const struct brute *b, int k, int i, int j, int m)
{
	const struct pd_states *states = b->states;
	double best = HUGE_VAL;
	double B = k ? (double)b->topology->level[k - 1].bandwidth_bytes_per_s / 1e9 : 1;
	int whole = k > 1 ? (int)b->topology->level[k - 2].count : 1;
	bool sosp = b->kind == PD_COST_SOSP19;

	if (!k)
		return (double)(states->compute_ns[j] - states->compute_ns[i]);
	for (int s = i; s < j; s++)
		for (int last = 1; last <= m; last++) {
			double bytes = (double)(states->parameter_bytes[j] -
						states->parameter_bytes[s]);
			double time, time_before, reduce;

			if ((s == i) != (last == m) || (b->straight && last > 1) ||
			    !pd_states_within(states, i, s) || !pd_states_within(states, s, j))
				continue;
			time = A(b, k - 1, s, j, whole);
			if (sosp)
				time = fmax(time, 2 * (last - 1) * bytes / B) / last;
			else {
				reduce = 4 * (last - 1) * bytes / (B * last);
				time = (time + (s == i ? reduce / whole : reduce)) / last;
			}
			if (s > i) {
				double cut = 2 * (double)states->cut_bytes[s] / B;
				double out = 2 * (double)states->cut_bytes[j] / B;

				if (b->kind == PD_COST_RELEASED && j < states->count - 1)
					time = fmax(time, out / last);
				if (b->kind != PD_COST_RELEASED_NO_TRAFFIC)
					time = fmax(time, sosp ? cut : cut / last);
				time_before = A(b, k, i, s, m - last);
				time = fmax(time, time_before);
			}
			best = fmin(best, time);
		}
	return best;
}

static double brute(const struct brute *b)
{
	int L = b->topology->levels, M = (int)b->topology->level[L - 1].count;
	double best = HUGE_VAL;

	for (int m = b->kind == PD_COST_SOSP19 ? 1 : M; m <= M; m++)
		best = fmin(best, A(b, L, 0, b->states->count - 1, m));
	return best;
}

/* Returns the plan's price by its stages and ranks alone, or -2 if a tensor is used before it is made. */
static double price(const struct brute *b, const struct pd_partition *partition)
{
	const struct pd_profile *profile = b->states->profile;
	struct pd_priced priced[16] = { 0 };
	uint64_t done = 0;
	int at = 0;

	for (int s = 0; s < partition->stage_count; s++) {
		priced[s].replicas = partition->replicas[s];
		priced[s].ranks = partition->ranks[s];
		for (int n = 0; n < partition->layers[s]; n++, at++) {
			int l = partition->order ? partition->order[at] : at;

			for (int i = 0; i < profile->layers[l].input_count; i++)
				if (!(done >> profile->layers[l].inputs[i] & 1))
					return -2;      /* an input comes from a later stage */
			done |= UINT64_C(1) << l;
			priced[s].compute_ns += profile->layers[l].forward_ns +
				profile->layers[l].backward_ns + profile->layers[l].update_ns;
			priced[s].parameter_bytes += profile->layers[l].parameter_bytes;
		}
		for (int t = 0; t < profile->layer_count; t++) {
			bool used = false;

			for (int l = 0; l < profile->layer_count; l++)
				for (int i = 0; i < profile->layers[l].input_count; i++)
					used |= profile->layers[l].inputs[i] == t && !(done >> l & 1);
			if (used && done >> t & 1)
				priced[s].cut_bytes += profile->layers[t].activation_bytes;
		}
	}
	return pd_terms_price(b->kind, b->topology, priced, partition->stage_count);
}

/* Tells whether ranks are used from 0 on, each once, and all of them under the released formulas. */
static bool ranks_are_right(const struct brute *b, const struct pd_partition *partition)
{
	char seen[64] = "";
	int ranks = 0, low = 0;

	for (int s = 0; s < partition->stage_count; s++)
		for (int r = 0; r < partition->replicas[s]; r++) {
			if (partition->ranks[s][r] >= b->topology->devices ||
			    seen[partition->ranks[s][r]]++)
				return false;
			ranks++;
		}
	while (seen[low])
		low++;
	return low == ranks && (b->kind == PD_COST_SOSP19 ||
				ranks == b->topology->devices);
}

static void test_brute(enum pd_cost_kind kind)
{
	int good = 0, priced = 0, ranks = 0, cases = test_quick() ? 100 : 300, none = 0, reordered = 0;

	for (int n = 0; n < cases; n++) {
		struct pd_profile *profile = random_graph(1 + below(6));
		struct pd_topology topology = random_topology(1 + n % 3);
		struct pd_states states;
		struct brute b = { &states, &topology, kind, n % 5 == 0 };
		struct pd_partition *partition;
		double time = 0, best;

		pd_states_init(&states, profile,
			       n % 2 ? PD_STATES_ALL : PD_STATES_RELEASED);
		partition = pd_levels_search(&states, &topology, kind, b.straight, &time);
		best = brute(&b);
		if (!partition) {
			none++;
			good += best == HUGE_VAL;
			priced++;
			ranks++;
		} else {
			double own = price(&b, partition);

			reordered += partition->order != NULL;
			good += fabs(time - best) <= best * 1e-12 &&
				partition->cost_ns == pd_terms_round(time);
			priced += fabs(own - best) <= best * 1e-12;
			ranks += ranks_are_right(&b, partition);
			if (fabs(time - best) > best * 1e-12 || fabs(own - best) > best * 1e-12)
				diag("case %d: found %.3f, its price %.3f, brute force %.3f", n, time,
				     own, best);
		}
		pd_partition_free(partition);
		pd_states_release(&states);
		pd_profile_free(profile);
	}
	is_int(good, cases, "%s: the least time of all plans", pd_cost_kind_name[kind]);
	is_int(priced, cases, "%s: and the price of the plan that was found",
	       pd_cost_kind_name[kind]);
	is_int(ranks, cases, "%s: on ranks from 0 on, each once", pd_cost_kind_name[kind]);
	ok(none > 0 && none < cases / 2 && reordered > 5,
	   "%s: %d have no plan, %d have stages that are no runs", pd_cost_kind_name[kind], none,
	   reordered);
}

/* Tests that in a graph of many states pruning, and the plan found first, change no result. */
static void test_large(enum pd_cost_kind kind)
{
	int good = 0, cases = 6;

	for (int n = 0; n < cases; n++) {
		struct pd_profile *profile = pd_zalloc(sizeof(*profile));
		struct pd_topology topology = random_topology(2);
		struct pd_states states;
		struct pd_partition *partition;
		double time = 0, half = 0;
		int layers = 150;

		profile->layer_count = layers;
		profile->layers = pd_calloc((size_t)layers, sizeof(*profile->layers));
		for (int l = 0; l < layers; l++) {
			profile->layers[l].inputs = pd_calloc(1, sizeof(int));
			profile->layers[l].input_count = l > 0;
			/* Each layer whose output is not used doubles the states behind it. */
			profile->layers[l].inputs[0] = l > 1 && l % 40 == 0 ? l - 2 : l - (l > 0);
			profile->layers[l].forward_ns = below(1000);
			profile->layers[l].activation_bytes = below(1000);
			profile->layers[l].parameter_bytes = below(20000);
		}
		pd_states_init(&states, profile, PD_STATES_ALL);
		partition = pd_levels_search(&states, &topology, kind, false, &time);
		/* With all numbers doubled the time must double, too. */
		for (int s = 0; s < states.count; s++) {
			states.compute_ns[s] *= 2;
			states.parameter_bytes[s] *= 2;
			states.cut_bytes[s] *= 2;
		}
		pd_partition_free(partition);
		partition = pd_levels_search(&states, &topology, kind, false, &half);
		good += partition && states.count > 2 * layers && fabs(half - 2 * time) <= time * 1e-12;
		pd_partition_free(partition);
		pd_states_release(&states);
		pd_profile_free(profile);
	}
	is_int(good, cases, "%s: twice the work takes twice the time", pd_cost_kind_name[kind]);
}

/* Tests the order of ranks: as minibatch b is at replica b mod r, it stays in its component if the outer
 * level's ranks change fastest. */
static void test_order_of_ranks(void)
{
	struct pd_profile *profile = small_profile("a<x");
	struct pd_topology topology;
	struct pd_partition *partition;
	struct pd_states states;
	struct pd_error err;

	profile->layers[0].forward_ns = 1000000;
	pd_topology_parse_string("3@1GB/s,2@1GB/s", &topology, &err);
	pd_states_init(&states, profile, PD_STATES_ALL);
	partition = pd_levels_search(&states, &topology, PD_COST_SOSP19, false, NULL);
	ok(partition->stage_count == 1 && partition->replicas[0] == 6 &&
	   memcmp(partition->ranks[0], (int[]){ 0, 3, 1, 4, 2, 5 }, 6 * sizeof(int)) == 0,
	   "replicas take turns among the components of the outer level first");
	pd_partition_free(partition);
	pd_states_release(&states);
	pd_profile_free(profile);
}

/* Tests that only ranks of stages nested in components have a price. */
static void test_unpriced(void)
{
	static const struct {
		int stages, replicas[3], ranks[3][4];
		bool nested;
	} cases[] = {
		{ 2, { 2, 2 }, { { 0, 1 }, { 2, 3 } }, true },
		{ 2, { 3, 1 }, { { 0, 1, 2 }, { 3 } }, false },
		{ 2, { 2, 2 }, { { 0, 2 }, { 1, 3 } }, true },
		{ 2, { 2, 2 }, { { 0, 3 }, { 1, 2 } }, false },
		{ 3, { 1, 2, 1 }, { { 0 }, { 2, 3 }, { 1 } }, false },
		{ 3, { 1, 1, 2 }, { { 0 }, { 1 }, { 2, 3 } }, true },
		{ 1, { 4 }, { { 0, 1, 2, 3 } }, true },
		{ 1, { 3 }, { { 0, 1, 2 } }, false },
		{ 1, { 2 }, { { 0, 2 } }, true },
	};
	struct pd_topology topology;
	struct pd_error err;
	int good = 0;

	pd_topology_parse_string("2@1GB/s,2@1GB/s", &topology, &err);
	for (size_t n = 0; n < PD_COUNT(cases); n++) {
		struct pd_priced priced[3] = { 0 };

		for (int s = 0; s < cases[n].stages; s++)
			priced[s] = (struct pd_priced){ 100, 100, 100, cases[n].replicas[s],
							cases[n].ranks[s] };
		good += (pd_terms_price(PD_COST_RELEASED, &topology, priced, cases[n].stages) >= 0)
			== cases[n].nested;
	}
	is_int(good, (int64_t)PD_COUNT(cases), "a price only where ranks fill components");
}

int main(void)
{
	for (int kind = PD_COST_SOSP19; kind < PD_COST_KINDS; kind++) {
		test_brute((enum pd_cost_kind)kind);
		test_large((enum pd_cost_kind)kind);
	}
	test_order_of_ranks();
	test_unpriced();
	return done_testing();
}
