/* SPDX-License-Identifier: Apache-2.0 */
/* What a plan will do; private to this folder. */
#ifndef PD_PLANNER_PREDICT_H
#define PD_PLANNER_PREDICT_H

#include "plan/plan.h"
#include "schedule/schedule.h"

/* Fills each stage's predictions. */
void pd_predict_stages(struct pd_plan *plan);

/* Each stage's memory again, by what the schedule keeps; of a rank with several, all of it. */
void pd_predict_memory(struct pd_plan *plan, const struct pd_schedule *schedule);

/* The mean time between two minibatches in steady state, by formula (predict.c). */
int64_t pd_predict_period_ns(const struct pd_plan *plan);

/*
 * Where ranks share processors, and there are more ranks: the computing of those on one, for a
 * minibatch; of the busiest.  Else 0.
 */
int64_t pd_predict_turns_ns(const struct pd_plan *plan);

#endif
