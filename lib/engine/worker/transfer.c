/* SPDX-License-Identifier: Apache-2.0 */
/* Issues a stage's inputs and outputs: from the data set, from and to other ranks. */
#include "engine/worker/issue.h"

/*
 * Tells whether the microbatch that had the inbox before has left it: a layer that works in place may have
 * put there what is sent.
 */
static bool inbox_left(const struct pd_worker *w, const struct chunk *c, const struct microbatch *microbatch)
{
	for (int p = 0; p < c->links_out_count; p++)
		for (int t = 0; t < c->links_out[p].link->tensor_count; t++)
			if (c->links_out[p].tensors[t]->inbox &&
			    !worker_may_arm(w, &microbatch->sent[p]))
				return false;
	return true;
}

/* Loads on a stream of its own, beside the computation, if the device has separate memory. */
int worker_issue_load(struct pd_worker *w, struct chunk *c, const struct pd_op *op)
{
	struct pd_stream *stream = w->load ? w->load : w->compute;
	struct microbatch *microbatch = worker_microbatch(w, c, op);
	struct pd_batch *batch = NULL;
	int n = 0, k = 0;

	if (!worker_may_arm(w, &microbatch->loaded) || !inbox_left(w, c, microbatch))
		return 0;
	if (c->loader) {
		batch = pd_loader_next(c->loader);
		if (!batch)
			return 0;
		if (batch->microbatch != op->microbatch || batch->evaluate != op->evaluate)
			pd_bug("loader: out of step with the schedule");
		if (pd_submit_wait(stream, &batch->ready) != 0)
			return -1;
	}
	if (w->load && microbatch->ended && worker_after(w, w->load, microbatch->ended) < 0)
		return -1;
	worker_arm(w, &microbatch->loaded);
	microbatch->batch = batch;
	worker_new_entry(w, op, &microbatch->loaded);
	for (int i = 0; i < c->sizes->in_count && batch; i++)
		n += c->sizes->in[i].tensor < w->config.first_tensor;
	if (n == 0)     /* in virtual time there is nothing to copy, but an event to complete */
		return pd_submit_copy(stream, NULL, NULL, 0, PD_COPY_TO_DEVICE,
					   &microbatch->loaded.events[0]) == 0 ? 1 : -1;
	for (int i = 0; i < c->sizes->in_count; i++) {
		const struct pd_net_tensor *t = &c->sizes->in[i];

		if (t->tensor >= w->config.first_tensor)
			continue;
		if (pd_submit_copy(stream, microbatch->inbox + t->offset, batch->buffers[k],
					batch->bytes[k], PD_COPY_TO_DEVICE,
					k == n - 1 ? &microbatch->loaded.events[0] : NULL) != 0)
			return -1;
		k++;
	}
	return 1;
}

static int stage_link_of(const struct stage_link *stage_links, int count,
			 const struct pd_wiring *wiring, int link)
{
	for (int i = 0; i < count; i++)
		if (stage_links[i].link == &wiring->links[link])
			return i;
	pd_bug("worker: link %d does not touch the stage", link);
}

static uint64_t tag_of(const struct pd_worker *w, const struct pd_op *op, int tensor)
{
	uint64_t links = 2 * (uint64_t)w->config.schedule->wiring->link_count;
	uint64_t id = (uint64_t)op->microbatch * links + 2 * (uint64_t)op->link +
		      pd_op_of_gradient(op->kind);

	return (op->evaluate ? TAG_EVALUATE : 0) |
	       ((id * w->tensors_most + (uint64_t)tensor) & TAG_NUMBER);
}

/*
 * Returns what a gradient that leaves waits for: its backward, or NULL if that has retired.  The
 * fence may then be that of a later microbatch's backward.
 */
static struct fence *made_by(const struct pd_worker *w, struct microbatch *microbatch,
			     const struct gradient_buffer *buffer)
{
	return buffer->made < w->retired ? NULL : &microbatch->backward[microbatch->turn];
}

/*
 * Issues a transfer.  Activations go straight from slot to inbox, and gradients from gradient-out
 * to gradient-in.  A receive waits for the last use of its buffer.  For an inbox that is the
 * backward of the microbatch that had it before (its second part if there are two; in evaluation
 * the forward).  The forward must have ended, because it is what waited for these events.  For
 * gradient-in it is the backward that used it before, which worker_may_arm has seen retired.
 */
int worker_issue_transfer(struct pd_worker *w, struct chunk *c, const struct pd_op *op)
{
	const struct pd_wiring *wiring = w->config.schedule->wiring;
	const struct pd_transport_ops *transport = w->config.transport->ops;
	bool sends = pd_op_sends(op->kind), activation = !pd_op_of_gradient(op->kind);
	bool link_in = pd_op_at_end(op->kind);
	struct stage_link *stage_links = link_in ? c->links_in : c->links_out;
	int p = stage_link_of(stage_links, link_in ? c->links_in_count : c->links_out_count, wiring,
			      op->link);
	struct microbatch *microbatch = worker_microbatch(w, c, op);
	struct gradient_buffer *buffer = link_in ? worker_gradients_out(w, c, op)
		: worker_gradients_in(w, c, op);
	struct fence *fence = !activation ? &buffer->transfers[p]
			    : sends ? &microbatch->sent[p] : &microbatch->received[p];
	struct fence *before = op->kind == PD_OP_send_activation ? &microbatch->forward
			      : op->kind == PD_OP_send_gradient ? made_by(w, microbatch, buffer)
			      : op->kind == PD_OP_recv_gradient ? NULL : microbatch->ended;

	if (!worker_may_arm(w, fence))
		return 0;
	if (op->kind == PD_OP_recv_activation && !worker_ended(w, &microbatch->forward))
		return 0;
	if (op->kind == PD_OP_recv_activation)
		for (int i = 0; i < c->links_out_count; i++)
			if (!worker_may_arm(w, &microbatch->sent[i]))
				return 0;
	worker_arm(w, fence);
	worker_new_entry(w, op, fence);
	for (int t = 0; t < fence->count; t++) {
		const struct pd_net_tensor *tensor = stage_links[p].tensors[t];
		/* A tensor whose earlier layers do not learn from it has no gradient. */
		bool none = !activation && tensor->gradient_offset == SIZE_MAX;
		size_t bytes = none ? 0 : tensor->bytes;
		char *at = none ? NULL : !activation ? buffer->memory + tensor->gradient_offset
			   : sends && c->counts.outboxes > 0
			     ? worker_outbox(w, c, op)->memory + stage_links[p].places[t]
			   : (tensor->inbox ? microbatch->inbox : microbatch->slot->memory) +
			     tensor->offset;
		const struct pd_event *ready = before ? worker_event_of(w, before) : NULL;

		if ((sends ? transport->send(w->config.transport, op->peer, tag_of(w, op, t), at,
					     bytes, ready, &fence->events[t])
			   : transport->recv(w->config.transport, op->peer, tag_of(w, op, t), at,
					     bytes, ready, &fence->events[t])) < 0)
			return -1;
	}
	return 1;
}
