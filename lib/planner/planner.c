/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/planner.h"

#include "planner/alternatives.h"
#include "planner/bound/bound.h"
#include "planner/search/candidate.h"
#include "planner/search/judge.h"
#include "planner/formula/published.h"
#include "planner/sums.h"

#include <limits.h>
#include <stdlib.h>

int64_t pd_task_limit_bytes(const struct pd_profile *profile, const struct pd_plan_request *request)
{
	bool known = profile->device_memory_bytes > 0 && request->cost == PD_COST_SIMULATED;

	if (request->memory_bytes > 0)
		return request->memory_bytes;
	if (request->topology->memory_bytes > 0)
		return request->topology->memory_bytes;
	return known ? profile->device_memory_bytes : INT64_MAX;
}

/*
 * Returns the time of a minibatch's computing on all shared processors; 0: each device has its own.
 */
static int64_t shared_ns(const struct pd_task *task)
{
	int64_t sum = 0, processors = task->topology->processors;

	for (int l = 0; processors && l < task->profile->layer_count; l++)
		sum += task->profile->layers[l].forward_ns + task->profile->layers[l].backward_ns;
	return processors ? sum / processors : 0;
}

static struct pd_bound options_of(const struct pd_task *task)
{
	const struct pd_plan_request *request = task->request;

	return (struct pd_bound){
		.topology = task->topology, .schedule = request->schedule,
		.weights = request->weights, .chunks = request->chunks,
		.straight = task->straight,
		.microbatches = pd_planner_plain(request) ? 1 : request->microbatches,
		.agree = task->costs.copies || pd_planner_agrees(request, task->profile,
								 request->weights),
		.overlaps = request->bucket_bytes > 0, .gradient_dtype = request->gradient_dtype,
		.sparsity = request->sparsity, .reducer = request->reducer,
	};
}

int64_t pd_task_bound_with_ns(const struct pd_task *task, enum pd_reducer_kind reducer)
{
	struct pd_bound with = options_of(task);

	with.reducer = reducer;
	return pd_max64(shared_ns(task), pd_bound_ns(&task->costs, &with));
}

int64_t pd_task_bound_ns(struct pd_task *task)
{
	const struct pd_plan_request *request = task->request;

	if (task->bound_ns == 0)
		task->bound_ns = request->cost != PD_COST_SIMULATED
			? pd_published_bound_ns(task->profile, request)
			: pd_task_bound_with_ns(task, request->reducer);
	return task->bound_ns;
}

bool pd_task_proves(const struct pd_task *task, int64_t period_ns, int devices, int64_t part)
{
	struct pd_bound with = options_of(task);
	int64_t less_ns = period_ns - pd_ceil_div(period_ns, part);

	return pd_bound_devices(&task->costs, &with, period_ns) >= devices &&
	       (less_ns < shared_ns(task) ||
		pd_bound_devices(&task->costs, &with, less_ns) > task->topology->devices);
}

int pd_task_needs(const struct pd_task *task, int64_t period_ns)
{
	struct pd_bound with = options_of(task);

	return period_ns < shared_ns(task) ? INT_MAX
					   : pd_bound_devices(&task->costs, &with, period_ns);
}

/* Raises an estimate to the bound of all plans. */
static int64_t at_least(enum pd_period_kind from, int64_t period, int64_t bound)
{
	return from == PD_PERIOD_ESTIMATE ? pd_max64(period, bound) : period;
}

static int data_parallel(const struct pd_task *task, int64_t bound,
			 struct pd_prediction *predicted, struct pd_error *err)
{
	struct pd_partition *partition = pd_data_parallel_partition(&task->costs,
								    task->topology->devices);
	struct pd_plan *all = pd_candidate_plain(task, partition);
	int status = 0;

	if (task->request->cost == PD_COST_SIMULATED)
		status = !pd_candidate_weigh(all, err) ? -1
			: pd_judge_period(all, PD_NEVER, &predicted->data_parallel_period_ns,
					  &predicted->data_parallel_from, err);
	else
		predicted->data_parallel_period_ns =
			pd_published_data_parallel_ns(&task->costs, task->request);
	if (task->request->cost != PD_COST_SIMULATED)
		predicted->data_parallel_from = PD_PERIOD_FORMULA;
	if (task->request->cost == PD_COST_SIMULATED && pd_planner_plain(task->request))
		predicted->data_parallel_period_ns =
			at_least(predicted->data_parallel_from,
				 predicted->data_parallel_period_ns, bound);
	predicted->data_parallel_memory_bytes = pd_candidate_fullest(all, NULL);
	pd_candidate_drop(all);
	pd_partition_free(partition);
	return status;
}

/* Fills in the figures of the plan as a whole. */
static int finish(const struct pd_task *task, struct pd_plan *plan, int64_t period,
		  int64_t bound, struct pd_error *err)
{
	struct pd_prediction *predicted = &plan->predicted;

	if (period >= PD_COST_MAX)
		return pd_error_input(err, "the best plan found takes more than 73 years: expected "
				      "faster links or layers");
	if (data_parallel(task, bound, predicted, err) < 0)
		return -1;
	predicted->period_ns = period = at_least(predicted->period_from, period, bound);
	predicted->memory_bytes = pd_candidate_fullest(plan, NULL);
	predicted->lower_bound_ns = bound;
	if (period > 0) {
		predicted->samples_per_s = (double)task->profile->batch_size * 1e9 / (double)period;
		if (predicted->period_from != PD_PERIOD_ESTIMATE)
			predicted->gap = 1 - (double)predicted->lower_bound_ns / (double)period;
		predicted->speedup_over_data_parallel =
			(double)predicted->data_parallel_period_ns / (double)period;
	}
	if (task->request->cost != PD_COST_SIMULATED)
		return 0;
	return pd_alternatives_find(plan, task, err);
}

struct pd_plan *pd_task_solve(struct pd_task *task, int64_t *time_ns_p, struct pd_error *err)
{
	const struct pd_plan_request *request = task->request;

	if (!request->stages && request->cost == PD_COST_SIMULATED)
		pd_task_bound_ns(task);
	return request->stages ? pd_hand_plan(task, time_ns_p, err)
	     : request->cost != PD_COST_SIMULATED ? pd_formula_plan(task, time_ns_p, err)
	     : pd_simulated_plan(task, time_ns_p, err);
}

struct pd_task *pd_task_with(struct pd_task *task, enum pd_weight_kind weights)
{
	return task->copied && pd_weights_copy_shared(weights) ? task->copied : task;
}

static void costs_init(struct pd_task *task, bool copies)
{
	(copies ? pd_costs_init_copies : pd_costs_init)(&task->costs, task->profile,
							task->request->cost, task->limit_bytes);
}

/* Brings the profile into the order of the plan. */
static void take_order(struct pd_task *task, struct pd_plan *plan)
{
	int *order = pd_views_order(task->views, plan->profile);
	bool copies = task->costs.copies;

	plan->profile = task->profile;
	if (!order)
		return;
	pd_profile_reorder(task->profile, order);
	pd_costs_release(&task->costs);
	costs_init(task, copies);
	free(order);
}

static bool has_shares(const struct pd_profile *profile)
{
	for (int l = 0; profile->model && l < profile->layer_count; l++)
		if (profile->model->layers[l].shares >= 0)
			return true;
	return false;
}

static void task_begin(struct pd_task *task, struct pd_views *views, bool copies)
{
	const struct pd_plan_request *request = task->request;

	costs_init(task, copies);
	if (request->cost != PD_COST_SIMULATED || request->runs || request->stages)
		return;
	pd_views_init(views, task->profile, copies ? PD_STATES_COPIES : PD_STATES_ALL);
	task->views = views;
}

static void task_end(struct pd_task *task)
{
	pd_costs_release(&task->costs);
	if (task->views)
		pd_views_release(task->views);
}

struct pd_plan *pd_planner_plan(struct pd_profile *profile, const struct pd_plan_request *asked,
				struct pd_error *err)
{
	struct pd_plan_request given = *asked, *request = &given;
	struct pd_views views[2];
	struct pd_task task = { .profile = profile, .request = request,
				.topology = request->topology }, copied, *at = &task;
	struct pd_plan *plan;
	int64_t period = 0, bound = 0;

	if (request->any_bucket)
		request->bucket_bytes = pd_bucket_usual(profile);
	task.limit_bytes = pd_task_limit_bytes(profile, request);
	task.straight = request->straight || request->schedule == PD_SCHEDULE_NF1B;
	copied = task;
	task_begin(&task, &views[0], false);
	if (request->cost == PD_COST_SIMULATED && has_shares(profile)) {
		task_begin(&copied, &views[1], true);
		task.copied = &copied;
	}
	if (request->any_schedule || request->any_weights) {
		plan = pd_auto_plan(&task, &period, &bound, err);
		at = plan ? pd_task_with(&task, plan->weights) : at;
	} else {
		at = pd_task_with(&task, request->weights);
		plan = pd_task_solve(at, &period, err);
		bound = plan ? pd_task_bound_ns(at) : 0;
	}
	if (plan && at->views)
		take_order(at, plan);
	if (plan && (pd_sums_choose(at, plan, &period, &bound, err) < 0 ||
		     finish(at, plan, period, bound, err) < 0)) {
		pd_candidate_drop(plan);
		plan = NULL;
	}
	if (task.copied)
		task_end(&copied);
	task_end(&task);
	return plan;
}
