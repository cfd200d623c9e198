/* SPDX-License-Identifier: Apache-2.0 */
/* Plans to compare with the plan; private to this folder. */
#ifndef PD_PLANNER_ALTERNATIVES_H
#define PD_PLANNER_ALTERNATIVES_H

#include "planner/search/candidate.h"

/*
 * Fills plan->predicted.alternatives and sent_bytes_per_sample.  plan->predicted already has the
 * periods of the plan and of data parallelism; its profile is the task's.  Impossible alternatives are
 * left out.
 */
int pd_alternatives_find(struct pd_plan *plan, const struct pd_task *task, struct pd_error *err);

#endif
