/* SPDX-License-Identifier: Apache-2.0 */
/* Counts the buffers that a stage needs, by the ticks of its operations.  See also pd_schedule_leaving. */
#pragma once

#include "schedule/schedule.h"

/* Returns the most of the first `count` microbatches of a replica that are in flight at once. */
int pd_count_in_flight(const struct pd_schedule *schedule, int s, int64_t count);
/*
 * Returns the slots of a stage that recomputes: for what is computed, and for the first `count` microbatches
 * of a replica whose weight gradients wait meanwhile.
 */
int pd_count_kept(const struct pd_schedule *schedule, int s, int64_t count);
/* Sets outboxes, when all else that training needs is there. */
void pd_count_outboxes(struct pd_schedule *schedule);
