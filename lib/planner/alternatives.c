/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/answers.h"

#include "base/mem.h"
#include "memory/buckets.h"
#include "memory/shared_gradients.h"
#include "plan/prediction.h"
#include "planner/search/candidate.h"
#include "planner/search/recompute.h"
#include "predict/judge.h"
#include "predict/links.h"
#include "predict/predict.h"
#include "schedule/schedule.h"

#include <stdlib.h>

#define PRICE_WORK 250000       /* operations that are replayed to price one */
#define PART 16                 /* part of a search's effort for pipelines, even where all of it is spent */

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
		struct pd_sum of_stage = pd_plan_stage_sum(plan, s);

		sum += pd_traffic_bytes(of_stage.kind, &of_stage.members, of_stage.bytes) /
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

/* Makes a plan of a partition; NULL if there is none. */
static struct pd_plan *plan_of(const struct finder *finder, const struct pd_partition *partition,
			       enum pd_schedule_kind schedule, enum pd_weight_kind weights,
			       int64_t microbatches)
{
	return partition ? fit(finder, pd_candidate_with(finder->task, partition, schedule, weights,
							 microbatches)) : NULL;
}

/* Returns the microbatches of an update of what the plan is compared with, 0 being the usual number: as it has. */
static int64_t microbatches_of(const struct finder *finder)
{
	const struct pd_plan *won = finder->plan;

	return won->microbatches > 1 || pd_updates_in_groups(won->schedule, won->weights)
		? won->microbatches : finder->task->request->microbatches;
}

/* Gives the partition the plan's schedule and weights, if a stage on each device can have them. */
static struct pd_plan *as_requested(const struct finder *finder,
				    const struct pd_partition *partition)
{
	const struct pd_plan *won = finder->plan;
	bool shares = pd_schedule_has(won->schedule, PD_FACT_SHARES);

	return plan_of(finder, partition, shares ? PD_SCHEDULE_1F1B : won->schedule,
		       won->weights, microbatches_of(finder));
}

static bool fits(const struct finder *finder, const struct pd_plan *plan)
{
	return pd_candidate_keeps(plan, finder->task->limit_bytes);
}

/* Adds a plan (or NULL) to the alternatives. */
static void add(const struct finder *finder, enum pd_alternative_kind kind, const struct pd_plan *plan)
{
	struct pd_prediction *predicted = &finder->plan->predicted;

	if (!plan)
		return;
	predicted->alternatives[predicted->alternative_count++] = (struct pd_alternative){
		.kind = kind, .schedule = plan->schedule, .weights = plan->weights,
		.microbatches = plan->microbatches, .ranks = plan->rank_count,
		.stages = pd_plan_stages_text(plan), .recompute = pd_plan_recomputed_text(plan),
		.period_ns = plan->predicted.period_ns, .period_from = plan->predicted.period_from,
		.memory_bytes = pd_candidate_fullest(plan, NULL),
		.sent_bytes_per_sample = sent_per_sample(plan), .fits = fits(finder, plan),
	};
}

static bool is_straight(const struct pd_plan *plan)
{
	for (int s = 0; s < plan->stage_count; s++)
		if (plan->stages[s].replicas > 1)
			return false;
	return !pd_schedule_has(plan->schedule, PD_FACT_SHARES);
}

/* Returns the better one of two plans, either of which may be NULL. */
static const struct pd_plan *better_of(const struct finder *finder, const struct pd_plan *a,
				       const struct pd_plan *b)
{
	if (!a || !b)
		return a ? a : b;
	if (fits(finder, a) != fits(finder, b))
		return fits(finder, a) ? a : b;
	return b->predicted.period_ns < a->predicted.period_ns ? b : a;
}

/* Prices a plan; what is too long to be replayed is told by shorter updates. */
static int price_alternative(struct pd_plan *plan, struct pd_error *err)
{
	struct pd_prediction *priced = &plan->predicted;

	return pd_judge_about(plan, PRICE_WORK, &priced->period_ns, &priced->period_from, err);
}

/*
 * Adds plans with a stage on each device: a pipeline, one minibatch at a time, and GPipe's even cut.  Then
 * the best plan without replicas: the plan itself if it has none, the pipeline, or the one with any
 * number of stages, by what its stages and links take.
 */
static int add_pipelines(const struct finder *finder, struct pd_error *err)
{
	const struct pd_task *task = finder->task;
	const struct pd_topology *topology = &finder->plan->topology;
	const struct pd_costs *costs = &task->costs;
	int64_t bandwidth = pd_slowest_link(topology, topology->levels - 1).bandwidth_bytes_per_s;
	int64_t microbatches = microbatches_of(finder);
	int count = (int)pd_min(topology->devices, costs->unit_count), status = 0;
	int64_t effort = pd_effort_share(costs->effort, PART);
	struct pd_partition *each = pd_even_partition(costs, count, bandwidth);
	struct pd_partition *even = pd_even_partition(costs, count, 0);
	struct pd_partition *most = pd_straight_most(costs, count, bandwidth, task->limit_bytes);
	enum { PIPELINE, ALONE, EVEN, FEWER, PLANS };
	struct pd_plan *plans[PLANS];

	if (!most)              /* one that can say by how much it does not fit */
		most = pd_straight_most(costs, count, bandwidth, INT64_MAX);
	pd_effort_return(costs->effort, effort);
	plans[PIPELINE] = as_requested(finder, each);
	plans[ALONE] = plan_of(finder, each, PD_SCHEDULE_NONE, PD_WEIGHTS_FLUSH, 1);
	plans[EVEN] = plan_of(finder, even, PD_SCHEDULE_GPIPE, PD_WEIGHTS_FLUSH, microbatches);
	plans[FEWER] = as_requested(finder, most);
	for (int i = 0; i < PLANS && status == 0; i++)
		if (plans[i])
			status = price_alternative(plans[i], err);
	add(finder, PD_ALTERNATIVE_STRAIGHT, plans[PIPELINE]);
	add(finder, PD_ALTERNATIVE_MODEL_PARALLEL, plans[ALONE]);
	add(finder, PD_ALTERNATIVE_GPIPE, plans[EVEN]);
	add(finder, PD_ALTERNATIVE_UNREPLICATED,
	    better_of(finder, better_of(finder, is_straight(finder->plan) ? finder->plan : NULL,
					plans[FEWER]), plans[PIPELINE]));
	for (int i = 0; i < PLANS; i++)
		pd_candidate_drop(plans[i]);
	pd_partition_free(each);
	pd_partition_free(even);
	pd_partition_free(most);
	return status;
}

/*
 * Makes the plan with one stage on all devices whose updates have as many microbatches as the plan's, or if replicas
 * do not divide that the next number that they do; on fewer devices, one for each microbatch, where there are more.
 */
static struct pd_plan *data_parallel(const struct finder *finder)
{
	const struct pd_plan *won = finder->plan;
	bool groups = pd_updates_in_groups(won->schedule, won->weights);
	int64_t devices = finder->task->topology->devices, all = won->microbatches;
	struct pd_partition *one;
	struct pd_plan *plan;

	if (groups || all > 1)
		devices = pd_min(devices, all);
	one = pd_data_parallel_partition(&finder->task->costs, devices);
	if (finder->task->request->cost == PD_COST_SIMULATED && (groups || all > 1))
		plan = pd_candidate_with(finder->task, one, PD_SCHEDULE_1F1B,
					 groups ? PD_WEIGHTS_FLUSH : won->weights,
					 pd_ceil_div(all, devices) * devices);
	else
		plan = pd_candidate_plain(finder->task, one);
	pd_partition_free(one);
	if (finder->task->request->any_reducer)
		plan->reducer = won->reducer;
	return plan;
}

/*
 * Prices data parallelism, which may be an estimate below the bound of all plans.  What it takes for more
 * microbatches than the plan's update has counts for those.
 */
static int price_data_parallel(const struct finder *finder, struct pd_plan *all,
			       struct pd_error *err)
{
	struct pd_prediction *predicted = &finder->plan->predicted, *priced = &all->predicted;
	const struct pd_task *task = finder->task;

	if (pd_plan_is_data_parallel(finder->plan)) {
		priced->period_ns = predicted->period_ns;
		priced->period_from = predicted->period_from;
	} else if (task->request->cost == PD_COST_SIMULATED ? price_alternative(all, err) < 0 :
		   pd_task_period(task, all, &priced->period_ns, &priced->period_from, err) < 0) {
		return -1;
	}
	if (pd_planner_plain(task->request) && priced->period_from == PD_PERIOD_ESTIMATE)
		priced->period_ns = pd_max(priced->period_ns, predicted->lower_bound_ns);
	predicted->data_parallel_period_ns = priced->period_ns;
	predicted->data_parallel_from = priced->period_from;
	if (finder->plan->microbatches > 1 && all->microbatches > finder->plan->microbatches)
		predicted->data_parallel_period_ns = pd_saturate(((__int128)priced->period_ns * all->microbatches) /
								 finder->plan->microbatches);
	predicted->data_parallel_memory_bytes = pd_candidate_fullest(all, NULL);
	return 0;
}

int pd_alternatives_find(struct pd_plan *plan, const struct pd_task *task, struct pd_error *err)
{
	struct finder finder = { .plan = plan, .task = task };
	struct pd_prediction *predicted = &plan->predicted;
	bool simulated = task->request->cost == PD_COST_SIMULATED;
	struct pd_plan *all = pd_plan_is_data_parallel(plan) ? pd_candidate_copy(plan) : data_parallel(&finder);
	int status = 0;

	if (simulated && !pd_candidate_weigh(all, err))
		status = -1;
	else if (simulated && !pd_plan_is_data_parallel(plan))
		all = fit(&finder, all);
	if (status == 0 && all)
		status = price_data_parallel(&finder, all, err);
	if (status == 0 && simulated) {
		predicted->sent_bytes_per_sample = sent_per_sample(plan);
		predicted->alternatives = pd_calloc(PD_ALTERNATIVE_KINDS,
						    sizeof(*predicted->alternatives));
		add(&finder, PD_ALTERNATIVE_DATA_PARALLEL, all);
		status = add_pipelines(&finder, err);
	}
	pd_candidate_drop(all);
	return status;
}

void pd_alternatives_add_tensor(struct pd_plan *plan, const struct pd_task *task)
{
	struct finder finder = { .plan = plan, .task = task };
	struct pd_prediction *predicted = &plan->predicted;
	struct pd_alternative *one = &predicted->alternatives[predicted->alternative_count];
	struct pd_plan *all = predicted->alternatives ? data_parallel(&finder) : NULL;
	struct pd_error ignored;

	if (all && pd_candidate_weigh(all, &ignored))
		all = fit(&finder, all);
	if (all && price_alternative(all, &ignored) == 0) {
		add(&finder, PD_ALTERNATIVE_TENSOR_PARALLEL, all);
		one->tensor = task->profile->group.tensor;
	}
	pd_candidate_drop(all);
}
