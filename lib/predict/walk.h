/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The period of schedules that have several stages on a rank, or backwards in two parts, from a walk
 * over what the ranks of a path compute, as early as they can, in the schedule's own order
 * (order/request.h).  Leads of stages, which flow.c and cycle.h go by, say nothing there.  Private to
 * this folder.
 */
#pragma once

#include "predict/cycle.h"

/*
 * Returns about what a microbatch takes, or -1 where a walk would be too long; adds the ticks that it took to know,
 * of all stages (flow.c).  Transfers wait for nothing but what they send, and replicas are alike.
 */
double pd_walk_expect_ns(const struct pd_schedule *schedule, const struct pd_stage_times *times, int64_t *ticks_p);
