/* SPDX-License-Identifier: Apache-2.0 */
/* Estimates the period of a plan without an event simulation; private to this folder. */
#pragma once

#include "schedule/schedule.h"

/* Tells whether it knows the plan's schedule: all but interleaved, zb-h1 and nf1b. */
bool pd_flow_knows(const struct pd_plan *plan);

struct pd_expected {
	int64_t bound_ns;               /* no replay settles below this: it prunes */
	int64_t estimate_ns;            /* about what a replay takes: it ranks; not below the bound */
	int64_t steps;                  /* what it took to know (base/effort.h) */
};

/* Returns a time that no period of a plan is below: of its busiest rank, or link, for which see pd_links_busiest_ns(). */
int64_t pd_flow_least_ns(const struct pd_schedule *schedule, int64_t busiest_ns);

/*
 * Expects what follows if transfers wait only for data, not for links, and the busiest link and rank take
 * their time.  If links are not busy, both are the period of the event simulation.  For other schedules
 * the bound is what links and ranks take; the estimate is, where ranks have several stages, that of a walk over the
 * schedule (walk.h), else that of 1F1B, for zb-h1 by the recurrence, else by the cycles of cycle.h.  Where
 * the bound would take as long again it is -1, unless it is asked for.
 * busiest_ns: what pd_links_busiest_ns() returns, which warm-ups do not change.
 */
struct pd_expected pd_flow_expect(const struct pd_schedule *schedule, bool bound, int64_t busiest_ns);
