/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transport seam moves buffers between ranks.
 *
 * No call blocks.  A send or receive is posted with the event after which its buffer is ready
 * (NULL: now) and the event to complete.  Transfers between two ranks are matched by tag, so they
 * may be posted in any order.  A tag has 48 bits and is unique among the pending transfers of one
 * sender and one receiver; the upper 16 bits hold the sender's rank, so there are at most 65,536
 * ranks.  Both sides give the same number of bytes, and 0 is allowed.  A rank may send to itself.
 * The times of an event are those at which the transfer could begin (posted, and `after` done) and
 * at which it ended.  A transfer whose `after` failed fails.
 *
 * Ranks find each other through addresses, opaque bytes that the launcher carries: every rank opens
 * its end, publishes address(), and connects with the addresses of all.
 *
 * One thread owns a transport and makes all calls.  progress() advances transfers and returns how
 * much it did.  When it did nothing, the owner may sleep until the descriptor fd() is readable,
 * provided that arm() returned 0 (1: call progress() again first).  A completion wakes nobody: it
 * happens inside progress(), or at once in send() and recv().  These return -1, as progress() does,
 * where the transport is broken.  cancel() ends what is not finished: its events fail, and then
 * nothing may be called but close(), which cancels by itself.  It first sends, for a second at
 * most, what peers need in order to finish their side of finished transfers.
 *
 * Providers (provider.h) open transports.
 */
#ifndef PD_TRANSPORT_TRANSPORT_H
#define PD_TRANSPORT_TRANSPORT_H

#include "base/event.h"

#include <stddef.h>
#include <stdint.h>

#define PD_TRANSPORT_TAG_BITS 48

struct pd_transport { const struct pd_transport_ops *ops; };

struct pd_transport_ops {
	const char *name;
	void (*close)(struct pd_transport *t);
	void (*cancel)(struct pd_transport *t);         /* for transports of host memory */
	/* Returns this rank's address, borrowed until close(). */
	void (*address)(struct pd_transport *t, const void **bytes_p, size_t *length_p);
	/* addresses[r], lengths[r] of every rank, self included; NULL of one with whom this rank
	 * exchanges nothing. */
	int (*connect)(struct pd_transport *t, const void *const *addresses, const size_t *lengths,
		       struct pd_error *err);
	int (*send)(struct pd_transport *t, int peer, uint64_t tag, const void *buf, size_t bytes,
		    const struct pd_event *after, struct pd_event *done);
	int (*recv)(struct pd_transport *t, int peer, uint64_t tag, void *buf, size_t bytes,
		    const struct pd_event *after, struct pd_event *done);
	int (*progress)(struct pd_transport *t);        /* -1: broken; gate->err says why */
	int (*fd)(struct pd_transport *t);              /* -1: none */
	int (*arm)(struct pd_transport *t);
};

extern const struct pd_transport_ops pd_transport_ucx;

#endif
