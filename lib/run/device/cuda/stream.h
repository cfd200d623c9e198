/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread of a stream (stream.c) and the device's thread that completes events (poller.c) share
 * this.
 */
#pragma once

#include "run/device/cuda/cuda.h"

#define PD_CUDA_SUBMISSIONS 256

struct pd_cuda_submission {
	cudaEvent_t start, end;         /* CUDA's, used again and again; start: NULL where untimed */
	cudaEvent_t tells;              /* done when the work is: end, or an event of a graph */
	bool recorded;                  /* `tells` is on the CUDA stream, behind the work */
	int64_t given_ns;               /* when the work was put on the CUDA stream */
	struct pd_event *ev;            /* may be NULL */
	const struct pd_compiled *net;  /* whose losses the work computes; NULL: none */
	const struct pd_kernel_loss *made;      /* the losses, in pinned memory */
	struct pd_loss *losses;         /* where the caller wants them, or NULL */
	int64_t valid;
	struct pd_outcome *outcome;     /* where the caller wants an update's outcome, or NULL */
	struct pd_call call;            /* check is NULL where the work is no call */
};

/* The GPU reports on a piece of work here, in pinned memory. */
struct pd_cuda_said {
	struct pd_outcome outcome;
};

/* Device memory of the stream's, used by one piece of work at a time. */
struct pd_cuda_scrap {
	struct pd_kernel_choice choice;
	struct pd_cuda_norms norms;
};

struct pd_cuda_stream {
	struct pd_queue queue;
	struct pd_cuda_stream *next;    /* in the device's list */
	cudaStream_t stream;
	uint64_t serial;                /* unique from 1 on, unlike CUDA's handles */
	pthread_cond_t moved;	/* signalled when head or tail moves; used with the device's lock */
	struct pd_cuda_submission submissions[PD_CUDA_SUBMISSIONS];
	struct pd_cuda_said *said;              /* one per submission */
	struct pd_cuda_scrap *scrap;
	size_t head, tail;              /* both only grow */
	struct pd_cuda_submission *current;	/* being put on the CUDA stream, or NULL */
	bool broken;                    /* under the device's lock; `why` says why */
	struct pd_error why;
	/* for the device's thread that completes events: */
	struct pd_cuda_clock clock;
	int64_t anchored_ns;            /* when the clock was compared last */
	int64_t last_ns;
};

static inline struct pd_cuda_device *pd_cuda_device_of(const struct pd_cuda_stream *s)
{
	return (struct pd_cuda_device *)s->queue.base.device;
}

/* --- stream.c: an error that the poller finds ends the queue's thread, too */
void pd_cuda_stream_fail(struct pd_cuda_stream *s, const struct pd_error *why);
