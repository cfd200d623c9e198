/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Orders that plans give themselves (plan/given_order.h).  Each computation of a group has a slot, by which
 * the order was certified (order/order.h): slots ascend along each rank's list and from what is needed to what
 * needs it.  Slots of 64 ticks leave room between for all that follows from computations:
 *
 *     forward_s(n) = 64 slot(F) + 4,  backward_s(n) = 64 slot(I) + 8,  weights_s(n) = 64 slot(W) + 12
 *
 * A replica's i-th microbatch of a group is n = i r + replica.
 */
#include "schedule/pattern.h"

#include "schedule/count.h"

#include <inttypes.h>

#define MOST_SLOTS (1 << 24)    /* microbatches times stages, of which tables are kept */

static int shape(struct pd_schedule *schedule, struct pd_error *err)
{
	const struct pd_plan *plan = schedule->plan;
	int64_t local = pd_pattern_local(schedule), most = 0;

	if (!plan->order)
		return pd_error_input(err, "%s: schedule \"%s\" needs an order in the plan, as pd-schedule "
				      "--format=plan writes it", pd_plan_name(plan),
				      pd_schedule_kind_name[plan->schedule]);
	if (local * schedule->stage_count > MOST_SLOTS)
		return pd_error_input(err, "%s: microbatches: an order is of at most %d microbatches times stages, "
				      "found %" PRId64 " times %d", pd_plan_name(plan), MOST_SLOTS, local,
				      schedule->stage_count);
	if (pd_order_certify(plan->order, &schedule->slot_of, err) < 0)
		return pd_error_prefix(err, "%s: order", pd_plan_name(plan));
	for (int64_t k = 0; k < (int64_t)PD_ORDER_SPLIT * schedule->stage_count * local; k++)
		most = schedule->slot_of.of[k] > most ? schedule->slot_of.of[k] : most;
	schedule->round = local;
	schedule->group_span = PD_SLOT_TICKS * (most + 4);
	for (int s = 0; s < schedule->stage_count; s++) {
		schedule->slots[s] = pd_count_in_flight(schedule, s, local);
		schedule->kept[s] = pd_count_kept(schedule, s, local);
		schedule->warmup[s] = schedule->first[s] = schedule->slots[s] - 1;
	}
	return 0;
}

static int64_t tick(const struct pd_schedule *schedule, enum pd_compute what, int s, int64_t n)
{
	static const struct {
		enum pd_order_pass pass;
		int64_t tick;
	} of[] = {
		[PD_COMPUTE_FORWARD] = { PD_ORDER_F, 4 }, [PD_COMPUTE_BACKWARD] = { PD_ORDER_I, 8 },
		[PD_COMPUTE_WEIGHTS] = { PD_ORDER_W, 12 },
	};
	int i = (int)(n / pd_pattern_replicas(schedule, s));

	return PD_SLOT_TICKS * *pd_order_time(&schedule->slot_of, of[what].pass, s, i) + of[what].tick;
}

const struct pd_pattern pd_pattern_ORDERED = { .shape = shape, .tick = tick, .crowds = true };
