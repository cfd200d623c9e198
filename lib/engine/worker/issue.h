/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Declarations shared by the files that issue operations: pass.c, update.c, transfer.c,
 * global_norm.c.  An operation states its dependencies and is handed to a stream or the transport.
 *
 * Two rules keep events safe.  First, before an operation arms a fence's events, the last operation
 * that armed them or waits for them must have retired (worker_may_arm); for events that one operation
 * alone waits for, it is enough that this one has ended (worker_behind).  Otherwise the operation is
 * not issued yet.  Waiting is always safe, because the list is in an order that cannot deadlock
 * even if every operation blocks.  Second, memory is written only by an operation that waits for
 * the last one that used it, through an event or on the same stream.
 *
 * Functions that every operation needs are inline, because a replay does little else.
 */
#pragma once

#include "engine/worker/internal.h"

#include "engine/device/submit.h"

static inline bool worker_fence_done(const struct fence *fence)
{
	for (int i = 0; i < fence->count; i++)
		if (!pd_event_done(&fence->events[i]))
			return false;
	return true;
}

static inline bool worker_may_arm(const struct pd_worker *w, const struct fence *fence)
{
	/*
	 * If a GPU's streams wait for each other by themselves, an operation that waited may be
	 * known to be done before the one that it waited for.
	 */
	return fence->last_use < w->retired && (!w->config.gate || worker_fence_done(fence));
}

static inline void worker_arm(struct pd_worker *w, struct fence *fence)
{
	for (int i = 0; i < fence->count; i++)
		pd_event_arm(&fence->events[i]);
	fence->last_use = w->issued;
}

/* Tells whether the fence is done.  If not, what is issued next waits for that, whatever retires. */
static inline bool worker_ended(struct pd_worker *w, const struct fence *fence)
{
	bool done = worker_fence_done(fence);

	w->until = done ? NULL : fence;
	return done;
}

/*
 * Makes work queued on the stream from now on start after the fence's events.  Who arms them anew
 * must ask whether that work has ended: it need not have retired, because one that is older and has
 * nothing to do with it may be under way for long.
 */
static inline int worker_behind(struct pd_worker *w, struct pd_stream *stream,
				const struct fence *fence)
{
	for (int i = 0; i < fence->count; i++) {
		if (!pd_event_done(&fence->events[i]) && pd_submit_wait(stream, &fence->events[i]) != 0)
			return -1;
	}
	return 0;
}

/*
 * Does the same, and the events are not armed anew before the operation has retired.  It counts as a
 * user of events that are done already, since their data is still to be read.
 */
static inline int worker_after(struct pd_worker *w, struct pd_stream *stream, struct fence *fence)
{
	if (fence->count > 0)
		fence->last_use = w->issued;
	return worker_behind(w, stream, fence);
}

/* Returns the fence's last event, on whatever stream; when it is done, the others are. */
static inline struct pd_event *worker_event_of(struct pd_worker *w, struct fence *fence)
{
	fence->last_use = w->issued;
	return &fence->events[fence->count - 1];
}

/* Records the operation as the next one issued; it is finished when the fence is. */
static inline void worker_new_entry(struct pd_worker *w, const struct pd_op *op,
				    struct fence *fence)
{
	*worker_entry(w, w->issued) = (struct issued_op){ .op = *op, .fence = fence };
}

/* Returns the number of the operation's group in the phase. */
static inline int64_t worker_group_of(const struct pd_worker *w, const struct chunk *c, const struct pd_op *op)
{
	return (op->microbatch - w->phase.first) / w->config.schedule->group[c->index];
}

/* Returns the sum of the operation's group. */
static inline struct sum *worker_sum_of(struct pd_worker *w, struct chunk *c, const struct pd_op *op)
{
	return &c->sums[worker_group_of(w, c, op) % c->sum_count];
}

/* Returns the slot that a forward or a recompute, which is issued next, works in. */
static inline struct slot *worker_next_slot(struct pd_worker *w, struct chunk *c, const struct pd_op *op)
{
	return op->evaluate ? &c->pool->slots[c->evaluated_first + worker_local_number(w, c, op) % c->evaluated_turn]
			    : c->pool->free[c->pool->first];
}

/* Takes that slot for the microbatch until the end of its backward. */
static inline void worker_take_slot(struct chunk *c)
{
	struct pool *pool = c->pool;

	if (pool->free_count == 0)
		pd_bug("worker: the slots of stage %d are all taken", c->index);
	pool->first = pool->first + 1 < pool->count ? pool->first + 1 : 0;
	pool->free_count--;
}

static inline void worker_give_slot(struct chunk *c, struct slot *slot)
{
	struct pool *pool = c->pool;
	int end = pool->first + pool->free_count++;

	pool->free[end < pool->count ? end : end - pool->count] = slot;
}

/* Returns what layers keep of a microbatch that are not computed again; NULL: all layers are. */
static inline void *worker_kept(struct pd_worker *w, struct chunk *c, const struct pd_op *op)
{
	int64_t i = worker_local_number(w, c, op);

	if (c->counts.kept == 0)
		return NULL;
	return c->kept[c->microbatch_turn ? i % c->counts.kept : c->counts.buffers[i].kept];
}

/* Returns where the outputs of a microbatch of a stage that recomputes stay until they are sent. */
static inline struct slot *worker_outbox(struct pd_worker *w, struct chunk *c, const struct pd_op *op)
{
	int64_t i = worker_local_number(w, c, op);

	return &c->outboxes[c->microbatch_turn ? i % c->counts.outboxes : c->counts.buffers[i].outbox];
}

/* Returns the buffer for a microbatch's gradients that arrive. */
static inline struct gradient_buffer *worker_gradients_in(struct pd_worker *w, struct chunk *c,
							  const struct pd_op *op)
{
	int64_t i = worker_local_number(w, c, op);
	int64_t k = c->microbatch_turn ? i % c->counts.arriving : c->counts.buffers[i].arriving;

	/* Nothing arrives for the last stage. */
	return &c->in[k < 0 ? 0 : k];
}

/* Returns the buffer for a microbatch's gradients that leave. */
static inline struct gradient_buffer *worker_gradients_out(struct pd_worker *w, struct chunk *c,
							   const struct pd_op *op)
{
	int64_t i = worker_local_number(w, c, op);
	int64_t k = c->microbatch_turn ? i % c->counts.leaving : c->counts.buffers[i].leaving;

	return &c->out[k < 0 ? 0 : k];
}

/* All of these return 1: issued, 0: not yet, -1: failed. */

/* pass.c: a microbatch's computations in the stage */
int worker_issue_forward(struct pd_worker *w, struct chunk *c, const struct pd_op *op);
int worker_issue_recompute(struct pd_worker *w, struct chunk *c, const struct pd_op *op);
/* Issues a whole backward, or its first part. */
int worker_issue_backward(struct pd_worker *w, struct chunk *c, const struct pd_op *op);
/* Issues the second part; after it the microbatch's slot, inbox and version are free. */
int worker_issue_backward_weight(struct pd_worker *w, struct chunk *c, const struct pd_op *op);

/* transfer.c: a stage's inputs and outputs */
int worker_issue_load(struct pd_worker *w, struct chunk *c, const struct pd_op *op);
int worker_issue_transfer(struct pd_worker *w, struct chunk *c, const struct pd_op *op);

/* update.c: a group's gradients and the update */
int worker_issue_allreduce(struct pd_worker *w, struct chunk *c, const struct pd_op *op);
int worker_issue_norms(struct pd_worker *w, struct chunk *c, const struct pd_op *op);
int worker_issue_step(struct pd_worker *w, struct chunk *c, const struct pd_op *op);
/* Tells whether a backward's gradients may be added to the sum of what it is about. */
bool worker_may_add(struct pd_worker *w, struct chunk *c, const struct pd_op *op);
/*
 * Call this when a backward that makes gradients, or a part of one, was queued, with its fence. 
 * Returns 0 or -1.
 */
int worker_add_gradients(struct pd_worker *w, struct chunk *c, const struct pd_op *op,
			 struct fence *made);

/* global_norm.c */
int worker_issue_agree(struct pd_worker *w, struct chunk *c, const struct pd_op *op);
