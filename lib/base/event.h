/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events and the gate.
 *
 * An event stands for one piece of work given to a device stream, a transport or a
 * loader.  Its owner arms it before handing it over; whoever did the work completes
 * it, once, with the times at which the work began and ended.  An event that was
 * never armed counts as done.
 *
 * A gate is what a process sleeps on: completing an event wakes every thread that
 * waits at its gate and makes the gate's file descriptor readable.  There is one per
 * rank.  In virtual time there is none (NULL): nobody sleeps.
 */
#pragma once

#include "base/error.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum pd_event_state {
	PD_EVENT_DONE,          /* or the event was never armed */
	PD_EVENT_PENDING,
	PD_EVENT_FAILED,
};

struct pd_event {
	_Atomic int state;
	int64_t start_ns, end_ns;       /* valid when not pending */
	void *native;                   /* the device's or transport's own data, while pending */
};

struct pd_gate {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	int fd;                         /* an eventfd */
	struct pd_error err;            /* of the first failed event */
	_Atomic int failed;
};

int pd_gate_init(struct pd_gate *gate, struct pd_error *err);
void pd_gate_release(struct pd_gate *gate);
/*
 * Something has failed: the gate's error, with "WHAT: " before it; where there is no gate, "WHAT:
 * failed".  Returns -1.
 */
int pd_gate_failed(const struct pd_gate *gate, struct pd_error *err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static inline void pd_event_arm(struct pd_event *ev)
{
	ev->native = NULL;
	atomic_store_explicit(&ev->state, PD_EVENT_PENDING, memory_order_relaxed);
}

static inline bool pd_event_done(const struct pd_event *ev)
{
	return atomic_load_explicit(&ev->state, memory_order_acquire) != PD_EVENT_PENDING;
}

static inline bool pd_event_failed(const struct pd_event *ev)
{
	return atomic_load_explicit(&ev->state, memory_order_acquire) == PD_EVENT_FAILED;
}

/* Completes an event that has no gate. */
static inline void pd_event_end(struct pd_event *ev, int64_t start_ns, int64_t end_ns)
{
	ev->start_ns = start_ns;
	ev->end_ns = end_ns;
	atomic_store_explicit(&ev->state, PD_EVENT_DONE, memory_order_release);
}

/* Completes the event and wakes whoever waits at the gate (which may be NULL). */
void pd_event_complete(struct pd_event *ev, int64_t start_ns, int64_t end_ns,
		       struct pd_gate *gate);

/* Completes the event as failed; the gate keeps the first error. */
void pd_event_fail(struct pd_event *ev, const struct pd_error *why, struct pd_gate *gate);

/* Blocks the calling thread until the event is not pending.  A worker never calls it. */
void pd_event_wait(struct pd_event *ev, struct pd_gate *gate);
