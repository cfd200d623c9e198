/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/worker/internal.h"

#include "base/mem.h"
#include "engine/device/submit.h"

#include <stdlib.h>

#define DEFAULT_RING 64
#define FEW_ENTRIES 8                   /* operations in the ring at first */

/* Opens the sum of a bucket's chunks. */
static struct pd_reduction *open_sparse(const struct pd_worker *w, const struct chunk *c,
					const struct bucket *b,
					const struct pd_reduction_config *config,
					struct pd_error *err)
{
	const struct pd_plan *plan = w->config.schedule->plan;
	int64_t floats = (int64_t)(c->sizes->full_bytes / sizeof(float));
	const struct pd_sparse_bucket bucket = {
		.plan = plan, .stage = c->index,
		.range = pd_plan_chunks_of(plan, (int64_t)b->begin,
					   (int64_t)(b->begin + b->floats), floats),
		.chunks = { .residual = c->residual, .norms = worker_norms(c),
			    .places = worker_places(w, c), .floats = floats, .chunk = plan->chunk,
			    .keep = (float)pd_optimizer_residual(&w->config.optimizer) },
	};

	return pd_sparse_open(config, &bucket, err);
}

/* Takes what was opened, and counts its memory. */
static int open_one(struct pd_worker *w, struct pd_reduction *r, struct pd_reduction **out_p)
{
	*out_p = r;
	if (!r)
		return -1;
	w->bytes = pd_plus(w->bytes, (int64_t)r->ops->staging_bytes(r));
	return 0;
}

static struct pd_rounding rounding_of(const struct pd_worker *w)
{
	const struct pd_plan *plan = w->config.schedule->plan;
	const struct pd_optimizer *o = &w->config.optimizer;

	return pd_dtype_gradients(plan->gradient_dtype, o->loss_scale > 0 ? o->loss_scale : 1,
				  plan->profile->dtype == PD_F16 || o->loss_scale_interval > 0);
}

static int open_reductions(struct pd_worker *w, struct chunk *c, struct pd_error *err)
{
	const struct pd_plan *plan = w->config.schedule->plan;
	struct pd_reduction_config config = {
		.transport = w->config.transport, .device = w->config.device, .stream = w->reduce,
		.topology = &plan->topology, .ranks = c->stage->ranks,
		.members = c->stage->replicas, .me = w->replica,
		.rounding = rounding_of(w),
	};

	for (int i = 0; i < c->bucket_count && c->stage->replicas > 1; i++) {
		struct bucket *bucket = &c->buckets[i];

		config.floats = (size_t)pd_profile_summed_bytes(plan->profile, plan->gradient_dtype, (int64_t)(
						bucket->floats * sizeof(float))) / sizeof(float);
		config.room = c->residual ? NULL : (float *)c->sums[0].gradients + bucket->begin;
		if (open_one(w, c->residual ? open_sparse(w, c, bucket, &config, err)
			     : pd_reduction_open(plan->reducer, &config, err),
			     &bucket->reduction) < 0)
			return -1;
	}
	config.floats = (size_t)worker_sparse_chunks(w, c);
	config.room = NULL;
	config.rounding = pd_dtype_gradients(PD_F32, 1, false);
	return !pd_plan_is_sparse(plan, c->index) ? 0
		: open_one(w, pd_reduction_open(plan->reducer, &config, err), &c->norm_sum);
}

static void close_reductions(struct chunk *c)
{
	for (int i = 0; i < c->bucket_count; i++)
		if (c->buckets[i].reduction)
			c->buckets[i].reduction->ops->close(c->buckets[i].reduction);
	if (c->norm_sum)
		c->norm_sum->ops->close(c->norm_sum);
}

static int open_streams(struct pd_worker *w, struct pd_error *err)
{
	const struct pd_device_ops *device = w->config.device->ops;
	bool reduces = w->global_norm;

	for (int i = 0; i < w->chunk_count; i++)
		reduces |= w->chunks[i].stage->replicas > 1;
	w->behind = device->stream.open(w->config.device, err);
	if (!w->behind)
		return -1;
	/* a net that splits backward has not rehearsed works that come together (run/device/rehearse.h) */
	w->compute = device->joins && !w->config.schedule->splits ? worker_batch_new(w, w->behind) : w->behind;
	/*
	 * The sums of the all-reduce run beside the computation, not behind what is queued there.
	 */
	if (reduces)
		w->reduce = device->stream.open(w->config.device, err);
	if (reduces && !w->reduce)
		return -1;
	if (device->separate_memory)
		w->load = device->stream.open(w->config.device, err);
	if (device->separate_memory && !w->load)
		return -1;
	for (int i = 0; i < w->chunk_count; i++)
		if (open_reductions(w, &w->chunks[i], err) < 0)
			return -1;
	return 0;
}

static void set_chunks(struct pd_worker *w)
{
	const struct pd_schedule *schedule = w->config.schedule;
	int count = pd_schedule_chunks(schedule, w->config.rank), stages[count];

	w->chunk_count = count;
	w->chunks = worker_keep(w, w->chunk_count, sizeof(*w->chunks));
	w->replica = pd_schedule_stages(schedule, w->config.rank, stages);
	for (int i = 0; i < w->chunk_count; i++) {
		struct chunk *c = &w->chunks[i];

		c->index = stages[i];
		c->stage = &schedule->plan->stages[stages[i]];
		c->replicas = c->stage->replicas;
		c->net = w->config.stages[i].net;
		c->loader = w->config.stages[i].loader;
		c->sizes = w->config.device->ops->net.sizes(c->net);
		if (w->config.buffer_counts)
			c->counts = w->config.buffer_counts[i];
		else
			pd_buffer_counts_of_stage(schedule, c->index, &c->counts);
	}
	w->config.stages = NULL;        /* they belong to the caller, who may free them */
}

/* Sets the scale of the version that training begins with. */
static int first_scales(struct pd_worker *w, struct pd_error *err)
{
	double scale = w->config.optimizer.loss_scale;

	w->first_scale = (struct pd_scale){ .loss_scale = scale > 0 ? scale : 1 };
	for (int i = 0; i < w->chunk_count && w->global_norm; i++) {
		struct chunk *c = &w->chunks[i];

		if (pd_submit_copy(w->compute,
				worker_scale(c, pd_weights_newest(&c->weights, NULL)),
				&w->first_scale, sizeof(w->first_scale), PD_COPY_TO_DEVICE,
				NULL) != 0)
			return pd_error_failed(err, "the device refused to copy");
	}
	return 0;
}

struct pd_worker *pd_worker_new(const struct pd_worker_config *config, struct pd_error *err)
{
	struct pd_arena own = { 0 };
	struct pd_worker *w = pd_arena_take(config->arena ? config->arena : &own, 1, sizeof(*w));

	w->arena = own;
	w->config = *config;
	set_chunks(w);
	w->ring = config->ring ? config->ring : DEFAULT_RING;
	w->entry_count = FEW_ENTRIES;
	w->entries = pd_calloc((size_t)w->entry_count, sizeof(*w->entries));
	w->tensors_most = (uint64_t)config->schedule->wiring->tensors_most;
	for (int s = 0; s < config->schedule->stage_count; s++)
		if (w->sums_most <= (uint64_t)config->schedule->buckets[s])     /* and the norms */
			w->sums_most = (uint64_t)config->schedule->buckets[s] + 1;
	if (worker_memory_new(w, err) < 0 || worker_tied_new(w, err) < 0 ||
	    worker_global_norm_new(w, err) < 0 ||
	    open_streams(w, err) < 0 || first_scales(w, err) < 0) {
		pd_worker_free(w);
		return NULL;
	}
	return w;
}

void pd_worker_free(struct pd_worker *w)
{
	const struct pd_device_ops *device;
	struct pd_arena own;

	if (!w)
		return;
	device = w->config.device->ops;
	if (w->running)
		pd_op_source_end(&w->source);
	for (int i = 0; i < w->chunk_count; i++)
		close_reductions(&w->chunks[i]);
	pd_reduction_queue_release(&w->reductions);
	if (w->reduce)
		device->stream.close(w->reduce);
	if (w->behind)
		device->stream.close(w->behind);
	if (w->load)
		device->stream.close(w->load);
	worker_tied_free(w);
	worker_global_norm_free(w);
	worker_memory_free(w);
	free(w->checkpoints);
	free(w->entries);
	own = w->arena;
	pd_arena_release(&own);
}

/* Sets which microbatches the chunk loads, and which buffers they have. */
static void begin_chunk(struct pd_worker *w, struct chunk *c)
{
	const struct pd_schedule *schedule = w->config.schedule;
	const struct pd_phase *phase = &w->phase;
	bool listed = c->counts.buffers && !phase->evaluate;
	struct pool *pool = c->pool;

	pool->first = 0;
	pool->free_count = pool->count;
	for (int i = 0; i < pool->count; i++)
		pool->free[i] = &pool->slots[i];
	c->microbatch_turn = listed ? 0 : pd_schedule_inboxes(schedule, c->index, phase->evaluate);
	if (!c->loader || !schedule->wiring->loads[c->index])
		return;
	if (listed)
		pd_loader_plan_listed(c->loader, c->counts.loads, c->counts.load_count);
	else
		pd_loader_plan(c->loader, phase->evaluate, phase->first + w->replica,
			       c->stage->replicas, phase->last);
}

void pd_worker_begin(struct pd_worker *w, const struct pd_phase *phase, int64_t floor)
{
	if (w->running)
		pd_bug("worker: a phase is not done");
	w->phase = *phase;
	pd_op_source_init(&w->source, w->config.schedule, phase->evaluate ? NULL : w->config.list,
			  w->config.rank, phase, floor);
	w->running = true;
	w->exhausted = w->has_next = w->frozen = false;
	w->checkpoint_count = 0;
	w->wanted = w->paused = PD_PAUSE_NONE;
	for (int i = 0; i < w->chunk_count; i++) {
		struct chunk *c = &w->chunks[i];

		for (int k = 0; k < SUMS; k++) {
			for (int b = 0; b < c->bucket_count; b++)
				c->sums[k].buckets[b].ready = NULL;
			c->sums[k].scale = NULL;
			c->sums[k].group = k;
			c->sums[k].backwards = 0;
		}
		if (!phase->evaluate && floor == phase->first)
			pd_weights_renumber(&c->weights, phase->first);
		begin_chunk(w, c);
	}
}

enum pd_worker_state pd_worker_step(struct pd_worker *w, struct pd_error *err)
{
	int moved, retired, issued;

	w->paused = PD_PAUSE_NONE;
	moved = w->config.transport->ops->progress(w->config.transport);
	if (moved < 0) {
		pd_gate_failed(w->config.gate, err, "transport");
		return PD_WORKER_FAILED;
	}
	retired = pd_reduction_queue_empty(&w->reductions)
		? 0 : pd_reduction_queue_progress(&w->reductions);
	if (retired < 0) {
		pd_gate_failed(w->config.gate, err, "all-reduce");
		return PD_WORKER_FAILED;
	}
	moved += retired;
	retired = w->global_norm ? worker_global_norm_progress(w) : 0;
	if (retired < 0) {
		pd_gate_failed(w->config.gate, err, "agreeing on an update");
		return PD_WORKER_FAILED;
	}
	moved += retired;
	retired = worker_retire(w, err);
	if (retired < 0)
		return PD_WORKER_FAILED;
	if (w->running && w->wanted && w->retired == w->issued) {
		w->paused = w->wanted;
		w->wanted = PD_PAUSE_NONE;
		return PD_WORKER_PAUSED;
	}
	issued = w->running ? worker_issue(w, err) : 0;
	if (issued < 0)
		return PD_WORKER_FAILED;
	if (w->running && w->exhausted && !w->frozen && !w->wanted && w->retired == w->issued) {
		pd_op_source_end(&w->source);
		w->running = false;
		return PD_WORKER_DONE;
	}
	if (!w->running)
		return PD_WORKER_DONE;
	return moved || retired || issued || (w->wanted && w->retired == w->issued)
		? PD_WORKER_BUSY : PD_WORKER_WAITING;
}

const struct pd_event *pd_worker_awaits(const struct pd_worker *w)
{
	const struct fence *fence;

	if (w->global_norm || w->retired == w->issued ||
	    !pd_reduction_queue_empty(&w->reductions))
		return NULL;
	fence = w->until ? w->until : worker_entry(w, w->retired)->fence;
	for (int i = 0; i < fence->count; i++)
		if (!pd_event_done(&fence->events[i]))
			return &fence->events[i];
	return NULL;
}

static void prefetch(const void *at, size_t bytes)
{
	for (size_t i = 0; i < bytes; i += 64)
		__builtin_prefetch((const char *)at + i, 1);
}

void pd_worker_prefetch(struct pd_worker *w, int step)
{
	if (step == 0) {
		prefetch(w, offsetof(struct pd_worker, config.optimizer));
	} else if (step == 1) {
		prefetch(w->chunks, offsetof(struct chunk, sums[1]));
		prefetch(worker_entry(w, w->retired), 4 * sizeof(struct issued_op));
		prefetch(worker_entry(w, w->issued), 3 * sizeof(struct issued_op));
		prefetch(w->config.transport, 1);
		prefetch(w->compute, 1);
	} else if (step == 2) {
		for (int i = 0; i < 4; i++)
			prefetch(worker_entry(w, w->retired + i)->fence, sizeof(struct fence));
		if (w->has_next)
			prefetch(worker_microbatch(w, worker_chunk(w, w->next.stage), &w->next),
				 offsetof(struct microbatch, weight));
	}
}

int64_t pd_worker_freeze(struct pd_worker *w)
{
	w->frozen = true;
	return pd_worker_highest(w);
}

void pd_worker_limit(struct pd_worker *w, int64_t last)
{
	w->frozen = false;
	if (!w->running || last >= w->phase.last)
		return;
	if (!w->source.generated)
		pd_bug("worker: a list cannot be cut short");
	w->phase.last = last;
	pd_cursor_limit(&w->source.cursor, last);
	w->exhausted = false;
}

void pd_worker_hold(struct pd_worker *w, bool held)
{
	w->held = held;
}

int64_t pd_worker_highest(const struct pd_worker *w)
{
	return w->running ? pd_op_source_highest(&w->source) : w->phase.last - 1;
}

int64_t pd_worker_ahead(const struct pd_worker *w)
{
	return w->issued - w->retired;
}

int64_t pd_worker_retired(const struct pd_worker *w)
{
	return w->retired;
}

bool pd_worker_oldest(const struct pd_worker *w, struct pd_op *op_p)
{
	if (w->retired < w->issued)
		*op_p = worker_entry(w, w->retired)->op;
	else if (w->has_next)
		*op_p = w->next;
	else
		return false;
	return true;
}
