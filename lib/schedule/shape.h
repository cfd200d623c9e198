/* SPDX-License-Identifier: Apache-2.0 */
/* The groups, warm-ups, slots and chunks that a plan gives a schedule. */
#pragma once

#include "schedule/schedule.h"

/*
 * Sets all of struct pd_schedule but ranks, wiring, outboxes, scale, origin and what evaluation needs,
 * from the plan; or refuses the plan.
 */
int pd_shape_set(struct pd_schedule *schedule, struct pd_error *err);
