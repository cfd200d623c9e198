/* SPDX-License-Identifier: Apache-2.0 */
/* The judge of plans: the event simulation of pd-replay; private to this folder. */
#ifndef PD_PLANNER_JUDGE_H
#define PD_PLANNER_JUDGE_H

#include "base/error.h"
#include "plan/plan.h"
#include "planner/search.h"

/*
 * The steady period of a plan, rounded up: replayed until it comes back to a state in which it was
 * (lib/trace/recurrence) or repeats itself for longer than minibatches are in flight, or for
 * pd_steady_microbatches where it does neither.  Where that would be more than PD_JUDGE_WORK
 * operations, or past the end of virtual time, it is what pd_judge_expect says.
 *
 * A plan that is only compared with one of a known time, rival_ns, is replayed until it is clear
 * that it is slower: the figure is then about right.  PD_NEVER (search.h): as above.
 */
#define PD_JUDGE_WORK INT64_C(4000000)
int pd_judge_period(const struct pd_plan *plan, int64_t rival_ns, int64_t *period_ns_p,
		    struct pd_error *err);

/* Operations of that replay, about. */
int64_t pd_judge_work(const struct pd_plan *plan);

/* Without a replay: the bound of flow.c, or where that does not know the schedule what predict.c
 * says. */
int pd_judge_expect(const struct pd_plan *plan, int64_t *period_ns_p, struct pd_error *err);

#endif
