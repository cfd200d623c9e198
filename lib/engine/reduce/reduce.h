/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reducer seam: sums the gradients of a bucket, f32, among the replicas of a stage, over any
 * transport and device, as its script says (sums/reducer.h).
 *
 * No data are read by the host and nothing is decided by them: start() posts all transfers, each
 * waiting for the events before it; progress() puts the work on a stream, as far as that has room.
 * `done` is completed by the device, on the stream.
 *
 * Work on the stream has two parts.  After the first, all that this member sends may leave, for all
 * the stream knows: it waits for what others send, and adds.  The second waits for the sums and ends
 * with `done`.  Where several sums are under way on one stream
 * (engine/reduce/queue.h) the first part of one need not wait for the second of the one before; and one that
 * polls leaves the stream to others as long as what it waits for has not come.
 */
#pragma once

#include "engine/device/device.h"
#include "engine/transport/transport.h"
#include "sums/reducer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pd_reduction {
	const struct pd_reduction_ops *ops;
	int64_t sent_bytes, messages;   /* that this member sent in the last sum */
	bool polls;             /* while its caller does not let it wait, the stream never waits for it */
	bool may_wait;          /* the caller's: the stream is to wait, since nothing else needs it */
};

/* One member's part in the sums of a bucket.  All but topology is borrowed until it is freed. */
struct pd_reduction_config {
	struct pd_transport *transport;
	struct pd_device *device;
	/* Best for this alone: it is blocked while it waits for the others. */
	struct pd_stream *stream;
	const struct pd_topology *topology;
	const int *ranks;               /* of the members, in the order in which they are added */
	int members, me;                /* me: this rank's index there */
	size_t floats;
	float *room;                    /* as struct pd_group_trial says */
	float *staging;                 /* as much as it needs; NULL: it allocates that itself */
	struct pd_rounding rounding;    /* of what travels, as struct pd_members says */
};

enum pd_reduction_part { PD_REDUCTION_SUMS, PD_REDUCTION_ALL };

struct pd_reduction_ops {
	/* `done` of the last start is done, or the transport and the streams are at rest. */
	void (*close)(struct pd_reduction *r);
	/*
	 * Replaces the floats in buf (device memory) by their sum over the members, once `after`
	 * (NULL: now) is done.  One at a time; every member uses the same tag_base, and the
	 * PD_REDUCTION_TAGS tags from there on for nothing else under way.  -1: transport or
	 * device is broken.
	 */
	int (*start)(struct pd_reduction *r, float *buf, uint64_t tag_base,
		     const struct pd_event *after, struct pd_event *done);
	/*
	 * Puts on the stream what comes next, as far as the end of that part.  Returns how much
	 * that was; -1: broken.
	 */
	int (*progress)(struct pd_reduction *r, enum pd_reduction_part upto);
	/* Tells whether all of that part of the last one is on the stream. */
	bool (*issued)(const struct pd_reduction *r, enum pd_reduction_part upto);
	/*
	 * Returns when the last sum that is done began: when its first piece left, in 16 bits when it
	 * was to be rounded; of no floats, when it ended.  (`done` itself tells only of the last thing on the stream.)
	 */
	int64_t (*started_ns)(const struct pd_reduction *r);
	size_t (*staging_bytes)(const struct pd_reduction *r);
};

#define PD_REDUCTION_TAGS (UINT64_C(1) << 19)

/*
 * For reductions of steps: issues those up to `end` while the stream takes them (PD_AGAIN: not now).  Returns how
 * many; -1: broken.
 */
int pd_reduction_advance(struct pd_reduction *r, size_t *step_p, size_t end, int (*issue)(struct pd_reduction *r));
/* Opens one, which allocates from the device what the row of pd_reducers says.  NULL: no memory. */
struct pd_reduction *pd_reduction_open(enum pd_reducer_kind kind, const struct pd_reduction_config *config,
				       struct pd_error *err);
