/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sums that are under way on one stream, in the order in which they began.
 *
 * Of the buckets of one stage, at every opportunity the first part of each goes on the stream before
 * the second part of any.  So a stream that waits for the sums of one bucket does not keep back
 * those of the next.  Of sums that poll, what is ready of first parts goes on the stream, whichever of
 * them it is of: in 16 bits a bucket is rounded, and leaves, while sums of those before it are still to
 * come.  They do not let the stream wait before the last of a stage is alone.  Second parts go in order:
 * sums end in the order in which they began.  Another stage's sums come behind all of that:
 * they may wait for a backward that is behind the update for which these are made.
 *
 * Ranks may order the parts otherwise than each other, a transport may carry what one rank sends to
 * another in the order in which it was posted, and a rank begins only so many sums before the first of them
 * ends.  Still nothing waits for ever: whatever a sum sends waits for first parts of that sum and of those
 * before it alone, since what lets the stream wait comes behind these.  So first parts come to their ends one
 * sum after the other, in the order in which sums began, which is the same at all their members; second
 * parts only wait for what is sent.
 */
#pragma once

#include "engine/reduce/reduce.h"

struct pd_reduction_under_way {
	struct pd_reduction *r;         /* borrowed */
	bool more;                      /* sums of other buckets of the stage follow */
};

struct pd_reduction_queue {
	struct pd_reduction_under_way *under_way;       /* owned */
	size_t count, capacity;
};

void pd_reduction_queue_release(struct pd_reduction_queue *queue);
/* Adds one that was started, and puts on the stream what it can; -1: broken. */
int pd_reduction_queue_add(struct pd_reduction_queue *queue, struct pd_reduction *r, bool more);
/* To be called after the transport's; returns how much it did, -1: broken. */
int pd_reduction_queue_progress(struct pd_reduction_queue *queue);

/* Tells whether all of them is on the stream. */
static inline bool pd_reduction_queue_empty(const struct pd_reduction_queue *queue)
{
	return queue->count == 0;
}
