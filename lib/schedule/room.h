/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a rank keeps at once of one of its stages: how many of each buffer, and which one a
 * microbatch has.
 *
 * The generator's microbatches take them in turn; how many there are follows from the plan.
 * In a list, which may be in any order that is right, the lifetimes are known before the
 * start: each begins and ends at an operation of the list, so that the most that live at once
 * are as many as are needed, and each microbatch is given the one that has been free for
 * longest.
 */
#ifndef PD_SCHEDULE_ROOM_H
#define PD_SCHEDULE_ROOM_H

#include "schedule/list.h"

/* Which ones a microbatch has. */
struct pd_buffers {
	int32_t inbox;                  /* from what arrives first to the end of its backward */
	int32_t slot;                   /* from its forward (recompute) to the end of its backward */
	int32_t work;                   /* with recomputation, the slot of its forward alone */
	int32_t outbox;                 /* with recomputation, from its forward to the last send */
	int32_t arriving;               /* gradients: from the first to the backward that uses them */
	int32_t leaving;                /* from the backward to the last that is sent */
};

struct pd_room {
	int slots, inboxes, arriving, leaving;
	int outboxes;                   /* 0 where the stage does not recompute */
	int versions;                   /* of the weights */
	/* of a list, per microbatch of the replica, from 0; NULL: number i has i mod how many */
	struct pd_buffers *buffers;
	/* of a list, the microbatches in the order in which they are loaded; or NULL */
	int64_t *loads, load_count;
};

/* What the generator's lists need; nothing is to be released. */
void pd_room_of_stage(const struct pd_schedule *schedule, int stage, struct pd_room *out_p);
/*
 * What a rank's list needs, which pd_check has found right, into rooms[schedule->chunks], by
 * stage; schedule: of the same plan.  evaluates: evaluations by the generator are to find
 * room too.
 */
void pd_room_of_list(const struct pd_schedule *schedule, const struct pd_lists *lists, int rank,
		     bool evaluates, struct pd_room *rooms);
void pd_rooms_release(struct pd_room *rooms, int count);

#endif
