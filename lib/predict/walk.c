/* SPDX-License-Identifier: Apache-2.0 */
#include "predict/walk.h"

#include "base/mem.h"
#include "order/request.h"
#include "plan/given_order.h"
#include "schedule/as_order.h"

#include <math.h>
#include <stdlib.h>

/*
 * Microbatches of a replica for each position that are gone through: a pipeline has filled after two, and drains in
 * the last two.  Those between them take as long as each other.
 */
#define FILLING 2
#define ENOUGH 6
#define OP_TICKS 4              /* of the recurrence, for each operation */
#define MOST_OPS (1 << 21)

/* Tells whether a walk over so many microbatches of a replica is worth while, and its times fit. */
static bool is_walked(const struct pd_schedule *schedule, const struct pd_stage_times *times, int64_t count)
{
	double longest_ns = 0;

	for (int s = 0; s < schedule->stage_count; s++)
		longest_ns += (double)times[s].forward_ns + (double)times[s].backward_ns + (double)times[s].again_ns +
			      2 * (double)times[s].way_ns + (double)times[s].update_ns + (double)times[s].reduce_ns;
	return longest_ns * (double)(count + schedule->group[0]) < (double)PD_COST_MAX &&
	       PD_ORDER_PASSES * count * schedule->stage_count < MOST_OPS;
}

static void set_stage(struct pd_order_stage *out_p, const struct pd_schedule *schedule, const struct pd_stage_times *times,
		      int s)
{
	const struct pd_stage *stage = &schedule->plan->stages[s];

	*out_p = (struct pd_order_stage){
		.f_ns = times->forward_ns, .b_ns = times->backward_ns, .transfer_ns = times->way_ns,
		.f_bytes = 1, .w_bytes = -1,
	};
	for (int l = stage->first_layer; l < stage->first_layer + stage->layer_count && schedule->splits; l++)
		out_p->w_ns += pd_profile_weight_ns(&schedule->plan->profile->layers[l]);
	out_p->w_ns = pd_min(out_p->w_ns, out_p->b_ns);
	out_p->b_ns += times->again_ns - out_p->w_ns;
}

/* Returns the longest update of a rank, with the sums before it that nothing is computed beside. */
static int64_t update_ns(const struct pd_schedule *schedule, const struct pd_stage_times *times,
			 const int *position_of, int positions)
{
	int64_t *sums = pd_calloc((size_t)positions, sizeof(*sums)), most = 0;

	for (int s = 0; s < schedule->stage_count; s++) {
		sums[position_of[s]] += times[s].update_ns + times[s].reduce_ns;
		most = pd_max(most, sums[position_of[s]]);
	}
	free(sums);
	return most;
}

/* Returns when the first stage's gradient of microbatch i is there. */
static int64_t back(const struct pd_order_price *price, int64_t i)
{
	return *pd_order_time(&price->ends, PD_ORDER_I, 0, (int)i);
}

/* Returns what a group takes, of which as many microbatches are walked as a request has. */
static int64_t walk_ns(const struct pd_schedule *schedule, const struct pd_schedule *walked,
		       const struct pd_order_request *request, int64_t update)
{
	struct pd_order *order = pd_order_new(request->positions, request->stages, request->microbatches,
					      request->position_of);
	int64_t local = schedule->group[0] / schedule->plan->stages[0].replicas;
	int64_t filled = FILLING * (int64_t)request->positions, count = request->microbatches;
	struct pd_order_price price;
	int64_t ns, each;

	pd_schedule_add_order(order, walked->plan, walked, NULL);
	price = pd_order_price(order, request);
	each = count > 2 * filled ? (back(&price, count - filled) - back(&price, filled)) / (count - 2 * filled) : 0;
	ns = schedule->drains ? pd_order_value(&price, request) + (local - count) * each : local * each;
	pd_order_price_release(&price);
	pd_order_free(order);
	return ns + update;
}

double pd_walk_expect_ns(const struct pd_schedule *schedule, const struct pd_stage_times *times, int64_t *ticks_p)
{
	struct pd_plan part = *schedule->plan;
	int stages = schedule->stage_count, *position_of = pd_calloc((size_t)stages, sizeof(*position_of));
	int positions = pd_plan_positions(&part, position_of), r = part.stages[0].replicas;
	int64_t local = schedule->group[0] / r, enough = ENOUGH * (int64_t)positions;
	int64_t count = schedule->drains && (local < enough || part.order) ? local : enough;
	struct pd_order_stage *of = pd_calloc((size_t)stages, sizeof(*of));
	struct pd_order_request request = {
		.positions = positions, .stages = stages, .microbatches = (int)count, .position_of = position_of,
		.stage = of, .agrees = schedule->agrees, .pair_parts = llround(part.profile->pairs * PD_PAIR_PARTS),
	};
	struct pd_schedule *shorter = NULL;
	struct pd_error err;
	double ns = -1;

	for (int s = 0; s < stages; s++)
		set_stage(&of[s], schedule, &times[s], s);
	part.microbatches = count * r;
	if (is_walked(schedule, times, count)) {
		if (schedule->drains && count < local)
			shorter = pd_schedule_new(&part, &err);
		ns = (double)walk_ns(schedule, shorter ? shorter : schedule, &request,
				     update_ns(schedule, times, position_of, positions)) / (double)(local * r);
		*ticks_p += OP_TICKS * count * PD_ORDER_PASSES;
	}
	pd_schedule_free(shorter);
	free(of);
	free(position_of);
	return ns;
}
