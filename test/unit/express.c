/* SPDX-License-Identifier: Apache-2.0 */
/* Replays without workers against those with: every backward ends at the same nanosecond. */
#include "base/json.h"
#include "base/mem.h"
#include "planner/express.h"
#include "tap.h"

#include <stdlib.h>
#include <string.h>

static uint32_t state = 11;

static int64_t below(int64_t n)
{
	state = state * 1664525 + 1013904223;
	return (int64_t)((state >> 8) % (uint64_t)n);
}

/* Times of a coarse grain, so that much happens at one time, or of a fine one. */
static struct pd_profile *random_profile(int layers, int64_t grain)
{
	json_t *list = json_array(), *root;
	int64_t sums = below(3);
	struct pd_profile *profile;
	struct pd_error err;

	for (int l = 0; l < layers; l++) {
		json_t *inputs = json_array();
		int64_t update = below(3) * grain;

		if (l > 0 && below(6))
			json_array_append_new(inputs, json_sprintf("l%d", l - 1));
		if (l > 1 && below(3) == 0)
			json_array_append_new(inputs, json_sprintf("l%d", (int)below(l - 1)));
		json_array_append_new(list, json_pack(
			"{s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I}",
			"name", json_sprintf("l%d", l), "inputs", inputs,
			"forward_ns", (json_int_t)(below(10) * grain),
			"backward_ns", (json_int_t)(below(20) * grain),
			"update_ns", (json_int_t)update,
			"update_apart_ns", (json_int_t)(update + below(2) * grain),
			"activation_bytes", (json_int_t)(below(20) * grain / 100 * 4),
			"parameter_bytes", (json_int_t)(below(4) * below(40) * grain / 100 * 4)));
	}
	root = json_pack("{s:s, s:i, s:s, s:i, s:s, s:{s:s, s:s}, s:o}", "format", "pd-profile",
			 "version", 1, "name", "random", "batch_size", 8, "dtype", "f32", "device",
			 "kind", "cpu", "name", "made up", "layers", list);
	struct pd_place place = pd_place_root("made up", root);
	profile = pd_profile_parse_at(&place, &err);
	if (!profile)
		diag("%s", err.text);
	else
		profile->sum_bytes_per_s = sums == 1 ? 1000000000 : sums == 2 ? 123456789 : 0;
	json_decref(root);
	return profile;
}

static void random_topology(struct pd_topology *topology)
{
	*topology = (struct pd_topology){ .levels = 1 + (int)below(3), .devices = 1 };
	for (int k = 0; k < topology->levels; k++) {
		topology->level[k] = (struct pd_level){
			.count = 1 + below(topology->levels == 1 ? 16 : 4),
			.bandwidth_bytes_per_s = (below(4) ? 1 + below(100) : 100) * 1000000,
			.latency_ns = below(3) * 10000,
		};
		topology->devices *= topology->level[k].count;
	}
}

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

static struct pd_plan *random_plan(struct pd_profile *profile, const struct pd_topology *topology)
{
	int layers[16], replicas[16], stages = 0, left = profile->layer_count;
	int64_t devices = topology->devices, lead = 0;
	struct pd_error err;
	struct pd_plan *plan;

	while (left > 0 && devices > 0) {
		layers[stages] = devices == 1 || below(6) == 0 ? left : 1 + (int)below(left);
		replicas[stages] = 1 + (int)below(below(2) ? devices : devices < 3 ? devices : 3);
		if (replicas[stages] == devices)
			layers[stages] = left;
		left -= layers[stages];
		devices -= replicas[stages++];
	}
	plan = pd_plan_new(profile, topology, stages, layers, replicas, &err);
	if (below(2))
		shuffle_ranks(plan);
	for (int s = plan->stage_count - 1; s >= 0; s--) {
		int64_t r = plan->stages[s].replicas;

		plan->stages[s].warmup = (int)((lead + r - 1) / r + below(3));
		lead = plan->stages[s].warmup * r;
	}
	return plan;
}

/* Backwards in the order in which they are known. */
struct ends {
	size_t count, room;
	struct { int stage; int64_t microbatch, end_ns; } *list;
};

static void note(void *context, const struct pd_record *record)
{
	struct ends *ends = context;

	if (record->op.kind != PD_OP_backward)
		return;
	ends->list = pd_grow(ends->list, &ends->room, ends->count + 1, sizeof(*ends->list));
	ends->list[ends->count].stage = record->op.stage;
	ends->list[ends->count].microbatch = record->op.microbatch;
	ends->list[ends->count++].end_ns = record->end_ns;
}

struct tally { int plans, known, same, replicated; };

static void compare(const struct pd_plan *plan, struct tally *tally)
{
	struct ends slow = { 0 }, fast = { 0 };
	struct pd_replay_options options = { .minibatches = pd_steady_minibatches(plan),
					     .retired = note };
	struct pd_error err;
	size_t n = 0;

	options.context = &slow;
	if (pd_replay_run(plan, &options, &err) == 0) {
		tally->plans++;
		options.context = &fast;
		if (pd_express_run(plan, &options, &err) == 1) {
			tally->known++;
			tally->replicated += plan->stages[0].replicas > 1;
			while (n < slow.count && n < fast.count &&
			       slow.list[n].stage == fast.list[n].stage &&
			       slow.list[n].microbatch == fast.list[n].microbatch &&
			       slow.list[n].end_ns == fast.list[n].end_ns)
				n++;
			tally->same += n == slow.count && n == fast.count;
			if (n < slow.count || n < fast.count)
				diag("%d stages on %d ranks, %d levels: after %zu of %zu: "
				     "stage %d, microbatch %lld, %lld ns; %d, %lld, %lld",
				     plan->stage_count, plan->rank_count, plan->topology.levels, n,
				     slow.count, slow.list[n].stage,
				     (long long)slow.list[n].microbatch,
				     (long long)slow.list[n].end_ns,
				     n < fast.count ? fast.list[n].stage : -1,
				     n < fast.count ? (long long)fast.list[n].microbatch : 0,
				     n < fast.count ? (long long)fast.list[n].end_ns : 0);
		}
	}
	free(slow.list);
	free(fast.list);
}

static void test_random(enum pd_weight_kind weights, enum pd_startup_kind startup, int cases)
{
	static const int64_t grains[] = { 100, 10000, 12345 };
	struct tally tally = { 0 };

	for (int n = 0; n < cases; n++) {
		struct pd_profile *profile = random_profile(1 + (int)below(9),
							    grains[below(PD_COUNT(grains))]);
		struct pd_topology topology;

		random_topology(&topology);
		for (int i = 0; i < 4; i++) {
			struct pd_plan *plan = random_plan(profile, &topology);

			plan->weights = weights;
			plan->startup = startup;
			compare(plan, &tally);
			plan->profile = NULL;
			pd_plan_free(plan);
		}
		pd_profile_free(profile);
	}
	ok(tally.known > cases, "%s%s: %d plans", pd_weight_kind_name[weights],
	   startup == PD_STARTUP_EAGER ? ", eager" : "", tally.known);
	is_int(tally.same, tally.known, "the same ends, in the same order");
	is_int(tally.known, tally.plans, "and all of them are known");
}

int main(int argc, char **argv)
{
	int cases = argc > 1 ? atoi(argv[1]) : 60;

	if (argc > 2)
		state = (uint32_t)atoi(argv[2]);
	test_random(PD_WEIGHTS_STASH, PD_STARTUP_FRUGAL, cases);
	test_random(PD_WEIGHTS_STASH, PD_STARTUP_EAGER, cases);
	test_random(PD_WEIGHTS_VERTICAL_SYNC, PD_STARTUP_FRUGAL, cases);
	test_random(PD_WEIGHTS_LATEST, PD_STARTUP_FRUGAL, cases);
	return done_testing();
}
