/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the schedule and the weights if the user leaves them open. */
#include "planner/search/candidate.h"
#include "planner/search/gain.h"

#define CHUNKS 2                /* of each rank, for interleaved */

/*
 * Tells whether a combination is tried.  Open weights are those with which backward reads what its
 * forward read, and open schedules those that a pipeline gains from.
 */
static bool is_open(const struct pd_plan_request *request, int schedule, int weights)
{
	bool named = schedule == (int)request->schedule, same = weights == (int)request->weights;

	if (!request->any_schedule ? !named : schedule == PD_SCHEDULE_NF1B ||
	    schedule == PD_SCHEDULE_NONE)
		return false;
	return request->any_weights ? weights != PD_WEIGHTS_LATEST : same;
}

/* Plans with one combination, as if it had been asked for. */
static struct pd_plan *plan_with(struct pd_task *task, struct pd_plan_request *request,
				 int64_t *time_ns_p, int64_t *bound_ns_p, struct pd_error *err)
{
	struct pd_task one = *pd_task_with(task, request->weights);
	struct pd_plan *plan;

	request->any_schedule = request->any_weights = false;
	request->chunks = request->schedule != PD_SCHEDULE_INTERLEAVED ? 0
			: task->request->chunks ? task->request->chunks : CHUNKS;
	one.request = request;
	one.straight = request->straight || request->schedule == PD_SCHEDULE_NF1B;
	plan = pd_task_solve(&one, time_ns_p, err);
	/* A bound does not depend on memory, for want of which there may be no plan. */
	*bound_ns_p = plan || err->status == PD_EXIT_NO ? pd_task_bound_ns(&one) : PD_NEVER;
	return plan;
}

static bool is_better(const struct pd_plan *x, int64_t x_ns, const struct pd_plan *y, int64_t y_ns,
		      double min_gain)
{
	double a = pd_gain_of(min_gain, x_ns, x->rank_count);
	double b = pd_gain_of(min_gain, y_ns, y->rank_count);

	return a != b ? a < b : pd_candidate_compare(x, y) < 0;
}

struct pd_plan *pd_auto_plan(struct pd_task *task, int64_t *time_ns_p, int64_t *bound_ns_p,
			     struct pd_error *err)
{
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
		plan = plan_with(task, &request, &time_ns, &bound_ns, &why);
		if (!plan && (!told || why.status == PD_EXIT_NO)) {
			*err = why;     /* that nothing fits says more than what is impossible */
			told = true;
		}
		*bound_ns_p = pd_min64(*bound_ns_p, bound_ns);
		if (plan && (!best || is_better(plan, time_ns, best, *time_ns_p, request.min_gain))) {
			struct pd_plan *other = best;

			best = plan;
			plan = other;
			*time_ns_p = time_ns;
		}
		pd_candidate_drop(plan);
	}
	return best;
}
