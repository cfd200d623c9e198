/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's end and its transfers; private to this folder. */
#pragma once

#include "engine/transport/transfers.h"
#include "run/transport/ucx/fabric.h"
#include "topology/seat.h"

#include <net/if.h>
#include <ucp/api/ucp.h>

struct ucx {
	struct pd_transport base;
	struct pd_transfers transfers;
	struct pd_transfer posted;      /* the head of a ring: those that UCX has */
	int ranks;
	ucp_context_h context;
	ucp_worker_h worker;
	bool asked;                     /* for all peers, on whatever host */
	bool networks;                  /* it moves bytes between hosts, too */
	struct pd_ucx_fabrics fabrics;
	char interface[IF_NAMESIZE];    /* of its TCP; "": any */
	char host[PD_SEAT_HOST];
	char *address;                  /* the host, then UCX's own */
	size_t address_length;
	ucp_ep_h *peers, *answers;      /* by rank: over which this rank sends, and that one does */
	int fd;
	bool unfinished;                /* transfers were cancelled that UCX had */
	struct ucx *next_left;          /* of those that are never destroyed */
};

void pd_ucx_transfers_init(struct ucx *u, int rank, struct pd_gate *gate);
int pd_ucx_transfer(struct ucx *u, const struct pd_transfer *what);
/* Cancels the transfers that are not finished. */
void pd_ucx_cancel_all(struct ucx *u);
