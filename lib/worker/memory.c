/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of a rank: allocated once, in the order of the list in contrib/HACKING. */
#include "worker/internal.h"

#include "base/mem.h"

#include <stdlib.h>

static int take(struct pd_worker *w, size_t bytes, void *out_p, struct pd_error *err)
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

static void mark_init(struct mark *mark, int count)
{
	mark->events = pd_calloc((size_t)count, sizeof(*mark->events));
	mark->count = count;
	mark->last_use = -1;
}

static struct mark *marks_new(const struct port *ports, int count)
{
	struct mark *marks = pd_calloc((size_t)count, sizeof(*marks));

	for (int i = 0; i < count; i++)
		mark_init(&marks[i], ports[i].link->tensor_count);
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

static struct port *ports_new(struct pd_worker *w, const int *links, int count,
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

static int slots_new(struct pd_worker *w, struct pd_error *err)
{
	w->slot_count = pd_schedule_slots(w->config.schedule, w->stage_index, false);
	w->slots = pd_calloc((size_t)w->slot_count, sizeof(*w->slots));
	for (int i = 0; i < w->slot_count; i++)
		if (take(w, w->sizes->slot_bytes, &w->slots[i], err) < 0)
			return -1;
	w->flight_count = pd_schedule_inboxes(w->config.schedule, w->stage_index, false);
	w->flights = pd_calloc((size_t)w->flight_count, sizeof(*w->flights));
	for (int i = 0; i < w->flight_count; i++) {
		struct flight *flight = &w->flights[i];

		flight->received = marks_new(w->ports_in, w->port_in_count);
		flight->sent = marks_new(w->ports_out, w->port_out_count);
		mark_init(&flight->loaded, 1);
		mark_init(&flight->forward, 1);
		mark_init(&flight->backward, 1);
		if (take(w, w->sizes->inbox_bytes, &flight->inbox, err) < 0)
			return -1;
	}
	return 0;
}

static int passages_new(struct pd_worker *w, struct pd_error *err)
{
	for (int i = 0; i < PASSAGES; i++) {
		w->in[i].transfers = marks_new(w->ports_out, w->port_out_count);
		w->out[i].transfers = marks_new(w->ports_in, w->port_in_count);
		if (take(w, w->sizes->gradient_in_bytes, &w->in[i].memory, err) < 0 ||
		    take(w, w->sizes->gradient_out_bytes, &w->out[i].memory, err) < 0)
			return -1;
	}
	return 0;
}

int worker_memory_new(struct pd_worker *w, struct pd_error *err)
{
	const struct pd_wiring *wiring = w->config.schedule->wiring;
	const struct pd_net_sizes *sizes = w->sizes;
	int s = w->stage_index, versions = w->stage->warmup + 1;

	w->port_in_count = wiring->in_count[s];
	w->port_out_count = wiring->out_count[s];
	w->ports_in = ports_new(w, wiring->in[s], w->port_in_count, sizes->in, sizes->in_count);
	w->ports_out = ports_new(w, wiring->out[s], w->port_out_count, sizes->out,
				 sizes->out_count);
	mark_init(&w->zeroed, 1);
	mark_init(&w->allreduce, 1);
	mark_init(&w->step, 1);
	/* a stage without parameters still counts its versions */
	if (pd_weights_init(&w->weights, w->config.device,
			    sizes->weights_bytes ? sizes->weights_bytes : PD_ALIGN, versions, 0,
			    err) < 0)
		return -1;
	w->bytes += (int64_t)sizes->weights_bytes * versions;
	if (take(w, sizes->weights_bytes, &w->gradients, err) < 0 ||
	    (w->config.sgd.momentum != 0 && take(w, sizes->weights_bytes, &w->velocity, err) < 0) ||
	    take(w, sizes->state_bytes, &w->state, err) < 0 ||
	    take(w, sizes->scratch_bytes, &w->scratch, err) < 0 || slots_new(w, err) < 0 ||
	    passages_new(w, err) < 0)
		return -1;
	return 0;
}

void worker_memory_free(struct pd_worker *w)
{
	for (int i = 0; i < w->slot_count && w->slots; i++)
		give(w, w->slots[i]);
	free(w->slots);
	for (int i = 0; i < w->flight_count && w->flights; i++) {
		struct flight *flight = &w->flights[i];

		marks_free(flight->received, w->port_in_count);
		marks_free(flight->sent, w->port_out_count);
		free(flight->loaded.events);
		free(flight->forward.events);
		free(flight->backward.events);
		give(w, flight->inbox);
	}
	free(w->flights);
	for (int i = 0; i < PASSAGES; i++) {
		marks_free(w->in[i].transfers, w->port_out_count);
		marks_free(w->out[i].transfers, w->port_in_count);
		give(w, w->in[i].memory);
		give(w, w->out[i].memory);
	}
	free(w->zeroed.events);
	free(w->allreduce.events);
	free(w->step.events);
	ports_free(w->ports_in, w->port_in_count);
	ports_free(w->ports_out, w->port_out_count);
	pd_weights_release(&w->weights);
	give(w, w->gradients);
	give(w, w->velocity);
	give(w, w->state);
	give(w, w->scratch);
}
