/* SPDX-License-Identifier: Apache-2.0 */
/* Any schedule as an order that a plan gives itself (plan/given_order.h). */
#pragma once

#include "schedule/list.h"

/*
 * Returns the plan as a document with schedule "ordered", and the order in which schedule computes, or, if that
 * is NULL, lists of one minibatch do.  Both are of the plan, whose weights are flush; predictions are left out.
 */
json_t *pd_plan_as_ordered(const struct pd_plan *plan, const struct pd_schedule *schedule,
			   const struct pd_lists *lists, struct pd_error *err);
