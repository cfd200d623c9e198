/* SPDX-License-Identifier: Apache-2.0 */
#include "run/measure/bench.h"

#include "base/mem.h"
#include "engine/device/submit.h"

#include <stdlib.h>

#define SEED 1

static int allocate(struct pd_bench *b, size_t bytes, void *out_p, struct pd_error *err)
{
	*(void **)out_p = NULL;
	if (bytes == 0)
		return 0;
	*(void **)out_p = b->device->ops->memory.alloc(b->device, bytes, err);
	return *(void **)out_p ? 0 : -1;
}

static int take_shared(struct pd_bench *b, struct pd_error *err)
{
	const struct pd_memory_ops *memory = &b->device->ops->memory;

	if (!b->options->companions || !memory->shared_alloc)
		return 0;
	b->shared = memory->shared_alloc(b->device, b->device->ops->net.sizes(b->net)->full_bytes, err);
	return b->shared ? 0 : -1;
}

static size_t larger(size_t a, size_t b)
{
	return a > b ? a : b;
}

static int open_memory(struct pd_bench *b, struct pd_error *err)
{
	const struct pd_net_sizes *sizes = b->device->ops->net.sizes(b->net);
	const struct pd_net_sizes *split = b->split ? b->device->ops->net.sizes(b->split) : sizes;

	if (allocate(b, sizes->weights_bytes, &b->weights, err) < 0 ||
	    allocate(b, sizes->weights_bytes, &b->apart, err) < 0 ||
	    (b->options->dtype != PD_F32 && allocate(b, sizes->full_bytes, &b->master, err) < 0) ||
	    allocate(b, sizes->full_bytes, &b->gradients, err) < 0 ||
	    allocate(b, sizes->full_bytes, &b->velocity, err) < 0 ||
	    allocate(b, sizes->state_bytes, &b->state, err) < 0 ||
	    allocate(b, sizes->inbox_bytes, &b->inbox, err) < 0 ||
	    allocate(b, larger(sizes->slot_bytes, split->slot_bytes), &b->slot, err) < 0 ||
	    allocate(b, larger(sizes->scratch_bytes, split->scratch_bytes), &b->scratch, err) < 0 ||
	    take_shared(b, err) < 0)
		return -1;
	b->pass = (struct pd_pass){
		.weights = b->weights, .state = b->state, .gradients = b->gradients,
		.inbox = b->inbox, .slot = b->slot, .scratch = b->scratch,
		.valid = b->options->batch_size,
	};
	/* A rate of 0 leaves the parameters as they are and takes the same time. */
	b->update = (struct pd_update){
		.weights = b->weights, .next = b->weights, .master = b->master,
		.velocity = b->velocity, .gradients = b->gradients, .hyper.momentum = 0.9f,
	};
	return b->device->ops->net.init(b->net, b->weights, b->master, b->state, err);
}

int pd_bench_wait(struct pd_bench *b, struct pd_event *ev, struct pd_error *err)
{
	pd_event_wait(ev, &b->gate);
	return b->gate.failed ? pd_error_failed(err, "%s", b->gate.err.text) : 0;
}

/* Copies one minibatch of made-up data into the inbox, where it stays. */
static int fill_inputs(struct pd_bench *b, struct pd_error *err)
{
	const struct pd_net_sizes *sizes = b->device->ops->net.sizes(b->net);
	int n = sizes->in_count, *inputs = pd_calloc((size_t)n, sizeof(*inputs));
	struct pd_loader_config config = {
		.model = b->model, .train = &b->data, .batch_size = b->options->batch_size,
		.dtype = b->options->dtype, .seed = SEED, .input_count = n, .inputs = inputs,
		.ahead = 2, .device = b->device, .gate = &b->gate,
	};
	struct pd_event copied = { 0 };
	struct pd_batch *batch;

	pd_dataset_synthetic(b->model, b->options->batch_size, SEED, &b->data);
	for (int i = 0; i < n; i++)
		inputs[i] = sizes->in[i].tensor;
	b->loader = pd_loader_open(&config, err);
	free(inputs);
	if (!b->loader)
		return -1;
	pd_loader_plan(b->loader, false, 0, 1, 1);
	batch = pd_loader_next(b->loader);
	pd_event_wait(&batch->ready, &b->gate);
	for (int i = 0; i < n; i++) {
		pd_event_arm(&copied);
		if (pd_submit_copy(b->stream, (char *)b->inbox + sizes->in[i].offset,
						batch->buffers[i], batch->bytes[i],
						PD_COPY_TO_DEVICE, &copied) != 0)
			return pd_error_failed(err, "the device refused the inputs");
		if (pd_bench_wait(b, &copied, err) < 0)
			return -1;
	}
	pd_loader_release(b->loader, batch);
	return 0;
}

static int open_device(struct pd_bench *b, struct pd_error *err)
{
	const struct pd_device_ops *ops = b->options->device;
	struct pd_device_config device = { .threads = b->options->threads, .gate = &b->gate,
					   .ordinal = b->options->ordinal,
					   .tf32 = b->options->tf32 };
	struct pd_net_config net = { .model = b->model, .count = b->model->layer_count,
				     .batch_size = b->options->batch_size, .seed = SEED,
				     .dtype = b->options->dtype, .measure = true };
	const char **engines;
	int64_t *algorithms;

	b->device = ops->open(&device, err);
	if (!b->device)
		return -1;
	b->stream = ops->stream.open(b->device, err);
	if (!b->stream)
		return -1;
	b->net = ops->net.open(b->device, &net, err);
	if (!b->net)
		return -1;
	/* The other net computes in the same way. */
	algorithms = pd_calloc((size_t)net.count, sizeof(*algorithms));
	engines = pd_calloc((size_t)net.count, sizeof(*engines));
	for (int l = 0; l < net.count; l++) {
		struct pd_net_layer layer;

		ops->net.layer(b->net, l, &layer);
		algorithms[l] = layer.algorithms;
		engines[l] = layer.engines;
	}
	net.split = true;
	net.measure = false;
	net.algorithms = algorithms;
	net.engines = engines;
	b->split = ops->splits ? ops->net.open(b->device, &net, err) : NULL;
	free(algorithms);
	free(engines);
	return ops->splits && !b->split ? -1 : 0;
}

void pd_bench_close(struct pd_bench *b)
{
	const struct pd_device_ops *ops = b->options->device;
	void *arenas[] = { b->weights, b->apart, b->master, b->gradients, b->velocity, b->state,
			   b->inbox, b->slot, b->scratch, b->shared, b->copied[0], b->copied[1] };

	if (b->copying)
		ops->stream.close(b->copying);
	if (b->stream)
		ops->stream.close(b->stream);
	for (size_t i = 0; i < PD_COUNT(arenas); i++)
		if (arenas[i])
			ops->memory.free(b->device, arenas[i]);
	if (b->net)
		ops->net.close(b->net);
	if (b->split)
		ops->net.close(b->split);
	pd_loader_close(b->loader);
	if (b->device)
		ops->close(b->device);
	pd_dataset_release(&b->data);
	pd_gate_release(&b->gate);
}

int pd_bench_open(struct pd_bench *b, const struct pd_model *model,
		  const struct pd_measure_options *options, struct pd_error *err)
{
	*b = (struct pd_bench){ .options = options, .model = model };
	if (pd_gate_init(&b->gate, err) < 0)
		return -1;
	if (open_device(b, err) == 0 && open_memory(b, err) == 0 && fill_inputs(b, err) == 0)
		return 0;
	pd_bench_close(b);
	return -1;
}

static bool on_split(enum bench_part part)
{
	return part == BENCH_SPLIT_FORWARD || part == BENCH_INPUT || part == BENCH_WEIGHT;
}

bool pd_bench_has(const struct pd_bench *b, enum bench_part part)
{
	return b->split || !on_split(part);
}

int pd_bench_queue(struct pd_bench *b, enum bench_part part, int from, int count,
		   struct pd_event *ev)
{
	struct pd_net *net = on_split(part) ? b->split : b->net;
	struct pd_update update = b->update;
	struct pd_pass pass = b->pass;

	pass.part = part == BENCH_INPUT ? PD_BACKWARD_INPUT
		  : part == BENCH_WEIGHT ? PD_BACKWARD_WEIGHT : PD_BACKWARD_ALL;
	switch (part) {
	case BENCH_FORWARD:
	case BENCH_SPLIT_FORWARD:
		return pd_submit_forward(b->stream, net, &pass, from, count, ev);
	case BENCH_BACKWARD:
	case BENCH_INPUT:
	case BENCH_WEIGHT:
		return pd_submit_backward(b->stream, net, &pass, from, count, ev);
	case BENCH_APART:
		update.next = b->apart;
		/* fall through */
	default:
		return pd_submit_update(b->stream, b->net, &update, from, count, ev);
	}
}

int pd_bench_queue_sum(struct pd_bench *b, enum bench_sum what, struct pd_event *ev)
{
	const struct pd_net_sizes *sizes = b->device->ops->net.sizes(b->net);
	const float *parts[] = { b->gradients, b->velocity };
	bool rounds = what == BENCH_ROUND;
	const struct pd_mixed_sum mixed = {
		.rounding = pd_dtype_gradients(PD_BF16, 1, false),
		.dst = rounds ? b->velocity : b->gradients, .src = { b->gradients, b->velocity },
		.n = rounds ? 1 : 2, .narrow = rounds, .narrow_sources = rounds ? 0 : 2,
		.count = sizes->full_bytes / sizeof(float),
	};

	return what == BENCH_SUM
		? pd_submit_sum(b->stream, b->gradients, parts, 2, mixed.count, ev)
		: pd_submit_mixed_sum(b->stream, &mixed, ev);
}

int pd_bench_step(struct pd_bench *b, int from, int to, struct pd_event *events, struct pd_error *err)
{
	for (int part = from; part < to; part++) {
		pd_event_arm(&events[part]);
		if (pd_bench_queue(b, part, 0, b->model->layer_count, &events[part]) != 0)
			return pd_error_failed(err, "the device refused a step");
	}
	return pd_bench_wait(b, &events[to - 1], err);
}
