/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/reducer.h"

#include "base/mem.h"
#include "plan/sparse.h"
#include "planner/bucket.h"
#include "planner/search/judge.h"
#include "planner/price/predict.h"

/* Gives the plan a reducer, and the best buckets for it where they are free. */
static int with_reducer(const struct pd_task *task, struct pd_plan *plan, enum pd_reducer_kind kind,
			int64_t *period_ns_p, struct pd_error *err)
{
	enum pd_period_kind from;

	plan->reducer = kind;
	*period_ns_p = PD_COST_MAX;
	if (!task->request->any_bucket)
		return pd_judge_period(plan, PD_NEVER, period_ns_p, &from, err);
	plan->bucket_bytes = pd_bucket_usual(plan->profile);
	return pd_bucket_choose(plan, task->limit_bytes, period_ns_p, err);
}

static bool fits(const struct pd_task *task, struct pd_plan *plan)
{
	struct pd_error err;

	return pd_candidate_weigh(plan, &err) && pd_candidate_fullest(plan, NULL) <= task->limit_bytes;
}

static int try_all(const struct pd_task *task, struct pd_plan *plan, int64_t *period_ns_p,
		   struct pd_error *err)
{
	const struct pd_plan_request *request = task->request;
	enum pd_reducer_kind best = plan->reducer;
	int64_t bucket_bytes = plan->bucket_bytes;

	for (int kind = 0; kind < PD_REDUCER_KINDS; kind++) {
		int64_t period_ns;

		if (kind == PD_REDUCER_dense ||
		    (request->any_reducer ? pd_reducers[kind]->of_transport
					  : kind != (int)request->reducer))
			continue;
		plan->bucket_bytes = bucket_bytes;
		if (with_reducer(task, plan, (enum pd_reducer_kind)kind, &period_ns, err) < 0)
			return -1;
		if (!fits(task, plan) || (request->any_reducer && period_ns >= *period_ns_p))
			continue;
		*period_ns_p = period_ns;
		best = (enum pd_reducer_kind)kind;
		bucket_bytes = plan->bucket_bytes;
	}
	plan->reducer = best;
	plan->bucket_bytes = bucket_bytes;
	return 0;
}

/* Gives the plan what the request says of chunks, and the period with that. */
static int make_sparse(const struct pd_task *task, struct pd_plan *plan, int64_t *period_ns_p,
		       struct pd_error *err)
{
	const struct pd_plan_request *request = task->request;
	enum pd_period_kind from;

	if (request->chunk == 0)
		return 0;
	plan->chunk = request->chunk;
	plan->sparsity = request->sparsity;
	plan->sparsity_warmup = request->sparsity_warmup;
	if (pd_plan_check_sparse(plan, "--", err) < 0)
		return -1;
	return request->cost != PD_COST_SIMULATED
		? 0 : pd_judge_period(plan, PD_NEVER, period_ns_p, &from, err);
}

int pd_planner_sums(const struct pd_task *task, struct pd_plan *plan, int64_t *period_ns_p,
		    int64_t *bound_ns_p, struct pd_error *err)
{
	const struct pd_plan_request *request = task->request;

	if (make_sparse(task, plan, period_ns_p, err) < 0)
		return -1;
	if (request->cost != PD_COST_SIMULATED) {
		plan->reducer = request->reducer;
		return 0;
	}
	if (request->any_bucket && pd_bucket_choose(plan, task->limit_bytes, period_ns_p, err) < 0)
		return -1;
	if (!request->any_reducer && request->reducer == PD_REDUCER_dense && plan->chunk == 0)
		return 0;
	if (try_all(task, plan, period_ns_p, err) < 0)
		return -1;
	pd_predict_stages(plan);
	if (!fits(task, plan))
		return pd_error_no(err, "--%s%s: its buffers do not fit",
				   plan->chunk > 0 ? "sparsity" : "all-reduce=",
				   plan->chunk > 0 ? "" : pd_reducer_kind_name[request->reducer]);
	if (plan->reducer != PD_REDUCER_dense || plan->chunk > 0)
		*bound_ns_p = pd_min64(*bound_ns_p, pd_task_bound_without_sums_ns(task));
	return 0;
}
