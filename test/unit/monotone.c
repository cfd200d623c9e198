/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans small random requests, and again with more memory, more devices, faster links or more left open: what
 * is allowed more is not slower, and has a plan where the other has one.
 *
 *     test/unit/monotone [CASES [FIRST [FOLDER]]]
 *
 * writes the profiles of requests that fail to the folder, and prints how pd-plan is asked (test/bench/monotone.sh).
 */
#include "made_up.h"
#include "base/json.h"
#include "base/mem.h"
#include "planner/planner.h"
#include "tap.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define PARTS 200               /* part by which a plan that is allowed more may be slower */

/* Cases in which a plan was slower than one that was allowed less, or missing, by up to 20 %, before others. */
static const int once_slower[] = { 367, 53, 16, 139, 475, 193, 198, 412 };

static int cases = 12, first_case = -(int)PD_COUNT(once_slower);
static const char *folder;

static uint32_t state;

static int64_t below(int64_t n)
{
	state = state * 1664525 + 1013904223;
	return (int64_t)((state >> 8) % (uint64_t)n);
}

/* Returns layers of which some read a second input from further back. */
static struct pd_profile *random_profile(uint32_t seed)
{
	json_t *list = json_array();
	int64_t layers, activation, parameters;

	state = seed;
	layers = 3 + below(7);
	activation = INT64_C(1) << (10 + below(12));
	parameters = INT64_C(1) << (10 + below(12));
	for (int64_t l = 0; l < layers; l++) {
		json_t *inputs = json_array();
		int64_t input = 50000 + below(950000), weight = 50000 + below(950000), sent = 4 + below(activation);

		if (l > 0)
			json_array_append_new(inputs, json_sprintf("l%d", (int)l - 1));
		if (l > 1 && below(5) == 0)
			json_array_append_new(inputs, json_sprintf("l%d", (int)below(l - 1)));
		json_array_append_new(list, json_pack(
			"{s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "name", json_sprintf("l%d", (int)l),
			"inputs", inputs, "forward_ns", (json_int_t)(50000 + below(950000)), "backward_ns",
			(json_int_t)(input + weight), "backward_input_ns", (json_int_t)input, "backward_weight_ns",
			(json_int_t)weight, "activation_bytes", (json_int_t)sent, "parameter_bytes",
			(json_int_t)(4 * below(parameters)), "stash_bytes", (json_int_t)(sent + below(8 * activation))));
	}
	return made_up_profile(list);
}

/* A request, and the machine that it is for. */
struct asked {
	uint32_t seed;
	struct pd_topology topology;
	struct pd_plan_request request;
};

struct answer {
	int64_t period_ns, memory_bytes;        /* 0 ns: there is no plan */
};

static struct answer answer_of(struct asked *asked)
{
	struct pd_profile *profile = random_profile(asked->seed);
	struct answer answer = { .period_ns = 0 };
	struct pd_error err;
	struct pd_plan *plan;

	asked->request.topology = &asked->topology;
	plan = pd_planner_plan(profile, &asked->request, &err);
	if (plan)
		answer = (struct answer){ plan->predicted.period_ns, plan->predicted.memory_bytes };
	else
		pd_profile_free(profile);
	pd_plan_free(plan);
	return answer;
}

static const struct {
	enum pd_schedule_kind schedule;
	enum pd_weight_kind weights;
	int chunks;
} kinds[] = {
	{ PD_SCHEDULE_1F1B, PD_WEIGHTS_STASH, 0 }, { PD_SCHEDULE_INTERLEAVED, PD_WEIGHTS_FLUSH, 2 },
	{ PD_SCHEDULE_1F1B, PD_WEIGHTS_2BW, 0 }, { PD_SCHEDULE_ZB_V, PD_WEIGHTS_FLUSH, 2 },
	{ PD_SCHEDULE_1F1B, PD_WEIGHTS_FLUSH, 0 }, { PD_SCHEDULE_GPIPE, PD_WEIGHTS_FLUSH, 0 },
	{ PD_SCHEDULE_ZB_H1, PD_WEIGHTS_FLUSH, 0 }, { PD_SCHEDULE_V_HALF, PD_WEIGHTS_FLUSH, 2 },
	{ PD_SCHEDULE_V_MIN, PD_WEIGHTS_FLUSH, 2 }, { PD_SCHEDULE_INTERLEAVED, PD_WEIGHTS_FLUSH, 3 },
	{ PD_SCHEDULE_ZB_H2, PD_WEIGHTS_FLUSH, 0 }, { PD_SCHEDULE_DUALPIPE_V, PD_WEIGHTS_FLUSH, 2 },
	{ PD_SCHEDULE_1F1B, PD_WEIGHTS_VERTICAL_SYNC, 0 },
};

static struct asked random_request(int n)
{
	struct asked asked = { .seed = (uint32_t)n * 2654435761u };
	int k;

	state = asked.seed ^ 0x5eed;
	k = (int)below((int64_t)PD_COUNT(kinds));
	asked.request = (struct pd_plan_request){
		.schedule = kinds[k].schedule, .weights = kinds[k].weights, .chunks = kinds[k].chunks,
		.microbatches = kinds[k].weights == PD_WEIGHTS_FLUSH || kinds[k].weights == PD_WEIGHTS_2BW
			? 2 + below(14) : 0,
		.recompute = below(3) ? PD_RECOMPUTE_AUTO : PD_RECOMPUTE_NONE };
	asked.topology.levels = 1 + (int)below(2);
	asked.topology.devices = 1;
	for (int i = 0; i < asked.topology.levels; i++) {
		int64_t count = 2 + below(asked.topology.levels == 1 ? 6 : 2);

		asked.topology.level[i] = (struct pd_level){ .count = count,
			.bandwidth_bytes_per_s = (INT64_C(20000000) << below(10)) / (i + 1),
			.latency_ns = below(3) * 2000 * (1 + 10 * i) };
		asked.topology.devices *= count;
	}
	return asked;
}

/* Limits the memory to less than what the plan takes that has no limit, where one fits in that. */
static void limit_memory(struct asked *asked)
{
	int64_t most = answer_of(asked).memory_bytes;

	asked->request.memory_bytes = most * (40 + below(61)) / 100;
}

enum more { MEMORY, DEVICES, LINKS, KINDS, MORES };
static const char *const more_name[] = { "more memory", "more devices", "faster links", "more kinds" };

static struct asked more_memory(struct asked asked)
{
	int64_t part = below(4);

	asked.request.memory_bytes = part ? asked.request.memory_bytes * (100 + below(60)) / 100 : INT64_C(1) << 40;
	return asked;
}

static struct asked more_devices(struct asked asked)
{
	struct pd_topology *topology = &asked.topology;
	struct pd_level *last = &topology->level[topology->levels - 1];

	if (topology->levels == 1 && below(2)) {
		topology->level[topology->levels++] = (struct pd_level){ .count = 2,
			.bandwidth_bytes_per_s = last->bandwidth_bytes_per_s / (1 + below(8)), .latency_ns = 20000 };
		topology->devices *= 2;
	} else {
		topology->devices += topology->devices / last->count;
		last->count++;
	}
	return asked;
}

static struct asked faster_links(struct asked asked)
{
	int64_t times = 1 + below(8);

	for (int i = 0; i < asked.topology.levels; i++) {
		asked.topology.level[i].bandwidth_bytes_per_s += asked.topology.level[i].bandwidth_bytes_per_s * times / 4;
		asked.topology.level[i].latency_ns /= 1 + below(2);
	}
	return asked;
}

static struct asked more_kinds(struct asked asked)
{
	struct pd_plan_request *request = &asked.request;
	bool open = pd_schedule_has(request->schedule, PD_FACT_OPEN);

	if (request->recompute == PD_RECOMPUTE_NONE && (below(2) || !open))
		request->recompute = PD_RECOMPUTE_AUTO;
	else if (open && request->weights == PD_WEIGHTS_FLUSH && request->chunks < 3)
		request->any_schedule = true;
	else
		request->any_weights = !request->chunks;
	return asked;
}

static struct asked with_more(const struct asked *asked, enum more more)
{
	return more == MEMORY ? more_memory(*asked) : more == DEVICES ? more_devices(*asked)
	     : more == LINKS ? faster_links(*asked) : more_kinds(*asked);
}

static void write_command(const struct asked *asked, const struct answer *answer, int n)
{
	const struct pd_plan_request *request = &asked->request;
	char machine[128] = "";

	for (int i = 0; i < asked->topology.levels; i++) {
		const struct pd_level *level = &asked->topology.level[i];
		size_t at = strlen(machine);

		snprintf(machine + at, sizeof(machine) - at, "%s%" PRId64 "@%" PRId64 "B/s+%" PRId64 "ns", i ? "," : "",
			 level->count, level->bandwidth_bytes_per_s, level->latency_ns);
	}
	diag("%" PRId64 " ns: pd-plan --min-gain=0 -t %s --schedule=%s --weights=%s --microbatches=%" PRId64
	     " --chunks=%d --recompute=%s --memory=%" PRId64 "B %d.json", answer->period_ns, machine,
	     request->any_schedule ? "auto" : pd_schedule_kind_name[request->schedule],
	     request->any_weights ? "auto" : pd_weight_kind_name[request->weights], request->microbatches, request->chunks,
	     request->recompute == PD_RECOMPUTE_NONE ? "none" : "auto", request->memory_bytes, n);
}

static void write_profile(const struct asked *asked, int n)
{
	struct pd_profile *profile = random_profile(asked->seed);
	json_t *json = pd_profile_json(profile);
	char name[256];

	snprintf(name, sizeof(name), "%s/%d.json", folder, n);
	json_dump_file(json, name, 0);
	json_decref(json);
	pd_profile_free(profile);
}

/* Returns by what part the plan that is allowed more is slower; 1 where it is the only one that is missing. */
static double slower(const struct answer *less, const struct answer *more)
{
	if (less->period_ns == 0)
		return 0;
	return more->period_ns == 0 ? 1 : (double)more->period_ns / (double)less->period_ns - 1;
}

static void test_more(enum more more)
{
	int good = 0, plans = 0;

	for (int i = first_case; i < first_case + cases; i++) {
		int n = i < 0 ? once_slower[i + (int)PD_COUNT(once_slower)] : i;
		struct asked asked = random_request(n), others;
		struct answer answer, other;

		if (more == MEMORY || below(3) == 0)
			limit_memory(&asked);
		others = with_more(&asked, more);
		answer = answer_of(&asked);
		other = answer_of(&others);
		plans += answer.period_ns > 0;
		if (slower(&answer, &other) <= 1.0 / PARTS) {
			good++;
			continue;
		}
		diag("case %d: %.2f %% slower with %s", n, 100 * slower(&answer, &other), more_name[more]);
		write_command(&asked, &answer, n);
		write_command(&others, &other, n);
		if (folder)
			write_profile(&asked, n);
	}
	ok(plans > cases / 3, "%d of %d have a plan", plans, cases);
	is_int(good, cases, "none is slower with %s", more_name[more]);
}

int main(int argc, char **argv)
{
	if (test_quick())
		cases = 2;
	if (argc > 1)
		cases = atoi(argv[1]);
	if (argc > 2)
		first_case = atoi(argv[2]);
	folder = argc > 3 ? argv[3] : NULL;
	for (enum more more = 0; more < MORES; more++)
		test_more(more);
	return done_testing();
}
