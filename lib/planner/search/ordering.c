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
#include "schedule/price.h"

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
	int64_t time_ns;
	enum pd_period_kind period_from;
};

/* Gives the plan an order, whatever it is, that says whether backwards are whole. */
static void set_any(struct ordering *o)
{
	struct pd_order *order = pd_order_new(o->request.positions, o->request.stages, o->request.microbatches,
					      o->position_of);

	for (int i = 0; i < order->microbatches; i++)
		for (int s = 0; s < order->stages; s++)
			pd_order_add(order, PD_ORDER_F, s, i);
	for (int i = 0; i < order->microbatches; i++)
		for (int s = order->stages - 1; s >= 0; s--) {
			pd_order_add(order, o->whole ? PD_ORDER_B : PD_ORDER_I, s, i);
			if (!o->whole)
				pd_order_add(order, PD_ORDER_W, s, i);
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
	struct pd_order *empty;

	plan->schedule = PD_SCHEDULE_ORDERED;
	plan->weights = PD_WEIGHTS_FLUSH;
	plan->startup = PD_STARTUP_FRUGAL;
	pd_order_free(plan->order);
	plan->order = NULL;
	empty = pd_plan_order_new(plan, err);
	if (!empty)
		return false;
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

/* Takes over an order, and keeps it if it fits and is faster than the best so far; tells whether it fits. */
static bool judge(struct ordering *o, struct pd_order *order, const char *from)
{
	struct pd_plan *plan = o->plan;
	enum pd_period_kind period_from;
	struct pd_error err;
	int64_t time_ns;
	bool fits;

	pd_order_free(plan->order);
	plan->order = order;
	fits = pd_candidate_fits(plan, o->limit_bytes);
	if (!fits || pd_judge_period(plan, &time_ns, &period_from, &err) < 0 || (o->best && time_ns >= o->time_ns))
		return fits;
	pd_order_free(o->best);
	o->best = pd_order_copy(order);
	o->time_ns = time_ns;
	o->period_from = period_from;
	snprintf(o->from, sizeof(o->from), "%s", from);
	return true;
}

/* Sets the pools to what the limit leaves, by an order that has been weighed last. */
static void set_pools(struct ordering *o, const struct pd_order_price *price)
{
	for (int s = 0; s < o->plan->stage_count; s++) {
		int q = o->position_of[s];

		o->pools[q] = price->pool_bytes[q] + o->limit_bytes - o->plan->stages[s].memory_bytes;
	}
}

/* Judges what a search finds; returns false if it is to be made again, with other pools. */
static bool try(struct ordering *o)
{
	struct pd_order_found found = pd_order_search(&o->request);
	int fit = 0, count = found.count;

	for (int i = count - 1; i >= 0; i--) {
		struct pd_order *order = found.best[i].order;

		found.best[i].order = NULL;
		if (o->whole)
			pd_order_join(order);
		fit += judge(o, order, found.best[i].seed);
		if (i == 0 && fit < count)
			set_pools(o, &found.best[0].price);
	}
	pd_order_found_release(&found);
	return fit > 0 || count == 0;
}

static void judge_formulas(struct ordering *o)
{
	int p = o->request.positions, m = o->request.microbatches;
	bool loop = true, v = o->request.stages == 2 * p;

	for (int s = 0; s < o->request.stages; s++) {
		loop &= o->position_of[s] == s;
		v &= o->position_of[s] == pd_order_v(p, s);
	}
	if (loop && o->whole)
		judge(o, pd_order_1f1b(p, m), "1F1B");
	else if (loop)
		judge(o, pd_order_zb_h1(p, m), "ZB-H1");
	else if (v && !o->whole)
		judge(o, pd_order_zb_v(p, m), "ZB-V");
	if (v && !o->whole && o->request.pair_parts > 0)
		judge(o, pd_order_dualpipe_v(p, m), "DualPipeV");
}

static void search(struct ordering *o)
{
	set_stages(o);
	for (int q = 0; q < o->request.positions; q++)
		o->pools[q] = INT64_MAX;
	for (int i = 0; i < MOST_TRIES && !try(o); i++)
		;
	judge_formulas(o);
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
