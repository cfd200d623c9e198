/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of a rank, allocated once: the arenas of lib/plan/arenas.def, and what they are
 * counted by.
 */
#include "worker/internal.h"

#include "base/mem.h"

#include <stdlib.h>

int worker_take(struct pd_worker *w, size_t bytes, void *out_p, struct pd_error *err)
{
	struct pd_device *device = w->config.device;

	*(void **)out_p = NULL;
	if (bytes == 0)
		return 0;
	*(void **)out_p = device->ops->memory.alloc(device, bytes, err);
	if (!*(void **)out_p)
		return -1;
	w->bytes = pd_plus(w->bytes, (int64_t)bytes);
	return 0;
}

static void give(struct pd_worker *w, void *ptr)
{
	if (ptr)
		w->config.device->ops->memory.free(w->config.device, ptr);
}

void *worker_keep(struct pd_worker *w, int count, size_t bytes)
{
	return pd_arena_take(w->config.arena ? w->config.arena : &w->arena, (size_t)count, bytes);
}

void worker_mark_init(struct pd_worker *w, struct mark *mark, int count)
{
	mark->events = count == 1 ? &mark->own : worker_keep(w, count, sizeof(*mark->events));
	mark->count = count;
	mark->last_use = -1;
}

static struct mark *marks_new(struct pd_worker *w, const struct port *ports, int count)
{
	struct mark *marks = worker_keep(w, count, sizeof(*marks));

	for (int i = 0; i < count; i++)
		worker_mark_init(w, &marks[i], ports[i].link->tensor_count);
	return marks;
}

static const struct pd_net_tensor *find_tensor(const struct pd_net_tensor *list, int count,
					       int tensor)
{
	for (int i = 0; i < count; i++)
		if (list[i].tensor == tensor)
			return &list[i];
	pd_bug("worker: tensor %d does not cross the stage's boundary", tensor);
}

/* Makes the tensors of links, and sets *bytes_p to the size of an outbox for them. */
static struct port *ports_new(struct pd_worker *w, const int *links, int count,
			      const struct pd_net_tensor *list, int tensors, size_t *bytes_p)
{
	const struct pd_wiring *wiring = w->config.schedule->wiring;
	struct port *ports = worker_keep(w, count, sizeof(*ports));
	size_t bytes = 0;

	for (int i = 0; i < count; i++) {
		const struct pd_link *link = &wiring->links[links[i]];

		ports[i].link = link;
		ports[i].tensors = worker_keep(w, link->tensor_count, sizeof(*ports[i].tensors));
		ports[i].places = worker_keep(w, link->tensor_count, sizeof(*ports[i].places));
		for (int t = 0; t < link->tensor_count; t++) {
			ports[i].tensors[t] = find_tensor(list, tensors,
							  w->config.first_tensor + link->tensors[t]);
			ports[i].places[t] = bytes;
			bytes += pd_align(ports[i].tensors[t]->bytes);
		}
	}
	*bytes_p = bytes;
	return ports;
}

static void slots_new(struct pd_worker *w, struct chunk *c)
{
	c->slots = worker_keep(w, c->room.slots, sizeof(*c->slots));
	c->outboxes = worker_keep(w, c->room.outboxes, sizeof(*c->outboxes));
	c->flights = worker_keep(w, c->room.inboxes, sizeof(*c->flights));
	for (int i = 0; i < c->room.inboxes; i++) {
		struct flight *flight = &c->flights[i];

		flight->chunk = c;
		flight->losses = worker_keep(w, c->sizes->loss_count, sizeof(*flight->losses));
		flight->received = marks_new(w, c->ports_in, c->port_in_count);
		flight->sent = marks_new(w, c->ports_out, c->port_out_count);
		worker_mark_init(w, &flight->loaded, 1);
		worker_mark_init(w, &flight->forward, c->room.outboxes > 0 ? 2 : 1);
		worker_mark_init(w, &flight->recomputed, 1);
		worker_mark_init(w, &flight->backward, 1);
		worker_mark_init(w, &flight->weight, 1);
	}
}

static void passages_new(struct pd_worker *w, struct chunk *c)
{
	c->in = worker_keep(w, c->room.arriving, sizeof(*c->in));
	for (int i = 0; i < c->room.arriving; i++)
		c->in[i].transfers = marks_new(w, c->ports_out, c->port_out_count);
	c->out = worker_keep(w, c->room.leaving, sizeof(*c->out));
	for (int i = 0; i < c->room.leaving; i++)
		c->out[i].transfers = marks_new(w, c->ports_in, c->port_in_count);
}

/* Where a stage keeps number i of its arenas of a kind that the worker allocates. */
static void **arena_of(struct chunk *c, enum pd_arena_kind kind, int i)
{
	switch (kind) {
	case PD_ARENA_gradients:
		return &c->sums[i].gradients;
	case PD_ARENA_fresh:
		return &c->fresh;
	case PD_ARENA_master:
		return &c->master;
	case PD_ARENA_velocity:
		return &c->velocity;
	case PD_ARENA_second:
		return &c->second;
	case PD_ARENA_delta:
		return &c->delta;
	case PD_ARENA_corrected:
		return &c->corrected;
	case PD_ARENA_state:
		return &c->state;
	case PD_ARENA_slot:
		return &c->slots[i].memory;
	case PD_ARENA_inbox:
		return &c->flights[i].inbox;
	case PD_ARENA_outbox:
		return &c->outboxes[i].memory;
	case PD_ARENA_gradient_in:
		return &c->in[i].memory;
	case PD_ARENA_gradient_out:
		return &c->out[i].memory;
	default:
		pd_bug("worker: arena %d is not the worker's", (int)kind);
	}
}

/* Converts the device's sizes into the form of those that a plan predicts. */
static struct pd_stage_memory sizes_of(const struct pd_worker *w, const struct chunk *c)
{
	const struct pd_net_sizes *sizes = c->sizes;

	return (struct pd_stage_memory){
		.exact = true,
		.weights_bytes = (int64_t)sizes->weights_bytes,
		.full_bytes = (int64_t)sizes->full_bytes,
		.master_bytes = pd_memory_master(w->config.schedule->plan->profile,
						 (int64_t)sizes->full_bytes),
		.state_bytes = (int64_t)sizes->state_bytes,
		.inbox_bytes = (int64_t)sizes->inbox_bytes,
		.slot_bytes = (int64_t)sizes->slot_bytes,
		.outbox_bytes = (int64_t)c->outbox_bytes,
		.gradient_in_bytes = (int64_t)sizes->gradient_in_bytes,
		.gradient_out_bytes = (int64_t)sizes->gradient_out_bytes,
	};
}

static int arenas_new(struct pd_worker *w, struct chunk *c, struct pd_error *err)
{
	const struct pd_arena_need *versions = &c->arenas[PD_ARENA_weights];
	struct pd_moments moments = pd_optimizer_moments(&w->config.optimizer);
	struct pd_stage_memory sizes = sizes_of(w, c);

	c->delay = pd_schedule_delay(w->config.schedule, c->index);
	pd_schedule_arenas(w->config.schedule, c->index, &c->room, &moments, &sizes, c->arenas);
	if (pd_weights_init(&c->weights, w->config.device, (size_t)versions->each_bytes,
			    (int)versions->count, 0, err) < 0)
		return -1;
	w->bytes = pd_plus(w->bytes, pd_times(versions->each_bytes, versions->count));
	c->sum_count = (int)c->arenas[PD_ARENA_gradients].count;
	for (int kind = 0; kind < PD_ARENAS; kind++)
		for (int i = 0; i < c->arenas[kind].count; i++)
			if (pd_arena_owner[kind] == PD_ARENA_OF_WORKER &&
			    worker_take(w, (size_t)c->arenas[kind].each_bytes, arena_of(c, kind, i),
					err) < 0)
				return -1;
	return 0;
}

static int chunk_new(struct pd_worker *w, struct chunk *c, struct pd_error *err)
{
	const struct pd_wiring *wiring = w->config.schedule->wiring;
	const struct pd_net_sizes *sizes = c->sizes;
	size_t in_bytes;
	int s = c->index;

	c->port_in_count = wiring->in_count[s];
	c->port_out_count = wiring->out_count[s];
	c->ports_in = ports_new(w, wiring->in[s], c->port_in_count, sizes->in, sizes->in_count,
				&in_bytes);
	c->ports_out = ports_new(w, wiring->out[s], c->port_out_count, sizes->out,
				 sizes->out_count, &c->outbox_bytes);
	for (int i = 0; i < SUMS; i++)
		worker_mark_init(w, &c->sums[i].summed, 1);
	worker_mark_init(w, &c->allreduce, 1);
	worker_mark_init(w, &c->step, 1);
	slots_new(w, c);
	passages_new(w, c);
	return arenas_new(w, c, err);
}

int worker_memory_new(struct pd_worker *w, struct pd_error *err)
{
	size_t scratch = 0;

	for (int i = 0; i < w->chunk_count; i++) {
		struct chunk *c = &w->chunks[i];

		if (chunk_new(w, c, err) < 0)
			return -1;
		if (c->sizes->scratch_bytes > scratch)
			scratch = c->sizes->scratch_bytes;
	}
	return worker_take(w, scratch, &w->scratch, err);
}

static void chunk_free(struct pd_worker *w, struct chunk *c)
{
	for (int kind = 0; kind < PD_ARENAS; kind++)
		for (int i = 0; i < c->arenas[kind].count; i++)
			if (pd_arena_owner[kind] == PD_ARENA_OF_WORKER)
				give(w, *arena_of(c, kind, i));
	pd_weights_release(&c->weights);
}

void worker_memory_free(struct pd_worker *w)
{
	for (int i = 0; i < w->chunk_count; i++)
		chunk_free(w, &w->chunks[i]);
	give(w, w->scratch);
}

struct pd_weights *pd_worker_weights(struct pd_worker *w, int i)
{
	return &w->chunks[i].weights;
}

void *pd_worker_arena(struct pd_worker *w, int i, enum pd_arena_kind kind)
{
	return *arena_of(&w->chunks[i], kind, 0);
}

int64_t pd_worker_bytes(const struct pd_worker *w)
{
	return w->bytes;
}
