/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transfers by NCCL between GPUs, point to point; all-reduce is made of them, as everywhere
 * (lib/transport/collective.h), and has the same bits: NCCL's own adds in an order that follows
 * from how the GPUs are connected.
 *
 * Each direction between two ranks is a connection: a communicator of two, the sender 0 and the
 * receiver 1, and a stream of its own, on which nothing else is.  NCCL matches what is posted to
 * a communicator by order alone, and a transfer holds its stream until the other side has posted
 * it, too.  So the order of a connection is the sender's, that of its list (contrib/HACKING): with
 * every transfer the sender tells the receiver, in host memory and through another transport,
 * its tag and length; the receiver posts what it was asked for under that tag.  What does not
 * fit is found before NCCL hears of it.  Between connections nothing is ordered but by events.  A
 * connection's stream waits on the GPU for the event before a transfer, and others wait there for
 * it.
 *
 * Set-up is one after the other: each rank goes through its pairs of ranks in one order common
 * to all, makes both connections of each and sends a byte through them.  Of the connections that
 * are not made, both sides come to the first in that order: it cannot deadlock.  Afterwards NCCL
 * has no connection left to make, and allocates nothing while kernels wait for one another.
 *
 * Communicators do not block: calls return at once, and are asked how they go on.  A lost peer
 * is noticed by its process having ended, or by what NCCL says; then communicators are
 * aborted, all at once (abort.c), which ends kernels that wait, and all events fail.
 */
#ifndef PD_TRANSPORT_NCCL_NCCL_H
#define PD_TRANSPORT_NCCL_NCCL_H

#include "device/device.h"
#include "transport/transport.h"

#include <stdbool.h>
#include <sys/types.h>

#define PD_NCCL_ID 128

struct pd_nccl_config {
	int rank, ranks;
	const bool *peers;              /* ranks that this one exchanges with, itself perhaps; as
					   they see it, too */
	struct pd_transport *host;      /* of host memory, connected; borrowed, and cancelled where
					   the result is closed or pd_nccl_open fails */
	struct pd_device *device;       /* borrowed; has pd_device_ops.stream.call */
	struct pd_gate *gate;
	const char *const *ids;         /* ids[r]: what pd_nccl_ids made at rank r */
	const pid_t *pids;              /* pids[r]: the process of rank r; 0: it is on another host */
	int64_t limit_ns;               /* for one connection to be made */
};

/*
 * Sets in the environment what NCCL is to read there and nobody has set.  one_host: all ranks are
 * on it.  distinct: have NCCL take each rank for a machine of its own, where ranks share a GPU.
 * Before the process has threads that read it.
 */
void pd_nccl_environment(int rank, bool one_host, bool distinct);
/*
 * Names for the connections on which this rank sends: `ranks` of PD_NCCL_ID bytes, by receiver; to
 * be freed.  NULL: NCCL is not in this build, is older than 2.22, or does not start.
 */
char *pd_nccl_ids(int rank, int ranks, const bool *peers, struct pd_error *err);

/* Borrows nothing of config but host, device and gate.  address() and connect() are not of use. */
struct pd_transport *pd_nccl_open(const struct pd_nccl_config *config, struct pd_error *err);

#endif
