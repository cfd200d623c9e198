/* SPDX-License-Identifier: Apache-2.0 */
/* The period of a plan without an event simulation; private to this folder. */
#ifndef PD_PLANNER_FLOW_H
#define PD_PLANNER_FLOW_H

#include "schedule/schedule.h"

/*
 * A replay in which no transfer waits for a link, only for data: see flow.c.  With
 * `contended`, transfers wait for links in the order in which the schedule lists them: near
 * what the event simulation says.  0 for schedules that it does not know (interleaved, zb-h1,
 * nf1b).
 */
int64_t pd_flow_period_ns(const struct pd_schedule *schedule, bool contended);

/* No period of the plan is below it: that of the uncontended flow, and the busiest link. */
int64_t pd_flow_bound_ns(const struct pd_schedule *schedule);

#endif
