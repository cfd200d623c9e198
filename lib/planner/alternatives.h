/* SPDX-License-Identifier: Apache-2.0 */
/* Plans to compare with the plan; private to this folder. */
#ifndef PD_PLANNER_ALTERNATIVES_H
#define PD_PLANNER_ALTERNATIVES_H

#include "planner/planner.h"
#include "planner/search.h"

/*
 * Fills plan->predicted.alternatives and sent_bytes_per_sample.  plan->predicted already has the
 * periods of the plan and of data parallelism.  costs are those of plan->profile, of kind
 * simulated, with the memory limit.  Impossible alternatives are left out.
 */
int pd_alternatives_find(struct pd_plan *plan, const struct pd_plan_request *request,
			 const struct pd_costs *costs, struct pd_error *err);

/*
 * Returns the stages of GPipe (2018): count of them, one rank each, whose computing times have the
 * least variance.  NULL if its tables would be too large.
 */
struct pd_partition *pd_even_partition(const struct pd_costs *costs, int count);

/* Does the same with the least time of the slowest stage or link; every link has this bandwidth. */
struct pd_partition *pd_straight_partition(const struct pd_costs *costs, int count,
					   int64_t bandwidth_bytes_per_s);

/*
 * Does the same for at most so many stages, the fewest that are as fast, if they fit with the usual
 * warm-ups into costs' memory limit; NULL if none do.
 */
struct pd_partition *pd_straight_most(const struct pd_costs *costs, int count,
				      int64_t bandwidth_bytes_per_s);

#endif
