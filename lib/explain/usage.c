/* SPDX-License-Identifier: Apache-2.0 */
#include "explain/usage.h"

#include "base/mem.h"
#include "memory/again.h"
#include "predict/cycle.h"
#include "predict/judge.h"
#include "predict/predict.h"
#include "predict/replay.h"
#include "schedule/memory.h"
#include "schedule/tick.h"
#include "sums/price.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define STALE_LOOKED_AT 256     /* microbatches of a group that are checked */

/* Returns the most updates between the version of a forward and that of its update. */
static int64_t stale(const struct pd_schedule *schedule, int s)
{
	int64_t group = schedule->group[s], most = 0;

	for (int64_t k = 0; k < group && k < STALE_LOOKED_AT; k++) {
		/* long after the beginning, since versions before it are negative */
		int64_t n = (1 + PD_MAX_RANKS / group) * group + k;
		int64_t late = (n / group * group - pd_tick_version(schedule, s, n, false)) / group;

		most = late > most ? late : most;
	}
	return most;
}

static void replay_sums(struct pd_usage *usage)
{
	const struct pd_plan *plan = usage->plan;
	bool sums = false;
	struct pd_error err;

	for (int s = 0; s < plan->stage_count; s++)
		sums |= plan->stages[s].replicas > 1;
	if (sums && pd_judge_work(plan) <= PD_JUDGE_WORK)
		usage->trace = pd_replay(plan, NULL, &err);
	if (!usage->trace)
		return;
	usage->timeline = pd_timeline_new(usage->trace);
	usage->report = pd_report_new(usage->timeline);
}

/*
 * Returns the time of an all-reduce behind backward.  A reducer's cost counts its steps one by one; a
 * replay, in which one member begins a step while others are in the one before, can show less.  Where a plan is
 * too large for one, this is what its estimate counts.
 */
static double serial_allreduce_ns(const struct pd_usage *usage, int s)
{
	double ns = (double)usage->plan->stages[s].allreduce_ns;
	struct pd_sum sum = pd_plan_stage_sum(usage->plan, s);

	if (!usage->report && usage->plan->stages[s].replicas > 1)
		return fmin(ns, (double)pd_sum_together_ns(&sum));
	if (!usage->report || usage->report->stages[s].steps == 0)
		return ns;
	return fmin(ns, usage->report->stages[s].exposed_ns);
}

static void use_stage(struct pd_usage *usage, int s)
{
	const struct pd_schedule *schedule = usage->schedule;
	const struct pd_plan *plan = usage->plan;
	const struct pd_stage *stage = &plan->stages[s];
	struct pd_stage_usage *out = &usage->stages[s];
	double r = stage->replicas, group = (double)schedule->group[s];
	struct pd_stage_memory one;

	out->forward_ns = (double)(stage->forward_ns + pd_plan_again_ns(plan, s)) / r;
	out->backward_ns = (double)stage->backward_ns / r;
	out->versions = pd_schedule_versions(schedule, s);
	out->update_ns = (double)pd_stage_update_ns(schedule, s) / group;
	out->serial = pd_schedule_sums_serially(schedule, s);
	out->allreduce_ns = (out->serial ? serial_allreduce_ns(usage, s)
					 : (double)stage->allreduce_ns) / group;
	out->in_flight = pd_schedule_in_flight(schedule, s, false);
	out->stale = stale(schedule, s);
	pd_schedule_stage_memory(schedule, s, &pd_momentum, &out->memory);
	pd_memory_of_stage(plan, pd_plan_profile_of(plan, stage->ranks[0]), schedule->wiring, s, &one);
	out->ahead_bytes = pd_plus(pd_times(pd_schedule_slots(schedule, s, false) - 1,
					    one.slot_bytes),
				   pd_plus(pd_times(out->in_flight - 1, pd_plus(one.inbox_bytes, one.kept_bytes)),
					   pd_times(out->versions - 1, one.weights_bytes)));
}

double pd_usage_part(const struct pd_usage *usage, double ns)
{
	int64_t period = usage->plan->predicted.period_ns;

	return period > 0 ? ns / (double)period : 0;
}

double pd_usage_busy_ns(const struct pd_usage *usage, int stage)
{
	const struct pd_stage_usage *at = &usage->stages[stage];

	return at->forward_ns + at->backward_ns + at->update_ns +
	       (at->serial ? at->allreduce_ns : 0);
}

static void limit(struct pd_usage *usage, struct pd_limit limit)
{
	if (limit.ns > usage->limit.ns)
		usage->limit = limit;
}

/* Considers ranks with several stages, which take turns there. */
static void limit_chunks(struct pd_usage *usage)
{
	const struct pd_plan *plan = usage->plan;
	double *busy_ns = pd_calloc((size_t)plan->rank_count, sizeof(*busy_ns));

	for (int s = 0; s < plan->stage_count; s++)
		for (int i = 0; i < plan->stages[s].replicas; i++)
			busy_ns[plan->stages[s].ranks[i]] += pd_usage_busy_ns(usage, s);
	for (int r = 0; r < plan->rank_count && usage->schedule->chunks > 1; r++)
		limit(usage, (struct pd_limit){ .kind = PD_LIMIT_CHUNKS, .first = r, .ns = busy_ns[r] });
	free(busy_ns);
}

static void limit_processors(struct pd_usage *usage)
{
	for (int s = 0; s < usage->plan->stage_count; s++)
		limit(usage, (struct pd_limit){ .kind = PD_LIMIT_PROCESSOR, .first = s, .last = s,
						.ns = pd_usage_busy_ns(usage, s) });
	limit_chunks(usage);
	limit(usage, (struct pd_limit){ .kind = PD_LIMIT_TURNS,
					.ns = (double)pd_predict_turns_ns(usage->plan) });
}

static void limit_links(struct pd_usage *usage)
{
	const struct pd_links *links = &usage->links;

	for (int k = 0; k < links->topology->levels; k++)
		for (int i = 0; i < PD_WAYS * links->components[k]; i++)
			limit(usage, (struct pd_limit){
				.kind = PD_LIMIT_LINK, .level = k, .component = i / PD_WAYS,
				.way = i % PD_WAYS,
				.ns = links->load[k][i / PD_WAYS][i % PD_WAYS].busy_ns });
}

/* Considers stages of 1F1B together; a single stage explains more, if it is about as slow. */
static void limit_windows(struct pd_usage *usage)
{
	const struct pd_plan *plan = usage->plan;
	struct pd_stage_times *times = pd_stage_times_of(usage->schedule);
	struct pd_cycle cycle;

	for (int s = 0; s < plan->stage_count; s++)
		if (usage->stages[s].serial)
			times[s].reduce_ns = (int64_t)serial_allreduce_ns(usage, s);
	cycle = pd_cycle_slowest(times, plan->stage_count);
	free(times);
	if (pd_schedule_has(plan->schedule, PD_FACT_LEADS) && !usage->schedule->drains &&
	    cycle.last > cycle.first && (double)cycle.period_ns > 1.005 * usage->limit.ns)
		usage->limit = (struct pd_limit){
			.kind = PD_LIMIT_WINDOW, .first = cycle.first, .last = cycle.last,
			.tokens = cycle.tokens, .ns = (double)cycle.period_ns };
}

struct pd_usage *pd_usage_new(const struct pd_plan *plan)
{
	struct pd_error err;
	struct pd_schedule *schedule = pd_schedule_new(plan, &err);
	struct pd_usage *usage;

	if (!schedule)
		return NULL;
	usage = pd_zalloc(sizeof(*usage));
	usage->plan = plan;
	usage->schedule = schedule;
	usage->stages = pd_calloc((size_t)plan->stage_count, sizeof(*usage->stages));
	usage->limit.ns = -1;
	pd_links_init(&usage->links, plan, schedule->wiring);
	replay_sums(usage);
	for (int s = 0; s < plan->stage_count; s++)
		use_stage(usage, s);
	limit_processors(usage);
	limit_links(usage);
	limit_windows(usage);
	return usage;
}

void pd_usage_free(struct pd_usage *usage)
{
	if (!usage)
		return;
	pd_report_free(usage->report);
	pd_timeline_free(usage->timeline);
	pd_trace_free(usage->trace);
	pd_links_release(&usage->links);
	pd_schedule_free(usage->schedule);
	free(usage->stages);
	free(usage);
}

static const struct pd_alternative *data_parallel_of(const struct pd_plan *plan)
{
	const struct pd_prediction *predicted = &plan->predicted;

	for (int i = 0; i < predicted->alternative_count; i++)
		if (predicted->alternatives[i].kind == PD_ALTERNATIVE_DATA_PARALLEL)
			return &predicted->alternatives[i];
	return NULL;
}

bool pd_data_parallel_fits(const struct pd_plan *plan)
{
	const struct pd_alternative *one = data_parallel_of(plan);

	return !one || one->fits;
}

int64_t pd_data_parallel_ranks(const struct pd_plan *plan)
{
	const struct pd_alternative *one = data_parallel_of(plan);

	return one ? one->ranks : plan->topology.devices;
}
