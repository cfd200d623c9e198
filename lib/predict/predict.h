/* SPDX-License-Identifier: Apache-2.0 */
/* Predicts the figures of a plan; private to this folder. */
#pragma once

#include "plan/plan.h"
#include "schedule/schedule.h"

/* Fills each stage's predictions. */
void pd_predict_stages(struct pd_plan *plan);
/* Does the same but for memory, which is only about right: for plans whose schedule says it before it is asked for. */
void pd_predict_times(struct pd_plan *plan);

/*
 * Sets each stage's memory by the buffers of the schedule; for a rank with several stages, the sum.
 */
void pd_predict_memory(struct pd_plan *plan, const struct pd_schedule *schedule);

/*
 * If more ranks share fewer processors: returns the computing time of the busiest processor per
 * minibatch, else 0.
 */
int64_t pd_predict_turns_ns(const struct pd_plan *plan);
