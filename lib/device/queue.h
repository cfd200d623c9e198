/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stream as a thread with a bounded queue, for all devices that compute.
 *
 * The thread takes queued work in order and gives it to the device's run(); then the device's
 * done() completes the event, at once or later.  After a failure no work is run, since it would use
 * wrong data; its events fail with the same reason.
 */
#pragma once

#include "device/device.h"

#include <pthread.h>

#define PD_QUEUE 256

enum pd_work_kind {
	PD_WORK_WAIT, PD_WORK_FORWARD, PD_WORK_BACKWARD, PD_WORK_UPDATE, PD_WORK_SUM,
	PD_WORK_SUM_ALL, PD_WORK_MIXED_SUM, PD_WORK_SQUARES, PD_WORK_UNITE, PD_WORK_CHUNKS, PD_WORK_COPY,
	PD_WORK_CALL, PD_WORK_QUIT
};

struct pd_work {
	enum pd_work_kind kind;
	int joined;	/* so many works behind this one belong to the same call of run() */
	struct pd_event *ev;
	struct pd_net *net;
	int from, count;
	union {
		struct pd_event *awaited;
		struct pd_pass pass;
		struct pd_update update;
		struct {
			float *dst;
			const float *src[PD_SUM_SOURCES];
			int n;
			size_t count;
		} sum;
		struct {
			float *arrays[PD_SUM_SOURCES];
			int n;
			size_t count;
		} sum_all;
		struct pd_mixed_sum mixed_sum;
		struct pd_squares squares;
		struct pd_chunks chunks;
		struct {
			double *vector;
			const double *other;
			size_t count;
		} unite;
		struct {
			void *dst;
			const void *src;
			size_t bytes;
			enum pd_copy way;
		} copy;
		struct pd_call call;
	};
};

struct pd_queue;

/* The stream's thread calls all of these. */
struct pd_queue_ops {
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

/* These are the device's functions of the same names. */
int pd_queue_wait(struct pd_stream *stream, struct pd_event *ev);
int pd_queue_forward(struct pd_stream *stream, struct pd_net *net, const struct pd_pass *pass,
		     int from, int count, struct pd_event *ev);
int pd_queue_backward(struct pd_stream *stream, struct pd_net *net, const struct pd_pass *pass,
		      int from, int count, struct pd_event *ev);
int pd_queue_update(struct pd_stream *stream, struct pd_net *net, const struct pd_update *update,
		    int from, int count, struct pd_event *ev);
/* If join is true, the three works are one call of run(). */
int pd_queue_iterate(struct pd_stream *stream, struct pd_net *net,
		     const struct pd_iteration *iteration, int from, int count, bool join);
int pd_queue_sum(struct pd_stream *stream, float *dst, const float *const *src, int n,
		 size_t count, struct pd_event *ev);
int pd_queue_sum_all(struct pd_stream *stream, float *const *arrays, int n, size_t count,
		     struct pd_event *ev);
int pd_queue_mixed_sum(struct pd_stream *stream, const struct pd_mixed_sum *sum, struct pd_event *ev);
int pd_queue_squares(struct pd_stream *stream, struct pd_net *net, const struct pd_squares *what,
		     struct pd_event *ev);
int pd_queue_unite(struct pd_stream *stream, double *vector, const double *other, size_t count,
		   struct pd_event *ev);
int pd_queue_chunks(struct pd_stream *stream, const struct pd_chunks *what, struct pd_event *ev);
int pd_queue_copy(struct pd_stream *stream, void *dst, const void *src, size_t bytes,
		  enum pd_copy way, struct pd_event *ev);
int pd_queue_call(struct pd_stream *stream, const struct pd_call *call, struct pd_event *ev);
