/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stream as a thread with a bounded queue, for all devices that compute.
 *
 * The thread takes queued work in order and gives it to the device's run(); then the device's
 * done() completes the event, at once or later.  After a failure no work is run, since it would use
 * wrong data; its events fail with the same reason.
 */
#pragma once

#include "engine/device/device.h"

#include <pthread.h>

#define PD_QUEUE 256

struct pd_queue;

/* The stream's thread calls all of these but joint(). */
struct pd_queue_ops {
	/*
	 * Returns how many of n works that came together, from the first on, are one call of run(): the
	 * others are joined to it.  NULL: 1.
	 */
	int (*joint)(const struct pd_queue *q, const struct pd_work *works, int n);
	int (*begin)(struct pd_queue *q, struct pd_error *err);
	/* Runs the work; pd_queue_item() returns the works that are joined to it. */
	int (*run)(struct pd_queue *q, const struct pd_work *work, struct pd_error *err);
	/*
	 * Is called for each work, joined ones included, once it was run or, with why, was not; its
	 * entry in the queue is free.  ev may be NULL.
	 */
	void (*done)(struct pd_queue *q, struct pd_event *ev, int64_t start_ns,
		     const struct pd_error *why);
	void (*end)(struct pd_queue *q);
};

/* A device's stream begins with this. */
struct pd_queue {
	struct pd_stream base;
	const struct pd_queue_ops *ops;
	struct pd_gate *gate;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t filled;
	struct pd_work queue[PD_QUEUE];
	size_t head, tail;              /* head: the next to run; both only grow */
	bool quits;                     /* the thread, once no work is left */
	bool closing;                   /* protected by the gate's lock, if there is a gate */
};

/* Opens a queue in zeroed memory of the device's. */
int pd_queue_open(struct pd_queue *q, struct pd_device *device, struct pd_gate *gate,
		  const struct pd_queue_ops *ops, struct pd_error *err);
/* Ends the thread once its work is done; the memory stays the device's. */
void pd_queue_close(struct pd_queue *q);
/* Inside run(), item 0 is the work; items from 1 on are joined to it. */
const struct pd_work *pd_queue_item(const struct pd_queue *q, int i);
/* Sleeps until the event is done; -1 where it failed or never will be done. */
int pd_queue_await(struct pd_queue *q, const struct pd_event *ev, struct pd_error *err);

/* This is stream.submit of a device. */
int pd_queue_submit(struct pd_stream *stream, const struct pd_work *works, int n);
