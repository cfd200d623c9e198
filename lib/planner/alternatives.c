/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/search/candidate.h"

#include "base/mem.h"
#include "plan/buckets.h"
#include "plan/copies.h"
#include "plan/prediction.h"
#include "planner/search/judge.h"
#include "planner/price/links.h"
#include "planner/price/predict.h"
#include "planner/search/recompute.h"
#include "schedule/schedule.h"
#include "topology/traffic.h"

#include <stdlib.h>

struct finder {
	struct pd_plan *plan;           /* the plan that won */
	const struct pd_task *task;
};

/*
 * Returns the bytes that all ranks together send per sample.  In forward, a tensor goes over every link
 * once, and its gradient back.
 */
static double sent_per_sample(const struct pd_plan *plan)
{
	struct pd_error err;
	struct pd_schedule *schedule = pd_schedule_new(plan, &err);
	struct pd_copy_transfer *copies;
	size_t count = pd_plan_copy_transfers(plan, &copies);
	double sum = 0;

	for (size_t i = 0; i < count; i++)
		sum += (double)copies[i].bytes / (double)pd_plan_group(plan, 0);
	free(copies);
	for (int k = 0; schedule && k < schedule->wiring->link_count; k++)
		sum += 2 * (double)schedule->wiring->links[k].bytes;
	for (int s = 0; schedule && s < plan->stage_count; s++) {
		struct pd_members members = pd_plan_members(plan, s);

		sum += pd_traffic_bytes(plan->reducer, &members, pd_plan_stage_sum_bytes(plan, s)) /
			(double)schedule->group[s];
	}
	pd_schedule_free(schedule);
	return sum / (double)plan->profile->batch_size;
}

/* Gives a plan the buckets of the one that won, and memory; frees it and returns NULL if it is refused. */
static struct pd_plan *fit(const struct finder *finder, struct pd_plan *plan)
{
	plan->bucket_bytes = finder->plan->bucket_bytes;
	if (pd_plan_agrees(plan))       /* that needs all gradients */
		plan->chunk = 0;
	if (pd_recompute_weigh(plan, finder->task->request, finder->task->limit_bytes))
		return plan;
	pd_candidate_drop(plan);
	return NULL;
}

static struct pd_plan *plan_of(const struct finder *finder, const struct pd_partition *partition,
			       enum pd_schedule_kind schedule, enum pd_weight_kind weights,
			       int64_t microbatches)
{
	return fit(finder, pd_candidate_with(finder->task, partition, schedule, weights,
					     microbatches));
}

static struct pd_alternative describe(const struct finder *finder, enum pd_alternative_kind kind,
				      const struct pd_plan *plan, int64_t period_ns,
				      enum pd_period_kind from)
{
	int64_t most = pd_candidate_fullest(plan, NULL);

	return (struct pd_alternative){
		.kind = kind, .schedule = plan->schedule, .weights = plan->weights,
		.microbatches = plan->microbatches, .ranks = plan->rank_count,
		.stages = pd_plan_stages_text(plan), .recompute = pd_plan_recomputed_text(plan),
		.period_ns = period_ns, .period_from = from, .memory_bytes = most,
		.sent_bytes_per_sample = sent_per_sample(plan),
		.fits = most <= finder->task->limit_bytes,
	};
}

/* Adds a plan (or NULL); frees it, but not its profile. */
static int add(struct finder *finder, enum pd_alternative_kind kind, struct pd_plan *plan,
	       struct pd_error *err)
{
	struct pd_prediction *predicted = &finder->plan->predicted;
	int64_t period_ns = predicted->data_parallel_period_ns;
	enum pd_period_kind from = predicted->data_parallel_from;
	int status = 0;

	if (!plan)
		return 0;
	if (kind != PD_ALTERNATIVE_DATA_PARALLEL)
		status = pd_judge_period(plan, &period_ns, &from, err);
	if (status == 0)
		predicted->alternatives[predicted->alternative_count++] =
			describe(finder, kind, plan, period_ns, from);
	pd_candidate_drop(plan);
	return status;
}

static int64_t slowest_bandwidth(const struct finder *finder)
{
	const struct pd_topology *topology = &finder->plan->topology;

	return pd_slowest_link(topology, topology->levels - 1).bandwidth_bytes_per_s;
}

static int most_stages(const struct finder *finder)
{
	int64_t devices = finder->plan->topology.devices, units = finder->task->costs.unit_count;

	return (int)(devices < units ? devices : units);
}

/* Gives the partition the plan's schedule and weights, if a stage on each device can have them. */
static struct pd_plan *as_requested(const struct finder *finder,
				    const struct pd_partition *partition)
{
	const struct pd_plan *won = finder->plan;
	bool interleaved = won->schedule == PD_SCHEDULE_INTERLEAVED;

	return plan_of(finder, partition, interleaved ? PD_SCHEDULE_1F1B : won->schedule,
		       won->weights, finder->task->request->microbatches);
}

/*
 * Adds plans with a stage on each device: a pipeline, one minibatch at a time, and GPipe's even
 * cut.
 */
static int add_pipelines(struct finder *finder, struct pd_error *err)
{
	int64_t bandwidth = slowest_bandwidth(finder);
	int count = most_stages(finder);
	struct pd_partition *straight = pd_even_partition(&finder->task->costs, count, bandwidth);
	struct pd_partition *even = pd_even_partition(&finder->task->costs, count, 0);
	int status = 0;

	if (straight)
		status = add(finder, PD_ALTERNATIVE_STRAIGHT, as_requested(finder, straight), err);
	if (straight && status == 0)
		status = add(finder, PD_ALTERNATIVE_MODEL_PARALLEL,
			     plan_of(finder, straight, PD_SCHEDULE_NONE, PD_WEIGHTS_FLUSH, 1), err);
	if (even && status == 0)
		status = add(finder, PD_ALTERNATIVE_GPIPE,
			     plan_of(finder, even, PD_SCHEDULE_GPIPE, PD_WEIGHTS_FLUSH,
				     finder->task->request->microbatches), err);
	pd_partition_free(straight);
	pd_partition_free(even);
	return status;
}

static bool is_straight(const struct pd_plan *plan)
{
	for (int s = 0; s < plan->stage_count; s++)
		if (plan->stages[s].replicas > 1)
			return false;
	return plan->schedule != PD_SCHEDULE_INTERLEAVED;
}

/* Tells whether `a` is better than b. */
static bool better(const struct pd_alternative *a, const struct pd_alternative *b)
{
	return a->fits != b->fits ? a->fits : a->period_ns < b->period_ns;
}

/* Keeps the better one of two, of which the first may have no stages; frees the other. */
static void keep_better(struct pd_alternative *best, struct pd_alternative other)
{
	struct pd_alternative before = *best;

	if (!best->stages || better(&other, best)) {
		*best = other;
		other = before;
	}
	free(other.stages);
	free(other.recompute);
}

/*
 * Adds the best plan without replicas: the plan itself if it has none, the pipeline with a stage on
 * each device, or the one with any number of stages, by what its stages and links take.
 */
static int add_unreplicated(struct finder *finder, struct pd_error *err)
{
	const struct pd_task *task = finder->task;
	const struct pd_plan *won = finder->plan;
	struct pd_prediction *predicted = &finder->plan->predicted;
	struct pd_alternative *list = predicted->alternatives, best = { .stages = NULL };
	int at = predicted->alternative_count, count = most_stages(finder), status = 0;
	int64_t bandwidth = slowest_bandwidth(finder);
	struct pd_partition *partition = pd_straight_most(&task->costs, count, bandwidth,
							  task->limit_bytes);

	if (!partition)         /* one that can say by how much it does not fit */
		partition = pd_straight_most(&task->costs, count, bandwidth, INT64_MAX);
	if (is_straight(won))
		best = describe(finder, PD_ALTERNATIVE_UNREPLICATED, won, predicted->period_ns,
				predicted->period_from);
	if (partition)
		status = add(finder, PD_ALTERNATIVE_UNREPLICATED, as_requested(finder, partition), err);
	pd_partition_free(partition);
	if (predicted->alternative_count > at)
		keep_better(&best, list[at]);
	for (int i = 0; i < at; i++)
		if (list[i].kind == PD_ALTERNATIVE_STRAIGHT) {
			struct pd_alternative straight = list[i];

			straight.kind = PD_ALTERNATIVE_UNREPLICATED;
			straight.stages = pd_strdup(straight.stages);
			straight.recompute = straight.recompute ? pd_strdup(straight.recompute) : NULL;
			keep_better(&best, straight);
		}
	list[at] = best;
	predicted->alternative_count = at + (best.stages != NULL);
	return status;
}

/* Prices data parallelism, which may be an estimate below the bound of all plans. */
static int price_data_parallel(const struct pd_task *task, struct pd_plan *all,
			       struct pd_prediction *predicted, struct pd_error *err)
{
	int64_t *period_ns = &predicted->data_parallel_period_ns;

	if (task->request->cost == PD_COST_SIMULATED && !pd_candidate_weigh(all, err))
		return -1;
	if (pd_task_period(task, all, period_ns, &predicted->data_parallel_from, err) < 0)
		return -1;
	if (pd_planner_plain(task->request) && predicted->data_parallel_from == PD_PERIOD_ESTIMATE)
		*period_ns = pd_max64(*period_ns, predicted->lower_bound_ns);
	predicted->data_parallel_memory_bytes = pd_candidate_fullest(all, NULL);
	return 0;
}

int pd_alternatives_find(struct pd_plan *plan, const struct pd_task *task, struct pd_error *err)
{
	struct finder finder = { .plan = plan, .task = task };
	struct pd_partition *one = pd_data_parallel_partition(&task->costs, plan->topology.devices);
	struct pd_plan *all = pd_candidate_plain(task, one);
	int status = price_data_parallel(task, all, &plan->predicted, err);

	pd_partition_free(one);
	if (status < 0 || task->request->cost != PD_COST_SIMULATED) {
		pd_candidate_drop(all);
		return status;
	}
	plan->predicted.sent_bytes_per_sample = sent_per_sample(plan);
	plan->predicted.alternatives = pd_calloc(PD_ALTERNATIVE_KINDS,
						 sizeof(*plan->predicted.alternatives));
	status = add(&finder, PD_ALTERNATIVE_DATA_PARALLEL, fit(&finder, all), err);
	if (status == 0)
		status = add_pipelines(&finder, err);
	if (status == 0)
		status = add_unreplicated(&finder, err);
	return status;
}
