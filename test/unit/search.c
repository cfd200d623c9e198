/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the search against brute force, both judged by the event simulation, and replays its plans. */
#include "base/json.h"
#include "base/mem.h"
#include "made_up.h"
#include "planner/cut/task.h"
#include "planner/planner.h"
#include "predict/judge.h"
#include "predict/replay.h"
#include "schedule/check.h"
#include "schedule/memory.h"
#include "tap.h"

#include <stdlib.h>
#include <string.h>

/* The numbers of cases, which two arguments can replace; 1000 500 takes half a minute. */
static int brute_cases = 300, random_cases = 80;
#define MOST_STAGES 6

static uint32_t state = 7;

static int64_t below(int64_t n)
{
	state = state * 1664525 + 1013904223;
	return (int64_t)((state >> 8) % (uint64_t)n);
}

enum shape { CHAIN, SKIPS, GRAPH };

/*
 * Returns layers in a chain; with skips, some read a second input from further back; in a graph, up to
 * two from anywhere before, and the last reads all outputs that no other layer reads.  Each layer keeps
 * less than most_stash bytes.
 */
static struct pd_profile *random_profile(int layers, enum shape shape, int64_t most_stash)
{
	json_t *list = json_array();
	unsigned used = 0;

	for (int l = 0; l < layers; l++) {
		json_t *inputs = json_array();

		if (l > 0 && shape != GRAPH)
			json_array_append_new(inputs, json_sprintf("l%d", l - 1));
		for (int i = shape == GRAPH && l > 0 ? (int)below(3) : 0; i > 0; i--) {
			int input = (int)below(l);

			used |= 1u << input;
			json_array_append_new(inputs, json_sprintf("l%d", input));
		}
		for (int i = 0; shape == GRAPH && l == layers - 1 && i < l; i++)
			if (!(used >> i & 1))
				json_array_append_new(inputs, json_sprintf("l%d", i));
		if (shape == SKIPS && l > 1 && below(3) == 0)
			json_array_append_new(inputs, json_sprintf("l%d", (int)below(l - 1)));
		json_array_append_new(list, json_pack(
			"{s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I}",
			"name", json_sprintf("l%d", l), "inputs", inputs,
			"forward_ns", (json_int_t)below(1000),
			"backward_ns", (json_int_t)below(2000),
			"update_ns", (json_int_t)below(100),
			"activation_bytes", (json_int_t)below(1000),
			"parameter_bytes", (json_int_t)(4 * (64 + below(500))),
			"stash_bytes", (json_int_t)below(most_stash),
			"workspace_bytes", (json_int_t)below(300)));
	}
	return made_up_profile(list);
}

/* The schedules of cases: the policies take turns in every second case, the others stash. */
static const struct policy {
	enum pd_schedule_kind schedule;
	enum pd_weight_kind weights;
} policies[] = {
	{ PD_SCHEDULE_1F1B, PD_WEIGHTS_VERTICAL_SYNC }, { PD_SCHEDULE_1F1B, PD_WEIGHTS_2BW },
	{ PD_SCHEDULE_1F1B, PD_WEIGHTS_FLUSH }, { PD_SCHEDULE_1F1B, PD_WEIGHTS_LATEST },
	{ PD_SCHEDULE_ZB_H1, PD_WEIGHTS_FLUSH }, { PD_SCHEDULE_NF1B, PD_WEIGHTS_VERTICAL_SYNC },
	{ PD_SCHEDULE_GPIPE, PD_WEIGHTS_FLUSH }, { PD_SCHEDULE_INTERLEAVED, PD_WEIGHTS_FLUSH },
	{ PD_SCHEDULE_NONE, PD_WEIGHTS_STASH }, { PD_SCHEDULE_NONE, PD_WEIGHTS_FLUSH },
}, stashing = { PD_SCHEDULE_1F1B, PD_WEIGHTS_STASH };

struct brute {
	struct pd_profile *profile;
	const struct policy *policy;
	int chunks;
	bool straight;                  /* no replicas */
	const struct pd_topology *topology;
	int64_t limit_bytes, known_ns;
	struct pd_profile *view;        /* in the order of the stages */
	int order[MOST_STAGES], placed; /* layers that are in stages */
	int stages, layers[MOST_STAGES], replicas[MOST_STAGES], warmups[MOST_STAGES];
	bool recompute;                 /* any set of stages may recompute */
	int64_t best_ns, replays;
	int devices, best_stages, best_again;
};

/* Returns how many stages recompute. */
static int recomputed(const struct pd_plan *plan)
{
	int count = 0;

	for (int s = 0; s < plan->stage_count; s++)
		count += plan->stages[s].recompute;
	return count;
}

static bool stage_fits(const struct brute *b, const struct pd_schedule *schedule, int s)
{
	struct pd_memory memory;

	pd_schedule_memory(schedule, schedule->plan->stages[s].ranks[0], &pd_momentum, &memory);
	return memory.total_bytes <= b->limit_bytes;
}

/*
 * Tells whether a plan fits, and its stages recompute only for want of memory.  (Without that rule a
 * replay can be faster with recomputation: later transfers find links free that they would wait for.)
 */
static bool fits_well(const struct brute *b, struct pd_plan *plan)
{
	struct pd_error err;
	struct pd_schedule *schedule = pd_schedule_new(plan, &err), *once;
	bool fits = schedule != NULL;

	for (int s = 0; s < plan->stage_count && fits; s++) {
		fits = stage_fits(b, schedule, s);
		if (!plan->stages[s].recompute)
			continue;
		plan->stages[s].recompute = false;
		once = pd_schedule_new(plan, &err);
		fits = fits && !stage_fits(b, once, s);
		pd_schedule_free(once);
		plan->stages[s].recompute = true;
	}
	pd_schedule_free(schedule);
	return fits;
}

static void judge(struct brute *b, struct pd_plan *plan)
{
	bool fits = fits_well(b, plan);
	struct pd_error err;
	enum pd_period_kind from;
	int64_t ns;

	if (!fits || pd_judge_period(plan, &ns, &from, &err) < 0)
		return;
	b->replays++;
	if (ns > b->best_ns || (ns == b->best_ns && (plan->rank_count > b->devices ||
	    (plan->rank_count == b->devices && (plan->stage_count > b->best_stages ||
	     (plan->stage_count == b->best_stages && recomputed(plan) >= b->best_again))))))
		return;
	b->best_ns = ns;
	b->devices = plan->rank_count;
	b->best_stages = plan->stage_count;
	b->best_again = recomputed(plan);
}

/* Judges the plan with recomputation in every set of stages, or in none if it is not looked at. */
static void judge_sets(struct brute *b, struct pd_plan *plan)
{
	for (unsigned set = 0; set < (b->recompute ? 1u << b->stages : 1); set++) {
		for (int s = 0; s < b->stages; s++)
			plan->stages[s].recompute = set >> s & 1;
		judge(b, plan);
	}
}

/* Puts the stages, or ranks with chunks, that have no place yet on the line of ranks in every order. */
static void line_up(struct brute *b, struct pd_plan *plan, int places, unsigned done, int next)
{
	if (done + 1 == 1u << places)
		judge_sets(b, plan);
	for (int p = 0; p < places; p++) {
		if (done >> p & 1)
			continue;
		for (int s = p; s < plan->stage_count; s += places)
			for (int r = 0; r < plan->stages[s].replicas; r++)
				plan->stages[s].ranks[r] = next + r;
		line_up(b, plan, places, done | 1u << p, next + plan->stages[p].replicas);
		if (b->topology->levels == 1 && !b->topology->processors)
			break;          /* every order is as good */
	}
}

/* Judges the plan with a part of every stage in each server, if stages can be divided so. */
static void stride(struct brute *b, struct pd_plan *plan)
{
	int inner = (int)b->topology->level[0].count, servers = plan->rank_count / inner, offset = 0;
	int places = b->chunks ? b->stages / b->chunks : b->stages;

	if (b->topology->levels == 1 || servers < 2 || plan->rank_count % inner != 0)
		return;
	for (int s = 0; s < b->stages; s++)
		if (b->replicas[s] % servers != 0)
			return;
	for (int p = 0; p < places; p++) {
		for (int s = p; s < b->stages; s += places)
			for (int r = 0; r < b->replicas[s]; r++)
				plan->stages[s].ranks[r] = r % servers * inner + offset + r / servers;
		offset += b->replicas[p] / servers;
	}
	judge_sets(b, plan);
}

/* Judges all plans with these stages and warm-ups, in all places that the search tries. */
static void place(struct brute *b)
{
	struct pd_topology large = *b->topology;
	struct pd_error err;
	struct pd_plan *plan;

	if (b->chunks && b->stages % b->chunks != 0)
		return;
	if (b->stages * b->replicas[0] > large.devices)
		large.devices = b->stages * b->replicas[0];
	plan = pd_plan_new(b->view, &large, b->stages, b->layers, b->replicas, &err);
	plan->topology = *b->topology;
	plan->schedule = b->policy->schedule;
	plan->weights = b->policy->weights;
	if (b->chunks)
		plan->rank_count = b->stages / b->chunks * b->replicas[0];
	plan->microbatches = pd_planner_microbatches(plan);
	for (int s = 0; s < b->stages && plan->schedule == PD_SCHEDULE_1F1B; s++)
		plan->stages[s].warmup = b->warmups[s];
	line_up(b, plan, b->chunks ? b->stages / b->chunks : b->stages, 0, 0);
	stride(b, plan);
	plan->profile = NULL;
	pd_plan_free(plan);
}

static void warm(struct brute *b, int s, int behind)
{
	int r, most;

	if (s < 0 || b->policy->schedule != PD_SCHEDULE_1F1B) {
		place(b);
		return;
	}
	r = b->replicas[s];
	most = behind ? (2 * behind + r - 1) / r + 1 : 0;
	for (b->warmups[s] = 0; b->warmups[s] <= most; b->warmups[s]++)
		if (s + 1 == b->stages ||
		    b->warmups[s] * r >= b->warmups[s + 1] * b->replicas[s + 1])
			warm(b, s - 1, behind + r);
}

/* Tells whether the layers in set `stage` can follow those in `done`; stores their time in *ns. */
static bool may_follow(const struct pd_profile *profile, unsigned done, unsigned stage, int64_t *ns)
{
	*ns = 0;
	for (int l = 0; l < profile->layer_count; l++) {
		const struct pd_profile_layer *layer = &profile->layers[l];

		if (!(stage >> l & 1))
			continue;
		*ns += layer->forward_ns + layer->backward_ns;
		for (int i = 0; i < layer->input_count; i++)
			if (!((done | stage) >> layer->inputs[i] & 1))
				return false;
	}
	return !(done & stage);
}

/* Divides the layers into stages in every way, except for stages that are slower than the plan to beat. */
static void divide(struct brute *b, unsigned done, int devices)
{
	unsigned all = (1u << b->profile->layer_count) - 1;
	int before = b->placed;
	int64_t sum;

	if (done == all) {
		b->view = pd_profile_in_order(b->profile, b->order);
		warm(b, b->stages - 1, 0);
		pd_profile_free(b->view);
		return;
	}
	for (unsigned stage = 1; stage <= all; stage++) {
		if (!may_follow(b->profile, done, stage, &sum))
			continue;
		for (int l = 0; l < b->profile->layer_count; l++)
			if (stage >> l & 1)
				b->order[b->placed++] = l;
		for (int m = 1; m <= (b->straight && devices > 1 ? 1 : devices); m++) {
			if (sum / m > b->known_ns || (b->chunks && b->stages > 0 && m != b->replicas[0]))
				continue;
			b->layers[b->stages] = b->placed - before;
			b->replicas[b->stages++] = m;
			divide(b, done | stage, devices - m);
			b->stages--;
		}
		b->placed = before;
	}
}

/* Tells whether the plan's layers are in another order than those of the profile that was given. */
static bool in_other_order(const struct pd_plan *plan)
{
	for (int l = 0; l < plan->profile->layer_count; l++)
		if (pd_profile_number(plan->profile, l) != l)
			return true;
	return false;
}

struct tally {
	int64_t replays;
	int turned;                     /* plans whose stages are in another order on the line */
	int others, again;              /* plans in another order; that recompute */
};

/* Tells whether the stages are neither in their order on the line of ranks nor in reverse. */
static bool is_turned(const struct pd_plan *plan)
{
	bool up = true, down = true;

	for (int s = 0; s + 1 < plan->stage_count; s++) {
		up &= plan->stages[s].ranks[0] < plan->stages[s + 1].ranks[0];
		down &= plan->stages[s].ranks[0] > plan->stages[s + 1].ranks[0];
	}
	return !up && !down;
}

static bool brute_case(int n, struct tally *tally)
{
	const struct policy *policy = n % 2 ? &policies[n / 2 % (int)PD_COUNT(policies)] : &stashing;
	bool limited = n % 2 == 0 && n / 4 % 2, recompute = limited && n / 8 % 3 > 0;
	struct pd_profile *profile = random_profile(2 + (int)below(3), (enum shape)(n % 3),
						    recompute ? 6000 : 1500);
	struct pd_topology topology = { .levels = 1 + below(2), .devices = 1 };
	int chunks = policy->schedule == PD_SCHEDULE_INTERLEAVED ? 2 : 0;
	struct pd_plan_request request = { .topology = &topology, .schedule = policy->schedule,
					   .weights = policy->weights, .chunks = chunks };
	struct brute b = { .profile = profile, .topology = &topology, .limit_bytes = INT64_MAX,
			   .best_ns = INT64_MAX, .known_ns = INT64_MAX, .policy = policy,
			   .chunks = chunks, .recompute = recompute,
			   .straight = policy->schedule == PD_SCHEDULE_NF1B };
	struct pd_plan *plan;
	struct pd_error err;
	bool good;

	for (int k = 0; k < topology.levels; k++) {
		topology.level[k] = (struct pd_level){ 2, 200 * (1 + below(20)) * 1000000,
						       below(50) };
		topology.devices *= 2;
	}
	if (topology.levels == 1)
		topology.devices = topology.level[0].count = 2 + below(2);
	if (n % 7 == 6)
		topology.processors = 1 + n / 7 % 3;
	if (limited)
		b.limit_bytes = request.memory_bytes = 8000 + below(24000);
	if (!recompute)
		request.recompute = PD_RECOMPUTE_NONE;
	plan = pd_planner_plan(profile, &request, &err);
	if (plan)
		b.known_ns = plan->predicted.period_ns;
	tally->others += plan && in_other_order(plan);
	tally->again += plan && recomputed(plan) > 0;
	tally->turned += plan && !chunks && is_turned(plan);
	divide(&b, 0, (int)topology.devices * (chunks ? chunks : 1));
	tally->replays += b.replays;
	good = plan ? b.best_ns == b.known_ns && b.devices == plan->rank_count &&
		b.best_stages == plan->stage_count && b.best_again == recomputed(plan)
		: b.best_ns == INT64_MAX;
	if (!good)
		diag("case %d, %s, %s: %lld ns on %d in %d stages, %d recomputed; brute force %lld on "
		     "%d in %d, %d", n, pd_schedule_kind_name[policy->schedule],
		     pd_weight_kind_name[policy->weights], plan ? (long long)b.known_ns : -1, plan ? plan->rank_count : 0,
		     plan ? plan->stage_count : 0, plan ? recomputed(plan) : 0,
		     (long long)b.best_ns, b.devices, b.best_stages, b.best_again);
	if (plan)
		pd_plan_free(plan);
	else
		pd_profile_free(profile);
	return good;
}

static void test_brute(void)
{
	struct tally tally = { .replays = 0 };
	int good = 0;

	for (int n = 0; n < brute_cases; n++)
		good += brute_case(n, &tally);
	diag("%lld plans replayed by brute force", (long long)tally.replays);
	is_int(good, brute_cases, "the plan is the best of all, judged by the event simulation");
	if (brute_cases < 300) {
		diag("too few cases to count what kinds of plans there are among them");
		return;
	}
	ok(tally.others > brute_cases / 50, "stages of %d of %d are no runs of the profile's layers",
	   tally.others, brute_cases);
	ok(tally.again > brute_cases / 200, "stages of %d recompute", tally.again);
	ok(tally.turned > 0, "those of %d are in an order of their own on the line", tally.turned);
}

/* Tells whether a replay of so many microbatches has the period that the plan predicts. */
static bool in_time(const struct pd_plan *plan, int64_t microbatches, double *period_p)
{
	struct pd_replay_options options = { .microbatches = microbatches };
	struct pd_error err;
	struct pd_trace *trace = pd_replay(plan, &options, &err);

	*period_p = trace ? pd_replay_period_ns(trace) : 0;
	pd_trace_free(trace);
	/* The first stage may still be faster than the others if microbatches queue behind it. */
	return *period_p <= 1.001 * (double)plan->predicted.period_ns + 1 &&
	       *period_p >= 0.98 * (double)plan->predicted.period_ns - 1;
}

/*
 * Tells whether a plan's lists are right, and it runs in the predicted time and memory.  Some pipelines
 * settle so late that the beginning is in the mean of a replay of the default length.
 */
static bool runs(const struct pd_plan *plan)
{
	struct pd_error err = { .text = "" };
	struct pd_schedule *schedule = pd_schedule_new(plan, &err);
	int64_t most = 0, operations, microbatches = pd_steady_microbatches(plan);
	double period;
	bool good = schedule && pd_check_schedule("plan", schedule, pd_steady_minibatches(plan),
						  &operations, &err) == 0;

	for (int s = 0; s < plan->stage_count && good; s++) {
		struct pd_memory memory;

		pd_schedule_memory(schedule, plan->stages[s].ranks[0], &pd_momentum, &memory);
		most = memory.total_bytes > most ? memory.total_bytes : most;
		good = memory.total_bytes <= plan->stages[s].memory_bytes;
	}
	good = (in_time(plan, microbatches, &period) || in_time(plan, 4 * microbatches, &period)) &&
		good && most <= plan->predicted.memory_bytes &&
		plan->predicted.lower_bound_ns <= plan->predicted.period_ns;
	if (!good)
		diag("period %.0f, said %lld; %lld bytes, said %lld; %s", period,
		     (long long)plan->predicted.period_ns, (long long)most,
		     (long long)plan->predicted.memory_bytes, err.text);
	pd_schedule_free(schedule);
	return good;
}

static void test_random(void)
{
	static const char *const topologies[] = {
		"7@100MB/s+20ns", "4@1GB/s,3@50MB/s+1us", "2@1GB/s,2@200MB/s,2@50MB/s+30ns",
		"12@2GB/s",
	};
	int plans = 0, good = 0, again = 0, cases = random_cases;

	for (int n = 0; n < cases; n++) {
		static const enum pd_weight_kind weights[] = {
			PD_WEIGHTS_STASH, PD_WEIGHTS_2BW, PD_WEIGHTS_STASH, PD_WEIGHTS_FLUSH,
			PD_WEIGHTS_VERTICAL_SYNC };
		struct pd_profile *profile = random_profile(1 + (int)below(12), (enum shape)(n % 3),
							    n % 2 ? 1500 : 6000);
		struct pd_plan_request request = {
			.straight = n % 7 == 0, .weights = weights[n % (int)PD_COUNT(weights)],
			.memory_bytes = n % 3 ? 0 : 20000 + below(40000) };
		struct pd_topology topology;
		struct pd_error err;
		struct pd_plan *plan;

		pd_topology_parse_string(topologies[n % (int)PD_COUNT(topologies)], &topology,
					 &err);
		request.topology = &topology;
		plan = pd_planner_plan(profile, &request, &err);
		if (!plan) {
			good += err.status == PD_EXIT_NO && request.memory_bytes > 0;
			pd_profile_free(profile);
			continue;
		}
		plans++;
		again += recomputed(plan) > 0;
		good += runs(plan) && (!request.memory_bytes ||
				       plan->predicted.memory_bytes <= request.memory_bytes);
		pd_plan_free(plan);
	}
	ok(plans > cases * 2 / 3, "%d of %d have a plan that fits", plans, cases);
	ok(again > 0, "stages of %d recompute", again);
	is_int(good, cases, "each runs, in the time and memory that were predicted");
}

int main(int argc, char **argv)
{
	if (test_quick()) {
		brute_cases = 20;
		random_cases = 10;
	}
	if (argc == 3) {
		brute_cases = atoi(argv[1]);
		random_cases = atoi(argv[2]);
	}
	test_brute();
	test_random();
	return done_testing();
}
