/* SPDX-License-Identifier: Apache-2.0 */
/* What a stream's thread and the device's second thread share: stream.c, poller.c. */
#ifndef PD_DEVICE_CUDA_STREAM_H
#define PD_DEVICE_CUDA_STREAM_H

#include "device/cuda/cuda.h"

#define PD_CUDA_SUBMISSIONS 256

struct pd_cuda_submission {
	cudaEvent_t start, end;         /* CUDA's, used again and again; start: NULL if untimed */
	cudaEvent_t tells;              /* this event says when the work is done: end, or a graph's */
	bool recorded;                  /* `tells` was put on the CUDA stream with the work */
	int64_t given_ns;               /* when it was put on the CUDA stream */
	struct pd_event *ev;            /* may be NULL */
	const struct pd_compiled *net;  /* whose losses this work made; NULL: none */
	const struct pd_kernel_loss *made;      /* them, in pinned memory */
	struct pd_loss *losses;         /* where the caller wants them, or NULL */
	int64_t valid;
	struct pd_outcome *outcome;     /* of an update, where the caller wants it, or NULL */
	struct pd_call call;            /* check is NULL where it was none */
};

/* What the GPU says of a piece of work, in pinned memory. */
struct pd_cuda_said {
	struct pd_outcome outcome;
};

/* The stream's own device memory: of one piece of work, until the next. */
struct pd_cuda_scrap {
	struct pd_kernel_choice choice;
	struct pd_cuda_norms norms;
};

struct pd_cuda_stream {
	struct pd_queue queue;
	struct pd_cuda_stream *next;    /* the device's list */
	cudaStream_t stream;
	uint64_t serial;                /* no other stream's, unlike CUDA's name for one; from 1 */
	pthread_cond_t moved;           /* head or tail has; the device's lock */
	struct pd_cuda_submission submissions[PD_CUDA_SUBMISSIONS];
	struct pd_cuda_said *said;              /* by submission */
	struct pd_cuda_scrap *scrap;
	size_t head, tail;              /* both only grow */
	struct pd_cuda_submission *current;	/* what is being put on the CUDA stream, or NULL */
	bool broken;                    /* with the device's lock: why */
	struct pd_error why;
	/* of the device's second thread: */
	struct pd_cuda_clock clock;
	int64_t anchored_ns;            /* when the clock was last looked at */
	int64_t last_ns;
};

static inline struct pd_cuda_device *pd_cuda_device_of(const struct pd_cuda_stream *s)
{
	return (struct pd_cuda_device *)s->queue.base.device;
}

/* --- stream.c: what was found wrong ends the queue's thread, too */
void pd_cuda_stream_fail(struct pd_cuda_stream *s, const struct pd_error *why);

#endif
