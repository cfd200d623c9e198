/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes that a rank allocates: a stage's sizes times the schedule's counts. */
#pragma once

#include "memory/arenas.h"
#include "schedule/buffer_counts.h"

/* Says which arenas an optimizer keeps. */
struct pd_moments {
	int count;                      /* SGD's velocity: 1; Adam's: 2 */
	bool corrects;                  /* late gradients are corrected, with two more (PipeMare) */
};

extern const struct pd_moments pd_momentum;    /* for SGD with momentum */

/* Says what arenas stage s needs; sizes are those predicted, or those that the device says. */
void pd_schedule_arenas(const struct pd_schedule *schedule, int s,
			const struct pd_buffer_counts *buffer_counts,
			const struct pd_moments *moments, const struct pd_stage_memory *sizes,
			struct pd_arena_need needs[PD_ARENAS]);

/*
 * Adds up the memory of a rank, all its stages together.  Returns true if the figures are exact, to
 * the byte, because the profile says how the device lays out memory.
 */
bool pd_schedule_memory(const struct pd_schedule *schedule, int rank,
			const struct pd_moments *moments, struct pd_memory *out_p);
/* Does the same for a rank that follows a list; rooms are those of pd_buffer_counts_of_list. */
bool pd_schedule_memory_in(const struct pd_schedule *schedule, int rank,
			   const struct pd_buffer_counts *buffer_counts,
			   const struct pd_moments *moments, struct pd_memory *out_p);
/* Does the same for the rank of a stage that has most: where kinds of devices differ, it matters which. */
bool pd_schedule_stage_memory(const struct pd_schedule *schedule, int stage,
			      const struct pd_moments *moments, struct pd_memory *out_p);
