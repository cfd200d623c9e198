/* SPDX-License-Identifier: Apache-2.0 */
/* Judges plans by the event simulation of pd-replay. */
#pragma once

#include "base/error.h"
#include "plan/plan.h"
#include "predict/flow.h"
#include "schedule/schedule.h"

/*
 * Returns the steady period of a plan, rounded up.  It is replayed until it returns to an earlier
 * state (lib/trace/recurrence), or repeats for longer than minibatches are in flight, or else for
 * pd_steady_microbatches.  If that would take more than PD_JUDGE_WORK operations, or exceed virtual
 * time, the period is the estimate of pd_judge_expect;
 * *from_p says which it is.  If a replay shows no whole update (lib/trace/steady), it counts as one.
 */
#define PD_JUDGE_WORK INT64_C(4000000)
int pd_judge_period(const struct pd_plan *plan, int64_t *period_ns_p, enum pd_period_kind *from_p,
		    struct pd_error *err);

/*
 * Does the same for a plan that is only compared with one of a known time, rival_ns (PD_NEVER: none
 * is known).  It is replayed until it is clearly slower; the period is then about right.  *work_p
 * grows by about as many operations as were replayed.
 */
int pd_judge_rival(const struct pd_plan *plan, int64_t rival_ns, int64_t *period_ns_p,
		   enum pd_period_kind *from_p, int64_t *work_p, struct pd_error *err);

/* Returns about how many operations a replay of pd_steady_microbatches has. */
int64_t pd_judge_work(const struct pd_plan *plan);

/* Sets what pd_flow_expect says of the plan. */
int pd_judge_expect(const struct pd_plan *plan, bool bound, struct pd_expected *expected_p,
		    struct pd_error *err);
