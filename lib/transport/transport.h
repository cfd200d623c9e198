/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transport seam: buffers between ranks.
 *
 * No call blocks.  A send or receive is posted with the event after which its buffer is
 * ready (NULL: now) and the event to complete; transfers of one pair are matched by tag,
 * so they may be posted in any order.  Tags are unique among transfers under way of one
 * sender and one receiver, and have 48 bits: the upper 16 are for the sender's rank, so
 * there are at most 65,536 ranks.  Both sides name the same number of bytes, 0 allowed; a
 * rank may send to itself.  The times of an event are those from posting it (`after` was
 * done) to its end; a transfer whose `after` failed fails.
 *
 * Ranks find each other through addresses, opaque bytes that the launcher carries: every
 * rank opens its end, publishes address(), and connects with all the addresses.
 *
 * The one thread that owns a transport calls everything; progress() makes things move
 * and returns how much it did; when it did nothing the owner may sleep until the
 * descriptor fd() is readable, after arm() has returned 0 (1: call progress() again
 * first).  Completions wake nobody by themselves: they happen inside progress(), or at
 * once in send() and recv(), which return -1 as progress() does: broken.  cancel() ends
 * what is not finished; its events fail, and then nothing is to be called but close(),
 * which cancels by itself.  It first lets go, for a second at most, what peers need to
 * finish their side of what is finished here.
 *
 * Where transports come from: provider.h.
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
	void (*cancel)(struct pd_transport *t);         /* of one of the host's memory */
	/* Borrowed until close. */
	void (*address)(struct pd_transport *t, const void **bytes_p, size_t *length_p);
	/* addresses[r], lengths[r] of every rank, self included. */
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

/*
 * All-reduce, made of sends and receives (lib/transport/collective.c): see there for the
 * algorithm and for the order of the sums.
 */

extern const struct pd_transport_ops pd_transport_ucx;

#endif
