/* SPDX-License-Identifier: Apache-2.0 */
#include "measure/layers.h"

#include "base/clock.h"
#include "base/mem.h"
#include "data/loader.h"
#include "measure/figures.h"

#include <stdlib.h>
#include <string.h>

#define WARM_UP 3                       /* steps: kernels are made, pages and caches filled */
#define LEAST 7
#define MOST 60
#define ENOUGH_NS INT64_C(8000000000)   /* of timed steps, where nobody says how many */
#define SEED 1

/*
 * Three on a net of its own that can split backward, where the device has such.  An update into
 * another buffer is last, so that it does not find what the one in place has just touched.
 */
enum { FORWARD, BACKWARD, UPDATE, SPLIT_FORWARD, INPUT, WEIGHT, APART, PARTS };
#define WHOLE_PARTS 3

struct bench {
	const struct pd_measure_options *options;
	const struct pd_model *model;
	struct pd_gate gate;
	struct pd_device *device;
	struct pd_stream *stream;
	struct pd_net *net, *split;             /* split: NULL where the device cannot */
	struct pd_dataset data;
	struct pd_loader *loader;
	void *weights, *apart, *master, *gradients, *velocity, *state, *inbox, *slot, *scratch;
	struct pd_pass pass;
	struct pd_update update;
	struct pd_loss loss;
	struct pd_event *events;                /* (parts, layers) */
	int64_t *samples;                       /* (parts, layers, MOST or iterations) */
	int64_t *whole;                         /* (WHOLE_PARTS + 1, MOST or iterations): each
						   part of whole steps, and all of them */
	int64_t *sums;                          /* (MOST or iterations) */
	int64_t room, count;
};

static int take(struct bench *b, size_t bytes, void *out_p, struct pd_error *err)
{
	*(void **)out_p = NULL;
	if (bytes == 0)
		return 0;
	*(void **)out_p = b->device->ops->alloc(b->device, bytes, err);
	return *(void **)out_p ? 0 : -1;
}

static size_t larger(size_t a, size_t b)
{
	return a > b ? a : b;
}

static int open_memory(struct bench *b, struct pd_error *err)
{
	const struct pd_net_sizes *sizes = b->device->ops->net_sizes(b->net);
	const struct pd_net_sizes *split = b->split ? b->device->ops->net_sizes(b->split) : sizes;

	if (take(b, sizes->weights_bytes, &b->weights, err) < 0 ||
	    take(b, sizes->weights_bytes, &b->apart, err) < 0 ||
	    (b->options->dtype != PD_F32 && take(b, sizes->full_bytes, &b->master, err) < 0) ||
	    take(b, sizes->full_bytes, &b->gradients, err) < 0 ||
	    take(b, sizes->full_bytes, &b->velocity, err) < 0 ||
	    take(b, sizes->state_bytes, &b->state, err) < 0 ||
	    take(b, sizes->inbox_bytes, &b->inbox, err) < 0 ||
	    take(b, larger(sizes->slot_bytes, split->slot_bytes), &b->slot, err) < 0 ||
	    take(b, larger(sizes->scratch_bytes, split->scratch_bytes), &b->scratch, err) < 0)
		return -1;
	b->pass = (struct pd_pass){
		.weights = b->weights, .state = b->state, .gradients = b->gradients,
		.inbox = b->inbox, .slot = b->slot, .scratch = b->scratch, .valid = b->options->batch_size,
		.loss = &b->loss,
	};
	/* a rate of 0 keeps the parameters where they are and takes the same time */
	b->update = (struct pd_update){
		.weights = b->weights, .next = b->weights, .master = b->master,
		.velocity = b->velocity,
		.gradients = b->gradients, .momentum = 0.9f,
	};
	return b->device->ops->net_init(b->net, b->weights, b->master, b->state, err);
}

/* One minibatch of made-up data into the inbox, where it stays. */
static int fill_inputs(struct bench *b, struct pd_error *err)
{
	const struct pd_net_sizes *sizes = b->device->ops->net_sizes(b->net);
	int n = sizes->in_count, *inputs = pd_calloc((size_t)n, sizeof(*inputs));
	struct pd_loader_config config = {
		.model = b->model, .train = &b->data, .batch_size = b->options->batch_size,
		.dtype = b->options->dtype, .seed = SEED,
		.input_count = n, .inputs = inputs, .ahead = 2, .device = b->device, .gate = &b->gate,
	};
	struct pd_event copied = { 0 };
	struct pd_batch *batch;

	pd_dataset_synthetic(b->model, b->options->batch_size, &b->data);
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
		b->device->ops->copy(b->stream, (char *)b->inbox + sizes->in[i].offset,
				     batch->buffers[i], batch->bytes[i], PD_COPY_TO_DEVICE, &copied);
		pd_event_wait(&copied, &b->gate);
	}
	pd_loader_release(b->loader, batch);
	return 0;
}

static int open_bench(struct bench *b, struct pd_error *err)
{
	const struct pd_device_ops *ops = b->options->device;
	struct pd_device_config device = { .threads = b->options->threads, .gate = &b->gate,
					   .tf32 = b->options->tf32 };
	struct pd_net_config net = { .model = b->model, .count = b->model->layer_count,
				     .batch_size = b->options->batch_size, .seed = SEED,
				     .dtype = b->options->dtype, .measure = true };
	const char **engines;
	int64_t *algorithms;

	b->device = ops->open(&device, err);
	if (!b->device)
		return -1;
	b->stream = ops->stream_open(b->device, err);
	if (!b->stream)
		return -1;
	b->net = ops->net_open(b->device, &net, err);
	if (!b->net)
		return -1;
	/* the other one computes as this does */
	algorithms = pd_calloc((size_t)net.count, sizeof(*algorithms));
	engines = pd_calloc((size_t)net.count, sizeof(*engines));
	for (int l = 0; l < net.count; l++) {
		struct pd_net_layer layer;

		ops->net_layer(b->net, l, &layer);
		algorithms[l] = layer.algorithms;
		engines[l] = layer.engines;
	}
	net.split = true;
	net.measure = false;
	net.algorithms = algorithms;
	net.engines = engines;
	b->split = ops->splits ? ops->net_open(b->device, &net, err) : NULL;
	free(algorithms);
	free(engines);
	if (ops->splits && !b->split)
		return -1;
	return open_memory(b, err) < 0 ? -1 : fill_inputs(b, err);
}

static void close_bench(struct bench *b)
{
	const struct pd_device_ops *ops = b->options->device;
	void *arenas[] = { b->weights, b->apart, b->master, b->gradients, b->velocity, b->state,
			   b->inbox, b->slot, b->scratch };

	if (b->stream)
		ops->stream_close(b->stream);
	for (size_t i = 0; i < PD_COUNT(arenas); i++)
		if (arenas[i])
			ops->free(b->device, arenas[i]);
	if (b->net)
		ops->net_close(b->net);
	if (b->split)
		ops->net_close(b->split);
	if (b->loader)
		pd_loader_close(b->loader);
	if (b->device)
		ops->close(b->device);
	pd_dataset_release(&b->data);
	pd_gate_release(&b->gate);
	free(b->events);
	free(b->samples);
	free(b->whole);
	free(b->sums);
}

static bool on_split(int part)
{
	return part == SPLIT_FORWARD || part == INPUT || part == WEIGHT;
}

static int queue(struct bench *b, int part, int from, int count, struct pd_event *ev)
{
	const struct pd_device_ops *ops = b->options->device;
	struct pd_net *net = on_split(part) ? b->split : b->net;
	struct pd_update update = b->update;
	struct pd_pass pass = b->pass;

	pass.part = part == INPUT ? PD_BACKWARD_INPUT
		  : part == WEIGHT ? PD_BACKWARD_WEIGHT : PD_BACKWARD_ALL;
	switch (part) {
	case FORWARD:
	case SPLIT_FORWARD:
		return ops->forward(b->stream, net, &pass, from, count, ev);
	case BACKWARD:
	case INPUT:
	case WEIGHT:
		return ops->backward(b->stream, net, &pass, from, count, ev);
	case APART:
		update.next = b->apart;
		/* fall through */
	default:
		return ops->update(b->stream, b->net, &update, from, count, ev);
	}
}

/* Queues layer after layer; where the queue is full, waits for the one `behind`. */
static int queue_layer(struct bench *b, int part, int layer, struct pd_event *behind)
{
	struct pd_event *ev = &b->events[(size_t)part * (size_t)b->model->layer_count + (size_t)layer];
	int status;

	pd_event_arm(ev);
	while ((status = queue(b, part, layer, 1, ev)) == PD_AGAIN)
		pd_event_wait(behind, &b->gate);
	return status;
}

static int layered_step(struct bench *b, struct pd_error *err)
{
	int n = b->model->layer_count;
	struct pd_event *last = NULL;

	for (int part = 0; part < PARTS; part++)
		for (int i = 0; i < n && (b->split || !on_split(part)); i++) {
			bool back = part == BACKWARD || part == INPUT || part == WEIGHT;
			int layer = back ? n - 1 - i : i;

			if (queue_layer(b, part, layer, last) < 0)
				return pd_error_failed(err, "%s: the device refused it",
						       b->model->layers[layer].name);
			last = &b->events[(size_t)part * (size_t)n + (size_t)layer];
		}
	pd_event_wait(last, &b->gate);
	return b->gate.failed ? pd_error_failed(err, "%s", b->gate.err.text) : 0;
}

/* Of a part of whole steps, or of all of them. */
static int64_t *whole_of(struct bench *b, int part)
{
	return b->whole + (size_t)part * (size_t)b->room;
}

static int whole_step(struct bench *b, struct pd_error *err)
{
	struct pd_event events[WHOLE_PARTS] = { 0 };

	for (int part = 0; part < WHOLE_PARTS; part++) {
		pd_event_arm(&events[part]);
		if (queue(b, part, 0, b->model->layer_count, &events[part]) != 0)
			return pd_error_failed(err, "the device refused a step");
	}
	pd_event_wait(&events[WHOLE_PARTS - 1], &b->gate);
	for (int part = 0; part < WHOLE_PARTS; part++)
		whole_of(b, part)[b->count] = events[part].end_ns - events[part].start_ns;
	whole_of(b, WHOLE_PARTS)[b->count] = events[WHOLE_PARTS - 1].end_ns - events[0].start_ns;
	return b->gate.failed ? pd_error_failed(err, "%s", b->gate.err.text) : 0;
}

/* As gradients are added to others; the next backward replaces them. */
static int timed_sum(struct bench *b, int64_t *ns_p, struct pd_error *err)
{
	const struct pd_net_sizes *sizes = b->device->ops->net_sizes(b->net);
	const float *parts[] = { b->gradients, b->velocity };
	struct pd_event ev = { 0 };

	pd_event_arm(&ev);
	if (b->device->ops->sum(b->stream, b->gradients, parts, 2,
				sizes->full_bytes / sizeof(float), &ev) != 0)
		return pd_error_failed(err, "the device refused a sum");
	pd_event_wait(&ev, &b->gate);
	*ns_p = ev.end_ns - ev.start_ns;
	return b->gate.failed ? pd_error_failed(err, "%s", b->gate.err.text) : 0;
}

static int64_t *samples_of(struct bench *b, int part, int layer)
{
	size_t layers = (size_t)b->model->layer_count;

	return b->samples + ((size_t)part * layers + (size_t)layer) * (size_t)b->room;
}

static int measure(struct bench *b, struct pd_error *err)
{
	const struct pd_measure_options *o = b->options;
	size_t cells = (size_t)PARTS * (size_t)b->model->layer_count;
	int64_t begun;

	b->room = o->iterations ? o->iterations : MOST;
	b->events = pd_calloc(cells, sizeof(*b->events));
	b->samples = pd_calloc(cells * (size_t)b->room, sizeof(*b->samples));
	b->whole = pd_calloc((WHOLE_PARTS + 1) * (size_t)b->room, sizeof(*b->whole));
	b->sums = pd_calloc((size_t)b->room, sizeof(*b->sums));
	for (int i = 0; i < WARM_UP; i++)
		if (layered_step(b, err) < 0 || whole_step(b, err) < 0)
			return -1;
	while (o->endless)
		if (whole_step(b, err) < 0)
			return -1;
	begun = pd_now_ns();
	while (b->count < b->room &&
	       (o->iterations || b->count < LEAST || pd_now_ns() - begun < ENOUGH_NS)) {
		if (layered_step(b, err) < 0 || whole_step(b, err) < 0 ||
		    timed_sum(b, &b->sums[b->count], err) < 0)
			return -1;
		for (int part = 0; part < PARTS; part++)
			for (int l = 0; l < b->model->layer_count; l++) {
				const struct pd_event *ev =
					&b->events[part * b->model->layer_count + l];

				samples_of(b, part, l)[b->count] = ev->end_ns - ev->start_ns;
			}
		b->count++;
		if (o->progress)
			o->progress(o->context, b->count, b->room);
	}
	return 0;
}

/* Interquartile range of forward + backward over their median. */
static double spread(struct bench *b, int layer)
{
	const int64_t *forward = samples_of(b, FORWARD, layer);
	const int64_t *backward = samples_of(b, BACKWARD, layer);
	int64_t *both = pd_calloc((size_t)b->count, sizeof(*both)), middle;
	double range;

	for (int64_t i = 0; i < b->count; i++)
		both[i] = forward[i] + backward[i];
	middle = pd_median(both, b->count);
	range = (double)(both[b->count * 3 / 4] - both[b->count / 4]);
	free(both);
	return middle > 0 ? range / (double)middle : 0;
}

static void fill_layer(struct bench *b, int l, struct pd_profile_layer *out)
{
	const struct pd_layer *layer = &b->model->layers[l];
	struct pd_net_layer bytes;

	b->device->ops->net_layer(b->net, l, &bytes);
	*out = (struct pd_profile_layer){
		.name = pd_strdup(layer->name),
		.inputs = pd_calloc((size_t)layer->input_count, sizeof(int)),
		.backward_input_ns = -1, .backward_weight_ns = -1,
		.activation_bytes = (int64_t)bytes.activation_bytes,
		.parameter_bytes = (int64_t)bytes.parameter_bytes,
		.stash_bytes = (int64_t)bytes.slot_bytes,
		.workspace_bytes = (int64_t)bytes.scratch_bytes,
		.forward_workspace_bytes = (int64_t)bytes.forward_bytes,
		.backward_workspace_bytes = (int64_t)bytes.backward_bytes,
		.state_bytes = (int64_t)bytes.state_bytes, .in_place = bytes.in_place,
		.algorithms = bytes.algorithms,
		.engines = bytes.engines ? pd_strdup(bytes.engines) : NULL,
		.spread = spread(b, l),
	};
	for (int i = 0; i < layer->input_count; i++)
		if (layer->inputs[i] >= b->model->input_count)
			out->inputs[out->input_count++] = layer->inputs[i] - b->model->input_count;
	/* after spread, which needs the samples in their order */
	out->forward_ns = pd_median(samples_of(b, FORWARD, l), b->count);
	out->backward_ns = pd_median(samples_of(b, BACKWARD, l), b->count);
	out->update_ns = pd_median(samples_of(b, UPDATE, l), b->count);
	out->update_apart_ns = pd_median(samples_of(b, APART, l), b->count);
	if (!b->split)
		return;
	out->backward_input_ns = pd_median(samples_of(b, INPUT, l), b->count);
	out->backward_weight_ns = pd_median(samples_of(b, WEIGHT, l), b->count);
}

static int64_t sum_bytes_per_s(struct bench *b)
{
	double bytes = (double)b->device->ops->net_sizes(b->net)->full_bytes;
	int64_t ns = pd_median(b->sums, b->count);

	return ns > 0 ? (int64_t)(bytes * 1e9 / (double)ns) : 0;
}

static void share_whole(struct bench *b, struct pd_profile *profile)
{
	struct pd_whole whole = {
		.forward_ns = pd_trimmed_mean(whole_of(b, FORWARD), b->count),
		.backward_ns = pd_trimmed_mean(whole_of(b, BACKWARD), b->count),
		.update_ns = pd_trimmed_mean(whole_of(b, UPDATE), b->count),
	};

	pd_share_whole(profile, &whole);
}

static struct pd_profile *make_profile(struct bench *b, struct pd_error *err)
{
	struct pd_profile *profile = pd_zalloc(sizeof(*profile));
	struct pd_device_info info = { 0 };

	profile->model = pd_model_parse(b->model->name, b->model->json, err);
	if (!profile->model) {
		free(profile);
		return NULL;
	}
	b->device->ops->describe(b->device, &info);
	profile->name = pd_strdup(b->model->name);
	profile->batch_size = b->options->batch_size;
	profile->dtype = b->options->dtype;
	profile->device_kind = pd_strdup(b->options->device->name);
	profile->device_name = pd_strdup(info.name[0] ? info.name : b->options->device->name);
	profile->device_threads = info.threads;
	profile->device_memory_bytes = info.memory_bytes;
	profile->sum_bytes_per_s = sum_bytes_per_s(b);
	profile->step_ns = pd_median(whole_of(b, WHOLE_PARTS), b->count);
	profile->layer_count = b->model->layer_count;
	profile->layers = pd_calloc((size_t)profile->layer_count, sizeof(*profile->layers));
	for (int l = 0; l < profile->layer_count; l++)
		fill_layer(b, l, &profile->layers[l]);
	share_whole(b, profile);
	return profile;
}

struct pd_profile *pd_measure_layers(const struct pd_model *model,
				     const struct pd_measure_options *options,
				     struct pd_error *err)
{
	struct bench b = { .options = options, .model = model };
	struct pd_profile *profile = NULL;

	if (pd_gate_init(&b.gate, err) < 0)
		return NULL;
	if (open_bench(&b, err) == 0 && measure(&b, err) == 0)
		profile = make_profile(&b, err);
	close_bench(&b);
	return profile;
}
