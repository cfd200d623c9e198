/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of a rank: allocated once, in the order of the list in contrib/HACKING.
 * lib/schedule/memory.c predicts it.
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
	*(void **)out_p = device->ops->alloc(device, bytes, err);
	if (!*(void **)out_p)
		return -1;
	w->bytes = pd_plus(w->bytes, (int64_t)bytes);
	return 0;
}

static void give(struct pd_worker *w, void *ptr)
{
	if (ptr)
		w->config.device->ops->free(w->config.device, ptr);
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

/* In *bytes_p what an outbox for them holds. */
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

static int slots_new(struct pd_worker *w, struct chunk *c, struct pd_error *err)
{
	c->slots = worker_keep(w, c->room.slots, sizeof(*c->slots));
	for (int i = 0; i < c->room.slots; i++)
		if (worker_take(w, c->sizes->slot_bytes, &c->slots[i].memory, err) < 0)
			return -1;
	c->outboxes = worker_keep(w, c->room.outboxes, sizeof(*c->outboxes));
	for (int i = 0; i < c->room.outboxes; i++)
		if (worker_take(w, c->outbox_bytes, &c->outboxes[i].memory, err) < 0)
			return -1;
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
		if (worker_take(w, c->sizes->inbox_bytes, &flight->inbox, err) < 0)
			return -1;
	}
	return 0;
}

static int passages_new(struct pd_worker *w, struct chunk *c, struct pd_error *err)
{
	c->in = worker_keep(w, c->room.arriving, sizeof(*c->in));
	for (int i = 0; i < c->room.arriving; i++) {
		c->in[i].transfers = marks_new(w, c->ports_out, c->port_out_count);
		if (worker_take(w, c->sizes->gradient_in_bytes, &c->in[i].memory, err) < 0)
			return -1;
	}
	c->out = worker_keep(w, c->room.leaving, sizeof(*c->out));
	for (int i = 0; i < c->room.leaving; i++) {
		c->out[i].transfers = marks_new(w, c->ports_in, c->port_in_count);
		if (worker_take(w, c->sizes->gradient_out_bytes, &c->out[i].memory, err) < 0)
			return -1;
	}
	return 0;
}

static int weights_new(struct pd_worker *w, struct chunk *c, struct pd_error *err)
{
	const struct pd_schedule *schedule = w->config.schedule;
	int versions = c->room.versions;
	size_t weights = c->sizes->weights_bytes, bytes = c->sizes->full_bytes;
	size_t scale = pd_plan_agrees(schedule->plan) ? PD_ALIGN : 0;
	int moments = pd_optimizer_moments(&w->config.optimizer);

	/* a stage without parameters still counts its versions */
	size_t version = (weights ? weights : PD_ALIGN) + scale;

	if (pd_weights_init(&c->weights, w->config.device, version, versions, 0, err) < 0)
		return -1;
	w->bytes = pd_plus(w->bytes, pd_times((int64_t)version, versions));
	c->sum_count = pd_plan_open_groups(schedule->plan, c->index);
	for (int i = 0; i < c->sum_count; i++)
		if (worker_take(w, scale ? (bytes ? bytes : PD_ALIGN) + scale : bytes,
				&c->sums[i].gradients, err) < 0)
			return -1;
	if (worker_take(w, c->sizes->state_bytes, &c->state, err) < 0)
		return -1;
	if (schedule->plan->profile->dtype != PD_F32 && worker_take(w, bytes, &c->master, err) < 0)
		return -1;
	if (schedule->group[c->index] > c->stage->replicas && worker_take(w, bytes, &c->fresh, err) < 0)
		return -1;
	if (moments > 0 && worker_take(w, bytes, &c->velocity, err) < 0)
		return -1;
	if (moments > 1 && worker_take(w, bytes, &c->second, err) < 0)
		return -1;
	c->delay = pd_schedule_delay(schedule, c->index);
	if (pd_optimizer_arenas(&w->config.optimizer, c->delay) == moments)
		return 0;
	return worker_take(w, bytes, &c->delta, err) < 0 ||
	       worker_take(w, weights, &c->corrected, err) < 0 ? -1 : 0;
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
	return weights_new(w, c, err) < 0 || slots_new(w, c, err) < 0 ||
	       passages_new(w, c, err) < 0 ? -1 : 0;
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
	for (int i = 0; i < c->room.slots && c->slots; i++)
		give(w, c->slots[i].memory);
	for (int i = 0; i < c->room.outboxes && c->outboxes; i++)
		give(w, c->outboxes[i].memory);
	for (int i = 0; i < c->room.inboxes && c->flights; i++)
		give(w, c->flights[i].inbox);
	for (int i = 0; i < c->room.arriving && c->in; i++)
		give(w, c->in[i].memory);
	for (int i = 0; i < c->room.leaving && c->out; i++)
		give(w, c->out[i].memory);
	for (int i = 0; i < SUMS; i++)
		give(w, c->sums[i].gradients);
	pd_weights_release(&c->weights);
	give(w, c->master);
	give(w, c->fresh);
	give(w, c->velocity);
	give(w, c->second);
	give(w, c->delta);
	give(w, c->corrected);
	give(w, c->state);
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

void *pd_worker_master(struct pd_worker *w, int i)
{
	return w->chunks[i].master;
}

void *pd_worker_state_arena(struct pd_worker *w, int i)
{
	return w->chunks[i].state;
}

void *pd_worker_velocity(struct pd_worker *w, int i)
{
	return w->chunks[i].velocity;
}

void *pd_worker_second(struct pd_worker *w, int i)
{
	return w->chunks[i].second;
}

void *pd_worker_delta(struct pd_worker *w, int i)
{
	return w->chunks[i].delta;
}

int64_t pd_worker_bytes(const struct pd_worker *w)
{
	return w->bytes;
}
