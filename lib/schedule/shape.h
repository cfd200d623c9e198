/* SPDX-License-Identifier: Apache-2.0 */
/* The shape of a schedule: what groups, warm-ups, slots and chunks a plan gives it. */
#ifndef PD_SCHEDULE_SHAPE_H
#define PD_SCHEDULE_SHAPE_H

#include "schedule/schedule.h"

/*
 * Works out what struct pd_schedule has from the plan but ranks, wiring, outboxes, scale and
 * origin; or refuses it.
 */
int pd_shape_set(struct pd_schedule *schedule, struct pd_error *err);

#endif
