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

/* What one stage takes of the time between two minibatches: processor, and link each way. */
int64_t pd_predict_busy_ns(const struct pd_plan *plan, int stage);
int64_t pd_predict_link_ns(const struct pd_plan *plan, int stage, int64_t traffic_bytes);

/*
 * Where ranks share processors, and there are more ranks: the computing of those on one, for a
 * minibatch; of the busiest.  Else 0.
 */
int64_t pd_predict_turns_ns(const struct pd_plan *plan);

/* Bytes that come to and leave a stage per minibatch, one way, into arrays of stages. */
void pd_predict_traffic(const struct pd_plan *plan, int64_t *in_bytes, int64_t *out_bytes);

#endif
