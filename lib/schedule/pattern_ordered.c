/* SPDX-License-Identifier: Apache-2.0 */
/* Orders that plans give themselves (plan/given_order.h). */
#include "schedule/slot_table.h"

static int shape(struct pd_schedule *schedule, struct pd_error *err)
{
	const struct pd_plan *plan = schedule->plan;

	if (!plan->order)
		return pd_error_input(err, "%s: schedule \"%s\" needs an order in the plan, as pd-schedule "
				      "--format=plan writes it", pd_plan_name(plan),
				      pd_schedule_kind_name[plan->schedule]);
	return pd_slot_table_shape(schedule, plan->order, err);
}

const struct pd_pattern pd_pattern_ORDERED = {
	.shape = shape, .tick = pd_slot_table_tick, .crowds = true,
	.beside = pd_slot_table_beside, .whole = pd_slot_table_whole,
};
