/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks for tests: several processes with a transport each. */
#pragma once

#include "run/transport/routes.h"

#include <stdbool.h>
#include <sys/types.h>

#define RANKS_MAX 20

struct rank {
	int rank, ranks;
	struct pd_gate gate;
	struct pd_transport *transport;
	struct pd_transport *host;      /* the transport below one that is only staged, or NULL */
	struct pd_device *device;       /* the device of staged transfers */
	struct shared *shared;
	double *result;                 /* RANKS_RESULT numbers that the parent sees */
};

#define RANKS_RESULT 16

/* Transfers of later ranks are staged through a device that is treated as if the host could not read its
 * memory. */
extern bool ranks_staged;
extern int64_t ranks_under_way_bytes;   /* what pd_provider_staged is told then */
/* Returns how often this rank has allocated memory of the host for what is staged. */
int ranks_allocations(void);
/* The device, if not NULL, whose memory has the messages of later ranks; rank r has device number r. */
extern const struct pd_device_ops *ranks_device;
extern const char *ranks_how;           /* pd_routes_config.how */
extern const struct pd_transport_provider *ranks_provider;      /* of the host's memory; UCX by default */
extern bool ranks_apart;                /* the transport is told that each rank is on its own host */
extern const char *ranks_address;       /* at which others reach a rank; "": of loopback */
extern int ranks_limit_s;               /* seconds, 60 by default */

/*
 * Connects n processes and runs body in each; a process passes when body returns 0.  Returns how many
 * failed; all are killed after ranks_limit_s.  If not NULL, results gets n * RANKS_RESULT numbers.
 * A process whose number is `victim` may die in any way; -1: none.
 */
int run_ranks(int n, int (*body)(struct rank *me), double *results, int victim);

/* Waits, moving transfers, until all ranks have called it. */
void ranks_barrier(struct rank *me);
/* Waits, without moving transfers, until that rank's process has ended with its memory and sockets. */
void ranks_outlive(struct rank *me, int other);
/* Does what a worker does when it has nothing to do: progress, arm, sleep; returns -1 if broken. */
int ranks_step(struct rank *me, int timeout_ms);
/* Steps until ev is done; returns 0, or -1 if it or the transport failed. */
int ranks_until(struct rank *me, struct pd_event *ev);

int ranks_send(struct rank *me, int peer, uint64_t tag, const void *buf, size_t bytes,
	       const struct pd_event *after, struct pd_event *done);
int ranks_recv(struct rank *me, int peer, uint64_t tag, void *buf, size_t bytes,
	       const struct pd_event *after, struct pd_event *done);

/* Prints what is wrong if ok is false; returns ok. */
bool rank_ok(struct rank *me, bool ok, const char *what);
