/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes that a rank allocates: a stage's sizes times the schedule's counts. */
#ifndef PD_SCHEDULE_MEMORY_H
#define PD_SCHEDULE_MEMORY_H

#include "plan/memory.h"
#include "schedule/room.h"

/*
 * Of a rank, all its stages together.  moments: arenas that the optimizer keeps: 1 is
 * momentum's velocity, Adam has 2.
 * Returns whether the figures are those that the worker allocates, to the byte: the profile
 * tells what the device lays out by.  Otherwise they are about right.
 */
bool pd_schedule_memory(const struct pd_schedule *schedule, int rank, int moments,
			struct pd_memory *out_p);
/* The same of a rank that follows a list: rooms as pd_room_of_list gives them. */
bool pd_schedule_memory_in(const struct pd_schedule *schedule, int rank,
			   const struct pd_room *rooms, int moments, struct pd_memory *out_p);

#endif
