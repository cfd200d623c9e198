/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transfers of a rank's end: what transports of host memory have in common.
 *
 * A transfer waits until its `after` is done, is posted, which is the transport's, and is finished or
 * fails.  What has ended is used again: in the long run nothing is allocated.
 */
#pragma once

#include "engine/transport/transport.h"

struct pd_transfers;

/* Heads of rings are transfers, too. */
struct pd_transfer {
	struct pd_transfer *next, *prev; /* in the ring of one list */
	struct pd_transfers *owner;
	bool receive;
	int peer;
	uint64_t tag;
	void *buf;
	size_t bytes;
	const struct pd_event *after;
	struct pd_event *done;
	int64_t start_ns;
	/* the transport's: */
	void *request;                  /* another library's */
	struct pd_transfer *chain;      /* of those in one bucket */
	size_t moved;                   /* bytes that have been sent or received */
	uint64_t granted;               /* bytes that the receiver has room for */
	bool is_granted;
};

struct pd_transfer_chunk;

struct pd_transfers {
	int rank;
	struct pd_gate *gate;
	/* Begins a transfer that is ready, in no ring and has a start_ns. */
	void (*post)(struct pd_transfers *t, struct pd_transfer *x);
	bool broken;                    /* a transfer has failed, or a peer is lost */
	bool closing;
	struct pd_transfer_chunk *chunks;
	struct pd_transfer idle, waiting;       /* rings: unused; waiting for `after`, in order */
};

void pd_ring_init(struct pd_transfer *head);
void pd_ring_append(struct pd_transfer *head, struct pd_transfer *x);
void pd_ring_remove(struct pd_transfer *x);

void pd_transfers_init(struct pd_transfers *t);
/* Frees all transfers. */
void pd_transfers_release(struct pd_transfers *t);
/* Returns one that is in no ring. */
struct pd_transfer *pd_transfer_get(struct pd_transfers *t);
void pd_transfer_give(struct pd_transfer *x);

/* As send() and recv() of the seam: returns -1 when the transport is broken. */
int pd_transfers_begin(struct pd_transfers *t, const struct pd_transfer *what);
/* Posts, in order, those whose `after` is done; returns how many. */
int pd_transfers_post_ready(struct pd_transfers *t);
/* Returns whether one can be posted. */
bool pd_transfers_ready(const struct pd_transfers *t);
/* Cancels those that wait. */
void pd_transfers_cancel_waiting(struct pd_transfers *t);

/* End a transfer, which is in no ring. */
void pd_transfer_finish(struct pd_transfer *x);
void pd_transfer_fail(struct pd_transfer *x, const char *why);
/* The transport is broken, and no transfer has said so. */
void pd_transfers_give_up(struct pd_transfers *t, const struct pd_error *why);
