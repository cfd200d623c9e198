/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This counts the buffers of each kind that a rank keeps for one of its stages, and says which one
 * a microbatch has.
 *
 * The generator's microbatches take buffers in turn, and the plan says how many there are.  A list
 * may be in any order that is right, so its lifetimes are worked out before the start.  Each begins
 * and ends at an operation of the list.  As many buffers are needed as are live at once, and a
 * microbatch gets the one that has been free for longest.
 */
#pragma once

#include "schedule/list.h"

/* The buffers of a microbatch. */
struct pd_buffers {
	int32_t inbox;                  /* from the first arrival to the end of its backward */
	int32_t kept;                   /* with recomputation in part, from its forward to the end of its
					   backward */
	int32_t outbox;                 /* with recomputation, from its forward to the last send */
	int32_t arriving;               /* gradients, from the first arrival to the backward that
					   uses them */
	int32_t leaving;                /* gradients, from the backward to the last send */
};

struct pd_buffer_counts {
	int slots;                      /* from forward (recompute) to the end of backward; a microbatch has the
					   one that has been free for longest */
	int pool;                       /* slots that are enough for all stages of the rank, as they come */
	int inboxes, arriving, leaving;
	int kept;                       /* 0 where the stage does not recompute in part */
	int outboxes;                   /* 0 where the stage does not recompute */
	int versions;                   /* of the weights */
	/*
	 * For a list: per microbatch of the replica, from 0.  NULL: microbatch i has buffer i mod
	 * count.
	 */
	struct pd_buffers *buffers;
	/* For a list: the microbatches in the order in which they are loaded; or NULL. */
	int64_t *loads, load_count;
};

/* Counts for the generator's lists; nothing is to be released. */
void pd_buffer_counts_of_stage(const struct pd_schedule *schedule, int stage,
			       struct pd_buffer_counts *out_p);
/*
 * Counts for a rank's list that pd_check has found right, into rooms[pd_schedule_chunks], by stage;
 * schedule is that of the same plan.  With `evaluates` there are enough for evaluations by the
 * generator, too.
 */
void pd_buffer_counts_of_list(const struct pd_schedule *schedule, const struct pd_lists *lists,
			      int rank, bool evaluates, struct pd_buffer_counts *buffer_counts);
/*
 * Returns in how many combinations a microbatch's buffers and versions of the weights can come: buffers take
 * turns together, and versions as updates come.
 */
int64_t pd_buffer_counts_turns(const struct pd_buffer_counts *counts);
void pd_buffer_counts_release(struct pd_buffer_counts *buffer_counts, int count);
