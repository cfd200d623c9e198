/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of a rank, allocated once: the arenas of lib/memory/arenas.def, and what they are
 * counted by.
 */
#include "engine/worker/internal.h"

#include "base/mem.h"

#include <stdlib.h>

static int allocate(struct pd_worker *w, bool shared, size_t bytes, void *out_p, struct pd_error *err)
{
	struct pd_device *device = w->config.device;
	const struct pd_memory_ops *memory = &device->ops->memory;

	*(void **)out_p = NULL;
	if (bytes == 0)
		return 0;
	*(void **)out_p = (shared && memory->shared_alloc ? memory->shared_alloc : memory->alloc)(
		device, bytes, err);
	if (!*(void **)out_p)
		return -1;
	w->bytes = pd_plus(w->bytes, (int64_t)bytes);
	return 0;
}

int worker_take(struct pd_worker *w, size_t bytes, void *out_p, struct pd_error *err)
{
	return allocate(w, false, bytes, out_p, err);
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

void worker_fence_init(struct pd_worker *w, struct fence *fence, int count)
{
	fence->events = count == 1 ? &fence->own : worker_keep(w, count, sizeof(*fence->events));
	fence->count = count;
	fence->last_use = -1;
}

static struct fence *fences_new(struct pd_worker *w, const struct stage_link *stage_links,
				int count)
{
	struct fence *fences = worker_keep(w, count, sizeof(*fences));

	for (int i = 0; i < count; i++)
		worker_fence_init(w, &fences[i], stage_links[i].link->tensor_count);
	return fences;
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
static struct stage_link *stage_links_new(struct pd_worker *w, const int *links, int count,
					  const struct pd_net_tensor *list, int tensors,
					  size_t *bytes_p)
{
	const struct pd_wiring *wiring = w->config.schedule->wiring;
	struct stage_link *stage_links = worker_keep(w, count, sizeof(*stage_links));
	size_t bytes = 0;

	for (int i = 0; i < count; i++) {
		const struct pd_link *link = &wiring->links[links[i]];

		stage_links[i].link = link;
		stage_links[i].tensors = worker_keep(w, link->tensor_count,
						     sizeof(*stage_links[i].tensors));
		stage_links[i].places = worker_keep(w, link->tensor_count,
						    sizeof(*stage_links[i].places));
		for (int t = 0; t < link->tensor_count; t++) {
			stage_links[i].tensors[t] = find_tensor(list, tensors,
								w->config.first_tensor +
								link->tensors[t]);
			stage_links[i].places[t] = bytes;
			bytes += pd_align(stage_links[i].tensors[t]->bytes);
		}
	}
	*bytes_p = bytes;
	return stage_links;
}

static void microbatches_new(struct pd_worker *w, struct chunk *c)
{
	c->kept = worker_keep(w, c->counts.kept, sizeof(*c->kept));
	c->outboxes = worker_keep(w, c->counts.outboxes, sizeof(*c->outboxes));
	c->microbatches = worker_keep(w, c->counts.inboxes, sizeof(*c->microbatches));
	for (int i = 0; i < c->counts.inboxes; i++) {
		struct microbatch *microbatch = &c->microbatches[i];

		microbatch->chunk = c;
		microbatch->losses = worker_keep(w, c->sizes->loss_count,
						 sizeof(*microbatch->losses));
		microbatch->received = fences_new(w, c->links_in, c->links_in_count);
		microbatch->sent = fences_new(w, c->links_out, c->links_out_count);
		worker_fence_init(w, &microbatch->loaded, 1);
		worker_fence_init(w, &microbatch->forward, c->counts.outboxes > 0 ? 2 : 1);
		worker_fence_init(w, &microbatch->recomputed, 1);
		worker_fence_init(w, &microbatch->backward[0], 1);
		worker_fence_init(w, &microbatch->backward[1], 1);
		worker_fence_init(w, &microbatch->weight, 1);
	}
}

static void gradient_buffers_new(struct pd_worker *w, struct chunk *c)
{
	c->in = worker_keep(w, c->counts.arriving, sizeof(*c->in));
	for (int i = 0; i < c->counts.arriving; i++)
		c->in[i].transfers = fences_new(w, c->links_out, c->links_out_count);
	c->out = worker_keep(w, c->counts.leaving, sizeof(*c->out));
	for (int i = 0; i < c->counts.leaving; i++)
		c->out[i].transfers = fences_new(w, c->links_in, c->links_in_count);
}

/* Returns where a stage keeps number i of its arenas of a kind that the worker allocates. */
static void **arena_of(struct chunk *c, enum pd_arena_kind kind, int i)
{
	switch (kind) {
	case PD_ARENA_gradients:
		return &c->sums[i].gradients;
	case PD_ARENA_fresh:
		return &c->fresh;
	case PD_ARENA_residual:
		return (void **)&c->residual;
	case PD_ARENA_chunk_table:
		return &c->chunk_table;
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
		return &c->pool->slots[i].memory;
	case PD_ARENA_kept:
		return &c->kept[i];
	case PD_ARENA_inbox:
		return &c->microbatches[i].inbox;
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
		.kept_bytes = (int64_t)sizes->kept_bytes,
		.outbox_bytes = (int64_t)c->outbox_bytes,
		.gradient_in_bytes = (int64_t)sizes->gradient_in_bytes,
		.gradient_out_bytes = (int64_t)sizes->gradient_out_bytes,
		.chunk_table_bytes = pd_plan_chunk_table_bytes(w->config.schedule->plan, c->index,
							       (int64_t)sizes->full_bytes),
	};
}

static void set_arenas(struct pd_worker *w, struct chunk *c)
{
	struct pd_moments moments = pd_optimizer_moments(&w->config.optimizer);
	struct pd_stage_memory sizes = sizes_of(w, c);

	pd_schedule_arenas(w->config.schedule, c->index, &c->counts, &moments, &sizes, c->arenas);
}

/* Makes the pools of slots: one of each stage, or the first one's for all. */
static void pools_new(struct pd_worker *w)
{
	struct pd_arena_need *slots[w->chunk_count];
	bool share;
	int before = 0;

	for (int i = 0; i < w->chunk_count; i++)
		slots[i] = &w->chunks[i].arenas[PD_ARENA_slot];
	share = pd_arenas_share(slots, w->chunk_count, w->chunks[0].counts.pool);
	for (int i = 0; i < w->chunk_count; i++) {
		struct chunk *c = &w->chunks[i];
		struct pool *pool = &c->own_pool;

		c->pool = share ? &w->chunks[0].own_pool : pool;
		c->evaluated_turn = pd_schedule_slots(w->config.schedule, c->index, true);
		c->evaluated_first = share ? before : 0;
		before += c->evaluated_turn;
		pool->count = (int)slots[i]->count;
		pool->slots = worker_keep(w, pool->count, sizeof(*pool->slots));
		pool->free = worker_keep(w, pool->count, sizeof(*pool->free));
	}
}

static int arenas_new(struct pd_worker *w, struct chunk *c, struct pd_error *err)
{
	const struct pd_arena_need *versions = &c->arenas[PD_ARENA_weights];

	c->delay = pd_schedule_delay(w->config.schedule, c->index);
	if (pd_weights_init(&c->weights, w->config.device, (size_t)versions->each_bytes,
			    (int)versions->count, 0, err) < 0)
		return -1;
	w->bytes = pd_plus(w->bytes, pd_times(versions->each_bytes, versions->count));
	c->sum_count = (int)c->arenas[PD_ARENA_gradients].count;
	for (int kind = 0; kind < PD_ARENAS; kind++)
		for (int i = 0; i < c->arenas[kind].count; i++)
			if (pd_arena_owner[kind] == PD_ARENA_OF_WORKER &&
			    allocate(w, kind == PD_ARENA_gradients && c->stage->replicas > 1,
				     (size_t)c->arenas[kind].each_bytes, arena_of(c, kind, i), err) < 0)
				return -1;
	return 0;
}

/* Returns the bytes of a layer's gradients: the device's, which a profile may not know. */
static size_t layer_bytes(const struct pd_worker *w, const struct chunk *c, int layer)
{
	const struct pd_net_ops *ops = &w->config.device->ops->net;
	struct pd_net_layer sizes;

	if (!ops->layer)
		return (size_t)pd_plan_layer_bytes(w->config.schedule->plan, layer);
	ops->layer(c->net, layer, &sizes);
	return sizes.parameter_bytes;
}

/* Sets which layers and which range of the gradients each bucket has. */
static void place_buckets(struct pd_worker *w, struct chunk *c)
{
	struct pd_bucket *planned = pd_calloc((size_t)c->bucket_count, sizeof(*planned));
	size_t begin = 0;

	pd_plan_buckets(w->config.schedule->plan, c->index, planned);
	for (int i = 0; i < c->bucket_count; i++) {
		struct bucket *bucket = &c->buckets[i];
		int first = planned[i].first_layer;
		size_t bytes = 0;

		for (int l = first; l < first + planned[i].layer_count; l++)
			bytes += layer_bytes(w, c, l);
		bucket->first_layer = first;
		bucket->layer_count = planned[i].layer_count;
		bucket->begin = begin;
		bucket->floats = bytes / sizeof(float);
		begin += bucket->floats;
	}
	if (begin != c->sizes->full_bytes / sizeof(float))
		pd_bug("worker: the buckets of stage %d have %zu gradients, the stage %zu",
		       c->index, begin, c->sizes->full_bytes / sizeof(float));
	free(planned);
}

static void buckets_new(struct pd_worker *w, struct chunk *c)
{
	c->bucket_count = w->config.schedule->buckets[c->index];
	c->buckets = worker_keep(w, c->bucket_count, sizeof(*c->buckets));
	c->buckets[0] = (struct bucket){
		.first_layer = c->stage->first_layer, .layer_count = c->stage->layer_count,
		.floats = c->sizes->full_bytes / sizeof(float),
	};
	if (c->bucket_count > 1)
		place_buckets(w, c);
	for (int b = 0; b < c->bucket_count; b++)
		worker_fence_init(w, &c->buckets[b].allreduce, 1);
	for (int i = 0; i < SUMS; i++) {
		c->sums[i].buckets = worker_keep(w, c->bucket_count, sizeof(*c->sums[i].buckets));
		for (int b = 0; b < c->bucket_count; b++) {
			worker_fence_init(w, &c->sums[i].buckets[b].made, 1);
			worker_fence_init(w, &c->sums[i].buckets[b].summed, 1);
		}
	}
}

static void chunk_new(struct pd_worker *w, struct chunk *c)
{
	const struct pd_wiring *wiring = w->config.schedule->wiring;
	const struct pd_net_sizes *sizes = c->sizes;
	size_t in_bytes;
	int s = c->index;

	c->links_in_count = wiring->in_count[s];
	c->links_out_count = wiring->out_count[s];
	c->links_in = stage_links_new(w, wiring->in[s], c->links_in_count, sizes->in,
				      sizes->in_count, &in_bytes);
	c->links_out = stage_links_new(w, wiring->out[s], c->links_out_count, sizes->out,
				       sizes->out_count, &c->outbox_bytes);
	buckets_new(w, c);
	worker_fence_init(w, &c->step[0], 1);
	worker_fence_init(w, &c->step[1], 1);
	worker_fence_init(w, &c->norms, 1);
	microbatches_new(w, c);
	gradient_buffers_new(w, c);
	set_arenas(w, c);
}

int worker_memory_new(struct pd_worker *w, struct pd_error *err)
{
	size_t scratch = 0;

	for (int i = 0; i < w->chunk_count; i++)
		chunk_new(w, &w->chunks[i]);
	pools_new(w);
	for (int i = 0; i < w->chunk_count; i++) {
		struct chunk *c = &w->chunks[i];

		if (arenas_new(w, c, err) < 0)
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

static int64_t bytes_of(const struct chunk *c, enum pd_arena_kind kind)
{
	return pd_times(c->arenas[kind].count, c->arenas[kind].each_bytes);
}

/* Outputs are sent from slots, where a stage has no outboxes. */
static int64_t leaving_bytes(const struct chunk *c)
{
	int64_t bytes = 0;

	for (int t = 0; t < c->sizes->out_count; t++)
		bytes = pd_plus(bytes, (int64_t)pd_align(c->sizes->out[t].bytes));
	return c->counts.outboxes > 0 ? bytes_of(c, PD_ARENA_outbox)
				      : pd_times(c->counts.slots, bytes);
}

int64_t pd_worker_under_way_bytes(const struct pd_worker *w)
{
	static const enum pd_arena_kind kinds[] = {
		PD_ARENA_inbox, PD_ARENA_gradient_in, PD_ARENA_gradient_out,
		/* replicas receive what they add here, and send as much */
		PD_ARENA_staging, PD_ARENA_staging,
	};
	int64_t bytes = 0;

	for (const struct chunk *c = w->chunks; c < w->chunks + w->chunk_count; c++) {
		bytes = pd_plus(bytes, leaving_bytes(c));
		for (size_t k = 0; k < PD_COUNT(kinds); k++)
			bytes = pd_plus(bytes, bytes_of(c, kinds[k]));
	}
	return bytes;
}

int64_t pd_worker_bytes(const struct pd_worker *w)
{
	return w->bytes;
}
