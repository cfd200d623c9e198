/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that are threads of one process, on the double of NCCL (test/double) and the CPU's device, for
 * the files of test/unit/nccl.
 */
#pragma once

#include "reduce/queue.h"
#include "transport/routes.h"

#include <pthread.h>

#define MOST 4
#define SECOND_NS INT64_C(1000000000)
#define SUMS 3

struct world;

struct rank {
	struct world *world;
	int number, failures;
	struct pd_gate gate;
	struct pd_device_ops ops;       /* the CPU's, changed */
	struct pd_device *device;
	struct pd_transport *transport;
	struct pd_error err;
	bool connected;
	pthread_t thread;
	/* where NCCL sums, too */
	struct pd_stream *reduce;
	struct pd_reduction *sums[SUMS];
	float *bufs[SUMS];
	struct pd_event ready[SUMS], done[SUMS];
	struct pd_reduction_queue queue;
};

struct world {
	int n;
	const char *how;
	int places;                     /* GPUs, so to speak: rank r is on r mod so many */
	bool chain;                     /* ranks meet their neighbours only */
	void (*body)(struct rank *me);
	pthread_barrier_t barrier;
	const void *addresses[MOST];
	size_t lengths[MOST];
	struct rank ranks[MOST];
};

extern struct world world;
extern int counted;                     /* that many GPUs, some of which are one place; 0: no */
extern bool two_hosts;                  /* odd ranks are on another one */
extern bool sums;                       /* all ranks are replicas, and NCCL sums */
extern const char *refusal;             /* that, and no connection, is expected */

/* Counts a failure unless it is good; run() returns their sum. */
void expect(struct rank *me, bool good, const char *what);
bool *peers_of(const struct rank *me);
struct pd_seat seat_of(int r, int n);
/* The device of a rank that this thread is from now on. */
void open_device(struct rank *me);
/* Has every rank do body(), connected.  Returns the number of things that were not as expected. */
int run(int n, const char *how, int places, bool chain, void (*body)(struct rank *me));
/* Does as a worker does when it has nothing to do.  -1: broken. */
int step(struct rank *me, struct pd_transport *t);
bool until(struct rank *me, struct pd_event *ev);

/* nccl_sums.c */
void open_sums(struct rank *me);
void close_sums(struct rank *me);
void own_sums(struct rank *me);
void test_own_sums(void);
void test_no_own_sums(const char *how, bool on_device);
