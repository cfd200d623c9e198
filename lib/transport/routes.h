/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank's transport to all its peers: to each by the first provider that reaches it.
 *
 * Memory of the host goes through a transport of the host's.  That of devices with memory of their
 * own goes by NCCL where each rank has a GPU to itself, else staged through the host.
 *
 * NCCL takes no two ranks on one GPU, unless it is made to believe that each is a machine of
 * its own; then it passes everything through sockets.  And a transfer is a kernel that waits for
 * the other rank's, which shares the GPU: it runs when the driver gives the GPU to that process,
 * one time slice later.  That is what asking for NCCL does there, and why nobody else gets it.
 */
#ifndef PD_TRANSPORT_ROUTES_H
#define PD_TRANSPORT_ROUTES_H

#include "transport/provider.h"

struct pd_routes_config {
	const char *how;                /* the provider wanted between devices, of all ranks the
					   same; NULL: the first that reaches a peer */
	int rank, ranks;
	struct pd_seat seat;
	const bool *peers;              /* with whom this rank exchanges, and they with it; itself
					   where it sends to itself.  Copied; NULL: all */
	const struct pd_transport_provider *host;       /* of the host's memory; NULL: pd_providers' */
	struct pd_device *device;       /* with memory of its own, borrowed; NULL: there is none */
	struct pd_gate *gate;
};

/* Has the providers set the environment (pd_transport_provider.prepare). */
void pd_routes_prepare(const char *how, const struct pd_device_ops *device, int rank, int ranks,
		       const struct pd_seat *seat);
/* By which provider each peer is reached is decided in connect(), by both alike. */
struct pd_transport *pd_routes_open(const struct pd_routes_config *config, struct pd_error *err);

/*
 * Once connected: the name of the provider between devices, of several the last, and in *why_p
 * what the user should know about that, at rank 0, or NULL: why it is staged where nobody asked
 * for that; which ranks share a GPU where it is NCCL.  Belongs to the transport.
 */
const char *pd_routes_chosen(const struct pd_transport *t, const char **why_p);

#endif
