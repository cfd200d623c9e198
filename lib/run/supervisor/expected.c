/* SPDX-License-Identifier: Apache-2.0 */
#include "run/supervisor/expected.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/opt.h"
#include "trace/steady.h"

#include <math.h>
#include <stdlib.h>

#define MOST 65536              /* microbatches of a stretch: more say nothing new */
#define CLOCK_NOTED 0.03        /* differences of the clock that are worth a word */
#define SAID 4                  /* operations in a sentence */

void pd_run_times_begin(struct pd_run_times *times, const struct pd_plan *plan, int64_t epoch, int64_t first)
{
	*times = (struct pd_run_times){ .epoch = epoch, .next = first };
	if (!pd_profile_has_spread(plan->profile))
		return;
	times->plan = plan;
	times->sums_ns = pd_calloc((size_t)plan->stage_count, sizeof(*times->sums_ns));
	times->replicas = pd_calloc((size_t)plan->stage_count, sizeof(*times->replicas));
	times->pulses_ns = pd_calloc((size_t)plan->rank_count, sizeof(*times->pulses_ns));
}

void pd_run_times_release(struct pd_run_times *times)
{
	free(times->ends);
	free(times->sums_ns);
	free(times->replicas);
	free(times->pulses_ns);
}

/* The pipeline is empty: of several stretches the longest counts. */
static void end_stretch(struct pd_run_times *times)
{
	struct pd_steady steady;

	if (times->count > times->longest &&
	    pd_steady_of(times->plan, times->ends, times->count, times->count < MOST, &steady)) {
		times->longest = times->count;
		times->period_ns = steady.period_ns;
	}
	times->count = 0;
}

void pd_run_times_add(struct pd_run_times *times, int64_t now_ns)
{
	if (!times->plan)
		return;
	times->next++;
	if (times->count < MOST) {
		times->ends = pd_grow(times->ends, &times->capacity, times->count + 1, sizeof(*times->ends));
		times->ends[times->count++] = now_ns;
	}
	if (times->next % times->epoch == 0)
		end_stretch(times);
}

void pd_run_times_hear(struct pd_run_times *times, int rank, const json_t *message)
{
	json_t *one;
	size_t i;

	if (!times->plan)
		return;
	times->pulses_ns[rank] = pd_member_int(message, "pulse_ns");
	json_array_foreach(json_object_get(message, "durations"), i, one) {
		int64_t stage = pd_member_int(one, "stage"), kind = pd_member_int(one, "kind");

		if (stage < 0 || stage >= times->plan->stage_count || kind < 0 || kind >= PD_OP_KINDS)
			continue;
		times->sums_ns[stage][kind] += json_real_value(json_object_get(one, "ns"));
		times->replicas[stage][kind]++;
	}
}

/* An operation that was measured and expected. */
struct compared {
	int stage, kind;
	double ns, expected_ns;
	struct pd_spread spread;
};

static bool compare(const struct pd_run_times *times, const struct pd_expected_run *expected, int at,
		    struct compared *one)
{
	int stage = at / PD_OP_KINDS, kind = at % PD_OP_KINDS, replicas = times->replicas[stage][kind];

	*one = (struct compared){ stage, kind, .expected_ns = expected->ns[stage][kind],
				  .spread = expected->spreads[stage][kind] };
	if (replicas == 0 || one->expected_ns <= 0)
		return false;
	one->ns = times->sums_ns[stage][kind] / replicas;
	return true;
}

static json_t *range_json(double ns, struct pd_spread spread)
{
	return json_pack("[I, I]", (json_int_t)llround(ns * spread.low), (json_int_t)llround(ns * spread.high));
}

static json_t *operation_json(const struct compared *one)
{
	return json_pack("{s:i, s:s, s:I, s:I, s:o, s:b}", "stage", one->stage, "operation",
			 pd_op_kind_name[one->kind], "measured_ns", (json_int_t)llround(one->ns), "predicted_ns",
			 (json_int_t)llround(one->expected_ns), "range_ns", range_json(one->expected_ns, one->spread),
			 "inside", (int)pd_spread_holds(one->spread, one->expected_ns, one->ns));
}

static void put_range(double ns, struct pd_spread spread, FILE *out)
{
	char low[32], high[32];

	fprintf(out, "%s to %s", pd_show_time(llround(ns * spread.low), low),
		pd_show_time(llround(ns * spread.high), high));
}

/* Names operations that did not lie inside, on the same side as the period. */
static void put_outside(const struct pd_run_times *times, const struct pd_expected_run *expected, FILE *out)
{
	bool longer = times->period_ns > expected->period_ns;
	int timed = 0, outside = 0;
	struct compared one;
	char time[32];

	for (int at = 0; at < times->plan->stage_count * PD_OP_KINDS; at++) {
		if (!compare(times, expected, at, &one))
			continue;
		timed++;
		if (pd_spread_holds(one.spread, one.expected_ns, one.ns) || (one.ns > one.expected_ns) != longer)
			continue;
		if (++outside > SAID)
			continue;
		fprintf(out, "%s%s of stage %d %s, not ", outside == 1 ? "; " : ", ", pd_op_kind_name[one.kind],
			one.stage, pd_show_time(llround(one.ns), time));
		put_range(one.expected_ns, one.spread, out);
	}
	if (outside > SAID)
		fprintf(out, ", and %d more", outside - SAID);
	if (timed == 0)
		fputs("; its operations were not timed", out);
	else if (outside == 0)
		fprintf(out, "; no operation took %s: the difference is between them", longer ? "longer" : "less");
}

/* Returns how many times as slow a rank's processor was as the profile's; 0: not known. */
static double slowness(const struct pd_run_times *times, int rank)
{
	double profiled = (double)times->plan->profile->clock_ns;

	return profiled > 0 ? round((double)times->pulses_ns[rank] / profiled * 1e4) / 1e4 : 0;
}

/* Says where processors were slower or faster than when the profile was made. */
static void put_clock(const struct pd_run_times *times, FILE *out)
{
	double most = 1;
	int at = -1;

	for (int r = 0; r < times->plan->rank_count; r++) {
		double one = slowness(times, r);

		if (one > 0 && fabs(one - 1) > CLOCK_NOTED && fabs(one - 1) > fabs(most - 1)) {
			most = one;
			at = r;
		}
	}
	if (at >= 0)
		fprintf(out, "; the clock of rank %d's processor was %.2f times as %s as for the profile", at,
			most > 1 ? most : 1 / most, most > 1 ? "slow" : "fast");
}

/* Returns a sentence for people. */
static json_t *verdict(const struct pd_run_times *times, const struct pd_expected_run *expected)
{
	char *text = NULL, time[32];
	size_t size;
	FILE *out;
	json_t *json;

	if (times->period_ns <= 0)
		return json_string("not compared: too few minibatches");
	if (pd_spread_holds(expected->range, expected->period_ns, times->period_ns))
		return json_string("as predicted");
	out = pd_mem_stream(&text, &size);
	fprintf(out, "not as predicted: %s, not ", pd_show_time(llround(times->period_ns), time));
	put_range(expected->period_ns, expected->range, out);
	put_outside(times, expected, out);
	put_clock(times, out);
	pd_mem_stream_close(out);
	json = json_string(text);
	free(text);
	return json;
}

void pd_run_times_report(struct pd_run_times *times, const struct pd_expected_run *expected, json_t *event)
{
	json_t *operations = json_array(), *clocks = json_array();
	struct compared one;

	end_stretch(times);
	for (int at = 0; at < times->plan->stage_count * PD_OP_KINDS; at++)
		if (compare(times, expected, at, &one))
			pd_json_add(operations, operation_json(&one));
	if (times->period_ns > 0)
		pd_json_set(event, "period_ns", json_integer(llround(times->period_ns)));
	pd_json_set(event, "predicted_period_ns", json_integer(llround(expected->period_ns)));
	pd_json_set(event, "predicted_period_range_ns", range_json(expected->period_ns, expected->range));
	pd_json_set(event, "period", verdict(times, expected));
	pd_json_set(event, "operations", operations);
	for (int r = 0; r < times->plan->rank_count; r++)
		if (slowness(times, r) > 0)
			pd_json_add(clocks, json_real(slowness(times, r)));
	if (json_array_size(clocks) > 0)
		json_object_set(event, "clock", clocks);
	json_decref(clocks);
}
