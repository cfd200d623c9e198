/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/planner.h"

#include "base/mem.h"
#include "plan/sparse.h"
#include "planner/answers.h"
#include "planner/bound/bound.h"
#include "planner/formula/published.h"
#include "planner/kinds.h"
#include "planner/search/candidate.h"
#include "planner/search/gain.h"
#include "planner/search/simulated.h"
#include "planner/sums.h"
#include "predict/judge.h"
#include "predict/predict.h"
#include "predict/range.h"
#include "predict/replay.h"
#include "predict/step.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ENOUGH 200              /* part by which no plan in another order of kinds is faster */

/* Returns a bound for every plan with these options. */
static int64_t task_bound_ns(struct pd_task *task)
{
	const struct pd_plan_request *request = task->request;

	if (task->bound_ns == 0)
		task->bound_ns = request->cost != PD_COST_SIMULATED
			? pd_published_bound_ns(task->profile, request)
			: pd_bound_ns(&task->costs, request);
	return task->bound_ns;
}

int pd_task_period(const struct pd_task *task, const struct pd_plan *plan, int64_t *period_ns_p,
		   enum pd_period_kind *from_p, struct pd_error *err)
{
	if (task->request->cost == PD_COST_SIMULATED)
		return pd_judge_period(plan, period_ns_p, from_p, err);
	*period_ns_p = pd_published_ns(task->request->cost, &task->costs, plan);
	*from_p = PD_PERIOD_FORMULA;
	return 0;
}

/* Sets how far the period may be off, where the profile says it of its times. */
static void set_range(struct pd_plan *plan)
{
	struct pd_prediction *predicted = &plan->predicted;
	struct pd_spread range = pd_plan_range(plan, 0, 0);

	if (range.high <= 0)
		return;
	predicted->period_low_ns = llround((double)predicted->period_ns * range.low);
	predicted->period_high_ns = llround((double)predicted->period_ns * range.high);
}

/* Makes sure that no period is below what its busiest rank or link takes, or what any plan does. */
static void check_period(const struct pd_plan *plan, int64_t period_ns, int64_t bound_ns)
{
	int64_t least_ns = pd_judge_least_ns(plan);

	if (period_ns < pd_max(least_ns, bound_ns))
		pd_bug("a period of %" PRId64 " ns is below %s %" PRId64 " ns", period_ns, period_ns < least_ns
		       ? "what its busiest rank or link takes," : "the bound of all plans,",
		       period_ns < least_ns ? least_ns : bound_ns);
}

/* Fills in the figures of the plan as a whole. */
static int finish(const struct pd_task *task, struct pd_plan *plan, int64_t period,
		  int64_t bound, struct pd_error *err)
{
	struct pd_prediction *predicted = &plan->predicted;

	if (period >= PD_COST_MAX)
		return pd_error_input(err, "the best plan found takes more than 73 years: expected "
				      "faster links or layers");
	if (predicted->period_from != PD_PERIOD_FORMULA &&
	    pd_judge_whole(plan, PD_REPLAY_WORK, &period, &predicted->period_from, err) < 0)
		return -1;
	if (predicted->period_from == PD_PERIOD_ESTIMATE)
		period = pd_max(period, bound);
	if (task->request->stages)      /* by hand there may be what no search looks at */
		bound = pd_min(bound, period);
	if (predicted->period_from != PD_PERIOD_FORMULA)
		check_period(plan, period, bound);
	predicted->period_ns = period;
	predicted->memory_bytes = pd_candidate_fullest(plan, NULL);
	predicted->ended_early = !task->request->stages && task->request->effort && task->request->effort->early;
	predicted->lower_bound_ns = bound;
	if (predicted->period_from != PD_PERIOD_FORMULA)
		set_range(plan);
	if (pd_alternatives_find(plan, task, err) < 0)
		return -1;
	if (period > 0) {
		predicted->samples_per_s = (double)task->profile->batch_size * 1e9 / (double)period;
		if (predicted->period_from != PD_PERIOD_ESTIMATE)
			predicted->gap = 1 - (double)predicted->lower_bound_ns / (double)period;
		predicted->speedup_over_data_parallel =
			(double)predicted->data_parallel_period_ns / (double)period;
		pd_step_of(plan);
	}
	return 0;
}

static bool is_better(const struct pd_plan *x, int64_t x_ns, const struct pd_plan *y, int64_t y_ns,
		      double min_gain)
{
	double a = pd_gain_of(min_gain, x_ns, x->rank_count);
	double b = pd_gain_of(min_gain, y_ns, y->rank_count);

	return a != b ? a < b : pd_candidate_compare(x, y) < 0;
}

/* Gives a plan the sums that are asked for, and sets its period; false if it does not fit with them. */
static bool take_sums(const struct pd_task *task, struct pd_plan *plan, int64_t *time_ns_p)
{
	const struct pd_plan_request *request = task->request;
	struct pd_error err;

	plan->reducer = request->reducer;
	plan->chunk = request->chunk;
	plan->sparsity = request->sparsity;
	plan->sparsity_warmup = request->sparsity_warmup;
	pd_predict_stages(plan);
	return pd_plan_check_sparse(plan, "", &err) == 0 &&
	       pd_candidate_fits(plan, task->limit_bytes) &&
	       pd_judge_period(plan, time_ns_p, &plan->predicted.period_from, &err) == 0;
}

struct pd_plan *pd_replayed_plan(const struct pd_task *task, int64_t *time_ns_p, struct pd_error *err)
{
	struct pd_plan *closest, *plan = pd_simulated_plan(task, time_ns_p, &closest, err);

	if (!plan && err->status == PD_EXIT_NO)
		pd_none_explain(task, closest, err);
	pd_candidate_drop(closest);
	return plan;
}

/*
 * Searches with the sums that are asked for and, where these are others than dense ones, with dense ones,
 * too, of which it knows most: the faster plan is taken.
 */
static struct pd_plan *search(struct pd_task *task, int64_t *time_ns_p, struct pd_error *err)
{
	struct pd_plan *plan = pd_replayed_plan(task, time_ns_p, err), *other, *closest;
	struct pd_plan_request dense = *task->request;
	struct pd_task with = *task;
	struct pd_error why;
	int64_t time_ns;

	if ((!plan && err->status != PD_EXIT_NO) || (dense.reducer == PD_REDUCER_dense && dense.sparsity == 0))
		return plan;
	dense.reducer = PD_REDUCER_dense;
	dense.sparsity = 0;
	dense.chunk = dense.sparsity_warmup = 0;
	with.request = &dense;
	with.bound_ns = 0;
	pd_effort_begin(dense.effort);
	task_bound_ns(&with);
	other = pd_simulated_plan(&with, &time_ns, &closest, &why);
	pd_candidate_drop(closest);
	if (!other || !take_sums(task, other, &time_ns) ||
	    (plan && !is_better(other, time_ns, plan, *time_ns_p, dense.min_gain))) {
		pd_candidate_drop(other);
		return plan;
	}
	pd_candidate_drop(plan);
	*time_ns_p = time_ns;
	return other;
}

/* Plans what the request asks for, with its schedule and weights. */
static struct pd_plan *solve(struct pd_task *task, int64_t *time_ns_p, struct pd_error *err)
{
	const struct pd_plan_request *request = task->request;

	pd_effort_begin(request->effort);
	if (!request->stages && request->cost == PD_COST_SIMULATED)
		task_bound_ns(task);
	if (pd_schedule_has(request->schedule, PD_FACT_ORDERED))
		return pd_ordered_plan(task, time_ns_p, err);
	return request->stages ? pd_hand_plan(task, time_ns_p, err)
	     : request->cost != PD_COST_SIMULATED ? pd_formula_plan(task, time_ns_p, err)
	     : search(task, time_ns_p, err);
}

/* Returns the task itself, or the one with copies of shared parameters if such weights have them. */
static struct pd_task *task_with(struct pd_task *task, enum pd_weight_kind weights)
{
	return task->copied && pd_weights_copy_shared(weights) ? task->copied : task;
}

/*
 * Tells whether a combination is tried.  Open weights are those with which backward reads what its
 * forward read, and open schedules those that a pipeline gains from.
 */
static bool is_open(const struct pd_plan_request *request, int schedule, int weights)
{
	bool named = schedule == (int)request->schedule, same = weights == (int)request->weights;

	if (!request->any_schedule ? !named : !pd_schedule_has((enum pd_schedule_kind)schedule, PD_FACT_OPEN))
		return false;
	return request->any_weights ? !pd_weights_have((enum pd_weight_kind)weights, PD_WEIGHTS_REREADS) : same;
}

/* Plans with one combination, as if it had been asked for. */
static struct pd_plan *plan_with(struct pd_task *task, struct pd_plan_request *request,
				 int64_t *time_ns_p, int64_t *bound_ns_p, struct pd_error *err)
{
	struct pd_task one = *task_with(task, request->weights);
	struct pd_plan *plan;

	request->any_schedule = request->any_weights = false;
	request->chunks = !pd_schedule_has(request->schedule, PD_FACT_SHARES) ? 0
			: pd_schedule_has(request->schedule, PD_FACT_V) ? PD_PLANNER_CHUNKS
			: task->request->chunks || pd_schedule_has(request->schedule, PD_FACT_ORDERED)
			? task->request->chunks : PD_PLANNER_CHUNKS;
	request->round = pd_schedule_has(request->schedule, PD_FACT_ROUNDS) ? task->request->round : 0;
	one.request = request;
	one.straight = pd_planner_straight(request);
	plan = solve(&one, time_ns_p, err);
	/* A bound does not depend on memory, for want of which there may be no plan. */
	*bound_ns_p = plan || err->status == PD_EXIT_NO ? task_bound_ns(&one) : PD_NEVER;
	return plan;
}

/* Plans for all combinations that the request leaves open; sets the least of their bounds. */
static struct pd_plan *plan_any(struct pd_task *task, int64_t *time_ns_p, int64_t *bound_ns_p,
				struct pd_error *err)
{
	int64_t *closest_p = task->closest_bytes, least_bytes = INT64_MAX;
	struct pd_prediction tried = { .period_ns = 0 };
	struct pd_plan *best = NULL;
	struct pd_error why;
	bool told = false;

	*bound_ns_p = PD_NEVER;
	for (int k = 0; k < PD_SCHEDULE_KINDS * PD_WEIGHT_KINDS; k++) {
		struct pd_plan_request request = *task->request;
		struct pd_plan *plan;
		int64_t time_ns, bound_ns;

		if (!is_open(&request, k / PD_WEIGHT_KINDS, k % PD_WEIGHT_KINDS))
			continue;
		request.schedule = (enum pd_schedule_kind)(k / PD_WEIGHT_KINDS);
		request.weights = (enum pd_weight_kind)(k % PD_WEIGHT_KINDS);
		*closest_p = INT64_MAX;
		plan = plan_with(task, &request, &time_ns, &bound_ns, &why);
		/* That nothing fits says more than what is impossible, and what is closest most. */
		if (!plan && (!told || (why.status == PD_EXIT_NO &&
					(err->status != PD_EXIT_NO || *closest_p < least_bytes)))) {
			*err = why;
			told = true;
			least_bytes = *closest_p;
		}
		*bound_ns_p = pd_min(*bound_ns_p, bound_ns);
		if (plan)
			tried.schedules[request.schedule][request.weights] =
				(struct pd_schedule_tried){ time_ns, pd_candidate_fullest(plan, NULL) };
		if (plan && (!best || is_better(plan, time_ns, best, *time_ns_p, request.min_gain))) {
			struct pd_plan *other = best;

			best = plan;
			plan = other;
			*time_ns_p = time_ns;
		}
		pd_candidate_drop(plan);
	}
	*closest_p = least_bytes;
	if (best)
		memcpy(best->predicted.schedules, tried.schedules, sizeof(tried.schedules));
	return best;
}

/* Brings the profile into the order of the plan. */
static void take_order(struct pd_task *task, struct pd_plan *plan)
{
	int *order = pd_views_order(task->views, plan->profile);
	bool copies = task->costs.copies;
	struct pd_effort *effort = task->costs.effort;

	plan->profile = task->profile;
	if (!order)
		return;
	pd_profile_reorder(task->profile, order);
	if (task->fastest != task->profile)
		pd_profile_reorder(task->fastest, order);
	pd_costs_release(&task->costs);
	pd_costs_init(&task->costs, task->fastest, copies);
	task->costs.effort = effort;
	free(order);
}

static void task_begin(struct pd_task *task, struct pd_views *views, bool copies)
{
	const struct pd_plan_request *request = task->request;

	pd_costs_init(&task->costs, task->fastest, copies);
	task->costs.worth = pd_kinds_worth(task->profile, task->fastest, task->topology);
	if (request->cost != PD_COST_SIMULATED || request->runs || request->stages)
		return;
	task->costs.effort = request->effort;
	pd_views_init(views, task->profile, task->fastest, copies ? PD_STATES_COPIES : PD_STATES_ALL);
	task->views = views;
}

static void task_end(struct pd_task *task)
{
	pd_costs_release(&task->costs);
	if (task->views)
		pd_views_release(task->views);
}

/* What a plan was found for: with copies of shared parameters or without. */
struct found {
	struct pd_task *at;
	int64_t period_ns, bound_ns, closest_bytes;
};

/* Plans with all that the request asks for and leaves open, but for figures. */
static struct pd_plan *find(struct pd_task *task, struct found *found, struct pd_error *err)
{
	const struct pd_plan_request *request = task->request;
	struct pd_plan *plan;

	*found = (struct found){ .at = task, .closest_bytes = INT64_MAX };
	task->closest_bytes = &found->closest_bytes;
	if (task->copied)
		task->copied->closest_bytes = &found->closest_bytes;
	if (request->any_schedule || request->any_weights) {
		plan = plan_any(task, &found->period_ns, &found->bound_ns, err);
		found->at = plan ? task_with(task, plan->weights) : task;
	} else {
		found->at = task_with(task, request->weights);
		plan = solve(found->at, &found->period_ns, err);
		found->bound_ns = plan ? task_bound_ns(found->at) : 0;
	}
	if (!plan || pd_sums_choose(found->at, plan, &found->period_ns, &found->bound_ns, err) == 0)
		return plan;
	pd_candidate_drop(plan);
	return NULL;
}

static void set_limit(struct pd_task *task, int64_t limit_bytes)
{
	task->limit_bytes = limit_bytes;
	if (task->copied)
		task->copied->limit_bytes = limit_bytes;
}

/*
 * Plans; where nothing that fits is found, it takes the plan that it would make without a limit, if that fits.
 * If it does not, but is closer than what is said to be closest, it is that.
 */
static struct pd_plan *find_fitting(struct pd_task *task, struct found *found, struct pd_error *err)
{
	struct pd_plan *plan = find(task, found, err);
	int64_t limit_bytes = task->limit_bytes, closest_bytes = found->closest_bytes;
	struct pd_error why;

	if (plan || err->status != PD_EXIT_NO || task->request->stages ||
	    task->request->cost != PD_COST_SIMULATED || limit_bytes == INT64_MAX ||
	    pd_topology_mixed(task->topology))
		return plan;
	set_limit(task, INT64_MAX);
	plan = find(task, found, &why);
	set_limit(task, limit_bytes);
	if (!plan || pd_candidate_keeps(plan, limit_bytes))
		return plan;
	if (pd_candidate_fullest(plan, NULL) < closest_bytes)
		pd_none_explain(found->at, plan, err);
	pd_candidate_drop(plan);
	return NULL;
}

/* A search with the kinds of devices in one order on the line. */
struct attempt {
	struct pd_plan_request request;
	struct pd_views views[2];
	struct pd_task task, copied;
	struct found found;
	struct pd_plan *plan;
};

static void attempt_begin(struct attempt *attempt, struct pd_profile *profile, struct pd_profile *fastest,
			  const struct pd_plan_request *asked, const struct pd_topology *topology)
{
	struct pd_plan_request *request = &attempt->request;
	struct pd_task *task = &attempt->task;

	*request = *asked;
	request->topology = topology;
	if (request->any_bucket)
		request->bucket_bytes = pd_bucket_usual(profile);
	*task = (struct pd_task){ .profile = profile, .fastest = fastest, .request = request,
				  .topology = topology,
				  .limit_bytes = pd_task_limit_bytes(profile, request),
				  .straight = pd_planner_straight(request) };
	attempt->copied = *task;
	task_begin(task, &attempt->views[0], false);
	if (request->cost == PD_COST_SIMULATED && profile->shared_count > 0) {
		task_begin(&attempt->copied, &attempt->views[1], true);
		task->copied = &attempt->copied;
	}
}

static void attempt_end(struct attempt *attempt)
{
	if (attempt->task.copied)
		task_end(&attempt->copied);
	task_end(&attempt->task);
	pd_candidate_drop(attempt->plan);
}

/* Tells whether no plan in another order of kinds can be much faster. */
static bool is_enough(const struct attempt *attempt)
{
	return attempt->plan && attempt->found.period_ns - attempt->found.period_ns / ENOUGH <= attempt->found.bound_ns;
}

/* Numbers a plan's ranks as the machine was given, if it is as fast and fits so. */
static void restore(struct attempt *attempt, const struct pd_kinds_order *order, const struct pd_topology *machine)
{
	struct pd_plan *plan = order->was ? pd_kinds_restore(attempt->plan, order, machine) : NULL;
	struct pd_task *task = attempt->found.at;
	enum pd_period_kind from;
	struct pd_error err;
	int64_t period_ns;

	if (!plan)
		return;
	pd_predict_stages(plan);
	if (pd_candidate_fits(plan, task->limit_bytes) &&
	    pd_task_period(task, plan, &period_ns, &from, &err) == 0 && period_ns <= attempt->found.period_ns) {
		struct pd_plan *other = attempt->plan;

		attempt->plan = plan;
		plan = other;
		attempt->plan->predicted.period_from = from;
		attempt->found.period_ns = period_ns;
		attempt->request.topology = task->topology = machine;
	}
	pd_candidate_drop(plan);
}

/* Finds the best plan over the orders of kinds; returns its attempt, or NULL. */
static struct attempt *attempt_all(struct attempt *attempts, const struct pd_kinds_orders *orders,
				   struct pd_profile *profile, struct pd_profile *fastest,
				   const struct pd_plan_request *asked, struct pd_error *err)
{
	struct attempt *best = NULL;
	int best_order = 0;

	for (int i = 0; i < orders->count && !(best && is_enough(best)); i++) {
		struct attempt *attempt = &attempts[i];
		struct pd_error why;

		attempt_begin(attempt, profile, fastest, asked, &orders->list[i].topology);
		attempt->plan = find_fitting(&attempt->task, &attempt->found, i == 0 ? err : &why);
		if (attempt->plan && (!best || is_better(attempt->plan, attempt->found.period_ns, best->plan,
							 best->found.period_ns, asked->min_gain))) {
			best = attempt;
			best_order = i;
		}
	}
	if (best)
		restore(best, &orders->list[best_order], asked->topology);
	return best;
}

struct pd_plan *pd_planner_plan(struct pd_profile *profile, const struct pd_plan_request *asked,
				struct pd_error *err)
{
	struct pd_profile *fastest = profile->other_count > 0 ? pd_profile_fastest(profile) : profile;
	struct pd_kinds_orders orders;
	struct attempt *attempts, *best;
	struct pd_plan *plan = NULL;

	if (asked->effort)
		asked->effort->early = false;
	pd_kinds_orders_init(&orders, asked->topology, !asked->stages);
	attempts = pd_calloc((size_t)orders.count, sizeof(*attempts));
	best = attempt_all(attempts, &orders, profile, fastest, asked, err);
	if (best) {
		plan = best->plan;
		best->plan = NULL;
		if (best->found.at->views)
			take_order(best->found.at, plan);
		if (finish(best->found.at, plan, best->found.period_ns, best->found.bound_ns, err) < 0) {
			pd_candidate_drop(plan);
			plan = NULL;
		}
	}
	for (int i = 0; i < orders.count; i++)
		if (attempts[i].task.profile)
			attempt_end(&attempts[i]);
	free(attempts);
	pd_kinds_orders_release(&orders);
	if (fastest != profile)
		pd_profile_free(fastest);
	return plan;
}
