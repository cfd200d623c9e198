/* SPDX-License-Identifier: Apache-2.0 */
/* Room for lists that another than the generator made. */
#ifndef PD_REPLAY_ROOM_H
#define PD_REPLAY_ROOM_H

#include "schedule/list.h"

/*
 * Gives the schedule's stages as many slots, inboxes and versions of the weights as lists of
 * its plan use, so that a worker can follow them.  -1 (usage) where one needs more versions
 * than the plan's weights have.
 */
int pd_replay_make_room(struct pd_schedule *schedule, const struct pd_lists *lists,
			struct pd_error *err);

#endif
