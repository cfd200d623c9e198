/* SPDX-License-Identifier: Apache-2.0 */
/* Any schedule as an order that a plan gives itself (plan/given_order.h). */
#pragma once

#include "schedule/list.h"

/*
 * Adds what the first replicas of all positions compute of the order's microbatches, by a schedule of the plan or, if
 * that is NULL, by lists.
 */
void pd_schedule_add_order(struct pd_order *order, const struct pd_plan *plan, const struct pd_schedule *schedule,
			   const struct pd_lists *lists);
/*
 * Returns the plan as a document with schedule "ordered", and the order in which schedule computes, or, if that
 * is NULL, lists of one minibatch do.  Both are of the plan, whose weights are flush; predictions are left out.
 */
json_t *pd_plan_as_ordered(const struct pd_plan *plan, const struct pd_schedule *schedule,
			   const struct pd_lists *lists, struct pd_error *err);
