/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the searches against brute force over all contiguous plans. */
#include "base/json.h"
#include "base/mem.h"
#include "made_up.h"
#include "memory/buckets.h"
#include "planner/answers.h"
#include "planner/planner.h"
#include "planner/search/candidate.h"
#include "predict/links.h"
#include "predict/predict.h"
#include "schedule/price.h"
#include "tap.h"

#include <stdlib.h>
#include <string.h>

static uint32_t state = 1;

static int64_t below(int64_t n)
{
	state = state * 1664525 + 1013904223;
	return (int64_t)((state >> 8) % (uint64_t)n);
}

/* Returns layers in a chain, of which, with `skips`, some read a second input from further back. */
static struct pd_profile *random_profile(int layers, bool skips)
{
	json_t *list = json_array();

	for (int l = 0; l < layers; l++) {
		json_t *inputs = json_array();

		if (l > 0)
			json_array_append_new(inputs, json_sprintf("l%d", l - 1));
		if (skips && l > 1 && below(3) == 0)
			json_array_append_new(inputs, json_sprintf("l%d", (int)below(l - 1)));
		json_array_append_new(list, json_pack(
			"{s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I}",
			"name", json_sprintf("l%d", l), "inputs", inputs,
			"forward_ns", (json_int_t)below(1000),
			"backward_ns", (json_int_t)below(2000),
			"update_ns", (json_int_t)below(100),
			"activation_bytes", (json_int_t)below(1000),
			"parameter_bytes", (json_int_t)(below(2) * 4 * below(500)),
			"stash_bytes", (json_int_t)below(1500),
			"workspace_bytes", (json_int_t)below(300)));
	}
	return made_up_profile(list);
}

/* The limits of a pipeline, and the best one found. */
struct brute {
	const struct pd_costs *costs;
	int64_t limit_bytes, bandwidth;
	struct pd_row row;
	int most;                       /* the most stages */
	int64_t time;
	int stages;
};

/* Tries every way to cut the units, from the last stage on, so that the stages behind are known. */
static void brute(struct brute *b, int end, int stages, int64_t time)
{
	const struct pd_costs *costs = b->costs;

	if (end == 0 && (time < b->time || (time == b->time && stages < b->stages))) {
		b->time = time;
		b->stages = stages;
	}
	for (int u = end - 1; u >= 0 && stages < b->most; u--) {
		int first = costs->first[u], count = costs->first[end] - first;
		int64_t ns = costs->compute_ns[end] - costs->compute_ns[u];
		struct pd_memory memory;

		pd_row_set(&b->row, u);
		ns = pd_max(ns, pd_bytes_ns(pd_row_in_bytes(&b->row, end) +
					      pd_row_out_bytes(&b->row, end), b->bandwidth));
		pd_memory_of(costs->profile, first, count, 1, stages, pd_row_in_bytes(&b->row, end),
			     pd_row_out_bytes(&b->row, end), &memory);
		if (memory.total_bytes <= b->limit_bytes)
			brute(b, u, stages + 1, pd_max(time, ns));
	}
}

static bool straight_case(int n, bool limited)
{
	struct pd_profile *profile = random_profile(1 + (int)below(7), n % 2);
	int64_t limit_bytes = limited ? 4000 + (int64_t)below(20000) : INT64_MAX;
	struct pd_costs costs;
	struct brute b = { .costs = &costs, .limit_bytes = limit_bytes,
			   .bandwidth = 50 * (1 + below(40)) * 1000000,
			   .most = 1 + (int)below(5), .time = PD_NEVER };
	struct pd_partition *partition;
	bool good;

	pd_costs_init(&costs, profile, false);
	pd_row_init(&b.row, &costs);
	brute(&b, costs.unit_count, 0, 0);
	pd_row_release(&b.row);
	partition = pd_straight_most(&costs, b.most, b.bandwidth, limit_bytes);
	good = partition ? partition->cost_ns == b.time && partition->stage_count == b.stages
			 : b.time == PD_NEVER;
	if (!good)
		diag("case %d: %lld ns in %d stages; brute force %lld in %d", n,
		     partition ? (long long)partition->cost_ns : -1,
		     partition ? partition->stage_count : 0, (long long)b.time, b.stages);
	pd_partition_free(partition);
	pd_costs_release(&costs);
	pd_profile_free(profile);
	return good;
}

static void test_straight(const char *what, bool limited)
{
	int good = 0, cases = 300;

	for (int n = 0; n < cases; n++)
		good += straight_case(n, limited);
	is_int(good, cases, "pipelines equal brute force: %s", what);
}

/* Has layer 4 share the parameters of layer 1. */
static void share(struct pd_profile *profile)
{
	profile->layers[1].shared = profile->layers[4].shared = true;
	profile->layers[1].owner = profile->layers[4].owner = 1;
	profile->shared_count = 2;
}

static void test_shared(void)
{
	struct pd_profile *profile = random_profile(6, false);
	struct pd_partition *partition;
	struct pd_costs costs, copies;
	struct pd_error err;

	share(profile);
	pd_costs_init(&costs, profile, false);
	ok(costs.unit_count == 3 &&
	   memcmp(costs.first, (int[]){ 0, 1, 5, 6 }, 4 * sizeof(int)) == 0,
	   "no cut separates layers that share parameters");
	ok(!pd_fixed_partition(&costs, "2,4", PD_WEIGHTS_STASH, 4, &err) &&
	   strstr(err.text, "\"l2\""), "nor does one by hand");
	partition = pd_fixed_partition(&costs, "1,4x2,1", PD_WEIGHTS_STASH, 4, &err);
	ok(partition && partition->stage_count == 3 && partition->replicas[1] == 2, "others may");
	pd_partition_free(partition);
	pd_costs_init(&copies, profile, true);
	ok(copies.unit_count == 6 && copies.parameter_bytes[6] == costs.parameter_bytes[3] +
	   profile->layers[1].parameter_bytes, "copies may be anywhere, and each has its bytes");
	pd_costs_release(&copies);
	partition = pd_fixed_partition(&costs, "2,4", PD_WEIGHTS_2BW, 4, &err);
	ok(partition && partition->layers[0] == 2, "but with weights of which each has a copy");
	pd_partition_free(partition);
	pd_costs_release(&costs);
	pd_profile_free(profile);
}

enum { OWN, SHARED, NONE };             /* layer 4's parameters: as large as layer 1's, layer 1's, none */

/* The bytes and times of sums of gradients, by stage, from each function that prices them. */
struct sums {
	int64_t bytes[2], parameters[2], predicted_ns[2], replayed_ns[2], links_ns;
};

static void price_sums(int what, int stages, enum pd_weight_kind weights, int64_t bucket_bytes,
		       struct sums *sums)
{
	struct pd_profile *profile = random_profile(6, false);
	struct pd_topology topology;
	struct pd_wiring *wiring;
	struct pd_prices prices;
	struct pd_plan *plan;

	for (int l = 0; l < 6; l++) {
		profile->layers[l].parameter_bytes = 64000 * (l + 1);
		profile->layers[l].activation_bytes = 64;
	}
	profile->layers[4].parameter_bytes = what == OWN ? profile->layers[1].parameter_bytes : 0;
	if (what == SHARED)
		share(profile);
	pd_topology_parse_string("4@1GB/s", &topology, NULL);
	plan = pd_plan_new(profile, &topology, stages, stages == 1 ? (int[]){ 6 } : (int[]){ 4, 2 },
			   stages == 1 ? (int[]){ 4 } : (int[]){ 2, 2 }, NULL);
	plan->weights = weights;
	plan->schedule = PD_SCHEDULE_1F1B;
	plan->bucket_bytes = bucket_bytes;
	wiring = pd_wiring_new(plan);
	pd_prices_init(&prices, plan, wiring);
	pd_predict_stages(plan);
	*sums = (struct sums){ .links_ns = pd_links_busiest_ns(plan, wiring) };
	for (int s = 0; s < stages; s++) {
		sums->bytes[s] = pd_plan_stage_sum_bytes(plan, s);
		sums->parameters[s] = pd_plan_stage_parameters(plan, s);
		sums->predicted_ns[s] = plan->stages[s].allreduce_ns;
		sums->replayed_ns[s] = prices.stages[s].allreduce_ns;
		for (int b = 0; prices.stages[s].buckets && b < pd_plan_bucket_count(plan, s); b++)
			sums->replayed_ns[s] += prices.stages[s].buckets[b].allreduce_ns;
	}
	pd_prices_release(&prices);
	pd_wiring_free(wiring);
	pd_plan_free(plan);
}

/* Tests that a copy of shared parameters has gradients as a layer's own parameters have, and that without
 * copies the second layer has none. */
static void test_shared_sums(void)
{
	for (int stages = 1; stages <= 2; stages++)
		for (int64_t bucket = 0; bucket <= 1; bucket++) {
			struct sums own, shared, none;

			price_sums(OWN, stages, PD_WEIGHTS_FLUSH, bucket, &own);
			price_sums(SHARED, stages, PD_WEIGHTS_FLUSH, bucket, &shared);
			if (stages == 2)        /* Links also carry what the copies exchange, at 1 ns a byte. */
				shared.links_ns -= 128000;
			ok(memcmp(&own, &shared, sizeof(own)) == 0 && own.bytes[stages - 1] > 0,
			   "%d stages, %s: a copy of parameters is in the sums once", stages,
			   bucket ? "buckets" : "one bucket");
			if (stages == 2)
				continue;
			price_sums(NONE, stages, PD_WEIGHTS_STASH, bucket, &none);
			price_sums(SHARED, stages, PD_WEIGHTS_STASH, bucket, &shared);
			ok(memcmp(&none, &shared, sizeof(none)) == 0 && none.bytes[0] < own.bytes[0],
			   "%s: parameters without a copy are in none", bucket ? "buckets" : "one bucket");
		}
}

static void test_bound(void)
{
	int good = 0, cases = 200, plans = 0;

	for (int n = 0; n < cases; n++) {
		struct pd_plan_request request = { .straight = n % 3 == 0, .cost = (n / 2) % 2
						   ? PD_COST_SOSP19 : PD_COST_SIMULATED };
		struct pd_topology topology;
		struct pd_error err;
		struct pd_plan *plan;

		pd_topology_parse_string(n % 2 ? "3@100MB/s+20ns,2@50MB/s" : "4@80MB/s+10ns",
					 &topology, &err);
		request.topology = &topology;
		plan = pd_planner_plan(random_profile(1 + (int)below(9), n % 2), &request, &err);
		if (!plan) {
			diag("%s", err.text);
			continue;
		}
		plans++;
		if (plan->predicted.gap < 0)
			diag("case %d: gap %g cost %d levels %d straight %d", n,
			     plan->predicted.gap, (int)request.cost, topology.levels,
			     request.straight);
		good += plan->predicted.lower_bound_ns <= plan->predicted.period_ns &&
			(request.straight || plan->predicted.lower_bound_ns <=
			 plan->predicted.data_parallel_period_ns) &&
			plan->predicted.gap >= 0;
		if (request.cost == PD_COST_SIMULATED && !request.straight)
			good -= plan->predicted.period_ns > plan->predicted.data_parallel_period_ns;
		pd_plan_free(plan);
	}
	is_int(plans, cases, "each of them has a plan");
	is_int(good, cases, "no plan is faster than the bound, none slower than data parallelism");
}

/* Returns how many stages of a profile have other bytes than pd_memory_of() adds up. */
static int wrong_stages(struct pd_profile *profile)
{
	struct pd_costs costs;
	struct pd_row row;
	int wrong = 0;

	pd_costs_init(&costs, profile, false);
	pd_row_init(&row, &costs);
	for (int u = 0; u < costs.unit_count; u++) {
		pd_row_set(&row, u);
		for (int v = u + 1; v <= costs.unit_count; v++) {
			int replicas = 1 + (int)below(3), warmup = (int)below(5);
			struct pd_memory memory;

			pd_memory_of(profile, costs.first[u], costs.first[v] - costs.first[u],
				     replicas, warmup, pd_row_in_bytes(&row, v),
				     pd_row_out_bytes(&row, v), &memory);
			wrong += pd_row_memory(&row, v, replicas, warmup) != memory.total_bytes ||
				pd_row_in_bytes(&row, v) != (u > 0 ? profile->layers[u - 1]
							     .activation_bytes : 0);
		}
	}
	pd_row_release(&row);
	pd_costs_release(&costs);
	return wrong;
}

/* Tests that the bytes of stages which rows remember, linear in the warm-ups, are right. */
static void test_chain_memory(void)
{
	int wrong = 0;

	for (int n = 0; n < 60; n++) {
		struct pd_profile *profile = random_profile(1 + n / 2, false);

		for (int l = 0; l < profile->layer_count; l++) {
			struct pd_profile_layer *layer = &profile->layers[l];

			layer->stash_bytes *= below(3) > 0;
			layer->needs_gradient = below(4) > 0;
		}
		wrong += wrong_stages(profile);
		pd_profile_free(profile);
	}
	is_int(wrong, 0, "the bytes of all stages are those that their layers add up to");
}

int main(void)
{
	test_chain_memory();
	test_straight("at most so many stages", false);
	test_straight("a memory limit", true);
	test_shared();
	test_shared_sums();
	test_bound();
	return done_testing();
}
