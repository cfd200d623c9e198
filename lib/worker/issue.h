/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Declarations shared by the files that issue operations: pass.c, update.c, transfer.c, agree.c. 
 * An operation states its dependencies and is handed to a stream or the transport.
 *
 * Two rules keep events safe.  First, before an operation arms a mark's events, the last operation
 * that armed them or waits for them must have retired (worker_may_arm).  Otherwise the operation is
 * not issued yet.  Waiting is always safe, because the list is in an order that cannot deadlock
 * even if every operation blocks.  Second, memory is written only by an operation that waits for
 * the last one that used it, through an event or on the same stream.
 *
 * What every operation needs is inline, because a replay does little else.
 */
#ifndef PD_WORKER_ISSUE_H
#define PD_WORKER_ISSUE_H

#include "worker/internal.h"

static inline bool worker_may_arm(const struct pd_worker *w, const struct mark *mark)
{
	if (mark->last_use >= w->retired)
		return false;
	/*
	 * If a GPU's streams wait for each other by themselves, an operation that waited may be
	 * known to be done before the one that it waited for.
	 */
	for (int i = 0; i < mark->count && w->config.gate; i++)
		if (!pd_event_done(&mark->events[i]))
			return false;
	return true;
}

static inline void worker_arm(struct pd_worker *w, struct mark *mark)
{
	for (int i = 0; i < mark->count; i++)
		pd_event_arm(&mark->events[i]);
	mark->last_use = w->issued;
}

/*
 * Makes work queued on the stream from now on start after the mark's events.  The operation counts
 * as a user of events that are done already, since their data is still to be read.
 */
static inline int worker_after(struct pd_worker *w, struct pd_stream *stream, struct mark *mark)
{
	for (int i = 0; i < mark->count; i++) {
		mark->last_use = w->issued;
		if (pd_event_done(&mark->events[i]) && w->config.gate)
			continue;
		if (w->config.device->ops->stream.wait(stream, &mark->events[i]) != 0)
			return -1;
	}
	return 0;
}

/* Returns the mark's last event, on whatever stream; when it is done, the others are. */
static inline struct pd_event *worker_event_of(struct pd_worker *w, struct mark *mark)
{
	mark->last_use = w->issued;
	return &mark->events[mark->count - 1];
}

/* Records the operation as the next one issued; it is finished when the mark is. */
static inline void worker_new_entry(struct pd_worker *w, const struct pd_op *op,
				    struct mark *mark)
{
	*worker_entry(w, w->issued) = (struct entry){ .op = *op, .mark = mark };
}

/* Returns the sum of the operation's group. */
static inline struct sum *worker_sum_of(struct pd_worker *w, struct chunk *c,
					const struct pd_op *op)
{
	int64_t group = w->config.schedule->group[c->index];

	return &c->sums[(op->microbatch - w->phase.first) / group % c->sum_count];
}

/* Returns the memory of a microbatch from forward to backward. */
static inline struct slot *worker_slot(struct pd_worker *w, struct chunk *c,
				       const struct pd_op *op)
{
	int64_t i = worker_local_number(w, c, op);

	/*
	 * With recomputation a forward leaves nothing in its slot, which the next recompute will
	 * have.
	 */
	if (c->stage->recompute && op->kind == PD_OP_forward)
		return &c->slots[c->slot_turn ? c->recomputed % c->slot_turn
					      : c->room.buffers[i].work];
	return &c->slots[c->slot_turn ? i % c->slot_turn : c->room.buffers[i].slot];
}

/* Returns where a microbatch's outputs stay until they are sent: its slot, or an outbox. */
static inline struct slot *worker_holder(struct pd_worker *w, struct chunk *c,
					 const struct pd_op *op)
{
	int64_t i = worker_local_number(w, c, op);

	if (c->room.outboxes == 0)
		return worker_slot(w, c, op);
	return &c->outboxes[c->slot_turn ? i % c->room.outboxes : c->room.buffers[i].outbox];
}

/* Returns the buffer for a microbatch's gradients that arrive. */
static inline struct passage *worker_passage_in(struct pd_worker *w, struct chunk *c,
						const struct pd_op *op)
{
	int64_t i = worker_local_number(w, c, op);
	int64_t k = c->flight_turn ? i % c->room.arriving : c->room.buffers[i].arriving;

	/* Nothing arrives for the last stage. */
	return &c->in[k < 0 ? 0 : k];
}

/* Returns the buffer for a microbatch's gradients that leave. */
static inline struct passage *worker_passage_out(struct pd_worker *w, struct chunk *c,
						 const struct pd_op *op)
{
	int64_t i = worker_local_number(w, c, op);
	int64_t k = c->flight_turn ? i % c->room.leaving : c->room.buffers[i].leaving;

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
int worker_issue_step(struct pd_worker *w, struct chunk *c, const struct pd_op *op);
/* Call this when a backward that makes gradients was queued, with its mark.  Returns 0 or -1. */
int worker_add_gradients(struct pd_worker *w, struct chunk *c, const struct pd_op *op,
			 struct mark *made);

/*
 * join.c: these do what the device's functions do.  An update or a forward may be queued with what
 * is issued next.
 */
int worker_queue_update(struct pd_worker *w, struct chunk *c, const struct pd_update *update,
			struct pd_event *ev);
int worker_queue_forward(struct pd_worker *w, struct chunk *c, const struct pd_op *op,
			 const struct pd_pass *pass, struct pd_event *ev);
int worker_queue_backward(struct pd_worker *w, struct chunk *c, const struct pd_pass *pass,
			  struct pd_event *ev);
/* Queues what was kept back: 0 or -1. */
int worker_queue_kept(struct pd_worker *w);
/* The same, unless the operation that is issued next may be queued with it. */
int worker_queue_kept_before(struct pd_worker *w, const struct pd_op *op);

/* agree.c */
int worker_issue_agree(struct pd_worker *w, struct chunk *c, const struct pd_op *op);

#endif
