/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank's transport uses, for each peer, the first provider that reaches it.
 *
 * Host memory goes through a transport of the host's (joint.h).  Device memory that the host cannot address
 * goes by NCCL where each rank has a GPU to itself, else staged through the host.
 *
 * NCCL refuses two ranks on one GPU, unless it is told that each is a machine of its own; then it
 * sends everything through sockets.  Besides, a transfer is a kernel that waits for the other
 * rank's kernel on the same GPU. That one runs only when the driver gives the GPU to its process,
 * one time slice later.  So ranks that share a GPU use NCCL only where the user asks for it.
 */
#pragma once

#include "run/transport/provider.h"

struct pd_routes_config {
	/* the provider between devices, or of the hosts' memory, equal at all ranks; NULL: the first that
	 * reaches a peer */
	const char *how;
	int rank, ranks;
	struct pd_seat seat;
	const bool *peers;              /* with whom this rank exchanges, and they with it; itself
					   where it sends to itself.  Copied; NULL: all.  Of others
					   no addresses are needed */
	const struct pd_transport_provider *host;       /* of the host's memory; NULL: pd_providers',
					   joined */
	struct pd_device *device;       /* with memory of its own, borrowed; NULL: there is none */
	struct pd_gate *gate;
	int64_t under_way_bytes;        /* pd_routes_expect() */
};

/* Calls the prepare() of the providers that may be used. */
void pd_routes_prepare(const char *how, const struct pd_device_ops *device, int rank, int ranks,
		       const struct pd_seat *seat);
/* Opens the transport, which is then connected as struct pd_connector has it. */
struct pd_transport *pd_routes_open(const struct pd_routes_config *config, struct pd_error *err);
void pd_routes_address(struct pd_transport *t, const void **bytes_p, size_t *length_p);
/* Decides which provider reaches each peer, as the peer does, too. */
int pd_routes_connect(struct pd_transport *t, const void *const *addresses, const size_t *lengths,
		      struct pd_error *err);

/* Says, before it connects, how many bytes of device memory will be under way at once. */
void pd_routes_expect(struct pd_transport *t, int64_t bytes);

/*
 * Returns the provider between devices, once connected (the last, if several).  *why_p is
 * what the user should know of this rank and its peers: why transfers are staged though nobody asked for
 * that, or which ranks share a GPU under NCCL; else NULL. The transport owns it.
 */
const struct pd_transport_provider *pd_routes_chosen(const struct pd_transport *t, const char **why_p);
