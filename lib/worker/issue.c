/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Issuing one operation: state its dependencies, hand it to a stream or the transport.
 *
 * Two rules keep events safe.  Before an operation arms a mark's events, the last
 * operation that armed or waits for them must have retired (worker_may_arm); otherwise the
 * operation is not issued yet, and since the list is in an order that cannot deadlock
 * even if every operation blocked, waiting is always safe.  And memory is written only
 * by an operation that waits, through an event or because it is queued behind it on the
 * same stream, for the last one that used it.
 */
#include "worker/internal.h"

#include "base/mem.h"

#include <math.h>

bool worker_may_arm(const struct pd_worker *w, const struct mark *mark)
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

static void arm(struct pd_worker *w, struct mark *mark)
{
	for (int i = 0; i < mark->count; i++)
		pd_event_arm(&mark->events[i]);
	mark->last_use = w->issued;
}

/*
 * Work queued on the stream from now on starts after the mark's events.  They count as used
 * by it though they are done already: what they brought is still to be read.
 */
static int after(struct pd_worker *w, struct pd_stream *stream, struct mark *mark)
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
static struct pd_event *event_of(struct pd_worker *w, struct mark *mark)
{
	mark->last_use = w->issued;
	return &mark->events[mark->count - 1];
}

static struct slot *slot_of(struct pd_worker *w, struct chunk *c, const struct pd_op *op)
{
	int64_t i = worker_local_number(w, c, op);

	/* with recomputation a forward leaves nothing there, and the next recompute will */
	if (c->stage->recompute && op->kind == PD_OP_forward)
		return &c->slots[c->slot_turn ? c->recomputed % c->slot_turn
					      : c->room.buffers[i].work];
	return &c->slots[c->slot_turn ? i % c->slot_turn : c->room.buffers[i].slot];
}

/* Where what leaves of the minibatch stays until it has: its slot, or an outbox. */
static struct slot *holder_of(struct pd_worker *w, struct chunk *c, const struct pd_op *op)
{
	int64_t i = worker_local_number(w, c, op);

	if (c->room.outboxes == 0)
		return slot_of(w, c, op);
	return &c->outboxes[c->slot_turn ? i % c->room.outboxes : c->room.buffers[i].outbox];
}

/*
 * Has what the minibatch before in a slot made there left?  Its flight may have another one
 * by now: then its sends have retired, and to wait for those of the other does no harm.
 */
static bool slot_left(const struct pd_worker *w, const struct chunk *c, const struct slot *slot)
{
	for (int i = 0; i < c->port_out_count && slot->flight; i++)
		if (!worker_may_arm(w, &slot->flight->sent[i]))
			return false;
	return true;
}

static struct passage *passage_in(struct pd_worker *w, struct chunk *c, const struct pd_op *op)
{
	int64_t i = worker_local_number(w, c, op);
	int64_t k = c->flight_turn ? i % c->room.arriving : c->room.buffers[i].arriving;

	/* nothing arrives for the last stage */
	return &c->in[k < 0 ? 0 : k];
}

static struct passage *passage_out(struct pd_worker *w, struct chunk *c, const struct pd_op *op)
{
	int64_t i = worker_local_number(w, c, op);
	int64_t k = c->flight_turn ? i % c->room.leaving : c->room.buffers[i].leaving;

	return &c->out[k < 0 ? 0 : k];
}

static int port_of(const struct port *ports, int count, const struct pd_wiring *wiring, int link)
{
	for (int i = 0; i < count; i++)
		if (ports[i].link == &wiring->links[link])
			return i;
	pd_bug("worker: link %d does not touch the stage", link);
}

static uint64_t tag_of(const struct pd_worker *w, const struct pd_op *op, int tensor)
{
	bool gradient = op->kind == PD_OP_send_gradient || op->kind == PD_OP_recv_gradient;
	uint64_t links = 2 * (uint64_t)w->config.schedule->wiring->link_count;
	uint64_t id = (uint64_t)op->microbatch * links + 2 * (uint64_t)op->link + gradient;

	return (op->evaluate ? TAG_EVALUATE : 0) |
	       ((id * w->tensors_most + (uint64_t)tensor) & TAG_NUMBER);
}

void worker_new_entry(struct pd_worker *w, const struct pd_op *op, struct mark *mark)
{
	*worker_entry(w, w->issued) = (struct entry){ .op = *op, .mark = mark };
}

struct sum *worker_sum_of(struct pd_worker *w, struct chunk *c, const struct pd_op *op)
{
	int64_t group = w->config.schedule->group[c->index];

	return &c->sums[(op->microbatch - w->phase.first) / group % c->sum_count];
}

/* On a stream of its own where the device has memory of its own: beside the computation. */
static int issue_load(struct pd_worker *w, struct chunk *c, const struct pd_op *op)
{
	const struct pd_device_ops *device = w->config.device->ops;
	struct pd_stream *stream = w->load ? w->load : w->compute;
	struct flight *flight = worker_flight(w, c, op);
	struct pd_batch *batch = NULL;
	int n = 0, k = 0;

	if (!worker_may_arm(w, &flight->loaded))
		return 0;
	if (c->loader) {
		batch = pd_loader_next(c->loader);
		if (!batch)
			return 0;
		if (batch->microbatch != op->microbatch || batch->evaluate != op->evaluate)
			pd_bug("loader: out of step with the schedule");
		flight->valid = batch->valid;
		if (device->wait(stream, &batch->ready) != 0)
			return -1;
	}
	if (w->load && flight->ended && after(w, w->load, flight->ended) < 0)
		return -1;
	arm(w, &flight->loaded);
	flight->batch = batch;
	worker_new_entry(w, op, &flight->loaded);
	for (int i = 0; i < c->sizes->in_count && batch; i++)
		n += c->sizes->in[i].tensor < w->config.first_tensor;
	if (n == 0)     /* in virtual time: nothing to bring, but a moment when it is there */
		return device->copy(stream, NULL, NULL, 0, PD_COPY_TO_DEVICE,
				    &flight->loaded.events[0]) == 0 ? 1 : -1;
	for (int i = 0; i < c->sizes->in_count; i++) {
		const struct pd_net_tensor *t = &c->sizes->in[i];

		if (t->tensor >= w->config.first_tensor)
			continue;
		if (device->copy(stream, flight->inbox + t->offset, batch->buffers[k],
				 batch->bytes[k], PD_COPY_TO_DEVICE,
				 k == n - 1 ? &flight->loaded.events[0] : NULL) != 0)
			return -1;
		k++;
	}
	return 1;
}

static void fill_pass(struct pd_worker *w, struct chunk *c, const struct pd_op *op,
		      struct flight *flight, const void *weights, struct pd_pass *pass)
{
	*pass = (struct pd_pass){
		.weights = weights, .state = c->state,
		.scale = w->agreement ? worker_scale(c, weights) : NULL,
		.inbox = flight->inbox, .slot = slot_of(w, c, op)->memory, .scratch = w->scratch,
		.first_sample = op->microbatch * w->config.batch_size,
		.valid = c->loader ? flight->valid : w->config.batch_size,
		.evaluate = op->evaluate, .loss = &flight->loss,
	};
}

static bool latest(const struct pd_worker *w)
{
	return w->config.schedule->plan->weights == PD_WEIGHTS_LATEST;
}

/* What leaves, into the outbox: with the last of it the forward is done for others. */
static int fill_outbox(struct pd_worker *w, struct chunk *c, struct flight *flight,
		       const struct slot *slot, const struct slot *outbox)
{
	int last = c->port_out_count - 1;

	for (int p = 0; p <= last; p++)
		for (int t = 0; t < c->ports_out[p].link->tensor_count; t++) {
			const struct pd_net_tensor *tensor = c->ports_out[p].tensors[t];
			bool ends = p == last && t == c->ports_out[p].link->tensor_count - 1;

			if (w->config.device->ops->copy(w->compute,
					outbox->memory + c->ports_out[p].places[t],
					(tensor->inbox ? flight->inbox : slot->memory) + tensor->offset,
					tensor->bytes, PD_COPY_WITHIN,
					ends ? &flight->forward.events[1] : NULL) != 0)
				return -1;
		}
	return 1;
}

static int issue_forward(struct pd_worker *w, struct chunk *c, const struct pd_op *op)
{
	const struct pd_stage *stage = c->stage;
	struct flight *flight = worker_flight(w, c, op);
	struct slot *holder = holder_of(w, c, op);
	struct pd_pass pass;
	const void *weights;

	if (!worker_may_arm(w, &flight->forward))
		return 0;
	if (!slot_left(w, c, holder))
		return 0;
	for (int i = 0; i < c->port_in_count; i++)
		if (after(w, w->compute, &flight->received[i]) < 0)
			return -1;
	if (w->load && after(w, w->compute, &flight->loaded) < 0)
		return -1;
	/* without stashing nobody's version is kept for its backward */
	weights = op->evaluate || latest(w) ? pd_weights_newest(&c->weights, NULL)
					    : pd_weights_read(&c->weights, op->version);
	fill_pass(w, c, op, flight, weights, &pass);
	flight->loss = (struct pd_loss){ 0 };
	holder->flight = flight;
	if (op->evaluate)
		flight->ended = &flight->forward;
	arm(w, &flight->forward);
	worker_new_entry(w, op, &flight->forward);
	if (w->config.device->ops->forward(w->compute, c->net, &pass, stage->first_layer,
					   stage->layer_count, &flight->forward.events[0]) != 0)
		return -1;
	return c->room.outboxes > 0 ? fill_outbox(w, c, flight, slot_of(w, c, op), holder) : 1;
}

/* Microbatches of this replica before number n of the phase. */
static int64_t before(const struct pd_worker *w, const struct chunk *c, int64_t n)
{
	return n > w->replica ? (n - w->replica - 1) / c->stage->replicas + 1 : 0;
}

/* Of this replica in the group of an operation. */
static int64_t group_share(const struct pd_worker *w, const struct chunk *c,
			   const struct pd_op *op)
{
	int64_t group = w->config.schedule->group[c->index];
	int64_t begin = (op->microbatch - w->phase.first) / group * group, end = begin + group;

	if (end > w->phase.last - w->phase.first)
		end = w->phase.last - w->phase.first;
	return before(w, c, end) - before(w, c, begin);
}

/*
 * The first microbatch of a group leaves its gradients in their place, every other one is
 * added to them: g0 + g1 + g2 ..., the same order for every schedule of the generator.
 */
static int add_gradients(struct pd_worker *w, struct chunk *c, const struct pd_op *op,
			 struct mark *made)
{
	struct sum *sum = worker_sum_of(w, c, op);
	const float *parts[] = { sum->gradients, c->fresh };
	struct pd_event *ev = NULL;

	sum->ready = made;
	if (sum->backwards++ == 0)
		return 0;
	if (sum->backwards == group_share(w, c, op)) {
		arm(w, &sum->summed);
		sum->ready = &sum->summed;
		ev = &sum->summed.events[0];
	}
	return w->config.device->ops->sum(w->compute, sum->gradients, parts, 2,
					  c->sizes->full_bytes / sizeof(float), ev);
}

/* The weights of the microbatch's forward; where nobody's version is kept, the newest, or
 * about those of its forward, worked out from them. */
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

	fill_pass(w, c, op, worker_flight(w, c, op), backward_weights(w, c, op), pass);
	pass->gradients = sum->backwards > 0 ? c->fresh : sum->gradients;
}

static int queue_backward(struct pd_worker *w, struct chunk *c, const struct pd_op *op,
			  struct mark *mark, const struct pd_pass *pass)
{
	struct sum *sum = worker_sum_of(w, c, op);

	if (w->agreement && sum->backwards == 0) {
		sum->scale = worker_scale_of_sum(c, sum->gradients);
		if (w->config.device->ops->copy(w->compute, sum->scale, pass->scale,
						sizeof(*sum->scale), PD_COPY_WITHIN, NULL) != 0)
			return -1;
	}
	arm(w, mark);
	worker_new_entry(w, op, mark);
	return w->config.device->ops->backward(w->compute, c->net, pass, c->stage->first_layer,
					       c->stage->layer_count, &mark->events[0]);
}

/*
 * The forward once more, with the weights that backward will read: what was received and loaded
 * is there, and all else that the slot served is before it on the stream.  Its outputs stay in
 * the slot, and what lies in the inbox is written over with the same.
 */
static int issue_recompute(struct pd_worker *w, struct chunk *c, const struct pd_op *op)
{
	struct flight *flight = worker_flight(w, c, op);
	struct mark *mark = &flight->recomputed;
	struct pd_pass pass;

	if (!worker_may_arm(w, mark))
		return 0;
	fill_pass(w, c, op, flight, backward_weights(w, c, op), &pass);
	pass.again = true;
	pass.loss = NULL;
	arm(w, mark);
	worker_new_entry(w, op, mark);
	c->recomputed++;
	return w->config.device->ops->forward(w->compute, c->net, &pass, c->stage->first_layer,
					      c->stage->layer_count, &mark->events[0]) == 0 ? 1 : -1;
}

/* The second part: the minibatch's slot, inbox and version are free after it. */
static int issue_backward_weight(struct pd_worker *w, struct chunk *c, const struct pd_op *op)
{
	struct mark *mark = &worker_flight(w, c, op)->weight;
	struct pd_pass pass;

	if (!worker_may_arm(w, mark) || !worker_may_arm(w, &worker_sum_of(w, c, op)->summed))
		return 0;
	fill_backward(w, c, op, &pass);
	pass.part = PD_BACKWARD_WEIGHT;
	if (!latest(w))
		pd_weights_done(&c->weights, op->version);
	worker_flight(w, c, op)->ended = mark;
	if (queue_backward(w, c, op, mark, &pass) != 0)
		return -1;
	return add_gradients(w, c, op, mark) < 0 ? -1 : 1;
}

/* All of it, or the first part. */
static int issue_backward(struct pd_worker *w, struct chunk *c, const struct pd_op *op)
{
	bool whole = op->kind == PD_OP_backward;
	struct mark *mark = &worker_flight(w, c, op)->backward;
	struct passage *in = passage_in(w, c, op), *out = passage_out(w, c, op);
	struct pd_pass pass;

	if (!worker_may_arm(w, mark) ||
	    (whole && !worker_may_arm(w, &worker_sum_of(w, c, op)->summed)))
		return 0;
	for (int i = 0; i < c->port_in_count; i++)      /* what it overwrites has left */
		if (!worker_may_arm(w, &out->transfers[i]))
			return 0;
	for (int i = 0; i < c->port_out_count; i++)
		if (after(w, w->compute, &in->transfers[i]) < 0)
			return -1;
	fill_backward(w, c, op, &pass);
	pass.gradient_in = in->memory;
	pass.gradient_out = out->memory;
	pass.part = whole ? PD_BACKWARD_ALL : PD_BACKWARD_INPUT;
	if (whole && !latest(w))
		pd_weights_done(&c->weights, op->version);
	if (whole)
		worker_flight(w, c, op)->ended = mark;
	if (queue_backward(w, c, op, mark, &pass) != 0)
		return -1;
	return whole && add_gradients(w, c, op, mark) < 0 ? -1 : 1;
}

/*
 * Activations go straight from slot to inbox, gradients from gradient-out to gradient-in.
 * A receive waits for the last use of its buffer: of an inbox that is the backward of the
 * minibatch that had it before (of two parts the second, in evaluation the forward), of
 * gradient-in the backward that used it before, which worker_may_arm has seen retired.
 */
static int issue_transfer(struct pd_worker *w, struct chunk *c, const struct pd_op *op)
{
	const struct pd_wiring *wiring = w->config.schedule->wiring;
	const struct pd_transport_ops *transport = w->config.transport->ops;
	bool sends = op->kind == PD_OP_send_activation || op->kind == PD_OP_send_gradient;
	bool activation = op->kind == PD_OP_send_activation || op->kind == PD_OP_recv_activation;
	bool link_in = op->kind == PD_OP_recv_activation || op->kind == PD_OP_send_gradient;
	struct port *ports = link_in ? c->ports_in : c->ports_out;
	int p = port_of(ports, link_in ? c->port_in_count : c->port_out_count, wiring, op->link);
	struct flight *flight = worker_flight(w, c, op);
	struct passage *passage = link_in ? passage_out(w, c, op) : passage_in(w, c, op);
	struct mark *mark = !activation ? &passage->transfers[p]
			    : sends ? &flight->sent[p] : &flight->received[p];
	struct mark *before = op->kind == PD_OP_send_activation ? &flight->forward
			      : op->kind == PD_OP_send_gradient ? &flight->backward
			      : op->kind == PD_OP_recv_gradient ? NULL : flight->ended;

	if (!worker_may_arm(w, mark))
		return 0;
	if (op->kind == PD_OP_recv_activation)
		for (int i = 0; i < c->port_out_count; i++)
			if (!worker_may_arm(w, &flight->sent[i]))
				return 0;
	arm(w, mark);
	worker_new_entry(w, op, mark);
	for (int t = 0; t < mark->count; t++) {
		const struct pd_net_tensor *tensor = ports[p].tensors[t];
		/* of what nothing before it learns from there is no gradient */
		bool none = !activation && tensor->gradient_offset == SIZE_MAX;
		size_t bytes = none ? 0 : tensor->bytes;
		char *at = none ? NULL : !activation ? passage->memory + tensor->gradient_offset
			   : sends && c->room.outboxes > 0
			     ? holder_of(w, c, op)->memory + ports[p].places[t]
			   : (tensor->inbox ? flight->inbox : slot_of(w, c, op)->memory) +
			     tensor->offset;
		const struct pd_event *ready = before ? event_of(w, before) : NULL;

		if ((sends ? transport->send(w->config.transport, op->peer, tag_of(w, op, t), at,
					     bytes, ready, &mark->events[t])
			   : transport->recv(w->config.transport, op->peer, tag_of(w, op, t), at,
					     bytes, ready, &mark->events[t])) < 0)
			return -1;
	}
	return 1;
}

static int issue_allreduce(struct pd_worker *w, struct chunk *c, const struct pd_op *op)
{
	uint64_t number = (uint64_t)op->microbatch * (uint64_t)w->config.schedule->stage_count +
			  (uint64_t)op->stage;
	struct sum *sum = worker_sum_of(w, c, op);

	if (!worker_may_arm(w, &c->allreduce) || worker_agreeing(w) ||
	    (!sum->ready && !worker_may_arm(w, &sum->summed)))
		return 0;
	if (!sum->ready) {      /* nothing of this replica in the last group: it adds nothing */
		arm(w, &sum->summed);
		sum->ready = &sum->summed;
		if (w->config.device->ops->sum(w->compute, sum->gradients, NULL, 0,
					       c->sizes->full_bytes / sizeof(float),
					       &sum->summed.events[0]) != 0)
			return -1;
	}
	arm(w, &c->allreduce);
	worker_new_entry(w, op, &c->allreduce);
	w->reducing = true;
	return pd_collective_start(c->collective, sum->gradients,
				   TAG_COLLECTIVE | ((number << TAG_PLACES) & TAG_NUMBER) |
				   TAG_ALLREDUCE,
				   event_of(w, sum->ready), &c->allreduce.events[0]) == 0 ? 1 : -1;
}

static int issue_step(struct pd_worker *w, struct chunk *c, const struct pd_op *op)
{
	const struct pd_optimizer *o = &w->config.optimizer;
	struct sum *sum = worker_sum_of(w, c, op);
	struct mark *before = w->agreement ? worker_agreed(w) : c->collective ? &c->allreduce : NULL;
	struct pd_update update = {
		.kind = o->kind, .gradients = sum->gradients, .velocity = c->velocity,
		.second = c->second, .master = c->master, .rate = pd_optimizer_rate(o, op->version) /
			pd_optimizer_divisor(o, c->delay, op->version),
		.momentum = o->momentum, .weight_decay = o->weight_decay, .beta1 = o->beta1,
		.beta2 = o->beta2, .eps = o->eps,
		.count = pd_optimizer_count(o, w->config.schedule->group[c->index], op->version),
	};
	const void *from;
	void *to;

	if (!worker_may_arm(w, &c->step))
		return 0;
	if (before && after(w, w->compute, before) < 0)
		return -1;
	pd_weights_step(&c->weights, op->version, op->keep, &from, &to);
	update.weights = from;
	update.next = to;
	worker_fill_agreed(w, c, from, to, &update.agreed);
	if (c->delta) {
		update.delta = c->delta;
		update.corrected = c->corrected;
		update.delay = (double)c->delay;
		update.keep = pow(o->discrepancy, 1 / update.delay);
	}
	sum->ready = NULL;
	sum->scale = NULL;
	sum->backwards = 0;
	arm(w, &c->step);
	worker_new_entry(w, op, &c->step);
	return w->config.device->ops->update(w->compute, c->net, &update,
					     c->stage->first_layer, c->stage->layer_count,
					     &c->step.events[0]) == 0 ? 1 : -1;
}

int worker_issue(struct pd_worker *w, const struct pd_op *op, struct pd_error *err)
{
	static int (*const table[PD_OP_KINDS])(struct pd_worker *, struct chunk *,
					       const struct pd_op *) = {
		[PD_OP_load] = issue_load,
		[PD_OP_forward] = issue_forward,
		[PD_OP_recompute] = issue_recompute,
		[PD_OP_backward] = issue_backward,
		[PD_OP_backward_input] = issue_backward,
		[PD_OP_backward_weight] = issue_backward_weight,
		[PD_OP_recv_activation] = issue_transfer,
		[PD_OP_send_activation] = issue_transfer,
		[PD_OP_recv_gradient] = issue_transfer,
		[PD_OP_send_gradient] = issue_transfer,
		[PD_OP_allreduce] = issue_allreduce,
		[PD_OP_agree] = worker_issue_agree,
		[PD_OP_step] = issue_step,
	};
	char name[32];
	int verdict;

	if (!table[op->kind])
		return pd_error_failed(err, "this version does not execute %s",
				       pd_op_kind_name[op->kind]);
	verdict = table[op->kind](w, worker_chunk(w, op->stage), op);
	if (verdict > 0)
		w->issued++;
	if (verdict < 0)
		pd_error_failed(err, "%s: the %s refused it", pd_op_short(op, name),
				w->config.gate && w->config.gate->failed ? w->config.gate->err.text
								       : "device or transport");
	return verdict;
}
