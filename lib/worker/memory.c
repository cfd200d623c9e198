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
	w->bytes += (int64_t)bytes;
	return *(void **)out_p ? 0 : -1;
}

static void give(struct pd_worker *w, void *ptr)
{
	if (ptr)
		w->config.device->ops->free(w->config.device, ptr);
}

void worker_mark_init(struct mark *mark, int count)
{
	mark->events = pd_calloc((size_t)count, sizeof(*mark->events));
	mark->count = count;
	mark->last_use = -1;
}

static struct mark *marks_new(const struct port *ports, int count)
{
	struct mark *marks = pd_calloc((size_t)count, sizeof(*marks));

	for (int i = 0; i < count; i++)
		worker_mark_init(&marks[i], ports[i].link->tensor_count);
	return marks;
}

static void marks_free(struct mark *marks, int count)
{
	for (int i = 0; i < count && marks; i++)
		free(marks[i].events);
	free(marks);
}

static const struct pd_net_tensor *find_tensor(const struct pd_net_tensor *list, int count,
					       int tensor)
{
	for (int i = 0; i < count; i++)
		if (list[i].tensor == tensor)
			return &list[i];
	pd_bug("worker: tensor %d does not cross the stage's boundary", tensor);
}

static struct port *ports_new(const struct pd_worker *w, const int *links, int count,
			      const struct pd_net_tensor *list, int tensors)
{
	const struct pd_wiring *wiring = w->config.schedule->wiring;
	struct port *ports = pd_calloc((size_t)count, sizeof(*ports));

	for (int i = 0; i < count; i++) {
		const struct pd_link *link = &wiring->links[links[i]];

		ports[i].link = link;
		ports[i].tensors = pd_calloc((size_t)link->tensor_count, sizeof(*ports[i].tensors));
		for (int t = 0; t < link->tensor_count; t++)
			ports[i].tensors[t] = find_tensor(list, tensors,
							  w->config.first_tensor + link->tensors[t]);
	}
	return ports;
}

static void ports_free(struct port *ports, int count)
{
	for (int i = 0; i < count && ports; i++)
		free(ports[i].tensors);
	free(ports);
}

static int slots_new(struct pd_worker *w, struct chunk *c, struct pd_error *err)
{
	c->slots = pd_calloc((size_t)c->room.slots, sizeof(*c->slots));
	for (int i = 0; i < c->room.slots; i++)
		if (worker_take(w, c->sizes->slot_bytes, &c->slots[i].memory, err) < 0)
			return -1;
	c->flights = pd_calloc((size_t)c->room.inboxes, sizeof(*c->flights));
	for (int i = 0; i < c->room.inboxes; i++) {
		struct flight *flight = &c->flights[i];

		flight->chunk = c;
		flight->received = marks_new(c->ports_in, c->port_in_count);
		flight->sent = marks_new(c->ports_out, c->port_out_count);
		worker_mark_init(&flight->loaded, 1);
		worker_mark_init(&flight->forward, 1);
		worker_mark_init(&flight->backward, 1);
		worker_mark_init(&flight->weight, 1);
		if (worker_take(w, c->sizes->inbox_bytes, &flight->inbox, err) < 0)
			return -1;
	}
	return 0;
}

static int passages_new(struct pd_worker *w, struct chunk *c, struct pd_error *err)
{
	c->in = pd_calloc((size_t)c->room.arriving, sizeof(*c->in));
	for (int i = 0; i < c->room.arriving; i++) {
		c->in[i].transfers = marks_new(c->ports_out, c->port_out_count);
		if (worker_take(w, c->sizes->gradient_in_bytes, &c->in[i].memory, err) < 0)
			return -1;
	}
	c->out = pd_calloc((size_t)c->room.leaving, sizeof(*c->out));
	for (int i = 0; i < c->room.leaving; i++) {
		c->out[i].transfers = marks_new(c->ports_in, c->port_in_count);
		if (worker_take(w, c->sizes->gradient_out_bytes, &c->out[i].memory, err) < 0)
			return -1;
	}
	return 0;
}

static int weights_new(struct pd_worker *w, struct chunk *c, struct pd_error *err)
{
	const struct pd_schedule *schedule = w->config.schedule;
	int versions = c->room.versions;
	size_t bytes = c->sizes->weights_bytes;
	int moments = pd_optimizer_moments(&w->config.optimizer);

	/* a stage without parameters still counts its versions */
	size_t version = (bytes ? bytes : PD_ALIGN) + (schedule->plan->agree ? PD_ALIGN : 0);

	if (pd_weights_init(&c->weights, w->config.device, version, versions, 0, err) < 0)
		return -1;
	w->bytes += (int64_t)version * versions;
	c->sum_count = pd_plan_open_groups(schedule->plan, c->index);
	for (int i = 0; i < c->sum_count; i++)
		if (worker_take(w, schedule->plan->agree ? version : bytes,
				&c->sums[i].gradients, err) < 0)
			return -1;
	if (worker_take(w, c->sizes->state_bytes, &c->state, err) < 0)
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
	       worker_take(w, bytes, &c->corrected, err) < 0 ? -1 : 0;
}

static int chunk_new(struct pd_worker *w, struct chunk *c, struct pd_error *err)
{
	const struct pd_wiring *wiring = w->config.schedule->wiring;
	const struct pd_net_sizes *sizes = c->sizes;
	int s = c->index;

	c->port_in_count = wiring->in_count[s];
	c->port_out_count = wiring->out_count[s];
	c->ports_in = ports_new(w, wiring->in[s], c->port_in_count, sizes->in, sizes->in_count);
	c->ports_out = ports_new(w, wiring->out[s], c->port_out_count, sizes->out,
				 sizes->out_count);
	for (int i = 0; i < SUMS; i++)
		worker_mark_init(&c->sums[i].summed, 1);
	worker_mark_init(&c->allreduce, 1);
	worker_mark_init(&c->step, 1);
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
	free(c->slots);
	for (int i = 0; i < c->room.inboxes && c->flights; i++) {
		struct flight *flight = &c->flights[i];

		marks_free(flight->received, c->port_in_count);
		marks_free(flight->sent, c->port_out_count);
		free(flight->loaded.events);
		free(flight->forward.events);
		free(flight->backward.events);
		free(flight->weight.events);
		give(w, flight->inbox);
	}
	free(c->flights);
	for (int i = 0; i < c->room.arriving && c->in; i++) {
		marks_free(c->in[i].transfers, c->port_out_count);
		give(w, c->in[i].memory);
	}
	free(c->in);
	for (int i = 0; i < c->room.leaving && c->out; i++) {
		marks_free(c->out[i].transfers, c->port_in_count);
		give(w, c->out[i].memory);
	}
	free(c->out);
	for (int i = 0; i < SUMS; i++) {
		free(c->sums[i].summed.events);
		give(w, c->sums[i].gradients);
	}
	free(c->allreduce.events);
	free(c->step.events);
	ports_free(c->ports_in, c->port_in_count);
	ports_free(c->ports_out, c->port_out_count);
	pd_weights_release(&c->weights);
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
