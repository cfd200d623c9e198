/* SPDX-License-Identifier: Apache-2.0 */
/* Plans and times by the published formulas (terms.h); private to this folder. */
#pragma once

#include "planner/planner.h"
#include "planner/cut/partition.h"

/*
 * Returns the best partition by request->cost, whatever the memory.  Its stages need not be runs of
 * the profile's layers; the profile is brought into their order.  Fails with PD_EXIT_NO if there is
 * none.
 */
struct pd_partition *pd_published_partition(struct pd_profile *profile,
					    const struct pd_plan_request *request,
					    struct pd_error *err);

/*
 * Returns the time between two minibatches of a plan of costs->profile.  If its ranks are not whole
 * components of the levels, it is priced as if all devices were in a row, joined by the slowest link.
 */
int64_t pd_published_ns(enum pd_cost_kind kind, const struct pd_costs *costs,
			const struct pd_plan *plan);

/*
 * Returns a bound of all plans' times.  On one level, where any number of devices can be used, it
 * is the recurrence's; else that of computing alone.
 */
int64_t pd_published_bound_ns(const struct pd_profile *profile,
			      const struct pd_plan_request *request);
