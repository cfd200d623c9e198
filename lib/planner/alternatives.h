/* SPDX-License-Identifier: Apache-2.0 */
/* Plans to compare with the plan; private to this folder. */
#ifndef PD_PLANNER_ALTERNATIVES_H
#define PD_PLANNER_ALTERNATIVES_H

#include "planner/planner.h"
#include "planner/cut/partition.h"

/*
 * Fills plan->predicted.alternatives and sent_bytes_per_sample.  plan->predicted already has the
 * periods of the plan and of data parallelism.  costs are those of plan->profile, of kind
 * simulated, with the memory limit.  Impossible alternatives are left out.
 */
int pd_alternatives_find(struct pd_plan *plan, const struct pd_plan_request *request,
			 const struct pd_costs *costs, struct pd_error *err);

#endif
