/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes that a rank allocates: a stage's sizes times the schedule's counts. */
#ifndef PD_SCHEDULE_MEMORY_H
#define PD_SCHEDULE_MEMORY_H

#include "plan/arenas.h"
#include "schedule/room.h"

/* The arenas that an optimizer keeps. */
struct pd_moments {
	int count;                      /* SGD's velocity: 1; Adam's: 2 */
	bool corrects;                  /* stages whose gradients are late have two more (PipeMare) */
};

extern const struct pd_moments pd_momentum;    /* that of SGD with momentum */

/* The arenas of stage s; sizes: its own, as predicted or as the device says. */
void pd_schedule_arenas(const struct pd_schedule *schedule, int s, const struct pd_room *room,
			const struct pd_moments *moments, const struct pd_stage_memory *sizes,
			struct pd_arena_need needs[PD_ARENAS]);

/*
 * The memory of a rank, all its stages together.  Returns whether the figures are those that the
 * worker allocates, to the byte: the profile tells what the device lays out by.  Otherwise they are
 * about right.
 */
bool pd_schedule_memory(const struct pd_schedule *schedule, int rank,
			const struct pd_moments *moments, struct pd_memory *out_p);
/* The memory of a rank that follows a list: rooms as pd_room_of_list gives them. */
bool pd_schedule_memory_in(const struct pd_schedule *schedule, int rank,
			   const struct pd_room *rooms, const struct pd_moments *moments,
			   struct pd_memory *out_p);

#endif
