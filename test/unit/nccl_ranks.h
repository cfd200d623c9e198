/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that are threads of one process, on the double of NCCL (test/double) and the CPU's device, for
 * the files of test/unit/nccl.
 */
#pragma once

#include "engine/reduce/queue.h"
#include "run/transport/routes.h"

#include <pthread.h>

#define MOST 4
#define SECOND_NS INT64_C(1000000000)
#define SUMS 3

struct world;

struct rank {
	struct world *world;
	int number, failures;
	struct pd_gate gate;
	struct pd_device_ops ops;       /* the CPU's, with some replaced */
	struct pd_device *device;
	struct pd_transport *transport;
	struct pd_error err;
	bool connected;
	pthread_t thread;
	/* The members below are used if NCCL sums. */
	struct pd_stream *reduce;
	struct pd_reduction *sums[SUMS];
	float *bufs[SUMS], *room;
	struct pd_event ready[SUMS], done[SUMS];
	struct pd_reduction_queue queue;
};

struct world {
	int n;
	const char *how;
	int places;                     /* GPUs; rank r is on GPU r mod places */
	bool chain;                     /* ranks meet their neighbours only */
	void (*body)(struct rank *me);
	pthread_barrier_t barrier;
	const void *addresses[MOST];
	size_t lengths[MOST];
	struct rank ranks[MOST];
};

extern struct world world;
extern bool queues_first;              /* CUDA was never called before it could read how many queues it has */
extern int counted;                     /* GPUs that the device counts; 0: as many as places */
extern bool two_hosts;                  /* odd ranks are on another host */
extern bool sums;                       /* all ranks are replicas, and NCCL sums */
extern const char *refusal;             /* the error with which connecting must fail, or NULL */

/* Counts a failure of the rank unless `good`; run() returns the number of failures. */
void expect(struct rank *me, bool good, const char *what);
bool *peers_of(const struct rank *me);
struct pd_seat seat_of(int r, int n);
/* Opens the device of a rank, which the calling thread is from now on. */
void open_device(struct rank *me);
/* Connects n ranks and calls body() in each; returns how many expectations failed. */
int run(int n, const char *how, int places, bool chain, void (*body)(struct rank *me));
/* Does what a worker does when it has nothing to do; returns -1 if the transport is broken. */
int step(struct rank *me, struct pd_transport *t);
bool until(struct rank *me, struct pd_event *ev);

/* --- nccl_sums.c */
void open_sums(struct rank *me);
void close_sums(struct rank *me);
void own_sums(struct rank *me);
void test_own_sums(void);
void test_no_own_sums(const char *how, bool on_device);
