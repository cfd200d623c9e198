/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Issues the computations of a microbatch in a stage: forward, recompute, and backward, whole or in
 * two parts.  Each is queued on the compute stream, behind the operations that bring its inputs.
 */
#include "engine/worker/issue.h"

/*
 * Tells whether the outputs of the microbatch that had the slot before have been sent.  Its struct
 * may belong to another microbatch by now: then its sends have retired, and waiting for the other's
 * does no harm.
 */
static bool slot_left(const struct pd_worker *w, const struct slot *slot)
{
	for (int i = 0; slot->microbatch && i < slot->microbatch->chunk->links_out_count; i++)
		if (!worker_may_arm(w, &slot->microbatch->sent[i]))
			return false;
	return true;
}

/* Returns the samples of a microbatch that are real, which a stage that loads nothing must know, too. */
static int64_t valid_of(const struct pd_worker *w, const struct pd_op *op)
{
	int64_t batch_size = w->config.batch_size;

	return op->evaluate && w->config.test_samples > 0
		? pd_loader_valid(w->config.test_samples, op->microbatch * batch_size, batch_size)
		: batch_size;
}

static void fill_pass(struct pd_worker *w, struct chunk *c, const struct pd_op *op,
		      struct microbatch *microbatch, const void *weights, struct pd_pass *pass)
{
	*pass = (struct pd_pass){
		.weights = weights, .state = c->state,
		.scale = w->global_norm ? worker_scale(c, weights) : NULL,
		.inbox = microbatch->inbox, .slot = microbatch->slot->memory,
		.kept = worker_kept(w, c, op),
		.scratch = w->scratch, .first_sample = op->microbatch * w->config.batch_size,
		.valid = valid_of(w, op),
		.evaluate = op->evaluate, .beside = op->beside, .losses = microbatch->losses,
	};
}

static bool latest(const struct pd_worker *w)
{
	return pd_weights_have(w->config.schedule->plan->weights, PD_WEIGHTS_REREADS);
}

/* Copies the outputs into the outbox; after the last copy the forward is done for other stages. */
static int fill_outbox(struct pd_worker *w, struct chunk *c, struct microbatch *microbatch,
		       const struct pd_pass *pass, const struct slot *outbox)
{
	int last = c->links_out_count - 1;

	for (int p = 0; p <= last; p++)
		for (int t = 0; t < c->links_out[p].link->tensor_count; t++) {
			const struct pd_net_tensor *tensor = c->links_out[p].tensors[t];
			const char *from = tensor->inbox ? pass->inbox : tensor->kept ? pass->kept : pass->slot;
			bool ends = p == last && t == c->links_out[p].link->tensor_count - 1;

			if (pd_submit_copy(w->compute,
					outbox->memory + c->links_out[p].places[t],
					from + tensor->offset, tensor->bytes, PD_COPY_WITHIN,
					ends ? &microbatch->forward.events[1] : NULL) != 0)
				return -1;
		}
	return 1;
}

/*
 * Keeps the loss scale of a group's gradients.  Its first forward does that, so that nothing is between a
 * forward and its backward, unless another group still has the sum: then the first backward does.
 */
static int keep_scale(struct pd_worker *w, struct chunk *c, const struct pd_op *op, const struct pd_pass *pass)
{
	struct sum *sum = worker_sum_of(w, c, op);

	if (!w->global_norm || sum->scale || sum->group != worker_group_of(w, c, op) || op->evaluate)
		return 0;
	sum->scale = worker_scale_of_sum(c, sum->gradients);
	return pd_submit_copy(w->compute, sum->scale, pass->scale, sizeof(*sum->scale), PD_COPY_WITHIN, NULL);
}

int worker_issue_forward(struct pd_worker *w, struct chunk *c, const struct pd_op *op)
{
	struct microbatch *microbatch = worker_microbatch(w, c, op);
	struct slot *slot = worker_next_slot(w, c, op);
	struct slot *holder = c->counts.outboxes > 0 ? worker_outbox(w, c, op) : slot;
	struct pd_pass pass;
	const void *weights;

	if (!worker_may_arm(w, &microbatch->forward))
		return 0;
	if (!slot_left(w, holder))
		return 0;
	for (int i = 0; i < c->links_in_count; i++)
		if (worker_behind(w, w->compute, &microbatch->received[i]) < 0)
			return -1;
	if (w->load && worker_after(w, w->compute, &microbatch->loaded) < 0)
		return -1;
	/* Without stashing no version is kept for the backward. */
	weights = op->evaluate || latest(w) ? pd_weights_newest(&c->weights, NULL)
					    : pd_weights_read(&c->weights, op->version);
	microbatch->slot = slot;
	fill_pass(w, c, op, microbatch, weights, &pass);
	if (keep_scale(w, c, op, &pass) != 0)
		return -1;
	holder->microbatch = microbatch;
	if (op->evaluate)
		microbatch->ended = &microbatch->forward;
	else if (!c->stage->recompute)
		worker_take_slot(c);
	worker_arm(w, &microbatch->forward);
	worker_new_entry(w, op, &microbatch->forward);
	if (pd_submit_forward(w->compute, c->net, &pass, c->stage->first_layer, c->stage->layer_count,
			      &microbatch->forward.events[0]) != 0)
		return -1;
	return c->counts.outboxes > 0 ? fill_outbox(w, c, microbatch, &pass, holder) : 1;
}

/*
 * Returns the weights of the microbatch's forward.  If no version is kept, these are the newest, or
 * an estimate of those of its forward.
 */
static const void *backward_weights(const struct pd_worker *w, const struct chunk *c,
				    const struct pd_op *op)
{
	if (!latest(w))
		return pd_weights_find(&c->weights, op->version);
	return c->corrected ? c->corrected : pd_weights_newest(&c->weights, NULL);
}

static void fill_backward(struct pd_worker *w, struct chunk *c, const struct pd_op *op,
			  struct pd_pass *pass)
{
	struct sum *sum = worker_sum_of(w, c, op);

	fill_pass(w, c, op, worker_microbatch(w, c, op), backward_weights(w, c, op), pass);
	pass->gradients = sum->backwards > 0 ? c->fresh : sum->gradients;
}

static int queue_backward(struct pd_worker *w, struct chunk *c, const struct pd_op *op,
			  struct fence *fence, const struct pd_pass *pass)
{
	int from = c->stage->first_layer, count = c->stage->layer_count;

	if (op->bucket > 0) {
		from = c->buckets[op->bucket - 1].first_layer;
		count = c->buckets[op->bucket - 1].layer_count;
	}
	if (keep_scale(w, c, op, pass) != 0)
		return -1;
	worker_arm(w, fence);
	worker_new_entry(w, op, fence);
	return pd_submit_backward(w->compute, c->net, pass, from, count, &fence->events[0]);
}

/*
 * Repeats the forward with the weights that backward will read.  Its inputs are there, and all else
 * that the slot served is before it on the stream.  Its outputs stay in the slot, and what lies in
 * the inbox is overwritten with the same data.
 */
int worker_issue_recompute(struct pd_worker *w, struct chunk *c, const struct pd_op *op)
{
	struct microbatch *microbatch = worker_microbatch(w, c, op);
	struct fence *fence = &microbatch->recomputed;
	struct pd_pass pass;

	if (!worker_may_arm(w, fence))
		return 0;
	microbatch->slot = worker_next_slot(w, c, op);
	worker_take_slot(c);
	fill_pass(w, c, op, microbatch, backward_weights(w, c, op), &pass);
	pass.again = true;
	pass.losses = NULL;
	worker_arm(w, fence);
	worker_new_entry(w, op, fence);
	if (pd_submit_forward(w->compute, c->net, &pass, c->stage->first_layer,
					       c->stage->layer_count, &fence->events[0]) != 0)
		return -1;
	return 1;
}

/* Returns the fence of a backward, given that of its end, or of one of its parts before that. */
static struct fence *fence_of(struct pd_worker *w, struct chunk *c, const struct pd_op *op,
			      struct fence *end)
{
	return op->more ? &worker_sum_of(w, c, op)->buckets[op->bucket - 1].made : end;
}

/* Frees a microbatch's memory and weights once the last part of its backward is done. */
static void end_microbatch(struct pd_worker *w, struct chunk *c, const struct pd_op *op,
			   struct fence *fence)
{
	if (!latest(w))
		pd_weights_done(&c->weights, op->version);
	worker_give_slot(c, worker_microbatch(w, c, op)->slot);
	worker_microbatch(w, c, op)->ended = fence;
}

int worker_issue_backward_weight(struct pd_worker *w, struct chunk *c, const struct pd_op *op)
{
	struct microbatch *microbatch = worker_microbatch(w, c, op);
	struct fence *fence = fence_of(w, c, op, &microbatch->weight);
	struct pd_pass pass;

	if (!worker_may_arm(w, &microbatch->weight) || !worker_may_add(w, c, op))
		return 0;
	fill_backward(w, c, op, &pass);
	pass.part = PD_BACKWARD_WEIGHT;
	if (!op->more)
		end_microbatch(w, c, op, fence);
	if (queue_backward(w, c, op, fence, &pass) != 0)
		return -1;
	return worker_add_gradients(w, c, op, fence) < 0 ? -1 : 1;
}

int worker_issue_backward(struct pd_worker *w, struct chunk *c, const struct pd_op *op)
{
	bool whole = op->kind == PD_OP_backward;        /* for inputs and weights */
	struct microbatch *microbatch = worker_microbatch(w, c, op);
	struct fence *end = &microbatch->backward[1 - microbatch->turn];
	struct fence *fence = fence_of(w, c, op, end);
	struct gradient_buffer *in = worker_gradients_in(w, c, op),
		*out = worker_gradients_out(w, c, op);
	struct pd_pass pass;

	if (!worker_may_arm(w, end) || (whole && !worker_may_add(w, c, op)))
		return 0;
	for (int i = 0; i < c->links_in_count; i++)	/* what it overwrites has been sent */
		if (!worker_may_arm(w, &out->transfers[i]))
			return 0;
	for (int i = 0; i < c->links_out_count; i++)
		if (worker_after(w, w->compute, &in->transfers[i]) < 0)
			return -1;
	fill_backward(w, c, op, &pass);
	pass.gradient_in = in->memory;
	pass.gradient_out = out->memory;
	out->made = w->issued;
	if (!op->more)
		microbatch->turn = 1 - microbatch->turn;
	pass.part = whole ? PD_BACKWARD_ALL : PD_BACKWARD_INPUT;
	if (whole && !op->more)
		end_microbatch(w, c, op, fence);
	if (queue_backward(w, c, op, fence, &pass) != 0)
		return -1;
	return whole && worker_add_gradients(w, c, op, fence) < 0 ? -1 : 1;
}
