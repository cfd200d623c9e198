/* SPDX-License-Identifier: Apache-2.0 */
/* Gives a plan the best order that is found for its stages and for the memory of its devices. */
#pragma once

#include "plan/plan.h"

/*
 * Makes the plan one of schedule "ordered" with weights flush: of what pd_order_search() finds for what its passes and
 * transfers take, with whole backwards and with those in two parts, and of the orders of all schedules that go with its
 * placement, the order of the shortest replay in which no rank takes more than limit_bytes, of equal ones that of least
 * memory.  Stages and ranks stay.  Returns
 * false, with the reason, where replicas differ or nothing fits.  Sets the time and the memory of the stages.
 */
bool pd_ordering_find(struct pd_plan *plan, int64_t limit_bytes, int64_t *time_ns_p, struct pd_error *err);
