/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This transport moves GPU memory by NCCL's point-to-point calls.  Reducers are made of these, as
 * over every transport, and so have the same bits (lib/sums/dense.c).  Only where a plan
 * asks for NCCL's own all-reduce, which adds in an order that depends on how the GPUs are connected,
 * the replicas of a stage have a communicator for that, too (group.c).
 *
 * Each direction between two ranks is a connection: a communicator of two, in which the sender is 0
 * and the receiver 1, and a stream that does nothing else.  NCCL matches what is posted to a
 * communicator by order alone, and a transfer holds its stream until the peer has posted its side.
 * So a connection has the order of the sender's list (schedule/tick.c).  With every transfer the
 * sender tells the receiver its tag and length, in host memory through another transport; the
 * receiver posts what it was asked for under that tag.  Lengths that differ are found before NCCL
 * is called.  Between connections only events give an order: a connection's stream waits on the GPU
 * for the event before a transfer, and other streams wait there for the transfer.
 *
 * Set-up goes one by one.  All ranks go through the pairs of ranks in one order, make both
 * connections of each pair, and send a byte through them.  Both sides of the first pair that is not
 * connected come to it, so this cannot deadlock.  Afterwards NCCL has no connection left to make,
 * and allocates nothing while kernels wait for each other.
 *
 * Communicators do not block: calls return at once, and their state is asked for.  A lost peer is
 * noticed when its process ends or NCCL reports an error.  Then all communicators are aborted
 * together (abort.c), which ends kernels that wait, and all events fail.
 */
#pragma once

#include "engine/device/device.h"
#include "run/transport/provider.h"

#include <stdbool.h>
#include <sys/types.h>

#define PD_NCCL_ID 128

struct pd_nccl_config {
	int rank, ranks;
	/* the peers that this rank exchanges with, as they know; itself if it sends to itself */
	const bool *peers;
	/*
	 * of host memory, connected; borrowed, and cancelled when the result is closed or
	 * pd_nccl_open() fails
	 */
	const struct pd_provided *host;
	struct pd_device *device;       /* borrowed; has pd_device_ops.calls */
	struct pd_gate *gate;
	const char *const *ids;         /* ids[r]: what pd_nccl_ids made at rank r */
	const pid_t *pids;	/* pids[r]: the process of rank r; 0: it runs on another host */
	int64_t limit_ns;               /* time limit to make one connection */
};

/*
 * Sets the variables that NCCL reads, unless they are set.  one_host: all ranks run on this host.
 * distinct: NCCL shall take each rank for a machine of its own, since ranks share a GPU. To be
 * called before the process has threads that read the environment.
 */
/* Sets what CUDA must find in the environment when it is first called; variables that are set stay. */
void pd_nccl_first(void);
void pd_nccl_environment(int rank, bool one_host, bool distinct);
/*
 * Makes names for the connections on which this rank sends: `ranks` times PD_NCCL_ID bytes, by
 * receiver, to be freed.  NULL: this build has no NCCL, or NCCL is older than 2.22 or does not
 * start.
 */
char *pd_nccl_ids(int rank, int ranks, const bool *peers, struct pd_error *err);

/* Borrows only host, device and gate of config. */
struct pd_transport *pd_nccl_open(const struct pd_nccl_config *config, struct pd_error *err);
