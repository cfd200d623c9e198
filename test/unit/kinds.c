/* SPDX-License-Identifier: Apache-2.0 */
/* Tests plans for machines with two kinds of devices against brute force, both judged by the event simulation. */
#include "base/json.h"
#include "base/mem.h"
#include "made_up.h"
#include "planner/planner.h"
#include "planner/search/candidate.h"
#include "predict/judge.h"
#include "schedule/memory.h"
#include "tap.h"

#include <stdlib.h>
#include <string.h>

#define CASES 24
#define LAYERS 6
#define DEVICES 4
#define KINDS 2

static uint32_t state = 11;

static int64_t below(int64_t n)
{
	state = state * 1664525 + 1013904223;
	return (int64_t)((state >> 8) % (uint64_t)n);
}

/* The same chain on another kind has times that are these parts of a hundred, each somewhat different. */
struct chain {
	int64_t forward_ns[LAYERS], activation_bytes[LAYERS], parameter_bytes[LAYERS];
	int percent[LAYERS];
};

static struct pd_profile *profile_of(const struct chain *chain, bool other)
{
	json_t *list = json_array();

	for (int l = 0; l < LAYERS; l++) {
		json_t *inputs = json_array();
		int64_t ns = chain->forward_ns[l] * (other ? chain->percent[l] : 100) / 100;

		if (l > 0)
			json_array_append_new(inputs, json_sprintf("l%d", l - 1));
		json_array_append_new(list, json_pack(
			"{s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I}", "name", json_sprintf("l%d", l), "inputs",
			inputs, "forward_ns", (json_int_t)ns, "backward_ns", (json_int_t)(2 * ns), "update_ns",
			(json_int_t)(ns / 20), "activation_bytes", (json_int_t)chain->activation_bytes[l],
			"parameter_bytes", (json_int_t)chain->parameter_bytes[l], "stash_bytes", (json_int_t)500));
	}
	return made_up_profile(list);
}

static struct chain random_chain(int slow, int spread)
{
	struct chain chain;

	for (int l = 0; l < LAYERS; l++) {
		chain.forward_ns[l] = 1000 * (1 + below(6));
		chain.activation_bytes[l] = below(1000);
		chain.parameter_bytes[l] = 4 * (64 + below(500));
		chain.percent[l] = slow + (int)below(spread + 1);
	}
	return chain;
}

static void make_topology(struct pd_topology *topology, int first, int64_t bandwidth, const int64_t *memory)
{
	struct pd_error err;

	pd_topology_flat(DEVICES, bandwidth, 10, topology, &err);
	pd_topology_add_devices(topology, "one", first, memory[0], &err);
	pd_topology_add_devices(topology, "other", DEVICES - first, memory[1], &err);
}

struct brute {
	struct pd_profile *profile;
	const struct pd_topology *topology;
	int64_t known_ns, best_ns;
	int stages, layers[DEVICES], on[DEVICES][KINDS], left[KINDS], warmups[DEVICES];
};

static int replicas_of(const struct brute *b, int s)
{
	return b->on[s][0] + b->on[s][1];
}

/* Puts the stages' devices one behind the other, and then those that have nothing to do. */
static struct pd_topology line_up(const struct brute *b)
{
	struct pd_topology topology = *b->topology;
	struct pd_error err;

	topology.device_runs = 0;
	for (int s = 0; s <= b->stages; s++)
		for (int k = 0; k < KINDS; k++) {
			int count = s < b->stages ? b->on[s][k] : b->left[k];

			if (count > 0)
				pd_topology_add_devices(&topology, topology.kind[k].name, count,
							topology.kind[k].memory_bytes, &err);
		}
	return topology;
}

static void judge(struct brute *b)
{
	struct pd_topology topology = line_up(b);
	int replicas[DEVICES];
	enum pd_period_kind from;
	struct pd_error err;
	struct pd_plan *plan;
	int64_t ns;

	for (int s = 0; s < b->stages; s++)
		replicas[s] = replicas_of(b, s);
	plan = pd_plan_new(b->profile, &topology, b->stages, b->layers, replicas, &err);
	for (int s = 0; s < b->stages; s++)
		plan->stages[s].warmup = b->warmups[s];
	if (pd_candidate_fits(plan, INT64_MAX) && pd_judge_period(plan, &ns, &from, &err) == 0 && ns < b->best_ns)
		b->best_ns = ns;
	pd_candidate_drop(plan);
}

static void warm(struct brute *b, int s, int behind)
{
	int r, most;

	if (s < 0) {
		judge(b);
		return;
	}
	r = replicas_of(b, s);
	most = behind ? (2 * behind + r - 1) / r + 1 : 0;
	for (b->warmups[s] = 0; b->warmups[s] <= most; b->warmups[s]++)
		if (s + 1 == b->stages || b->warmups[s] * r >= b->warmups[s + 1] * replicas_of(b, s + 1))
			warm(b, s - 1, behind + r);
}

/* Tells whether a stage of these layers is too slow on the slowest of its devices. */
static bool too_slow(const struct brute *b, int first, int count, const int on[KINDS])
{
	for (int k = 0; k < KINDS; k++) {
		const struct pd_profile *own = pd_profile_of_kind(b->profile, k);
		int64_t sum = 0;

		for (int l = first; l < first + count; l++)
			sum += own->layers[l].forward_ns + own->layers[l].backward_ns;
		if (on[k] > 0 && sum / (on[0] + on[1]) > b->known_ns)
			return true;
	}
	return false;
}

static void divide(struct brute *b, int first)
{
	if (first == LAYERS) {
		warm(b, b->stages - 1, 0);
		return;
	}
	for (int count = 1; first + count <= LAYERS && b->stages < DEVICES; count++)
		for (int x = 0; x <= b->left[0]; x++)
			for (int y = x == 0; y <= b->left[1]; y++) {
				int *on = b->on[b->stages];

				on[0] = x;
				on[1] = y;
				if (too_slow(b, first, count, on))
					continue;
				b->left[0] -= x;
				b->left[1] -= y;
				b->layers[b->stages++] = count;
				divide(b, first + count);
				b->stages--;
				b->left[0] += x;
				b->left[1] += y;
			}
}

static bool brute_case(int n)
{
	struct chain chain = random_chain(n % 3 == 0 ? 40 : 130, n % 4 == 0 ? 0 : 60);
	struct pd_profile *profile = profile_of(&chain, false);
	int64_t memory[KINDS] = { n % 5 == 4 ? 12000 + below(6000) : 0, n % 5 == 3 ? 12000 + below(6000) : 0 };
	struct pd_topology topology;
	struct pd_plan_request request = { .topology = &topology, .schedule = PD_SCHEDULE_1F1B,
					   .weights = PD_WEIGHTS_STASH, .recompute = PD_RECOMPUTE_NONE };
	struct brute b = { .profile = profile, .topology = &topology, .best_ns = INT64_MAX };
	struct pd_error err;
	struct pd_plan *plan;
	bool good;

	pd_profile_add_kind(profile, profile_of(&chain, true));
	b.left[0] = 1 + (int)below(DEVICES - 1);
	b.left[1] = DEVICES - b.left[0];
	make_topology(&topology, b.left[0], 100 * (1 + below(20)) * 1000000, memory);
	plan = pd_planner_plan(profile, &request, &err);
	if (!plan) {
		diag("case %d: %s", n, err.text);
		pd_profile_free(profile);
		return false;
	}
	b.known_ns = plan->predicted.period_ns;
	divide(&b, 0);
	good = b.known_ns <= b.best_ns && plan->predicted.lower_bound_ns <= b.best_ns;
	if (!good)
		diag("case %d, %d and %d: %lld ns, above %lld; brute force %lld", n, b.left[0], b.left[1],
		     (long long)b.known_ns, (long long)plan->predicted.lower_bound_ns, (long long)b.best_ns);
	pd_plan_free(plan);
	return good;
}

static void test_brute(void)
{
	int good = 0;

	for (int n = 0; n < CASES; n++)
		good += brute_case(n);
	is_int(good, CASES, "no division among devices of two kinds is faster than the plan, nor than its bound");
}

/* Two kinds that are alike but for their names, in any numbers, make plans of the same period. */
static void test_twins(void)
{
	const int64_t memory[KINDS] = { 0, 0 };
	int same = 0;

	for (int n = 0; n < CASES; n++) {
		struct chain chain = random_chain(100, 0);
		struct pd_profile *alike = profile_of(&chain, false), *two = profile_of(&chain, false);
		struct pd_topology mixed, flat;
		struct pd_plan_request request = { .topology = &flat, .schedule = PD_SCHEDULE_1F1B,
						   .weights = PD_WEIGHTS_STASH };
		struct pd_error err;
		struct pd_plan *a, *b;

		pd_profile_add_kind(two, profile_of(&chain, true));
		make_topology(&mixed, 1 + n % (DEVICES - 1), 1000000000, memory);
		pd_topology_flat(DEVICES, 1000000000, 10, &flat, &err);
		a = pd_planner_plan(alike, &request, &err);
		request.topology = &mixed;
		b = pd_planner_plan(two, &request, &err);
		same += a && b && a->predicted.period_ns == b->predicted.period_ns &&
			a->predicted.lower_bound_ns == b->predicted.lower_bound_ns;
		pd_plan_free(a);
		pd_plan_free(b);
	}
	is_int(same, CASES, "equal profiles under two names make plans of the same period");
}

int main(void)
{
	test_brute();
	test_twins();
	return done_testing();
}
