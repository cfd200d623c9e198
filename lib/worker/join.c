/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stage that sends nothing on has an update, the next forward and its backward in a row, and a
 * device may do them together (stream.submit).  The update and the forward are kept
 * back while worker_issue goes on with the list.  They are queued by themselves before it returns, and
 * before it issues an operation that is not of the row, or a forward whose inputs have not come.  So
 * the same operations are issued at the same times, and nothing waits for what is kept back.
 */
#include "worker/issue.h"

int worker_queue_kept(struct pd_worker *w)
{
	struct kept *k = w->kept;
	const struct pd_stage *stage;
	int status = 0;

	if (!k || !k->chunk)
		return 0;
	stage = k->chunk->stage;
	if (k->updated)
		status = pd_submit_update(w->compute, k->chunk->net, &k->update,
					    stage->first_layer, stage->layer_count, k->updated);
	if (k->forwarded && status == 0)
		status = pd_submit_forward(w->compute, k->chunk->net, &k->pass,
					     stage->first_layer, stage->layer_count, k->forwarded);
	k->chunk = NULL;
	k->updated = k->forwarded = NULL;
	return status == 0 ? 0 : -1;
}

/* Such an operation queues nothing on the compute stream. */
static bool beside(const struct pd_worker *w, const struct pd_op *op)
{
	return (op->kind == PD_OP_load && w->load) || op->kind == PD_OP_recv_activation ||
	       op->kind == PD_OP_send_gradient;
}

int worker_queue_kept_before(struct pd_worker *w, const struct pd_op *op)
{
	const struct kept *k = w->kept;

	if (!k || !k->chunk)
		return 0;
	if (k->forwarded && op->kind == PD_OP_backward && op->bucket == 0 && op->stage == k->chunk->index &&
	    op->microbatch == k->microbatch)
		return 0;
	if (!k->forwarded && (beside(w, op) || (op->kind == PD_OP_forward && !op->evaluate &&
					     op->stage == k->chunk->index)))
		return 0;
	return worker_queue_kept(w);
}

static bool keeps(const struct pd_worker *w, const struct chunk *c)
{
	return w->kept && c->links_out_count == 0;
}

int worker_queue_update(struct pd_worker *w, struct chunk *c, const struct pd_update *update,
			struct pd_event *ev)
{
	if (!keeps(w, c) || !pd_optimizer_joins(&w->config.optimizer, w->config.schedule->plan))
		return pd_submit_update(w->compute, c->net, update,
							 c->stage->first_layer, c->stage->layer_count,
							 ev);
	w->kept->chunk = c;
	w->kept->update = *update;
	w->kept->updated = ev;
	return 0;
}

int worker_queue_forward(struct pd_worker *w, struct chunk *c, const struct pd_op *op,
			 const struct pd_pass *pass, struct pd_event *ev)
{
	if (!keeps(w, c) || op->evaluate)
		return pd_submit_forward(w->compute, c->net, pass,
							  c->stage->first_layer,
							  c->stage->layer_count, ev);
	w->kept->chunk = c;
	w->kept->pass = *pass;
	w->kept->forwarded = ev;
	w->kept->microbatch = op->microbatch;
	return 0;
}

int worker_queue_backward(struct pd_worker *w, struct chunk *c, const struct pd_pass *pass,
			  int from, int count, struct pd_event *ev)
{
	struct kept *k = w->kept;
	struct pd_iteration it = { .pass = pass, .ended = ev };

	/* Backward may read corrected weights, which the forward did not. */
	if (!k || !k->forwarded || k->pass.weights != pass->weights)
		return worker_queue_kept(w) < 0 ? -1
			: pd_submit_backward(w->compute, c->net, pass, from, count, ev);
	it.update = k->updated ? &k->update : NULL;
	it.updated = k->updated;
	it.forwarded = k->forwarded;
	k->chunk = NULL;
	k->updated = k->forwarded = NULL;
	return pd_submit_iteration(w->compute, c->net, &it, from, count);
}
