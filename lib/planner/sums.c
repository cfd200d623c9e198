/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which reducer, and which buckets.
 *
 * Few large buckets begin late: their sums are behind backward.  Many small ones pay the links'
 * latency, and the cost of each operation, many times.  The paper gives no threshold (arXiv
 * 1902.06855, section 3.1).  Here plans with thresholds that are halved again and again are replayed,
 * with the latency and bandwidth that the plan's topology has and the times of its profile.
 */
#include "planner/sums.h"

#include "base/mem.h"
#include "memory/buckets.h"
#include "planner/bound/bound.h"
#include "planner/search/candidate.h"
#include "predict/judge.h"
#include "predict/links.h"
#include "predict/predict.h"

#define USUAL 16                /* buckets of a network, before more is known */
#define AS_FAST 20              /* a plan is about as fast if its period is longer by at most such a part */
#define AS_GOOD 1000            /* two periods are as good as equal if they differ by at most such a part */

int64_t pd_bucket_usual(const struct pd_profile *profile)
{
	int64_t bytes = 0;

	for (int l = 0; l < profile->layer_count; l++)
		bytes = pd_plus(bytes, profile->layers[l].parameter_bytes);
	return bytes / USUAL + 1;
}

int64_t pd_sums_of(const struct pd_plan *plan)
{
	int64_t sums = 0;

	for (int s = 0; s < plan->stage_count; s++)
		sums += plan->stages[s].replicas > 1 ? pd_plan_bucket_count(plan, s) : 0;
	return sums;
}

int pd_sums_thresholds(struct pd_plan *plan, int64_t list[PD_SUMS_THRESHOLDS])
{
	int64_t given = plan->bucket_bytes, most = 0, sums;
	int count = 1;

	for (int s = 0; s < plan->stage_count; s++) {
		int64_t bytes = 0;

		for (int l = 0; l < plan->stages[s].layer_count; l++)
			bytes = pd_plus(bytes, pd_plan_layer_bytes(plan, plan->stages[s].first_layer
								   + l));
		if (plan->stages[s].replicas > 1 && bytes > most)
			most = bytes;
	}
	list[0] = plan->bucket_bytes = 0;
	sums = pd_sums_of(plan);
	for (int64_t bytes = most / 2; bytes > 0 && count < PD_SUMS_THRESHOLDS; bytes /= 2) {
		plan->bucket_bytes = bytes;
		if (pd_sums_of(plan) == sums)
			continue;
		sums = pd_sums_of(plan);
		list[count++] = bytes;
	}
	plan->bucket_bytes = given;
	return count;
}

int pd_sums_period(struct pd_plan *plan, int64_t bytes, int64_t *period_ns_p, struct pd_error *err)
{
	enum pd_period_kind from = PD_PERIOD_ESTIMATE;
	int64_t given = plan->bucket_bytes;
	int status = 0;

	plan->bucket_bytes = bytes;
	if (pd_judge_work(plan) <= PD_JUDGE_WORK)
		status = pd_judge_period(plan, period_ns_p, &from, err);
	plan->bucket_bytes = given;
	if (from != PD_PERIOD_REPLAY)
		*period_ns_p = 0;
	return status;
}

/*
 * Gives the plan, whose period is *period_ns_p, the threshold with which a replay is fastest, or
 * none; of those that are as good as equal that with the fewest sums.  Ranks keep to limit_bytes.
 */
static int choose_bucket(struct pd_plan *plan, int64_t limit_bytes, int64_t *period_ns_p,
			 struct pd_error *err)
{
	int64_t list[PD_SUMS_THRESHOLDS], periods_ns[PD_SUMS_THRESHOLDS];
	int64_t best = plan->bucket_bytes, least_ns = *period_ns_p;
	int count = pd_sums_thresholds(plan, list);

	for (int i = 0; i < count; i++) {
		if (pd_sums_period(plan, list[i], &periods_ns[i], err) < 0)
			return -1;
		plan->bucket_bytes = list[i];
		if (!pd_candidate_fits(plan, limit_bytes))
			periods_ns[i] = 0;
		if (periods_ns[i] > 0 && periods_ns[i] < least_ns)
			least_ns = periods_ns[i];
	}
	for (int i = count - 1; i >= 0; i--)
		if (periods_ns[i] > 0 && periods_ns[i] <= least_ns + least_ns / AS_GOOD) {
			best = list[i];
			*period_ns_p = periods_ns[i];
		}
	plan->bucket_bytes = best;
	pd_candidate_fits(plan, limit_bytes);
	return 0;
}

/* Gives the plan a reducer, and the best buckets for it where they are free. */
static int with_reducer(const struct pd_task *task, struct pd_plan *plan, enum pd_reducer_kind kind,
			int64_t *period_ns_p, struct pd_error *err)
{
	enum pd_period_kind from;

	plan->reducer = kind;
	*period_ns_p = PD_COST_MAX;
	if (!task->request->any_bucket)
		return pd_judge_period(plan, period_ns_p, &from, err);
	plan->bucket_bytes = pd_bucket_usual(plan->profile);
	return choose_bucket(plan, task->limit_bytes, period_ns_p, err);
}

/*
 * Tells whether dense sums of a stage go by messages among three members or more, who then receive from
 * one another in turn.
 */
static bool takes_turns(const struct pd_plan *plan)
{
	for (int s = 0; s < plan->stage_count; s++) {
		struct pd_sum sum = pd_plan_stage_sum(plan, s);

		if (sum.members.count > 2 && pd_sum_memory_ns(&sum) < 0)
			return true;
	}
	return false;
}

/*
 * Returns the reducer with which the plan is fastest; dense where others are no faster, but a ring that
 * is about as fast where dense sums go by messages.  In a replay a link has one transfer at a time, in the
 * best order; on a network all that are under way share it, unevenly, and members wait for the last of
 * them: between four hosts dense sums got 83 to 85 % of the links, and a ring 89 to 91 %.
 */
static enum pd_reducer_kind fastest(const struct pd_plan *plan, const struct pd_reducer_tried *tried)
{
	const struct pd_reducer_tried *ring = &tried[PD_REDUCER_ring];
	enum pd_reducer_kind best = plan->reducer;

	for (int kind = 0; kind < PD_REDUCER_KINDS; kind++)
		if (tried[kind].fits && tried[kind].period_ns < tried[best].period_ns)
			best = (enum pd_reducer_kind)kind;
	if (best == PD_REDUCER_dense && ring->fits && takes_turns(plan) &&
	    ring->period_ns - tried[best].period_ns <= tried[best].period_ns / AS_FAST)
		return PD_REDUCER_ring;
	return best;
}

/* Gives the plan one of the reducers, the best. */
static int choose_reducer(const struct pd_task *task, struct pd_plan *plan, int64_t *period_ns_p,
			  struct pd_error *err)
{
	struct pd_reducer_tried *tried = plan->predicted.reducers;
	enum pd_reducer_kind given = plan->reducer;
	int64_t bucket_bytes = plan->bucket_bytes;

	tried[given] = (struct pd_reducer_tried){ *period_ns_p, bucket_bytes, true };
	for (int kind = 0; kind < PD_REDUCER_KINDS; kind++) {
		if (kind == (int)given || pd_reducers[kind]->of_transport)
			continue;
		plan->bucket_bytes = bucket_bytes;
		if (with_reducer(task, plan, (enum pd_reducer_kind)kind, &tried[kind].period_ns, err) < 0)
			return -1;
		tried[kind].fits = pd_candidate_fits(plan, task->limit_bytes);
		tried[kind].bucket_bytes = plan->bucket_bytes;
	}
	plan->reducer = given;
	plan->reducer = fastest(plan, tried);
	plan->bucket_bytes = tried[plan->reducer].bucket_bytes;
	*period_ns_p = tried[plan->reducer].period_ns;
	pd_predict_stages(plan);
	return pd_candidate_weigh(plan, err) ? 0 : -1;
}

int pd_sums_choose(const struct pd_task *task, struct pd_plan *plan, int64_t *period_ns_p,
		    int64_t *bound_ns_p, struct pd_error *err)
{
	const struct pd_plan_request *request = task->request;
	struct pd_plan_request with = *request;

	if (request->cost != PD_COST_SIMULATED)
		return 0;
	plan->predicted.any_bucket = request->any_bucket;
	if (request->any_bucket && choose_bucket(plan, task->limit_bytes, period_ns_p, err) < 0)
		return -1;
	if (request->any_reducer && choose_reducer(task, plan, period_ns_p, err) < 0)
		return -1;
	with.reducer = plan->reducer;
	if (with.reducer != request->reducer)
		*bound_ns_p = pd_bound_ns(&task->costs, &with, *bound_ns_p);
	return 0;
}
