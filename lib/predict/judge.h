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
 * pd_replay_length().  If that would take more than PD_JUDGE_WORK operations, or exceed virtual
 * time, the period is the estimate of pd_judge_expect; *from_p says which it is.
 */
#define PD_JUDGE_WORK INT64_C(4000000)
int pd_judge_period(const struct pd_plan *plan, int64_t *period_ns_p, enum pd_period_kind *from_p,
		    struct pd_error *err);
/*
 * Does the same for a plan whose period is told, with up to most_work operations (PD_REPLAY_WORK
 * for the plan that is handed out).  Where that is too little the estimate is that of shorter
 * updates, which are replayed (pd_judge_form).  *period_ns_p and *from_p are what
 * pd_judge_period() said, and stay if nothing more can be known.
 */
int pd_judge_whole(const struct pd_plan *plan, int64_t most_work, int64_t *period_ns_p,
		   enum pd_period_kind *from_p, struct pd_error *err);

/*
 * Does the same for a plan that is only compared with one of a known time, rival_ns (PD_NEVER: none
 * is known), by a replay of at most most_work operations.  It is replayed until it is clearly slower;
 * the period is then about right.  *work_p grows by about as many operations as were replayed.
 */
int pd_judge_rival(const struct pd_plan *plan, int64_t most_work, int64_t rival_ns, int64_t *period_ns_p,
		   enum pd_period_kind *from_p, int64_t *work_p, struct pd_error *err);
/* Sets the period by a replay of so many operations at most or, where that is too little, by the form of an update. */
int pd_judge_about(const struct pd_plan *plan, int64_t most_work, int64_t *period_ns_p, enum pd_period_kind *from_p,
		   struct pd_error *err);

/*
 * Sets the period by the form of an update (pd_steady_shorter), of which two shorter ones are
 * replayed, as long as most_work operations allow; leaves it where there are none.
 */
int pd_judge_form(const struct pd_plan *plan, int64_t most_work, int64_t *period_ns_p,
		  struct pd_error *err);

/* Returns about how many operations such a replay has; more than PD_JUDGE_WORK: there is none. */
int64_t pd_judge_work(const struct pd_plan *plan);

/* Returns a time that no period of a plan is below, or 0 if it has no schedule. */
int64_t pd_judge_least_ns(const struct pd_plan *plan);

/* Sets what pd_flow_expect says of the plan. */
int pd_judge_expect(const struct pd_plan *plan, bool bound, struct pd_expected *expected_p,
		    struct pd_error *err);
