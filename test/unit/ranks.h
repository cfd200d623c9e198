/* SPDX-License-Identifier: Apache-2.0 */
/* Several processes with a transport each, for tests. */
#pragma once

#include "transport/routes.h"

#include <stdbool.h>
#include <sys/types.h>

#define RANKS_MAX 20

struct rank {
	int rank, ranks;
	struct pd_gate gate;
	struct pd_transport *transport;
	struct pd_transport *host;      /* under transport, where that is staged alone; or NULL */
	struct pd_device *device;       /* of staged transfers */
	struct shared *shared;
	double *result;                 /* 16 numbers that the parent sees, RANKS_RESULT */
};

#define RANKS_RESULT 16

/* From then on transfers are staged through a device that is treated as if the host could
 * not read its memory. */
extern bool ranks_staged;
/* Or, where not NULL, a device with memory of its own: rank r has number r, and messages are in
 * that memory. */
extern const struct pd_device_ops *ranks_device;
extern const char *ranks_how;           /* pd_routes_config.how */
extern bool ranks_apart;                /* each on a host of its own, for all the transport knows */
extern int ranks_limit_s;               /* 60 */

/*
 * Runs body in n processes, connected; a process passes when body returns 0.  Returns how
 * many failed; all are killed after ranks_limit_s.  results (or NULL): n * RANKS_RESULT numbers.
 * A process whose number is `victim` may die as it likes; -1: none.
 */
int run_ranks(int n, int (*body)(struct rank *me), double *results, int victim);

/* Waits, moving transfers, until all ranks have come here. */
void ranks_barrier(struct rank *me);
/* Waits until that rank's process has ended, memory and sockets; nothing is moved meanwhile. */
void ranks_outlive(struct rank *me, int other);
/* What a worker does when it has nothing to do: progress, arm, sleep; -1: broken. */
int ranks_step(struct rank *me, int timeout_ms);
/* ... until ev is done; 0, or -1 when it or the transport failed. */
int ranks_until(struct rank *me, struct pd_event *ev);

int ranks_send(struct rank *me, int peer, uint64_t tag, const void *buf, size_t bytes,
	       const struct pd_event *after, struct pd_event *done);
int ranks_recv(struct rank *me, int peer, uint64_t tag, void *buf, size_t bytes,
	       const struct pd_event *after, struct pd_event *done);

/* Prints what is wrong when ok is false; returns ok. */
bool rank_ok(struct rank *me, bool ok, const char *what);
