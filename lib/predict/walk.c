/* SPDX-License-Identifier: Apache-2.0 */
#include "predict/walk.h"

#include "base/mem.h"
#include "memory/buckets.h"
#include "order/request.h"
#include "order/run.h"
#include "order/walk.h"
#include "plan/given_order.h"
#include "predict/turns.h"
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
static bool is_walked(const struct pd_schedule *schedule, const struct pd_stage_times *times,
		      int64_t count)
{
	double longest_ns = 0;

	for (int s = 0; s < schedule->stage_count; s++)
		longest_ns += (double)times[s].forward_ns + (double)times[s].backward_ns +
			      (double)times[s].again_ns + 2 * (double)times[s].way_ns +
			      (double)times[s].update_ns + (double)times[s].reduce_ns;
	return longest_ns * (double)(count + schedule->group[0]) < (double)PD_COST_MAX &&
	       PD_ORDER_PASSES * count * schedule->stage_count < MOST_OPS;
}

static void set_stage(struct pd_order_stage *out_p, const struct pd_schedule *schedule,
		      const struct pd_stage_times *times, int s)
{
	const struct pd_stage *stage = &schedule->plan->stages[s];

	*out_p = (struct pd_order_stage){
		.f_ns = times->forward_ns, .b_ns = times->backward_ns, .transfer_ns = times->way_ns,
		.f_bytes = 1, .w_bytes = -1,
	};
	for (int l = stage->first_layer;
	     l < stage->first_layer + stage->layer_count && schedule->splits; l++)
		out_p->w_ns += pd_profile_weight_ns(&schedule->plan->profile->layers[l]);
	out_p->w_ns = pd_min(out_p->w_ns, out_p->b_ns);
	out_p->b_ns += times->again_ns - out_p->w_ns;
}

/* What is known while a pipeline is gone through, the last of those that take turns on links. */
struct lane {
	const struct pd_order_request *request;
	bool pairs;                             /* some operations run together */
	struct pd_order_times ends,
		arrivals; /* arrivals: at the next stage, of F, or the one before, of I */
	struct pd_turns *turns;                 /* of the link from each stage to the next */
	int64_t *now_ns;                        /* per position: its last operation ends */
	int64_t *free_ns; /* the link by which F and I leave is free: of a position or, where pairs
			     send both ways at once, of a stage and way */
	int64_t *spread_ns; /* per stage and way: the last pipeline is behind the first */
};

static void lane_init(struct lane *lane, const struct pd_schedule *schedule,
		      const struct pd_order_request *request)
{
	size_t stages = (size_t)request->stages, positions = (size_t)request->positions;
	const struct pd_wiring *wiring = schedule->wiring;

	*lane = (struct lane){
		.request = request, .pairs = pd_schedule_has(schedule->plan->schedule, PD_FACT_PAIRS),
		.ends = pd_order_times_new(request->stages, request->microbatches),
		.arrivals = pd_order_times_new(request->stages, request->microbatches),
		.turns = pd_calloc(stages, sizeof(*lane->turns)),
		.now_ns = pd_calloc(positions, sizeof(int64_t)),
		.free_ns = pd_calloc(2 * stages + positions, sizeof(int64_t)), .spread_ns = pd_calloc(2 * stages, sizeof(int64_t)),
	};
	for (int l = 0; l < wiring->link_count; l++)
		if (wiring->links[l].to == wiring->links[l].from + 1)
			lane->turns[wiring->links[l].from] = pd_turns_of(schedule->plan, &wiring->links[l]);
}

static void lane_release(struct lane *lane)
{
	pd_order_times_release(&lane->ends);
	pd_order_times_release(&lane->arrivals);
	free(lane->turns);
	free(lane->now_ns);
	free(lane->free_ns);
	free(lane->spread_ns);
}

/* Sends what an F or I made, if it goes to another position. */
static void send(struct lane *lane, enum pd_order_pass pass, int from, int microbatch,
		 int64_t ready_ns)
{
	const struct pd_order_request *request = lane->request;
	int to = from + (pass == PD_ORDER_F ? 1 : -1), hop = pd_min(from, to);
	int64_t *spread_ns = &lane->spread_ns[2 * from + (pass != PD_ORDER_F)], arrival_ns = ready_ns;

	if (to < 0)
		return;
	if (to == request->stages) {    /* it turns */
		spread_ns[1] = pd_max(spread_ns[1], spread_ns[0]);
		return;
	}
	if (request->position_of[from] != request->position_of[to])
		arrival_ns = pd_turns_arrival(&lane->turns[hop], ready_ns, spread_ns,
					      &lane->free_ns[lane->pairs ? 2 * from + (pass != PD_ORDER_F)
							     : 2 * request->stages + request->position_of[from]]);
	*pd_order_time(&lane->arrivals, pass, from, microbatch) = arrival_ns;
	lane->spread_ns[2 * to + (pass != PD_ORDER_F)] = *spread_ns;
}

/* Returns when what an operation needs of another stage is there. */
static int64_t needed_ns(const struct lane *lane, const struct pd_order_op *op)
{
	if (op->pass == PD_ORDER_W ||
	    (op->pass == PD_ORDER_F ? op->stage == 0 : op->stage + 1 == lane->request->stages))
		return 0;
	return op->pass == PD_ORDER_F ? *pd_order_time(&lane->arrivals, PD_ORDER_F, op->stage - 1, op->microbatch)
				      : *pd_order_time(&lane->arrivals, PD_ORDER_I, op->stage + 1, op->microbatch);
}

/* Computes an operation whose inputs have been, or a pair. */
static void compute(struct lane *lane, const struct pd_order_op *op)
{
	const struct pd_order_request *request = lane->request;
	int64_t *now_ns = &lane->now_ns[request->position_of[op->stage]], ns[2] = { 0 };

	for (int half = 0; half <= op->beside; half++) {
		*now_ns = pd_max(*now_ns, needed_ns(lane, op + half));
		ns[half] = pd_order_cost(&request->stage[op[half].stage], (enum pd_order_pass)op[half].pass);
	}
	*now_ns += op->beside && request->pair_parts > 0 ? pd_pair_ns(ns[0], ns[1], request->pair_parts) : ns[0] + ns[1];
	for (int half = 0; half <= op->beside; half++) {
		enum pd_order_pass pass = op[half].pass == PD_ORDER_B ? PD_ORDER_I : (enum pd_order_pass)op[half].pass;

		*pd_order_time(&lane->ends, pass, op[half].stage, op[half].microbatch) = *now_ns;
		if (pass != PD_ORDER_W)
			send(lane, pass, op[half].stage, op[half].microbatch, *now_ns);
	}
}

static void lane_run(struct lane *lane, const struct pd_order *order)
{
	struct pd_order_walk walk = pd_order_walk_begin(order);
	const struct pd_order_op *op;
	int position;

	while ((op = pd_order_walk_next(&walk, &position)))
		compute(lane, op);
	pd_order_walk_release(&walk);
}

/* Returns when the first stage's gradient of microbatch i is there. */
static int64_t back(const struct lane *lane, int64_t i)
{
	return *pd_order_time(&lane->ends, PD_ORDER_I, 0, (int)i);
}

/* Returns when a stage's last operation of a group ends. */
static int64_t last_ns(const struct lane *lane, int s)
{
	int i = lane->request->microbatches - 1;

	return pd_max(*pd_order_time(&lane->ends, PD_ORDER_I, s, i), *pd_order_time(&lane->ends, PD_ORDER_W, s, i));
}

/* Returns the time of a stage's sum, beside which its replicas compute nothing. */
static int64_t sum_ns(const struct pd_plan *plan, const struct pd_stage_times *times, int s)
{
	struct pd_sum sum = pd_plan_stage_sum(plan, s);

	return times[s].reduce_ns > 0 ? pd_max(times[s].reduce_ns, pd_sum_grouped_ns(&sum)) : 0;
}

/*
 * Returns what a group takes with the sums and updates behind it, of the rank that takes longest or, where all agree, of
 * all.  The sum of a stage begins when its last gradient is there, and nothing waits for it but updates.
 */
static int64_t group_ns(const struct lane *lane, const struct pd_plan *plan,
			const struct pd_stage_times *times)
{
	const struct pd_order_request *request = lane->request;
	int64_t most = 0, end = 0;

	for (int q = 0; q < request->positions; q++) {
		int64_t first = INT64_MAX, summed = 0, update = 0;

		for (int s = request->stages - 1; s >= 0; s--) {
			if (request->position_of[s] != q)
				continue;
			first = pd_min(first, *pd_order_time(&lane->ends, PD_ORDER_F, s, 0) - request->stage[s].f_ns -
				       lane->spread_ns[2 * s]);
			summed = pd_max(summed, last_ns(lane, s)) + sum_ns(plan, times, s);
			update += times[s].update_ns;
		}
		most = pd_max(most, summed + update - first);
		end = pd_max(end, summed + update);
	}
	return request->agrees ? end : most;
}

/* Returns what a group takes, of which as many microbatches are walked as a request has. */
static int64_t walk_ns(const struct pd_schedule *schedule, const struct pd_schedule *walked,
		       const struct pd_order_request *request, const struct pd_stage_times *times)
{
	struct pd_order *order = pd_order_new(request->positions, request->stages, request->microbatches,
					      request->position_of);
	int64_t local = schedule->group[0] / schedule->plan->stages[0].replicas;
	int64_t filled = FILLING * (int64_t)request->positions, count = request->microbatches;
	struct lane lane;
	int64_t ns, each, update = 0;

	pd_schedule_add_order(order, walked->plan, walked, NULL);
	lane_init(&lane, schedule, request);
	lane_run(&lane, order);
	each = count > 2 * filled ? (back(&lane, count - filled) - back(&lane, filled)) / (count - 2 * filled) : 0;
	for (int s = 0; s < request->stages; s++)
		update = pd_max(update, times[s].update_ns + times[s].reduce_ns);
	ns = schedule->drains ? group_ns(&lane, schedule->plan, times) + (local - count) * each : local * each + update;
	lane_release(&lane);
	pd_order_free(order);
	return ns;
}

double pd_walk_expect_ns(const struct pd_schedule *schedule, const struct pd_stage_times *times,
			 int64_t *ticks_p)
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
				     times) / (double)(local * r);
		*ticks_p += OP_TICKS * count * PD_ORDER_PASSES;
	}
	pd_schedule_free(shorter);
	free(of);
	free(position_of);
	return ns;
}
