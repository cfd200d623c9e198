/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/ordered.h"

#include "base/mem.h"
#include "order/made.h"
#include "planner/answers.h"
#include "planner/search/candidate.h"
#include "planner/search/ordering.h"
#include "planner/search/recompute.h"
#include "predict/judge.h"

#include <stdlib.h>
#include <string.h>

#define SHAPES 8                /* of equal pipelines, for which orders are searched */
#define FEW_SHAPES 2            /* the same where a search takes long */
#define FILLED 4                /* microbatches for each position, by which the order of a long update is judged */
#define LONG 4096               /* stages times microbatches above which an update is long */
#define WORTH 0.995             /* part of the best plan's value that a long order must promise */

bool pd_ordered_is_equal(const struct pd_plan *plan)
{
	for (int s = 1; s < plan->stage_count; s++)
		if (plan->stages[s].replicas != plan->stages[0].replicas)
			return false;
	return true;
}

bool pd_ordered_is_short(const struct pd_plan *plan)
{
	return plan->microbatches * plan->stage_count <= LONG;
}

void pd_ordered_offer(struct pd_best *best, struct pd_variant *variant, struct pd_plan *plan)
{
	struct pd_error why;
	int64_t time_ns;

	if (pd_ordering_find(plan, variant->task.limit_bytes, &time_ns, &why)) {
		pd_best_offer(best, variant, plan, time_ns, PD_BEST_SEARCHED);
		return;
	}
	pd_best_refuse(best, variant, &why, INT64_MAX);
	pd_candidate_drop(plan);
}

/*
 * Puts stages on ranks in a V, there and back again; a virtual stage goes up.  Replicas are side by side or, apart,
 * pipelines are.
 */
static void put_in_v(struct pd_plan *plan, int chunks, bool apart)
{
	int positions = plan->stage_count / chunks, replicas = plan->stages[0].replicas;

	plan->rank_count = positions * replicas;
	for (int s = 0; s < plan->stage_count; s++)
		for (int r = 0; r < replicas; r++)
			plan->stages[s].ranks[r] = apart ? r * positions + pd_order_v(positions, s)
							 : pd_order_v(positions, s) * replicas + r;
}

/* Makes a plan of a partition (or NULL), without an order; frees the partition. */
static struct pd_plan *plan_of_stages(const struct pd_task *task, struct pd_partition *partition,
				      int chunks, bool apart, int64_t microbatches,
				      struct pd_error *err)
{
	struct pd_plan_request with = *task->request;
	struct pd_task one = *task;
	struct pd_plan *plan;

	if (!partition)
		return NULL;
	with.chunks = chunks;   /* so that there may be more stages than devices */
	one.request = &with;
	plan = pd_candidate_plain(&one, partition);
	pd_partition_free(partition);
	if (!pd_ordered_is_equal(plan)) {
		pd_error_input(err, "--stages: expected as many replicas of every stage, which "
				    "compute in one order");
		pd_candidate_drop(plan);
		return NULL;
	}
	put_in_v(plan, chunks, apart);
	plan->weights = PD_WEIGHTS_FLUSH;
	plan->agree = with.agree || pd_planner_agrees(&with, task->profile, plan->weights);
	plan->microbatches = microbatches ? microbatches : plan->rank_count;
	if (pd_recompute_asked(plan, &with, err))
		return plan;
	pd_candidate_drop(plan);
	return NULL;
}

static struct pd_plan *plan_of_shape(const struct pd_variant *variant,
				     const struct pd_pipelines *shape, bool apart,
				     int64_t microbatches)
{
	struct pd_error ignored;

	return plan_of_stages(&variant->task, pd_scout_partition(variant, shape), shape->chunks,
			      apart, microbatches, &ignored);
}

/* Gives a plan an order, and offers it by an estimate where it fits. */
static void offer_given(struct pd_best *best, struct pd_variant *variant, struct pd_plan *plan,
			const struct pd_plan *from)
{
	struct pd_expected expected;
	struct pd_error ignored;

	plan->schedule = PD_SCHEDULE_ORDERED;
	plan->order = pd_order_extend(from->order, (int)(plan->microbatches / plan->stages[0].replicas));
	memcpy(plan->predicted.order_from, from->predicted.order_from, sizeof(plan->predicted.order_from));
	if (plan->order && pd_candidate_fits(plan, variant->task.limit_bytes) &&
	    pd_judge_expect(plan, false, &expected, &ignored) == 0) {
		plan->predicted.period_from = PD_PERIOD_ESTIMATE;
		pd_best_offer(best, variant, plan, expected.estimate_ns, PD_BEST_SEARCHED);
		return;
	}
	pd_candidate_drop(plan);
}

/*
 * Offers orders for pipelines.  An order for a long update is one for few microbatches on one of the pipelines, in which
 * what is done where the pipeline is full is repeated.
 */
static void offer_shape(struct pd_best *best, struct pd_variant *variant,
			const struct pd_pipelines *shape)
{
	int64_t each = shape->microbatches / shape->replicas,
		stages = (int64_t)shape->positions * shape->chunks;
	int64_t few = pd_min(each, FILLED * (int64_t)shape->positions);
	bool is_long = shape->microbatches * stages > LONG;
	bool several = variant->task.topology->levels > 1 && shape->replicas > 1 && shape->positions > 1;
	struct pd_pipelines alone = *shape;
	struct pd_plan *from = NULL;
	struct pd_error ignored;
	int64_t time_ns;

	alone.replicas = 1;
	if (few * stages > LONG)
		return;
	if (is_long) {
		from = plan_of_shape(variant, &alone, false, few);
		if (from && !pd_ordering_find(from, variant->task.limit_bytes, &time_ns, &ignored)) {
			pd_candidate_drop(from);
			return;
		}
	}
	for (int apart = 0; apart <= several && (from || !is_long); apart++) {
		struct pd_plan *plan = plan_of_shape(variant, shape, apart, shape->microbatches);

		if (plan && is_long)
			offer_given(best, variant, plan, from);
		else if (plan)
			pd_ordered_offer(best, variant, plan);
	}
	pd_candidate_drop(from);
}

/* Returns the microbatches of an update that no replicas need divide; 0: the usual number. */
static int64_t all_microbatches(const struct pd_variant *variant)
{
	return variant->request.batch_microbatches ? variant->request.batch_microbatches : variant->request.microbatches;
}

/* Offers orders for stages that would be fast on one rank each, whatever memory they take. */
static void offer_straight(struct pd_best *best, struct pd_variant *variant)
{
	const struct pd_topology *topology = variant->task.topology;
	const struct pd_costs *costs = &variant->task.costs;
	int64_t bandwidth = pd_slowest_link(topology, topology->levels - 1).bandwidth_bytes_per_s;
	int ranks = (int)(topology->devices < costs->unit_count ? topology->devices : costs->unit_count);
	struct pd_error why;
	struct pd_plan *plan = NULL;

	if (variant->request.chunks <= 1 && variant->task.limit_bytes < INT64_MAX)
		plan = plan_of_stages(&variant->task,
				      pd_straight_most(costs, ranks, bandwidth, INT64_MAX), 1,
				      false, all_microbatches(variant), &why);
	if (plan)
		pd_ordered_offer(best, variant, plan);
}

/* Offers orders for two stages a rank that are as long as each other, on all devices. */
static void offer_even(struct pd_best *best, struct pd_variant *variant)
{
	const struct pd_costs *costs = &variant->task.costs;
	int chunks = variant->request.chunks ? variant->request.chunks : PD_PLANNER_CHUNKS;
	int ranks = (int)(costs->unit_count / chunks < variant->task.topology->devices ? costs->unit_count / chunks
			  : variant->task.topology->devices);
	struct pd_error why;
	struct pd_plan *plan;

	if (ranks < 2 || chunks < 2)
		return;
	plan = plan_of_stages(&variant->task, pd_even_partition(costs, chunks * ranks, 0), chunks, false,
			      all_microbatches(variant), &why);
	if (plan)
		pd_ordered_offer(best, variant, plan);
}

void pd_ordered_offer_shapes(struct pd_best *best, struct pd_variant *variant, bool thorough)
{
	struct pd_pipelines list[SHAPES];
	int count;

	if (pd_topology_mixed(variant->task.topology)) {
		offer_straight(best, variant);
		offer_even(best, variant);
		return;
	}
	count = pd_scout_shapes(variant, list, thorough ? SHAPES : FEW_SHAPES);
	best->looked++;
	for (int i = 0; i < count; i++)
		if (thorough || (list[i].positions > 1 && list[i].value < WORTH * pd_best_least(best)))
			offer_shape(best, variant, &list[i]);
	if (!thorough)
		return;
	offer_straight(best, variant);
	offer_even(best, variant);
}

struct pd_plan *pd_ordered_hand_plan(const struct pd_task *task, int64_t *time_ns_p,
				     struct pd_error *err)
{
	const struct pd_plan_request *request = task->request;
	struct pd_plan_request with = *request;
	struct pd_task one = *task;
	struct pd_plan *plan;

	with.schedule = PD_SCHEDULE_GPIPE;      /* which any stages can have */
	one.request = &with;
	one.limit_bytes = INT64_MAX;
	plan = request->chunks > 1 ? plan_of_stages(task, pd_hand_partition(task, err), request->chunks, false,
						    request->microbatches, err)
				   : pd_hand_plan(&one, time_ns_p, err);
	if (!plan || pd_ordering_find(plan, task->limit_bytes, time_ns_p, err))
		return plan;
	pd_candidate_drop(plan);
	return NULL;
}
