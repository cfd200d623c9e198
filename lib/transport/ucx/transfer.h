/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's end and its transfers; private to this folder. */
#pragma once

#include "topology/seat.h"
#include "transport/transport.h"

#include <ucp/api/ucp.h>

struct ucx_transfer {
	struct ucx_transfer *next, *prev; /* in the ring of one list */
	struct ucx *owner;
	bool receive;
	int peer;
	uint64_t tag;
	void *buf;
	size_t bytes;
	const struct pd_event *after;
	struct pd_event *done;
	int64_t start_ns;
	void *request;
};

struct chunk;

struct ucx {
	struct pd_transport base;
	int rank, ranks;
	struct pd_gate *gate;
	ucp_context_h context;
	ucp_worker_h worker;
	bool several_hosts;
	char host[PD_SEAT_HOST];
	char *address;                  /* the host, then UCX's own */
	size_t address_length;
	ucp_ep_h *peers, *answers;      /* by rank: over which this rank sends, and that one does */
	int fd;
	bool broken, closing;
	bool unfinished;                /* transfers were cancelled that UCX had */
	struct chunk *chunks;
	struct ucx *next_left;          /* of those that are never destroyed */
	/* heads of rings: unused; waiting for `after`, in order; posted to UCX */
	struct ucx_transfer idle, waiting, posted;
};

void pd_ucx_transfers_init(struct ucx *u);
/* Returns -1 when the transport is broken. */
int pd_ucx_transfer(struct ucx *u, bool receive, int peer, uint64_t tag, void *buf, size_t bytes,
		    const struct pd_event *after, struct pd_event *done);
/* Starts, in order, those whose `after` is done; returns how many. */
int pd_ucx_post_ready(struct ucx *u);
/* Returns whether a transfer can be started. */
bool pd_ucx_is_ready(const struct ucx *u);
/* Cancels the transfers that are not finished. */
void pd_ucx_cancel_all(struct ucx *u);
/* Frees the transfers, once UCX knows none. */
void pd_ucx_transfers_release(struct ucx *u);
