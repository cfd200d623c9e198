/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search knows what stages keep of each microbatch.  All else that a rank takes is counted when there is an order,
 * and hardly depends on it: what is left of the device is what its stages may keep.  The search does not know
 * that transfers share links; replays judge what it finds.
 */
#include "planner/search/ordering.h"

#include "base/mem.h"
#include "order/made.h"
#include "order/search.h"
#include "plan/given_order.h"
#include "planner/search/candidate.h"
#include "predict/cycle.h"
#include "predict/judge.h"
#include "schedule/as_order.h"
#include "schedule/price.h"
#include "schedule/schedule.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define MOST_TRIES 4            /* searches with what was left of the device after the one before */

struct ordering {
	struct pd_plan *plan;
	int64_t limit_bytes;
	struct pd_order_request request;
	struct pd_order_stage *stages;
	int *position_of;
	int64_t *pools;
	bool whole;                     /* backwards are not in two parts, and keep less */
	/* The best so far. */
	struct pd_order *best;
	char from[48];
	int64_t time_ns, bytes;
	enum pd_period_kind period_from;
};

/* Gives the plan the order that keeps least, one microbatch at a time; it says whether backwards are whole. */
static void set_any(struct ordering *o)
{
	struct pd_order *order = pd_order_new(o->request.positions, o->request.stages, o->request.microbatches,
					      o->position_of);

	for (int i = 0; i < order->microbatches; i++) {
		for (int s = 0; s < order->stages; s++)
			pd_order_add(order, PD_ORDER_F, s, i);
		for (int s = order->stages - 1; s >= 0; s--) {
			pd_order_add(order, o->whole ? PD_ORDER_B : PD_ORDER_I, s, i);
			if (!o->whole)
				pd_order_add(order, PD_ORDER_W, s, i);
		}
	}
	pd_order_free(o->plan->order);
	o->plan->order = order;
}

static void set_stages(struct ordering *o)
{
	struct pd_wiring *wiring = pd_wiring_new(o->plan);
	struct pd_prices prices;

	set_any(o);
	pd_prices_init(&prices, o->plan, wiring);
	for (int s = 0; s < o->plan->stage_count; s++) {
		const struct pd_stage_price *price = &prices.stages[s];
		bool again = o->plan->stages[s].recompute;
		int64_t bytes = price->loaded_bytes + price->arriving_bytes, again_ns = again ? price->again_ns : 0;

		bytes += again ? price->carried_bytes + price->kept_bytes + price->leaving_bytes : price->slot_bytes;
		bytes = pd_max(bytes, 1);
		o->stages[s] = (struct pd_order_stage){
			.f_ns = price->forward_ns,
			.b_ns = again_ns + (o->whole ? price->backward_ns : price->backward_input_ns),
			.w_ns = o->whole ? 0 : price->backward_weight_ns,
			.transfer_ns = pd_stage_way_ns(o->plan, wiring, s),
			.f_bytes = bytes, .w_bytes = -bytes, .slot_bytes = again ? 0 : price->slot_bytes,
			.again_bytes = again ? price->slot_bytes : 0,
		};
	}
	pd_prices_release(&prices);
	pd_wiring_free(wiring);
}

static bool begin(struct ordering *o, struct pd_error *err)
{
	struct pd_plan *plan = o->plan;
	size_t stages = (size_t)plan->stage_count;
	struct pd_order *empty = pd_plan_order_new(plan, err);

	if (!empty)
		return false;
	plan->schedule = PD_SCHEDULE_ORDERED;
	plan->weights = PD_WEIGHTS_FLUSH;
	plan->startup = PD_STARTUP_FRUGAL;
	pd_order_free(plan->order);
	plan->order = NULL;
	o->stages = pd_calloc(stages, sizeof(*o->stages));
	o->position_of = pd_memdup(empty->position_of, stages * sizeof(*o->position_of));
	o->pools = pd_calloc((size_t)empty->positions, sizeof(*o->pools));
	o->request = (struct pd_order_request){
		.positions = empty->positions, .stages = plan->stage_count, .microbatches = empty->microbatches,
		.position_of = o->position_of, .stage = o->stages, .pool_bytes = o->pools,
		.agrees = pd_plan_agrees(plan), .pair_parts = llround(plan->profile->pairs * PD_PAIR_PARTS),
	};
	pd_order_free(empty);
	return true;
}

/*
 * Takes over an order, and keeps it if it fits and is faster than the best so far, or as fast in less memory; tells
 * whether it fits.
 */
static bool judge(struct ordering *o, struct pd_order *order, const char *from)
{
	struct pd_plan *plan = o->plan;
	enum pd_period_kind period_from;
	struct pd_error err;
	int64_t time_ns, bytes;

	pd_order_free(plan->order);
	plan->order = order;
	if (!pd_candidate_fits(plan, o->limit_bytes))
		return false;
	bytes = pd_candidate_fullest(plan, NULL);
	if (pd_judge_period(plan, &time_ns, &period_from, &err) < 0 ||
	    (o->best && (time_ns > o->time_ns || (time_ns == o->time_ns && bytes >= o->bytes))))
		return true;
	pd_order_free(o->best);
	o->best = pd_order_copy(order);
	o->time_ns = time_ns;
	o->bytes = bytes;
	o->period_from = period_from;
	snprintf(o->from, sizeof(o->from), "%s", from);
	return true;
}

/*
 * Lowers the pools to what the limit leaves, by an order that has been weighed last, or sets them; returns whether
 * any changes.
 */
static bool set_pools(struct ordering *o, const struct pd_order_price *price)
{
	bool changed = false;

	for (int s = 0; s < o->plan->stage_count; s++) {
		int64_t limit = pd_stage_limit(o->plan, s, o->limit_bytes);
		int64_t *pool = &o->pools[o->position_of[s]], before = *pool;

		if (limit < INT64_MAX)
			*pool = pd_min(*pool, price->pool_bytes[o->position_of[s]] + limit - o->plan->stages[s].memory_bytes);
		changed |= *pool != before;
	}
	return changed;
}

/* Sets the pools by the order that takes least: what a rank takes beside them hardly depends on the order. */
static void begin_pools(struct ordering *o)
{
	struct pd_order_price price = pd_order_price(o->plan->order, &o->request);
	struct pd_error err;

	for (int q = 0; q < o->request.positions; q++)
		o->pools[q] = INT64_MAX;
	if (pd_candidate_weigh(o->plan, &err))
		set_pools(o, &price);
	pd_order_price_release(&price);
}

/*
 * Judges what a search finds, the best last; returns false if it is to be made again, with other pools: what it finds
 * best does not fit.
 */
static bool try(struct ordering *o)
{
	struct pd_order_found found = pd_order_search(&o->request);
	bool done = true;

	for (int i = found.count - 1; i >= 0; i--) {
		struct pd_order *order = found.best[i].order;

		found.best[i].order = NULL;
		if (o->whole)
			pd_order_join(order);
		if (!judge(o, order, found.best[i].seed) && i == 0)
			done = !set_pools(o, &found.best[0].price);
	}
	pd_order_found_release(&found);
	return done;
}

/* Returns the order in which a plan computes by its schedule; NULL where its schedule refuses it. */
static struct pd_order *own_order(const struct pd_plan *plan, const int *position_of)
{
	struct pd_error err;
	struct pd_schedule *schedule = pd_schedule_new(plan, &err);
	int positions = 0, local = (int)(plan->microbatches / plan->stages[0].replicas);
	struct pd_order *order;

	if (!schedule)
		return NULL;
	for (int s = 0; s < plan->stage_count; s++)
		positions = (int)pd_max(positions, position_of[s] + 1);
	order = pd_order_new(positions, plan->stage_count, local, position_of);
	pd_schedule_add_order(order, plan, schedule, NULL);
	pd_schedule_free(schedule);
	return order;
}

/* Tells whether a schedule puts as many chunks on the ranks as the plan, in the same way. */
static bool is_placed(const struct ordering *o, enum pd_schedule_kind schedule)
{
	int positions = o->request.positions, stages = o->request.stages;

	if (pd_schedule_has(schedule, PD_FACT_SHARES) ? stages == positions : stages > positions)
		return false;
	if (pd_schedule_has(schedule, PD_FACT_V) && stages != 2 * positions)
		return false;
	for (int s = 0; s < stages; s++)
		if (o->position_of[s] != pd_schedule_position(schedule, positions, s))
			return false;
	return true;
}

/* Judges the orders of all schedules that go with the plan's stages and, where a search makes none, with pairs. */
static void judge_schedules(struct ordering *o)
{
	struct pd_plan *plan = o->plan;

	for (int kind = 0; kind < PD_SCHEDULE_KINDS; kind++) {
		enum pd_schedule_kind schedule = (enum pd_schedule_kind)kind;
		struct pd_order *order;

		if (!pd_schedule_goes_with(schedule, PD_WEIGHTS_FLUSH) ||
		    pd_schedule_has(schedule, PD_FACT_ORDERED) ||
		    pd_schedule_has(schedule, PD_FACT_ALONE) || !is_placed(o, schedule) ||
		    pd_schedule_has(schedule, PD_FACT_SPLITS) == o->whole ||
		    (pd_schedule_has(schedule, PD_FACT_PAIRS) && o->request.pair_parts == 0))
			continue;
		plan->schedule = schedule;
		order = own_order(plan, o->position_of);
		plan->schedule = PD_SCHEDULE_ORDERED;
		if (order)
			judge(o, order, pd_schedule_kind_name[schedule]);
	}
}

static void search(struct ordering *o)
{
	set_stages(o);
	begin_pools(o);
	for (int i = 0; i < MOST_TRIES && !try(o); i++)
		;
	judge_schedules(o);
}

bool pd_ordering_find(struct pd_plan *plan, int64_t limit_bytes, int64_t *time_ns_p, struct pd_error *err)
{
	struct ordering o = { .plan = plan, .limit_bytes = limit_bytes };

	if (!begin(&o, err))
		return false;
	for (int whole = 0; whole < 2; whole++) {
		o.whole = whole;
		search(&o);
	}
	free(o.stages);
	free(o.position_of);
	free(o.pools);
	if (!o.best) {
		pd_error_no(err, "no order fits: a device has no room for what it keeps of one microbatch");
		return false;
	}
	pd_order_free(plan->order);
	plan->order = o.best;
	plan->predicted.period_from = o.period_from;
	snprintf(plan->predicted.order_from, sizeof(plan->predicted.order_from), "%s", o.from);
	*time_ns_p = o.time_ns;
	return pd_candidate_weigh(plan, err);
}
