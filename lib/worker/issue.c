/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Issuing one operation: state its dependencies, hand it to a stream or the transport.
 *
 * Two rules keep events safe.  Before an operation arms a mark's events, the last
 * operation that armed or waits for them must have retired (may_arm); otherwise the
 * operation is not issued yet, and since the list is in an order that cannot deadlock
 * even if every operation blocked, waiting is always safe.  And memory is written only
 * by an operation that waits, through an event or because it is queued behind it on the
 * same stream, for the last one that used it.
 */
#include "worker/internal.h"

#include "base/mem.h"

#define TAG_COLLECTIVE (UINT64_C(1) << 47)
#define TAG_EVALUATE   (UINT64_C(1) << 46)
#define TAG_NUMBER     (TAG_EVALUATE - 1)

static bool may_arm(const struct pd_worker *w, const struct mark *mark)
{
	return mark->last_use < w->retired;
}

static void arm(struct pd_worker *w, struct mark *mark)
{
	for (int i = 0; i < mark->count; i++)
		pd_event_arm(&mark->events[i]);
	mark->last_use = w->issued;
}

/* Work queued on the stream from now on starts after the mark's events. */
static int after(struct pd_worker *w, struct pd_stream *stream, struct mark *mark)
{
	for (int i = 0; i < mark->count; i++) {
		if (pd_event_done(&mark->events[i]) && w->config.gate)
			continue;
		if (w->config.device->ops->wait(stream, &mark->events[i]) != 0)
			return -1;
		mark->last_use = w->issued;
	}
	return 0;
}

static struct pd_event *event_of(struct pd_worker *w, struct mark *mark)
{
	mark->last_use = w->issued;
	return &mark->events[0];
}

static int64_t local_number(const struct pd_worker *w, const struct pd_op *op)
{
	return (op->microbatch - w->phase.first) / w->stage->replicas;
}

static struct flight *flight_of(struct pd_worker *w, const struct pd_op *op)
{
	int flights = pd_schedule_inboxes(w->config.schedule, w->stage_index, op->evaluate);

	return &w->flights[local_number(w, op) % flights];
}

static char *slot_of(struct pd_worker *w, const struct pd_op *op)
{
	int slots = pd_schedule_slots(w->config.schedule, w->stage_index, op->evaluate);

	return w->slots[local_number(w, op) % slots];
}

/* Has what the minibatch before in this one's slot made there left? */
static bool slot_left(struct pd_worker *w, const struct pd_op *op)
{
	int slots = pd_schedule_slots(w->config.schedule, w->stage_index, op->evaluate);
	struct pd_op before = *op;

	before.microbatch -= (int64_t)slots * w->stage->replicas;
	if (before.microbatch < w->phase.first)
		return true;
	for (int i = 0; i < w->port_out_count; i++)
		if (!may_arm(w, &flight_of(w, &before)->sent[i]))
			return false;
	return true;
}

static struct passage *passage_of(struct pd_worker *w, struct passage *passages,
				  const struct pd_op *op)
{
	return &passages[local_number(w, op) % PASSAGES];
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

static struct entry *new_entry(struct pd_worker *w, const struct pd_op *op, struct mark *mark)
{
	struct entry *entry = &w->entries[w->issued % w->ring];

	*entry = (struct entry){ .op = *op, .mark = mark };
	return entry;
}

static int issue_load(struct pd_worker *w, const struct pd_op *op, struct pd_error *err)
{
	const struct pd_device_ops *device = w->config.device->ops;
	struct flight *flight = flight_of(w, op);
	struct pd_batch *batch = NULL;
	int n = 0, k = 0;

	if (!may_arm(w, &flight->loaded))
		return 0;
	if (w->config.loader) {
		batch = pd_loader_next(w->config.loader);
		if (!batch)
			return 0;
		if (batch->microbatch != op->microbatch || batch->evaluate != op->evaluate)
			pd_bug("loader: out of step with the schedule");
		flight->valid = batch->valid;
		if (device->wait(w->compute, &batch->ready) != 0)
			return -1;
	}
	arm(w, &flight->loaded);
	flight->batch = batch;
	new_entry(w, op, &flight->loaded)->flight = flight;
	for (int i = 0; i < w->sizes->in_count && batch; i++)
		n += w->sizes->in[i].tensor < w->config.first_tensor;
	if (n == 0)     /* in virtual time: nothing to bring, but a moment when it is there */
		return device->copy(w->compute, NULL, NULL, 0, PD_COPY_TO_DEVICE,
				    &flight->loaded.events[0]) == 0 ? 1 : -1;
	for (int i = 0; i < w->sizes->in_count; i++) {
		const struct pd_net_tensor *t = &w->sizes->in[i];

		if (t->tensor >= w->config.first_tensor)
			continue;
		if (device->copy(w->compute, flight->inbox + t->offset, batch->buffers[k],
				 batch->bytes[k], PD_COPY_TO_DEVICE,
				 k == n - 1 ? &flight->loaded.events[0] : NULL) != 0)
			return -1;
		k++;
	}
	return 1;
}

static void fill_pass(struct pd_worker *w, const struct pd_op *op, struct flight *flight,
		      const void *weights, struct pd_pass *pass)
{
	*pass = (struct pd_pass){
		.weights = weights, .state = w->state, .gradients = w->gradients,
		.inbox = flight->inbox, .slot = slot_of(w, op), .scratch = w->scratch,
		.first_sample = op->microbatch * w->config.batch_size,
		.valid = w->config.loader ? flight->valid : w->config.batch_size,
		.evaluate = op->evaluate, .loss = &flight->loss,
	};
}

static int issue_forward(struct pd_worker *w, const struct pd_op *op, struct pd_error *err)
{
	const struct pd_stage *stage = w->stage;
	struct flight *flight = flight_of(w, op);
	struct pd_pass pass;
	const void *weights;

	if (!may_arm(w, &flight->forward))
		return 0;
	if (!slot_left(w, op))
		return 0;
	for (int i = 0; i < w->port_in_count; i++)
		if (after(w, w->compute, &flight->received[i]) < 0)
			return -1;
	weights = op->evaluate ? pd_weights_newest(&w->weights, NULL)
			       : pd_weights_read(&w->weights, op->version);
	fill_pass(w, op, flight, weights, &pass);
	flight->loss = (struct pd_loss){ 0 };
	arm(w, &flight->forward);
	new_entry(w, op, &flight->forward)->flight = flight;
	return w->config.device->ops->forward(w->compute, w->config.net, &pass, stage->first_layer,
					      stage->layer_count, &flight->forward.events[0]) == 0
		? 1 : -1;
}

static int issue_backward(struct pd_worker *w, const struct pd_op *op, struct pd_error *err)
{
	const struct pd_stage *stage = w->stage;
	struct flight *flight = flight_of(w, op);
	struct passage *in = passage_of(w, w->in, op), *out = passage_of(w, w->out, op);
	struct pd_pass pass;

	if (!may_arm(w, &flight->backward))
		return 0;
	for (int i = 0; i < w->port_in_count; i++)      /* what it overwrites has left */
		if (!may_arm(w, &out->transfers[i]))
			return 0;
	for (int i = 0; i < w->port_out_count; i++)
		if (after(w, w->compute, &in->transfers[i]) < 0)
			return -1;
	fill_pass(w, op, flight, pd_weights_find(&w->weights, op->version), &pass);
	pass.gradient_in = in->memory;
	pass.gradient_out = out->memory;
	pd_weights_done(&w->weights, op->version);
	arm(w, &flight->backward);
	new_entry(w, op, &flight->backward)->flight = flight;
	w->group_backward = &flight->backward;
	return w->config.device->ops->backward(w->compute, w->config.net, &pass, stage->first_layer,
					       stage->layer_count, &flight->backward.events[0]) == 0
		? 1 : -1;
}

/*
 * Activations go straight from slot to inbox, gradients from gradient-out to gradient-in.
 * A receive waits for the last use of its buffer: of an inbox that is the backward of the
 * minibatch that had it before (in evaluation the forward), of gradient-in the backward two before, which
 * may_arm has seen retired.
 */
static int issue_transfer(struct pd_worker *w, const struct pd_op *op, struct pd_error *err)
{
	const struct pd_wiring *wiring = w->config.schedule->wiring;
	const struct pd_transport_ops *transport = w->config.transport->ops;
	bool sends = op->kind == PD_OP_send_activation || op->kind == PD_OP_send_gradient;
	bool activation = op->kind == PD_OP_send_activation || op->kind == PD_OP_recv_activation;
	bool link_in = op->kind == PD_OP_recv_activation || op->kind == PD_OP_send_gradient;
	struct port *ports = link_in ? w->ports_in : w->ports_out;
	int p = port_of(ports, link_in ? w->port_in_count : w->port_out_count, wiring, op->link);
	struct flight *flight = flight_of(w, op);
	struct passage *passage = passage_of(w, link_in ? w->out : w->in, op);
	struct mark *mark = !activation ? &passage->transfers[p]
			    : sends ? &flight->sent[p] : &flight->received[p];
	struct mark *before = op->kind == PD_OP_send_activation ? &flight->forward
			      : op->kind == PD_OP_send_gradient ? &flight->backward
			      : op->kind == PD_OP_recv_gradient ? NULL
			      : op->evaluate ? &flight->forward : &flight->backward;
	struct entry *entry;

	if (!may_arm(w, mark))
		return 0;
	if (op->kind == PD_OP_recv_activation)
		for (int i = 0; i < w->port_out_count; i++)
			if (!may_arm(w, &flight->sent[i]))
				return 0;
	arm(w, mark);
	entry = new_entry(w, op, mark);
	entry->bytes = ports[p].link->bytes;
	for (int t = 0; t < mark->count; t++) {
		const struct pd_net_tensor *tensor = ports[p].tensors[t];
		char *at = !activation ? passage->memory + tensor->gradient_offset
			   : (tensor->inbox ? flight->inbox : slot_of(w, op)) + tensor->offset;
		const struct pd_event *ready = before ? event_of(w, before) : NULL;

		if ((sends ? transport->send(w->config.transport, op->peer, tag_of(w, op, t), at,
					     tensor->bytes, ready, &mark->events[t])
			   : transport->recv(w->config.transport, op->peer, tag_of(w, op, t), at,
					     tensor->bytes, ready, &mark->events[t])) < 0)
			return -1;
	}
	return 1;
}

static int issue_allreduce(struct pd_worker *w, const struct pd_op *op, struct pd_error *err)
{
	struct mark *ready = w->group_backward;

	if (!may_arm(w, &w->allreduce) || !may_arm(w, &w->zeroed))
		return 0;
	if (!ready) {   /* no minibatch of this replica in the last group: it adds nothing */
		arm(w, &w->zeroed);
		ready = &w->zeroed;
		if (w->config.device->ops->sum(w->compute, w->gradients, NULL, 0,
					       w->sizes->weights_bytes / sizeof(float),
					       &w->zeroed.events[0]) != 0)
			return -1;
	}
	arm(w, &w->allreduce);
	new_entry(w, op, &w->allreduce)->bytes = (int64_t)w->sizes->weights_bytes;
	return pd_collective_start(w->collective, w->gradients,
				   TAG_COLLECTIVE | (((uint64_t)op->microbatch << 8) & TAG_NUMBER),
				   event_of(w, ready), &w->allreduce.events[0]) == 0 ? 1 : -1;
}

static int issue_step(struct pd_worker *w, const struct pd_op *op, struct pd_error *err)
{
	struct pd_update update = {
		.gradients = w->gradients, .velocity = w->velocity, .rate = w->config.sgd.rate,
		.momentum = w->config.sgd.momentum, .weight_decay = w->config.sgd.weight_decay,
	};
	const void *from;
	void *to;

	if (!may_arm(w, &w->step))
		return 0;
	if (w->collective && after(w, w->compute, &w->allreduce) < 0)
		return -1;
	pd_weights_step(&w->weights, op->version, &from, &to);
	update.weights = from;
	update.next = to;
	w->group_backward = NULL;
	arm(w, &w->step);
	new_entry(w, op, &w->step);
	return w->config.device->ops->update(w->compute, w->config.net, &update,
					     w->stage->first_layer, w->stage->layer_count,
					     &w->step.events[0]) == 0 ? 1 : -1;
}

int worker_issue(struct pd_worker *w, const struct pd_op *op, struct pd_error *err)
{
	static int (*const table[PD_OP_KINDS])(struct pd_worker *, const struct pd_op *,
					       struct pd_error *) = {
		[PD_OP_load] = issue_load,
		[PD_OP_forward] = issue_forward,
		[PD_OP_backward] = issue_backward,
		[PD_OP_recv_activation] = issue_transfer,
		[PD_OP_send_activation] = issue_transfer,
		[PD_OP_recv_gradient] = issue_transfer,
		[PD_OP_send_gradient] = issue_transfer,
		[PD_OP_allreduce] = issue_allreduce,
		[PD_OP_step] = issue_step,
	};
	char name[32];
	int verdict;

	if (!table[op->kind])
		return pd_error_failed(err, "this version does not execute %s",
				       pd_op_kind_name[op->kind]);
	verdict = table[op->kind](w, op, err);
	if (verdict > 0)
		w->issued++;
	if (verdict < 0)
		pd_error_failed(err, "%s: the %s refused it", pd_op_short(op, name),
				w->config.gate && w->config.gate->failed ? w->config.gate->err.text
								       : "device or transport");
	return verdict;
}
