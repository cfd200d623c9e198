/* SPDX-License-Identifier: Apache-2.0 */
/* What a reader would ask about beside the plan; private to this folder. */
#ifndef PD_PLANNER_ALTERNATIVES_H
#define PD_PLANNER_ALTERNATIVES_H

#include "planner/planner.h"
#include "planner/search.h"

/*
 * Fills plan->predicted.alternatives and sent_bytes_per_sample.  plan->predicted has its
 * period and that of data parallelism.  costs: of plan->profile, kind simulated, with the limit
 * of memory.  Alternatives that cannot be are left out.
 */
int pd_alternatives_find(struct pd_plan *plan, const struct pd_plan_request *request,
			 const struct pd_costs *costs, struct pd_error *err);

/*
 * The stages of GPipe (2018): count of them, one rank each, whose computing times differ as
 * little as can be: least variance.  NULL where its tables would be too large.
 */
struct pd_layout *pd_even_layout(const struct pd_costs *costs, int count);

/* The same with the least time of the slowest stage or link, every link being so fast. */
struct pd_layout *pd_straight_layout(const struct pd_costs *costs, int count,
				     int64_t bandwidth_bytes_per_s);

/* Bytes that all ranks together send per sample: activations, gradients, all-reduces. */
double pd_sent_bytes_per_sample(const struct pd_plan *plan);

#endif
