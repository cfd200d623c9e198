/* SPDX-License-Identifier: Apache-2.0 */
/* Estimates the period of a plan without an event simulation; private to this folder. */
#ifndef PD_PLANNER_FLOW_H
#define PD_PLANNER_FLOW_H

#include "schedule/schedule.h"

/* Tells whether it knows the plan's schedule: all but interleaved, zb-h1 and nf1b. */
bool pd_flow_knows(const struct pd_plan *plan);

/*
 * Returns a lower bound of the plan's period: transfers wait only for data, not for links, and the
 * busiest link takes its time.  If links are not busy, it is the period of the event simulation.  0
 * for schedules that it does not know.
 */
int64_t pd_flow_bound_ns(const struct pd_schedule *schedule);

#endif
