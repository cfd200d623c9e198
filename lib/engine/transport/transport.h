/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transport seam moves buffers between ranks.
 *
 * No call blocks.  A send or receive is posted with the event after which its buffer is ready
 * (NULL: now) and the event to complete.  Transfers between two ranks are matched by tag, so they
 * may be posted in any order.  A send may end only once its receive is posted.  A tag has 48 bits and is unique among the pending transfers of one
 * sender and one receiver; the upper 16 bits hold the sender's rank, so there are at most 65,536
 * ranks.  Both sides give the same number of bytes, and 0 is allowed.  A rank may send to itself.
 * The times of an event are those at which the transfer could begin (posted, and `after` done) and
 * at which it ended.  A transfer whose `after` failed fails.
 *
 * One thread owns a transport and makes all calls.  progress() advances transfers and returns how
 * much it did.  When it did nothing, the owner may sleep until the descriptor fd() is readable,
 * provided that arm() returned 0 (1: call progress() again first).  A completion wakes nobody: it
 * happens inside progress(), or at once in send() and recv().  These return -1, as progress() does,
 * where the transport is broken.  close() ends what is not finished: its events fail.
 *
 * Some transports can sum by themselves, for instance NCCL's.  group() names the ranks of such sums, as
 * all of these do before they connect, and in one order where several groups have the same ranks.
 *
 * Providers (provider.h) open transports, and connect those of the host's memory.
 */
#pragma once

#include "base/event.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PD_TRANSPORT_TAG_BITS 48

struct pd_transport { const struct pd_transport_ops *ops; };

/*
 * The largest sum that a group will be asked for, the same at all of its ranks: it is tried in
 * `room` (device memory of the caller) when the rank connects, so nothing may lie there before.
 */
struct pd_group_trial {
	float *room;                    /* NULL: only small sums are tried */
	size_t floats;
};

/* A sum of a group; it lives until it is done. */
struct pd_group_sum {
	float *buf;
	size_t floats;
	const struct pd_event *after;   /* NULL: now */
	/* the transport's: */
	struct pd_group *group;
	bool waits;
};

struct pd_group {
	/*
	 * Replaces the floats in buf by their sums over the group, in an order of additions that the
	 * transport chooses.  All of the group begin the same sums in the same order.  0, -1:
	 * broken, PD_AGAIN (device.h): to be called again with the same sum.
	 */
	int (*all_reduce)(struct pd_group *group, struct pd_group_sum *sum, struct pd_event *done);
};

struct pd_transport_ops {
	/* A link has one transfer at a time, as in virtual time; else those under way share it. */
	bool one_at_a_time;
	void (*close)(struct pd_transport *t);
	int (*send)(struct pd_transport *t, int peer, uint64_t tag, const void *buf, size_t bytes,
		    const struct pd_event *after, struct pd_event *done);
	int (*recv)(struct pd_transport *t, int peer, uint64_t tag, void *buf, size_t bytes,
		    const struct pd_event *after, struct pd_event *done);
	int (*progress)(struct pd_transport *t);        /* -1: broken; gate->err says why */
	int (*fd)(struct pd_transport *t);              /* -1: none */
	int (*arm)(struct pd_transport *t);
	/*
	 * Returns what sums among `count` ranks, this one among them, borrowed until close().  NULL,
	 * with an error: it will not be able to.  The function is NULL where the transport never is.
	 */
	struct pd_group *(*group)(struct pd_transport *t, const int *ranks, int count,
				  const struct pd_group_trial *trial, struct pd_error *err);
};

extern const struct pd_transport_ops pd_transport_ucx;

/*
 * Sleeps until an event has completed at the gate, the transport has something to do, or `other` can be read; -1:
 * there is none.  At most timeout_ms; -1: for ever.  Returns whether `other` can be read.  t: NULL where it is broken.
 */
bool pd_transport_sleep(struct pd_transport *t, struct pd_gate *gate, int other, int timeout_ms);
