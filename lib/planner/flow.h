/* SPDX-License-Identifier: Apache-2.0 */
/* The period of a plan without an event simulation; private to this folder. */
#ifndef PD_PLANNER_FLOW_H
#define PD_PLANNER_FLOW_H

#include "schedule/schedule.h"

/* Does it know the plan's schedule?  Not interleaved, zb-h1, nf1b. */
bool pd_flow_knows(const struct pd_plan *plan);

/*
 * No period of the plan is below it: no transfer waits for a link, only for data; and the
 * busiest link takes its time.  Where links are not crowded it is what the event simulation
 * says.  0 for schedules that it does not know.
 */
int64_t pd_flow_bound_ns(const struct pd_schedule *schedule);

#endif
