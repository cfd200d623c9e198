/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank issues when, for express.c: the rules of lib/worker/issue.c, in the same order. */
#include "planner/express_rank.h"

#include <math.h>

static void arm(struct lane *lane, struct mark *mark)
{
	mark->last_use = mark->armed = lane->issued;
}

/* It waits for a part of a mark, if that is not done. */
static void await(struct express *x, struct lane *lane, const struct mark *mark, int part,
		  struct pd_doing *doing)
{
	struct waiter *waiter = x->unused;
	struct entry *entry;

	if (is_done(lane, mark, part))
		return;
	if (waiter)
		x->unused = waiter->next;
	else
		waiter = pd_arena_take(&x->arena, 1, sizeof(*waiter));
	*waiter = (struct waiter){ NULL, doing, part };
	entry = entry_of(lane, mark->armed);
	if (entry->last)
		entry->last->next = waiter;
	else
		entry->first = waiter;
	entry->last = waiter;
	doing->waits++;
}

static struct entry *new_entry(struct lane *lane, const struct pd_op *op, int parts)
{
	struct entry *entry = entry_of(lane, lane->issued);

	entry->kind = op->kind;
	entry->microbatch = op->microbatch;
	entry->missing = parts == 64 ? UINT64_MAX : (UINT64_C(1) << parts) - 1;
	entry->first = entry->last = NULL;
	return entry;
}

/* The task of the entry that is issued now; it waits for its turn. */
static struct pd_doing *new_task(struct lane *lane, int64_t duration_ns)
{
	struct pd_doing *task = &entry_of(lane, lane->issued)->task;

	*task = (struct pd_doing){ .kind = PD_DOING_TASK, .waits = 1, .duration_ns = duration_ns,
				   .told = { .rank = lane->rank, .entry = lane->issued } };
	return task;
}

static int64_t local_number(const struct express *x, const struct lane *lane,
			    const struct pd_op *op)
{
	return op->microbatch / x->plan->stages[lane->stage].replicas;
}

static struct flight *flight_of(const struct express *x, const struct lane *lane,
				const struct pd_op *op)
{
	return &lane->flights[local_number(x, lane, op) % x->parts[lane->stage].room.inboxes];
}

static struct sum *sum_of(const struct express *x, struct lane *lane, const struct pd_op *op)
{
	return &lane->sums[op->microbatch / x->schedule->group[lane->stage] %
			   x->parts[lane->stage].sum_count];
}

static int tensors(const struct express *x, int link)
{
	return x->schedule->wiring->links[link].tensor_count;
}

/* What is queued next on the lane's stream waits for what came with a mark. */
static void behind(struct express *x, struct lane *lane, struct mark *mark, int parts,
		   struct pd_doing *task)
{
	mark->last_use = lane->issued;
	for (int i = 0; i < parts; i++)
		await(x, lane, mark, i, task);
}

static bool issue_load(struct express *x, struct lane *lane, const struct pd_op *op)
{
	struct flight *flight = flight_of(x, lane, op);

	if (!may_arm(lane, &flight->loaded))
		return false;
	arm(lane, &flight->loaded);
	new_entry(lane, op, 1);
	pd_clock_queue(&x->clock, &lane->compute, new_task(lane, 0));
	return true;
}

static bool issue_forward(struct express *x, struct lane *lane, const struct pd_op *op)
{
	const struct pd_wiring *wiring = x->schedule->wiring;
	struct part *part = &x->parts[lane->stage];
	struct flight *flight = flight_of(x, lane, op);
	struct flight **slot = &lane->slots[local_number(x, lane, op) % part->room.slots];
	struct pd_doing *task;
	int s = lane->stage;

	if (!may_arm(lane, &flight->forward))
		return false;
	for (int i = 0; i < wiring->out_count[s] && *slot; i++)
		if (!may_arm(lane, &(*slot)->sent[i]))
			return false;
	task = new_task(lane, part->forward_ns);
	for (int i = 0; i < wiring->in_count[s]; i++)
		behind(x, lane, &flight->received[i], tensors(x, wiring->in[s][i]), task);
	if (lane->weights.versions)
		pd_weights_read(&lane->weights, op->version);
	*slot = flight;
	arm(lane, &flight->forward);
	new_entry(lane, op, 1);
	pd_clock_queue(&x->clock, &lane->compute, task);
	return true;
}

static bool issue_backward(struct express *x, struct lane *lane, const struct pd_op *op)
{
	const struct pd_wiring *wiring = x->schedule->wiring;
	struct part *part = &x->parts[lane->stage];
	struct flight *flight = flight_of(x, lane, op);
	struct sum *sum = sum_of(x, lane, op);
	int64_t i = local_number(x, lane, op);
	struct mark *in = lane->in[i % part->room.arriving], *out = lane->out[i % part->room.leaving];
	struct pd_doing *task;
	int s = lane->stage;

	if (!may_arm(lane, &flight->backward) || !may_arm(lane, &sum->summed))
		return false;
	for (int k = 0; k < wiring->in_count[s]; k++)
		if (!may_arm(lane, &out[k]))
			return false;
	task = new_task(lane, part->backward_ns);
	for (int k = 0; k < wiring->out_count[s]; k++)
		behind(x, lane, &in[k], tensors(x, wiring->out[s][k]), task);
	if (lane->weights.versions)
		pd_weights_done(&lane->weights, op->version);
	flight->ended = &flight->backward;
	arm(lane, &flight->backward);
	new_entry(lane, op, 1);
	pd_clock_queue(&x->clock, &lane->compute, task);
	sum->ready = &flight->backward;
	return true;
}

static struct pd_doing *transfer_of(struct express *x, int link, bool back, int tensor,
				    int64_t microbatch)
{
	const struct pd_wiring *wiring = x->schedule->wiring;
	size_t at = ((size_t)link * 2 + back) * (size_t)wiring->tensors_most + (size_t)tensor;

	if (!x->transfers[at])
		x->transfers[at] = pd_arena_take(&x->arena, (size_t)x->ring,
						 sizeof(struct pd_doing));
	return &x->transfers[at][microbatch & (x->ring - 1)];
}

static void post(struct express *x, struct lane *lane, const struct pd_op *op, int tensor,
		 const struct mark *ready, bool sends, bool back)
{
	struct pd_doing *doing = transfer_of(x, op->link, back, tensor, op->microbatch);
	const struct pd_link *link = &x->schedule->wiring->links[op->link];
	const struct pd_told told = { .rank = lane->rank, .part = tensor, .entry = lane->issued };
	uint8_t side = sends ? 1 : 2;

	if (!doing->posted) {
		const struct pd_way *way = sends ? pd_clock_way(&x->clock, lane->rank, op->peer)
						 : pd_clock_way(&x->clock, op->peer, lane->rank);
		int64_t bytes = x->plan->profile->layers[link->tensors[tensor]].activation_bytes;

		*doing = (struct pd_doing){ .kind = PD_DOING_TRANSFER, .waits = 2, .way = way,
					    .key = op->microbatch,
					    .duration_ns = pd_way_ns(way, bytes) };
	} else if (doing->key != op->microbatch || doing->posted & side) {
		x->lost = true;
		return;
	}
	doing->posted |= side;
	if (sends)
		doing->told = told;
	else
		doing->received = told;
	if (ready)
		await(x, lane, ready, 0, doing);
	pd_clock_let(&x->clock, doing);
}

static int port_of(const int *links, int link)
{
	int i = 0;

	while (links[i] != link)
		i++;
	return i;
}

static bool issue_transfer(struct express *x, struct lane *lane, const struct pd_op *op)
{
	const struct pd_wiring *wiring = x->schedule->wiring;
	struct part *part = &x->parts[lane->stage];
	bool sends = op->kind == PD_OP_send_activation || op->kind == PD_OP_send_gradient;
	bool back = op->kind == PD_OP_send_gradient || op->kind == PD_OP_recv_gradient;
	int s = lane->stage, p = port_of(sends == back ? wiring->in[s] : wiring->out[s], op->link);
	struct flight *flight = flight_of(x, lane, op);
	int64_t i = local_number(x, lane, op);
	struct mark *mark = back ? sends ? &lane->out[i % part->room.leaving][p]
					 : &lane->in[i % part->room.arriving][p]
				 : sends ? &flight->sent[p] : &flight->received[p];
	struct mark *ready = op->kind == PD_OP_send_activation ? &flight->forward
			   : op->kind == PD_OP_send_gradient ? &flight->backward
			   : op->kind == PD_OP_recv_gradient ? NULL : flight->ended;

	if (!may_arm(lane, mark))
		return false;
	for (int k = 0; k < wiring->out_count[s] && !sends && !back; k++)
		if (!may_arm(lane, &flight->sent[k]))
			return false;
	arm(lane, mark);
	new_entry(lane, op, tensors(x, op->link));
	if (ready)
		ready->last_use = lane->issued;
	for (int t = 0; t < tensors(x, op->link); t++)
		post(x, lane, op, t, ready, sends, back);
	return true;
}

static bool issue_allreduce(struct express *x, struct lane *lane, const struct pd_op *op)
{
	struct part *part = &x->parts[lane->stage];
	struct sum *sum = sum_of(x, lane, op);
	const struct pd_told told = { .rank = lane->rank, .entry = lane->issued };
	bool nothing = !sum->ready, pending = true;

	if (!may_arm(lane, &lane->allreduce) || (nothing && !may_arm(lane, &sum->summed)))
		return false;
	if (nothing)
		sum->ready = &sum->summed;
	else
		pending = !is_done(lane, sum->ready, 0);
	arm(lane, &lane->allreduce);
	new_entry(lane, op, 1);
	sum->ready->last_use = lane->issued;
	if (nothing) {
		struct pd_doing *task = new_task(lane, 0);
		double bytes = (double)(part->bytes / 4) * sizeof(float) / 3;
		int64_t rate = x->plan->profile->sum_bytes_per_s;

		task->duration_ns = rate > 0 ? llround(bytes * 1e9 / (double)rate) : 0;
		task->told = lane->hooked;
		pd_clock_queue(&x->clock, &lane->compute, task);
	}
	if (!pd_reduce_begin(part->reduce, lane->replica, &told, pending ? &lane->hook : NULL))
		x->lost = true;
	else if (nothing)
		lane->hook.waits = 1;
	else if (pending)
		await(x, lane, sum->ready, 0, &lane->hook);
	return true;
}

static bool issue_step(struct express *x, struct lane *lane, const struct pd_op *op)
{
	struct part *part = &x->parts[lane->stage];
	struct sum *sum = sum_of(x, lane, op);
	struct pd_doing *task;
	bool apart = false;

	if (!may_arm(lane, &lane->step))
		return false;
	task = new_task(lane, 0);
	if (part->reduce)
		behind(x, lane, &lane->allreduce, 1, task);
	if (lane->weights.versions) {
		const void *from;
		void *to;
		int newest = lane->weights.newest;

		pd_weights_step(&lane->weights, op->version, op->keep, &from, &to);
		apart = lane->weights.newest != newest;
	}
	task->duration_ns = apart ? part->apart_ns : part->update_ns;
	sum->ready = NULL;
	arm(lane, &lane->step);
	new_entry(lane, op, 1);
	pd_clock_queue(&x->clock, &lane->compute, task);
	return true;
}

bool pd_express_issue(struct express *x, struct lane *lane, const struct pd_op *op)
{
	bool issued = false;

	switch (op->kind) {
	case PD_OP_load:
		issued = issue_load(x, lane, op);
		break;
	case PD_OP_forward:
		issued = issue_forward(x, lane, op);
		break;
	case PD_OP_backward:
		issued = issue_backward(x, lane, op);
		break;
	case PD_OP_recv_activation:
	case PD_OP_send_activation:
	case PD_OP_recv_gradient:
	case PD_OP_send_gradient:
		issued = issue_transfer(x, lane, op);
		break;
	case PD_OP_allreduce:
		issued = issue_allreduce(x, lane, op);
		break;
	case PD_OP_step:
		issued = issue_step(x, lane, op);
		break;
	default:
		x->lost = true;
	}
	lane->issued += issued;
	return issued;
}
