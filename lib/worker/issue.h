/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files share that issue operations: pass.c, update.c, transfer.c, agree.c.  An
 * operation states its dependencies and is handed to a stream or the transport.
 *
 * Two rules keep events safe.  Before an operation arms a mark's events, the last
 * operation that armed or waits for them must have retired (worker_may_arm); otherwise the
 * operation is not issued yet, and since the list is in an order that cannot deadlock
 * even if every operation blocked, waiting is always safe.  And memory is written only
 * by an operation that waits, through an event or because it is queued behind it on the
 * same stream, for the last one that used it.
 *
 * What every operation needs is inline: a replay does little else.
 */
#ifndef PD_WORKER_ISSUE_H
#define PD_WORKER_ISSUE_H

#include "worker/internal.h"

static inline bool worker_may_arm(const struct pd_worker *w, const struct mark *mark)
{
	if (mark->last_use >= w->retired)
		return false;
	/* where a GPU's streams wait for each other by themselves, who waited may be known to be
	 * done before that for which it did */
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
 * Work queued on the stream from now on starts after the mark's events.  They count as used
 * by it though they are done already: what they brought is still to be read.
 */
static inline int worker_after(struct pd_worker *w, struct pd_stream *stream, struct mark *mark)
{
	for (int i = 0; i < mark->count; i++) {
		mark->last_use = w->issued;
		if (pd_event_done(&mark->events[i]) && w->config.gate)
			continue;
		if (w->config.device->ops->wait(stream, &mark->events[i]) != 0)
			return -1;
	}
	return 0;
}

/* The last of the mark's, on whatever stream: with it the others are done. */
static inline struct pd_event *worker_event_of(struct pd_worker *w, struct mark *mark)
{
	mark->last_use = w->issued;
	return &mark->events[mark->count - 1];
}

/* The operation is the next of those issued: it is finished when the mark is. */
static inline void worker_new_entry(struct pd_worker *w, const struct pd_op *op,
				    struct mark *mark)
{
	*worker_entry(w, w->issued) = (struct entry){ .op = *op, .mark = mark };
}

/* The sum of the group that the operation is of. */
static inline struct sum *worker_sum_of(struct pd_worker *w, struct chunk *c,
					const struct pd_op *op)
{
	int64_t group = w->config.schedule->group[c->index];

	return &c->sums[(op->microbatch - w->phase.first) / group % c->sum_count];
}

/* What a microbatch keeps from forward to backward. */
static inline struct slot *worker_slot(struct pd_worker *w, struct chunk *c,
				       const struct pd_op *op)
{
	int64_t i = worker_local_number(w, c, op);

	/* with recomputation a forward leaves nothing there, and the next recompute will */
	if (c->stage->recompute && op->kind == PD_OP_forward)
		return &c->slots[c->slot_turn ? c->recomputed % c->slot_turn
					      : c->room.buffers[i].work];
	return &c->slots[c->slot_turn ? i % c->slot_turn : c->room.buffers[i].slot];
}

/* Where what leaves of the microbatch stays until it has: its slot, or an outbox. */
static inline struct slot *worker_holder(struct pd_worker *w, struct chunk *c,
					 const struct pd_op *op)
{
	int64_t i = worker_local_number(w, c, op);

	if (c->room.outboxes == 0)
		return worker_slot(w, c, op);
	return &c->outboxes[c->slot_turn ? i % c->room.outboxes : c->room.buffers[i].outbox];
}

/* Where gradients of the microbatch arrive. */
static inline struct passage *worker_passage_in(struct pd_worker *w, struct chunk *c,
						const struct pd_op *op)
{
	int64_t i = worker_local_number(w, c, op);
	int64_t k = c->flight_turn ? i % c->room.arriving : c->room.buffers[i].arriving;

	/* nothing arrives for the last stage */
	return &c->in[k < 0 ? 0 : k];
}

/* Where those are that leave. */
static inline struct passage *worker_passage_out(struct pd_worker *w, struct chunk *c,
						 const struct pd_op *op)
{
	int64_t i = worker_local_number(w, c, op);
	int64_t k = c->flight_turn ? i % c->room.leaving : c->room.buffers[i].leaving;

	return &c->out[k < 0 ? 0 : k];
}

/* All of these: 1 issued, 0 not yet, -1 failed. */

/* pass.c: a microbatch's way through the stage */
int worker_issue_forward(struct pd_worker *w, struct chunk *c, const struct pd_op *op);
int worker_issue_recompute(struct pd_worker *w, struct chunk *c, const struct pd_op *op);
/* All of it, or the first part. */
int worker_issue_backward(struct pd_worker *w, struct chunk *c, const struct pd_op *op);
/* The second part: the microbatch's slot, inbox and version are free after it. */
int worker_issue_backward_weight(struct pd_worker *w, struct chunk *c, const struct pd_op *op);

/* transfer.c: what comes in and leaves */
int worker_issue_load(struct pd_worker *w, struct chunk *c, const struct pd_op *op);
int worker_issue_transfer(struct pd_worker *w, struct chunk *c, const struct pd_op *op);

/* update.c: a group's gradients, until they are in the weights */
int worker_issue_allreduce(struct pd_worker *w, struct chunk *c, const struct pd_op *op);
int worker_issue_step(struct pd_worker *w, struct chunk *c, const struct pd_op *op);
/* To be called when a backward was queued that makes gradients, with its mark.  0 or -1. */
int worker_add_gradients(struct pd_worker *w, struct chunk *c, const struct pd_op *op,
			 struct mark *made);

/* agree.c */
int worker_issue_agree(struct pd_worker *w, struct chunk *c, const struct pd_op *op);

#endif
