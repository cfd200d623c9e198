/* SPDX-License-Identifier: Apache-2.0 */
/* Plans and times by the published formulas (terms.h); private to this folder. */
#ifndef PD_PLANNER_PUBLISHED_H
#define PD_PLANNER_PUBLISHED_H

#include "planner/planner.h"
#include "planner/search.h"

/*
 * The best layout under request->cost, whatever the memory.  Its stages need not be runs of
 * the profile's layers: profile is brought into their order.  Fails with PD_EXIT_NO when
 * there is none.
 */
struct pd_layout *pd_published_layout(struct pd_profile *profile,
				      const struct pd_plan_request *request,
				      struct pd_error *err);

/*
 * A plan's time between two minibatches.  One whose ranks do not lie in whole components of
 * the levels is priced as if all devices were in a row, joined by the slowest link.
 */
int64_t pd_published_ns(enum pd_cost_kind kind, const struct pd_plan *plan);

/* One stage on all devices of the topology. */
int64_t pd_published_data_parallel_ns(const struct pd_profile *profile,
				      const struct pd_plan_request *request);

/* A time that no plan goes below: on one level, where any number of devices can be used, the
 * recurrence's; else that of computing alone. */
int64_t pd_published_bound_ns(const struct pd_profile *profile,
			      const struct pd_plan_request *request);

#endif
