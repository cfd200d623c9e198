/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A slot is a batch and its buffers.  It is free, or in the queue with a microbatch assigned, or
 * out with the worker.  Free slots are assigned at once, in the order of the plan, and the thread
 * fills the queue in that order.  A batch that is handed out may still be filled; its event says
 * when that is done.
 */
#include "engine/data/loader.h"

#include "base/clock.h"
#include "base/mem.h"
#include "engine/data/samples.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct loader_slot {
	struct pd_batch batch;          /* first, so that a batch is its slot */
	struct loader_slot *next_free;
	void **own;                     /* buffers; NULL where those of `made` are handed out */
	bool out;
};

struct pd_loader {
	struct pd_loader_config config;
	int *inputs;
	struct pd_samples samples;      /* used by the thread alone, but: */
	atomic_bool met_not_finite;     /* samples.not_finite is set, and stays */
	struct loader_slot *slots;
	void ***made;                   /* buffers of the minibatches of a synthetic set */
	int64_t made_count;             /* 0: none are made ahead */

	pthread_t thread;
	pthread_mutex_t lock;           /* protects all below */
	pthread_cond_t work, idle;
	bool evaluate, busy, closing;
	int64_t next, stride, last;     /* the plan, from the first microbatch not yet assigned */
	const int64_t *listed;          /* unless NULL, the plan's numbers are indices into it */
	struct loader_slot *free;
	struct loader_slot **queue;	/* a ring of `ahead`; these count from the plan's start: */
	int64_t assigned, filled, handed;
	int out;
};

int64_t pd_loader_epoch(const struct pd_dataset *train, int64_t batch_size, int64_t microbatches)
{
	return train->samples / batch_size / microbatches * microbatches;
}

int64_t pd_loader_tests(const struct pd_dataset *test, int64_t batch_size)
{
	return test->samples / batch_size + (test->samples % batch_size != 0);
}

static const struct pd_dataset *dataset(const struct pd_loader *loader, bool evaluate)
{
	return evaluate ? loader->config.test : loader->config.train;
}

static void fill(struct pd_loader *loader, struct pd_batch *batch)
{
	int64_t start_ns = pd_now_ns();

	if (loader->made_count == 0)
		pd_samples_fill(&loader->samples, batch);
	atomic_store(&loader->met_not_finite, loader->samples.not_finite.file != NULL);
	pd_event_complete(&batch->ready, start_ns, pd_now_ns(), loader->config.gate);
}

struct pd_not_finite pd_loader_not_finite(struct pd_loader *loader)
{
	return atomic_load(&loader->met_not_finite) ? loader->samples.not_finite
						    : (struct pd_not_finite){ 0 };
}

static void *prepare(void *context)
{
	struct pd_loader *loader = context;

	pthread_mutex_lock(&loader->lock);
	while (!loader->closing) {
		struct loader_slot *slot;

		if (loader->filled == loader->assigned) {
			pthread_cond_wait(&loader->work, &loader->lock);
			continue;
		}
		slot = loader->queue[loader->filled++ % loader->config.ahead];
		loader->busy = true;
		pthread_mutex_unlock(&loader->lock);
		fill(loader, &slot->batch);
		pthread_mutex_lock(&loader->lock);
		loader->busy = false;
		pthread_cond_signal(&loader->idle);
	}
	pthread_mutex_unlock(&loader->lock);
	return NULL;
}

/* Assigns microbatches to free slots.  The lock is held. */
static void assign(struct pd_loader *loader)
{
	const struct pd_dataset *set = dataset(loader, loader->evaluate);
	int64_t batch_size = loader->config.batch_size;

	while (loader->free && loader->next < loader->last) {
		struct loader_slot *slot = loader->free;
		struct pd_batch *batch = &slot->batch;

		loader->free = slot->next_free;
		batch->evaluate = loader->evaluate;
		batch->microbatch = loader->listed ? loader->listed[loader->next] : loader->next;
		batch->first_sample = batch->microbatch * batch_size;
		batch->valid = loader->evaluate
			? pd_loader_valid(set->samples, batch->first_sample, batch_size) : batch_size;
		batch->buffers = slot->own;
		if (loader->made_count > 0)
			batch->buffers = loader->made[batch->microbatch % loader->made_count];
		pd_event_arm(&batch->ready);
		loader->queue[loader->assigned++ % loader->config.ahead] = slot;
		loader->next += loader->stride;
	}
	pthread_cond_signal(&loader->work);
}

static void begin_plan(struct pd_loader *loader, bool evaluate, const int64_t *listed,
		       int64_t first, int64_t stride, int64_t last)
{
	pthread_mutex_lock(&loader->lock);
	if (loader->out)
		pd_bug("loader: a new plan while %d microbatches are out", loader->out);
	/* what is left of the plan before is dropped, but for the batch being filled */
	loader->filled = loader->assigned;
	while (loader->busy)
		pthread_cond_wait(&loader->idle, &loader->lock);
	loader->assigned = loader->filled = loader->handed = 0;
	loader->free = NULL;
	for (int i = loader->config.ahead - 1; i >= 0; i--) {
		loader->slots[i].next_free = loader->free;
		loader->free = &loader->slots[i];
	}
	loader->evaluate = evaluate;
	loader->listed = listed;
	loader->next = first;
	loader->stride = stride;
	loader->last = last;
	assign(loader);
	pthread_mutex_unlock(&loader->lock);
}

void pd_loader_plan(struct pd_loader *loader, bool evaluate, int64_t first, int64_t stride,
		    int64_t last)
{
	const struct pd_dataset *set = dataset(loader, evaluate);

	if (first < 0 || stride < 1 || last < 0 || !set ||
	    (evaluate && last > pd_loader_tests(set, loader->config.batch_size)))
		pd_bug("loader: no microbatches %" PRId64 " to %" PRId64 " by %" PRId64
		       " in the %s set", first, last, stride, evaluate ? "test" : "training");
	begin_plan(loader, evaluate, NULL, first, stride, last);
}

void pd_loader_plan_listed(struct pd_loader *loader, const int64_t *listed, int64_t count)
{
	begin_plan(loader, false, listed, 0, 1, count);
}

struct pd_batch *pd_loader_next(struct pd_loader *loader)
{
	struct loader_slot *slot = NULL;

	pthread_mutex_lock(&loader->lock);
	if (loader->handed < loader->assigned) {
		slot = loader->queue[loader->handed++ % loader->config.ahead];
		slot->out = true;
		loader->out++;
	} else if (loader->next >= loader->last) {
		pd_bug("loader: asked for more microbatches than were planned");
	}
	pthread_mutex_unlock(&loader->lock);
	return slot ? &slot->batch : NULL;
}

void pd_loader_release(struct pd_loader *loader, struct pd_batch *batch)
{
	struct loader_slot *slot = (struct loader_slot *)batch;

	if (!pd_event_done(&batch->ready))
		pd_bug("loader: microbatch %" PRId64 " released before it was ready",
		       batch->microbatch);
	pthread_mutex_lock(&loader->lock);
	if (!slot->out)
		pd_bug("loader: microbatch %" PRId64 " released twice", batch->microbatch);
	slot->out = false;
	loader->out--;
	slot->next_free = loader->free;
	loader->free = slot;
	assign(loader);
	pthread_mutex_unlock(&loader->lock);
}

static struct pd_loader *new_loader(const struct pd_loader_config *config)
{
	struct pd_loader *loader = pd_zalloc(sizeof(*loader));

	loader->config = *config;
	if (!config->microbatches)
		loader->config.microbatches = 1;
	loader->config.inputs = loader->inputs =
		pd_calloc((size_t)config->input_count, sizeof(*loader->inputs));
	for (int k = 0; k < config->input_count; k++)
		loader->inputs[k] = config->inputs[k];
	loader->slots = pd_calloc((size_t)config->ahead, sizeof(*loader->slots));
	loader->queue = pd_calloc((size_t)config->ahead, sizeof(struct loader_slot *));
	pthread_mutex_init(&loader->lock, NULL);
	pthread_cond_init(&loader->work, NULL);
	pthread_cond_init(&loader->idle, NULL);
	pd_samples_init(&loader->samples, &loader->config);
	return loader;
}

/* Allocates memory from which the device copies fast, where there is a device. */
static void *take_buffer(struct pd_loader *loader, size_t bytes, struct pd_error *err)
{
	struct pd_device *device = loader->config.device;
	void *buffer;

	if (bytes <= PTRDIFF_MAX && device)
		return device->ops->memory.host_alloc(device, bytes, err);
	if (bytes <= PTRDIFF_MAX && posix_memalign(&buffer, PD_ALIGN, bytes) == 0)
		return buffer;
	pd_error_failed(err, "out of memory: %zu bytes for a microbatch of input could not be had",
			bytes);
	return NULL;
}

static void give_buffer(struct pd_loader *loader, void *buffer)
{
	struct pd_device *device = loader->config.device;

	if (buffer && device)
		device->ops->memory.host_free(device, buffer);
	else
		free(buffer);
}

static void give_buffers(struct pd_loader *loader, void **buffers)
{
	for (int k = 0; buffers && k < loader->config.input_count; k++)
		give_buffer(loader, buffers[k]);
	free(buffers);
}

/* Allocates one buffer per input; NULL where memory is short. */
static void **take_buffers(struct pd_loader *loader, struct pd_error *err)
{
	int count = loader->config.input_count;
	void **buffers = pd_calloc((size_t)count, sizeof(*buffers));

	for (int k = 0; k < count; k++) {
		buffers[k] = take_buffer(loader, loader->samples.bytes[k], err);
		if (buffers[k])
			continue;
		give_buffers(loader, buffers);
		return NULL;
	}
	return buffers;
}

/* Counts the batches to make ahead: all of a synthetic set before it repeats itself, if whole. */
static int64_t count_made(const struct pd_loader *loader)
{
	int64_t distinct = loader->samples.distinct, batch = loader->config.batch_size;

	return loader->config.train && loader->config.train->synthetic && !loader->config.test && distinct % batch == 0
		? distinct / batch : 0;
}

static int make_minibatches(struct pd_loader *loader, struct pd_error *err)
{
	int64_t batch_size = loader->config.batch_size;

	loader->made = pd_calloc((size_t)loader->made_count, sizeof(*loader->made));
	for (int64_t m = 0; m < loader->made_count; m++) {
		struct pd_batch batch = {
			.microbatch = m, .first_sample = m * batch_size, .valid = batch_size,
			.bytes = loader->samples.bytes,
		};

		loader->made[m] = take_buffers(loader, err);
		if (!loader->made[m])
			return -1;
		batch.buffers = loader->made[m];
		pd_samples_fill(&loader->samples, &batch);
	}
	return 0;
}

static int make_slots(struct pd_loader *loader, struct pd_error *err)
{
	for (int i = 0; i < loader->config.ahead; i++) {
		struct loader_slot *slot = &loader->slots[i];

		slot->batch.bytes = loader->samples.bytes;
		slot->own = loader->made_count > 0 ? NULL : take_buffers(loader, err);
		if (!slot->own && loader->made_count == 0)
			return -1;
	}
	return 0;
}

static void free_loader(struct pd_loader *loader)
{
	for (int i = 0; i < loader->config.ahead; i++)
		give_buffers(loader, loader->slots[i].own);
	for (int64_t m = 0; loader->made && m < loader->made_count; m++)
		give_buffers(loader, loader->made[m]);
	free(loader->made);
	pthread_cond_destroy(&loader->idle);
	pthread_cond_destroy(&loader->work);
	pthread_mutex_destroy(&loader->lock);
	free(loader->queue);
	free(loader->slots);
	free(loader->inputs);
	pd_samples_release(&loader->samples);
	free(loader);
}

static int start(struct pd_loader *loader, struct pd_error *err)
{
	sigset_t all, before;
	int status;

	/* signals go to the thread that runs the rank */
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	status = pthread_create(&loader->thread, NULL, prepare, loader);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return status ? pd_error_failed(err, "cannot start the loader's thread: %s",
					strerror(status)) : 0;
}

struct pd_loader *pd_loader_open(const struct pd_loader_config *config, struct pd_error *err)
{
	const struct pd_dataset *set = config->train;
	struct pd_loader *loader;

	if (config->batch_size < 1 || config->ahead < 2)
		pd_bug("loader: batch size %" PRId64 ", %d ahead", config->batch_size,
		       config->ahead);
	if (set && pd_loader_epoch(set, config->batch_size, 1) < 1) {
		pd_error_input(err, "batch size %" PRId64 ": the training set has only %" PRId64
			       " samples", config->batch_size, set->samples);
		return NULL;
	}
	loader = new_loader(config);
	if (pd_samples_measure(&loader->samples, err) == 0) {
		loader->made_count = count_made(loader);
		if (make_minibatches(loader, err) == 0 && make_slots(loader, err) == 0 &&
		    start(loader, err) == 0)
			return loader;
	}
	free_loader(loader);
	return NULL;
}

void pd_loader_close(struct pd_loader *loader)
{
	if (!loader)
		return;
	pthread_mutex_lock(&loader->lock);
	loader->closing = true;
	pthread_cond_signal(&loader->work);
	pthread_mutex_unlock(&loader->lock);
	pthread_join(loader->thread, NULL);
	free_loader(loader);
}
