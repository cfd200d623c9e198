/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the lower bound against random plans of every kind, whose periods replays tell. */
#include "base/json.h"
#include "base/mem.h"
#include "made_up.h"
#include "planner/bound/bound.h"
#include "planner/cut/task.h"
#include "predict/judge.h"
#include "predict/predict.h"
#include "predict/replay.h"
#include "tap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint32_t state = 7;

static int64_t below(int64_t n)
{
	state = state * 1664525 + 1013904223;
	return (int64_t)((state >> 8) % (uint64_t)n);
}

enum shape { CHAIN, SKIPS, BRANCHES };

/* Returns a chain, a chain with skips or any graph, whose layers take random times and bytes. */
static struct pd_profile *random_profile(int layers, enum shape shape, int64_t parameters)
{
	json_t *list = json_array();
	bool used[16] = { false };

	for (int l = 0; l < layers; l++) {
		json_t *inputs = json_array();
		int input;

		/* The last layer reads all outputs that no other layer reads. */
		for (int i = 0; l == layers - 1 && shape == BRANCHES && i < l - 1; i++)
			if (!used[i])
				json_array_append_new(inputs, json_sprintf("l%d", i));
		input = shape != BRANCHES || l == layers - 1 || below(2)
			? l - 1 : (int)below(l + 1) - 1;
		for (; l > 0 && input >= 0; input = shape != CHAIN && below(4) == 0
		     ? (int)below(l) : -1) {
			used[input] = true;
			json_array_append_new(inputs, json_sprintf("l%d", input));
		}
		json_array_append_new(list, json_pack(
			"{s:o, s:o, s:I, s:I, s:I, s:I, s:I}",
			"name", json_sprintf("l%d", l), "inputs", inputs,
			"forward_ns", (json_int_t)below(1000000),
			"backward_ns", (json_int_t)below(2000000),
			"update_ns", (json_int_t)below(100000),
			"activation_bytes", (json_int_t)below(20000),
			"parameter_bytes", (json_int_t)(below(2) * 4 * below(parameters))));
	}
	return made_up_profile(list);
}

static void random_topology(struct pd_topology *topology)
{
	*topology = (struct pd_topology){ .levels = 1 + (int)below(3), .devices = 1 };
	for (int k = 0; k < topology->levels; k++) {
		topology->level[k] = (struct pd_level){
			.count = 1 + below(topology->levels == 1 ? 8 : 3),
			.bandwidth_bytes_per_s = (1 + below(100)) * 1000000,
			.latency_ns = below(3) * 10000,
		};
		topology->devices *= topology->level[k].count;
	}
}

/* Gives the stages ranks 0 to rank_count - 1 in random order. */
static void shuffle_ranks(struct pd_plan *plan)
{
	int order[64], next = 0;

	for (int r = 0; r < plan->rank_count; r++) {
		int at = (int)below(r + 1);

		order[r] = order[at];
		order[at] = r;
	}
	for (int s = 0; s < plan->stage_count; s++)
		for (int r = 0; r < plan->stages[s].replicas; r++)
			plan->stages[s].ranks[r] = order[next++];
}

/* Sets random warm-ups without deadlock: replicas times warm-up do not rise from stage to stage. */
static void random_warmups(struct pd_plan *plan)
{
	int64_t lead = 0;

	for (int s = plan->stage_count - 1; s >= 0; s--) {
		int64_t r = plan->stages[s].replicas, least = (lead + r - 1) / r;

		plan->stages[s].warmup = (int)(least + below(3));
		lead = plan->stages[s].warmup * r;
	}
}

static struct pd_plan *random_plan(struct pd_profile *profile, const struct pd_topology *topology,
				   bool straight)
{
	int layers[16], replicas[16], stages = 0, left = profile->layer_count;
	int64_t devices = topology->devices;
	struct pd_error err;
	struct pd_plan *plan;

	while (left > 0 && devices > 0) {
		int64_t most = straight ? 1 : devices;

		layers[stages] = devices == 1 || below(6) == 0 ? left : 1 + (int)below(left);
		replicas[stages] = 1 + (int)below(below(2) ? most : most < 3 ? most : 3);
		if (replicas[stages] == devices)
			layers[stages] = left;
		left -= layers[stages];
		devices -= replicas[stages++];
	}
	plan = pd_plan_new(profile, topology, stages, layers, replicas, &err);
	if (below(2))
		shuffle_ranks(plan);
	return plan;
}

/* Stores the layers in a random topological order. */
static void random_order(const struct pd_profile *profile, int *order)
{
	bool done[16] = { false };

	for (int n = 0; n < profile->layer_count;) {
		int l = (int)below(profile->layer_count);
		bool ready = !done[l];

		for (int i = 0; i < profile->layers[l].input_count; i++)
			ready &= done[profile->layers[l].inputs[i]];
		if (ready) {
			done[l] = true;
			order[n++] = l;
		}
	}
}

static int by_number(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

/* Returns a plan whose stages have as many layers, but other ones; frees plan, keeps its profile. */
static struct pd_plan *in_random_order(struct pd_plan *plan)
{
	json_t *json = pd_plan_json(plan), *stages = json_object_get(json, "stages");
	struct pd_place place = pd_place_root("plan", json);
	struct pd_plan *other;
	struct pd_error err;
	int order[16];

	random_order(plan->profile, order);
	for (int s = 0, n = 0; s < plan->stage_count; s++) {
		json_t *layers = json_array();
		int count = plan->stages[s].layer_count;

		qsort(order + n, (size_t)count, sizeof(*order), by_number);
		for (int i = 0; i < count; i++, n++)
			json_array_append_new(layers,
					      json_string(plan->profile->layers[order[n]].name));
		json_object_set_new(json_array_get(stages, (size_t)s), "layers", layers);
	}
	other = pd_plan_parse_at(&place, &err);
	if (!other)
		diag("%s", err.text);
	json_decref(json);
	plan->profile = NULL;
	pd_plan_free(plan);
	return other;
}

static const struct policy {
	enum pd_schedule_kind schedule;
	enum pd_weight_kind weights;
	bool group;             /* an update has several microbatches */
	bool straight;
	bool agree;
} policies[] = {
	{ PD_SCHEDULE_1F1B, PD_WEIGHTS_STASH, false, false },
	{ PD_SCHEDULE_1F1B, PD_WEIGHTS_STASH, true, false },
	{ PD_SCHEDULE_1F1B, PD_WEIGHTS_VERTICAL_SYNC, false, false },
	{ PD_SCHEDULE_1F1B, PD_WEIGHTS_2BW, true, false },
	{ PD_SCHEDULE_1F1B, PD_WEIGHTS_2BW, true, false, true },
	{ PD_SCHEDULE_1F1B, PD_WEIGHTS_FLUSH, true, false, true },
	{ PD_SCHEDULE_1F1B, PD_WEIGHTS_FLUSH, true, false },
	{ PD_SCHEDULE_1F1B, PD_WEIGHTS_LATEST, false, false },
	{ PD_SCHEDULE_GPIPE, PD_WEIGHTS_FLUSH, true, false },
	{ PD_SCHEDULE_ZB_H1, PD_WEIGHTS_FLUSH, true, false },
	{ PD_SCHEDULE_NONE, PD_WEIGHTS_FLUSH, true, false },
	{ PD_SCHEDULE_NONE, PD_WEIGHTS_STASH, false, false },
	{ PD_SCHEDULE_NF1B, PD_WEIGHTS_VERTICAL_SYNC, true, true },
};

static int64_t common_multiple(const struct pd_plan *plan)
{
	int64_t multiple = 1, r;

	for (int s = 0; s < plan->stage_count; s++)
		for (r = multiple; multiple % plan->stages[s].replicas != 0;)
			multiple += r;
	return multiple;
}

struct tally {
	int plans, beaten, forgotten;   /* faster than the bound; bounds that rise with more freedom */
	int above;                      /* the expected bound is above the replay's period */
	int apart;                      /* the fewest devices contradict the bound or the plan */
	double best;                    /* the largest bound / period */
};

/* Compares the period of a plan with the bound under its own options. */
static void judge(const struct pd_plan *plan, const struct pd_costs *costs, bool straight,
		  struct tally *tally)
{
	struct pd_plan_request with = {
		.topology = &plan->topology, .schedule = plan->schedule, .weights = plan->weights,
		.microbatches = plan->microbatches, .straight = straight, .agree = plan->agree,
		.gradient_dtype = plan->gradient_dtype, .bucket_bytes = plan->bucket_bytes,
		.sparsity = plan->sparsity, .reducer = plan->reducer };
	struct pd_replay_options options = { 4 * pd_steady_microbatches(plan) };
	struct pd_error err;
	struct pd_trace *trace = pd_replay(plan, &options, &err);
	int64_t bound = pd_bound_ns(costs, &with, PD_NEVER);
	struct pd_bound *fewest;
	double period;

	if (!trace)
		return;
	period = pd_replay_period_ns(trace);
	pd_trace_free(trace);
	fewest = pd_bound_new(costs, &with);
	tally->apart += pd_bound_devices(fewest, bound) > plan->topology.devices ||
			pd_bound_devices(fewest, bound - 1) <= plan->topology.devices ||
			pd_bound_devices(fewest, (int64_t)ceil(period)) > plan->rank_count ||
			pd_bound_ns(costs, &with, bound - 1) != bound - 1 ||
			pd_bound_ns(costs, &with, bound) != bound ||
			pd_bound_ns(costs, &with, bound + 1) != bound ||
			pd_bound_ns(costs, &with, 2 * bound) != bound;
	pd_bound_free(fewest);
	if (pd_flow_knows(plan)) {
		struct pd_expected expected;

		pd_judge_expect(plan, true, &expected, &err);
		/* The mean period of a schedule that does not repeat itself is not exact. */
		if ((double)expected.bound_ns > ceil(1.0005 * period)) {
			tally->above++;
			diag("%s: expected %lld, period %.1f, %d stages on %d ranks, %d levels",
			     pd_weight_kind_name[plan->weights],
			     (long long)expected.bound_ns, period, plan->stage_count,
			     plan->rank_count, plan->topology.levels);
		}
	}
	with.microbatches = 0;
	tally->plans++;
	tally->forgotten += plan->microbatches > 1 && !pd_planner_plain(&with) &&
			    pd_bound_ns(costs, &with, PD_NEVER) > bound;
	if ((double)bound > ceil(period)) {
		tally->beaten++;
		diag("%s, %s: bound %lld, period %.1f, %d stages on %d ranks",
		     pd_schedule_kind_name[plan->schedule], pd_weight_kind_name[plan->weights],
		     (long long)bound, period, plan->stage_count, plan->rank_count);
	}
	if (period > 0 && (double)bound / period > tally->best)
		tally->best = (double)bound / period;
}

/* Chooses the n-th combination of a reducer, sums in 16 bits, buckets and sparse sums. */
static void choose_sums(struct pd_plan *plan, int n)
{
	plan->reducer = (enum pd_reducer_kind)(n % PD_REDUCER_KINDS);
	if (!pd_reducers[plan->reducer]->of_transport && n % 2)
		plan->gradient_dtype = PD_BF16;
	if (n % 3 == 1)
		plan->bucket_bytes = 20000;
	if (plan->agree || n % 4 == 3)
		return;
	plan->chunk = 1 + 7 * n * n;
	plan->sparsity = n % 5 ? 0.85 : 0.3;
}

static void random_case(const struct policy *policy, int n, struct tally *tally)
{
	enum shape shape = (enum shape)below(3);
	struct pd_profile *profile = random_profile(1 + (int)below(9), shape,
						    (below(2) ? 1000 : 100000) * (n % 3 ? 1 : 10));
	bool straight = policy->straight || below(4) == 0;
	struct pd_topology topology;
	struct pd_costs costs;

	random_topology(&topology);
	if (n % 3 == 0) {       /* replicas sum in each other's memory */
		profile->in_step.sum_bytes_per_s = (1 + n % 10) * INT64_C(100000000);
		topology.level[n % topology.levels].shared_memory = true;
		topology.processors = n % 4 ? 0 : topology.devices;
	}
	pd_costs_init(&costs, profile, false);
	for (int i = 0; i < 4; i++) {
		struct pd_plan *plan = random_plan(profile, &topology, straight);

		if (shape == BRANCHES)
			plan = in_random_order(plan);
		plan->schedule = policy->schedule;
		plan->weights = policy->weights;
		plan->agree = policy->agree;
		if (n % 2)
			choose_sums(plan, n / 2);
		random_warmups(plan);
		plan->microbatches = 1;
		if (policy->group)
			plan->microbatches = common_multiple(plan) * (1 + below(4));
		if (plan->weights == PD_WEIGHTS_2BW)    /* at least as many as the first stage is ahead */
			while (plan->microbatches < (int64_t)plan->stages[0].warmup *
						    plan->stages[0].replicas)
				plan->microbatches += common_multiple(plan);
		pd_predict_stages(plan);
		if (plan->microbatches <= 64)
			judge(plan, &costs, straight, tally);
		if (shape != BRANCHES)
			plan->profile = NULL;
		pd_plan_free(plan);
	}
	pd_costs_release(&costs);
	pd_profile_free(profile);
}

static void test_random(const struct policy *policy)
{
	struct tally tally = { 0 };
	int cases = test_quick() ? 10 : 50;

	for (int n = 0; n < cases; n++)
		random_case(policy, n, &tally);
	ok(tally.plans > cases, "%s with %s%s%s: %d plans were replayed",
	   pd_schedule_kind_name[policy->schedule], pd_weight_kind_name[policy->weights],
	   policy->group ? ", microbatches" : "", policy->agree ? ", agreed" : "", tally.plans);
	is_int(tally.beaten, 0, "none is faster than the bound");
	is_int(tally.above, 0, "nor than what is expected of it");
	is_int(tally.apart, 0, "nor has fewer devices than any that is as fast");
	is_int(tally.forgotten, 0, "which does not rise where the microbatches are left open");
	ok(tally.best > 0.97, "the nearest took 1/%.3f of it", tally.best);
}

/* Tests that the bound of a single layer is the period of one stage on all devices. */
static void test_exact(void)
{
	struct pd_profile *profile = random_profile(1, CHAIN, 2);
	struct pd_topology topology;
	struct pd_costs costs;
	struct pd_plan_request with = { .topology = &topology, .microbatches = 1 };
	struct pd_profile_layer *layer = &profile->layers[0];
	struct pd_bound *fewest;

	*layer = (struct pd_profile_layer){ .name = layer->name, .inputs = layer->inputs,
					    .forward_ns = 400,
					    .backward_ns = 800, .parameter_bytes = 64000,
					    .activation_bytes = 4 };
	pd_topology_parse_string("4@1GB/s", &topology, NULL);
	pd_costs_init(&costs, profile, false);
	/* 4 replicas take 1200 + 2 x 3/4 x 64000, 1 replica takes 1200. */
	is_int(pd_bound_ns(&costs, &with, PD_NEVER), 1200, "an all-reduce that is dearer than computing");
	layer->parameter_bytes = 1600;
	pd_costs_release(&costs);
	pd_costs_init(&costs, profile, false);
	is_int(pd_bound_ns(&costs, &with, PD_NEVER), (1200 + 2400) / 4, "one that is not");
	with.weights = PD_WEIGHTS_2BW;
	with.microbatches = 4;
	/* Of an all-reduce what is longer than a forward adds. */
	is_int(pd_bound_ns(&costs, &with, PD_NEVER), (1200 + 2000) / 4, "an update of all four");
	fewest = pd_bound_new(&costs, &with);
	is_int(pd_bound_devices(fewest, 834), 4, "three take 834, but do not divide four");
	pd_bound_free(fewest);
	with.microbatches = 8;
	is_int(pd_bound_ns(&costs, &with, PD_NEVER), (2400 + 2000) / 8, "every eighth time");
	pd_topology_parse_string("2@1GB/s,2@100MB/s", &topology, NULL);
	with.microbatches = 1;
	with.weights = PD_WEIGHTS_STASH;
	/* 2 replicas take (1200 + 1600) / 2. */
	is_int(pd_bound_ns(&costs, &with, PD_NEVER), 1200, "a slow link between servers is not worth it");
	with.straight = true;
	is_int(pd_bound_ns(&costs, &with, PD_NEVER), 1200, "straight: a layer cannot be divided");
	pd_costs_release(&costs);
	pd_profile_free(profile);
}

/*
 * Tests two stages, one of them replicated: its step comes before its next forward whatever weights that
 * forward reads, so that its all-reduce takes time.
 */
static void test_serial(void)
{
	static const enum pd_weight_kind weights[] = { PD_WEIGHTS_STASH, PD_WEIGHTS_VERTICAL_SYNC,
						       PD_WEIGHTS_LATEST };
	struct pd_profile *profile = random_profile(2, CHAIN, 2);
	struct pd_topology topology;
	struct pd_costs costs;

	for (int l = 0; l < 2; l++) {
		profile->layers[l].forward_ns = l ? 400 : 200;
		profile->layers[l].backward_ns = l ? 800 : 400;
		profile->layers[l].update_ns = 0;
		profile->layers[l].activation_bytes = 4;
		profile->layers[l].parameter_bytes = l ? 512 : 1000000;
	}
	pd_topology_parse_string("3@1GB/s", &topology, NULL);
	pd_costs_init(&costs, profile, false);
	for (size_t i = 0; i < PD_COUNT(weights); i++) {
		struct pd_plan_request with = { .topology = &topology, .weights = weights[i],
						.microbatches = 1 };
		struct pd_error err;
		struct pd_plan *plan = pd_plan_new(profile, &topology, 2, (int[]){ 1, 1 },
						   (int[]){ 1, 2 }, &err);
		struct pd_trace *trace;

		plan->weights = weights[i];
		plan->stages[0].warmup = 6;
		plan->stages[1].warmup = 0;
		trace = pd_replay(plan, NULL, &err);
		/* The all-reduce takes 2 x 1/2 x 512: (1200 + 512) / 2 = 856. */
		ok(pd_replay_period_ns(trace) <= 860, "%s: a replay has an all-reduce, and a gradient",
		   pd_weight_kind_name[weights[i]]);
		is_int(pd_bound_ns(&costs, &with, PD_NEVER), 856, "nothing is faster than the all-reduce");
		pd_trace_free(trace);
		plan->profile = NULL;
		pd_plan_free(plan);
	}
	pd_costs_release(&costs);
	pd_profile_free(profile);
}

/* Tests six equal layers of 3 us on three devices, with three microbatches: (3 + 2) x 6 us per group. */
static void test_drain(void)
{
	struct pd_profile *profile = random_profile(6, CHAIN, 2);
	struct pd_topology topology;
	struct pd_costs costs;
	struct pd_plan_request with = { .topology = &topology, .weights = PD_WEIGHTS_FLUSH,
					.microbatches = 3, .straight = true };

	for (int l = 0; l < 6; l++) {
		profile->layers[l].forward_ns = 1000;
		profile->layers[l].backward_ns = 2000;
		profile->layers[l].update_ns = profile->layers[l].activation_bytes = 0;
		profile->layers[l].parameter_bytes = l == 0 ? 4 : 0;
	}
	pd_topology_parse_string("3@1GB/s", &topology, NULL);
	pd_costs_init(&costs, profile, false);
	is_int(pd_bound_ns(&costs, &with, PD_NEVER), 9000,
	       "draining: a last stage of 3 us, 15 us before it: (15 + 3 x 3) / 3, but 18 / 2");
	with.microbatches = 1;
	is_int(pd_bound_ns(&costs, &with, PD_NEVER), 18000, "one microbatch goes through everything");
	with.schedule = PD_SCHEDULE_NONE;
	with.microbatches = 100;
	is_int(pd_bound_ns(&costs, &with, PD_NEVER), 18000, "without pipelining each of them does");
	with.schedule = PD_SCHEDULE_INTERLEAVED;
	with.chunks = 2;
	with.microbatches = 3;
	is_int(pd_bound_ns(&costs, &with, PD_NEVER), 6000, "interleaved: a third of computing");
	pd_costs_release(&costs);
	pd_profile_free(profile);
}

/* Returns so many equal layers in a chain, the last of which also reads the output of the first. */
static struct pd_profile *skipping_profile(int layers)
{
	json_t *list = json_array();

	for (int l = 0; l < layers; l++) {
		json_t *inputs = json_array();

		if (l > 0)
			json_array_append_new(inputs, json_sprintf("l%d", l - 1));
		if (l == layers - 1)
			json_array_append_new(inputs, json_string("l0"));
		json_array_append_new(list, json_pack(
			"{s:o, s:o, s:i, s:i, s:i, s:i}", "name", json_sprintf("l%d", l),
			"inputs", inputs, "forward_ns", 1000000, "backward_ns", 2000000,
			"activation_bytes", 4, "parameter_bytes", 0));
	}
	return made_up_profile(list);
}

/*
 * Tests twelve stages, the last of which also reads the output of the first.  The gradient of that skip
 * is used when the others have come back through all stages in between, 1 + 11 x 2 ms later; there are
 * buffers for all gradients that wait meanwhile.
 */
static void test_skip(void)
{
	enum { STAGES = 12 };
	struct pd_profile *profile = skipping_profile(STAGES);
	int each[STAGES];
	struct pd_expected expected;
	struct pd_topology topology;
	struct pd_trace *trace;
	struct pd_error err;
	struct pd_plan *plan;

	for (int s = 0; s < STAGES; s++)
		each[s] = 1;
	pd_topology_parse_string("12@100GB/s", &topology, NULL);
	plan = pd_plan_new(profile, &topology, STAGES, each, each, &err);
	pd_predict_stages(plan);
	pd_judge_expect(plan, true, &expected, &err);
	trace = pd_replay(plan, NULL, &err);
	is_int(expected.bound_ns / 10000, 300, "a long skip: no longer than a stage's own time");
	is_int(expected.estimate_ns, expected.bound_ns, "as bound and as estimate");
	ok(pd_replay_period_ns(trace) >= (double)expected.bound_ns &&
	   pd_replay_period_ns(trace) < 1.001 * (double)expected.bound_ns,
	   "a replay takes that, too: %.0f ns", pd_replay_period_ns(trace));
	pd_trace_free(trace);
	pd_plan_free(plan);
}

/*
 * Tests four stages of 1 + 2 ms, one of which recomputes, with groups of four microbatches.  One
 * microbatch goes through all stages, and the slowest forward and the slowest backward, with its
 * recomputation, come three times more, so that a microbatch takes (12 + 3 (1 + 3)) / 4 ms.  If the first
 * stage is a minibatch ahead, the others take (9 + 3 (1 + 3)) / 4 ms.
 */
static void test_nf1b(void)
{
	struct pd_profile *profile = skipping_profile(4);
	int each[] = { 1, 1, 1, 1 };
	struct pd_topology topology;
	struct pd_error err;
	struct pd_plan *plan;

	pd_topology_parse_string("4@100GB/s", &topology, NULL);
	plan = pd_plan_new(profile, &topology, 4, each, each, &err);
	pd_predict_stages(plan);
	plan->schedule = PD_SCHEDULE_NF1B;
	plan->weights = PD_WEIGHTS_VERTICAL_SYNC;
	plan->microbatches = 4;
	plan->stages[1].recompute = true;
	for (int warmup = 0; warmup < 2; warmup++) {
		struct pd_expected expected;
		struct pd_trace *trace;
		double period;

		for (int s = 0; s < 4; s++)
			plan->stages[s].warmup = s == 0 ? warmup : 0;
		pd_judge_expect(plan, true, &expected, &err);
		trace = pd_replay(plan, NULL, &err);
		period = pd_replay_period_ns(trace);
		is_int(expected.estimate_ns / 1000, warmup ? 5250 : 6000, "nf1b, warm-up %d", warmup);
		is_int((int64_t)period / 1000, warmup ? 5250 : 6000, "a replay takes that, too");
		pd_trace_free(trace);
	}
	pd_plan_free(plan);
}

int main(void)
{
	test_exact();
	test_serial();
	test_drain();
	test_skip();
	test_nf1b();
	for (size_t i = 0; i < PD_COUNT(policies); i++)
		test_random(&policies[i]);
	return done_testing();
}
