/* SPDX-License-Identifier: Apache-2.0 */
#include "chain.h"

#include "base/half.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/device/submit.h"
#include "tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(bool good, const struct pd_error *err)
{
	if (good)
		return;
	printf("Bail out! %s\n", err->text);
	exit(1);
}

bool chain_usable(const struct pd_device_ops *ops)
{
	const char *wanted = getenv("PD_TEST_DEVICE");

	return (!wanted || strcmp(wanted, ops->name) == 0) && ops->count(NULL) > 0;
}

enum pd_dtype chain_dtype = PD_F32;
bool chain_untimed;

static const struct {
	enum pd_dtype dtype;
	const char *way;                /* the value of PD_CPU_BF16, which chooses the CPU's kernels */
} types[CHAIN_TYPES] = {
	{ PD_F32, NULL }, { PD_BF16, "native" }, { PD_F16, NULL }, { PD_BF16, "wide" },
};

static const char *chain_way;           /* the value of PD_CPU_BF16 that chain_take() chose */

const char *chain_name(const struct pd_device_ops *ops)
{
	static char name[64];

	snprintf(name, sizeof(name), chain_dtype == PD_F32 ? "%s" : "%s in %s%s%s", ops->name,
		 pd_dtype_name[chain_dtype], chain_way ? ", " : "", chain_way ? chain_way : "");
	return name;
}

static bool knows_type(const struct pd_device_ops *ops, enum pd_dtype dtype)
{
	struct pd_model *model = branching_model();
	struct pd_device_config device = { .threads = 1 };
	struct pd_net_config config = { .model = model, .count = model->layer_count,
					.batch_size = 1, .dtype = dtype };
	struct pd_error err = { .text = "" };
	struct pd_device *d = ops->open(&device, &err);
	struct pd_net *net;
	bool knows;

	check(d != NULL, &err);
	net = ops->net.open(d, &config, &err);
	knows = net != NULL;
	if (!knows)
		diag("%s", err.text);
	if (knows)
		ops->net.close(net);
	ops->close(d);
	pd_model_free(model);
	return knows;
}

int chain_types(const struct pd_device_ops *ops)
{
	return ops == &pd_device_cpu ? CHAIN_TYPES : CHAIN_TYPES - 1;
}

bool chain_take(const struct pd_device_ops *ops, int number)
{
	bool cpu = ops == &pd_device_cpu;

	chain_dtype = types[number].dtype;
	chain_way = cpu ? types[number].way : NULL;
	if (chain_way)
		setenv("PD_CPU_BF16", chain_way, 1);
	else
		unsetenv("PD_CPU_BF16");
	if (chain_dtype == PD_F32 || knows_type(ops, chain_dtype))
		return true;
	/* processors without these instructions are no reason to look again */
	(cpu ? skip : absent)("not here", chain_name(ops));
	return false;
}

float chain_round(enum pd_dtype dtype, float x)
{
	return dtype == PD_BF16 ? pd_from_bf16(pd_to_bf16(x))
	     : dtype == PD_F16 ? pd_from_f16(pd_to_f16(x)) : x;
}

static char *alloc(struct chain *c, size_t bytes)
{
	struct pd_error err;
	char *ptr = c->ops->memory.alloc(c->device, bytes, &err);

	check(ptr != NULL, &err);
	return ptr;
}

int chain_engines;

/* Opens a net whose layers all have the engines of PD_TEST_ENGINES, as a plan would record them. */
static struct pd_net *net_open(struct chain *c, struct pd_net_config *config, struct pd_error *err)
{
	size_t layers = (size_t)c->model->layer_count;
	const char **engines = pd_calloc(layers, sizeof(*engines));
	struct pd_net *net;

	for (size_t l = 0; l < layers; l++)
		engines[l] = getenv("PD_TEST_ENGINES");
	config->engines = engines;
	net = c->ops->net.open(c->device, config, err);
	for (int l = config->first; net && l < config->first + config->count; l++) {
		struct pd_net_layer layer;

		c->ops->net.layer(net, l, &layer);
		chain_engines += layer.engines != NULL;
	}
	free(engines);
	return net;
}

static void stage_open(struct chain *c, struct stage *s, uint64_t seed)
{
	struct pd_net_config config = {
		.model = c->model, .first = s->first, .count = s->count,
		.batch_size = c->batch, .seed = seed, .split = c->split, .dtype = c->dtype,
	};
	struct pd_error err;

	s->net = net_open(c, &config, &err);
	check(s->net != NULL, &err);
	s->sizes = c->ops->net.sizes(s->net);
	s->weights = alloc(c, s->sizes->weights_bytes);
	s->master = c->dtype != PD_F32 ? alloc(c, s->sizes->full_bytes) : NULL;
	s->gradients = alloc(c, s->sizes->full_bytes);
	s->velocity = alloc(c, s->sizes->full_bytes);
	s->second = alloc(c, s->sizes->full_bytes);
	s->state = alloc(c, s->sizes->state_bytes);
	s->inbox = alloc(c, s->sizes->inbox_bytes);
	s->slot = alloc(c, s->sizes->slot_bytes);
	s->scratch = alloc(c, s->sizes->scratch_bytes);
	s->in = alloc(c, s->sizes->gradient_in_bytes);
	s->out = alloc(c, s->sizes->gradient_out_bytes);
	check(c->ops->net.init(s->net, s->weights, s->master, s->state, &err) == 0, &err);
}

static struct chain *open_all(const struct pd_device_ops *ops, const struct pd_model *model,
			      const int *cuts, int cut_count, int64_t batch, uint64_t seed,
			      int threads, bool split)
{
	struct chain *c = pd_zalloc(sizeof(*c));
	struct pd_device_config config = { .threads = threads, .gate = &c->gate,
					   .untimed = chain_untimed };
	struct pd_error err;

	c->ops = ops;
	c->model = model;
	c->split = split;
	c->dtype = chain_dtype;
	c->batch = c->valid = batch;
	check(pd_gate_init(&c->gate, &err) == 0, &err);
	c->device = ops->open(&config, &err);
	check(c->device != NULL, &err);
	c->stream = ops->stream.open(c->device, &err);
	check(c->stream != NULL, &err);
	c->stage_count = cut_count + 1;
	c->stages = pd_calloc((size_t)c->stage_count, sizeof(*c->stages));
	for (int i = 0; i <= cut_count; i++) {
		struct stage *s = &c->stages[i];

		s->first = i ? cuts[i - 1] : 0;
		s->count = (i < cut_count ? cuts[i] : model->layer_count) - s->first;
		stage_open(c, s, seed);
	}
	return c;
}

struct chain *chain_open(const struct pd_device_ops *ops, const struct pd_model *model,
			 const int *cuts, int cut_count, int64_t batch, uint64_t seed, int threads)
{
	return open_all(ops, model, cuts, cut_count, batch, seed, threads, false);
}

struct chain *chain_open_split(const struct pd_device_ops *ops, const struct pd_model *model,
			       const int *cuts, int cut_count, int64_t batch, uint64_t seed,
			       int threads)
{
	return open_all(ops, model, cuts, cut_count, batch, seed, threads, true);
}

void chain_close(struct chain *c)
{
	c->ops->stream.close(c->stream);
	for (int i = 0; i < c->stage_count; i++) {
		struct stage *s = &c->stages[i];

		c->ops->net.close(s->net);
		c->ops->memory.free(c->device, s->weights);
		if (s->master)
			c->ops->memory.free(c->device, s->master);
		c->ops->memory.free(c->device, s->gradients);
		c->ops->memory.free(c->device, s->velocity);
		c->ops->memory.free(c->device, s->second);
		c->ops->memory.free(c->device, s->state);
		c->ops->memory.free(c->device, s->inbox);
		c->ops->memory.free(c->device, s->slot);
		c->ops->memory.free(c->device, s->scratch);
		c->ops->memory.free(c->device, s->in);
		c->ops->memory.free(c->device, s->out);
	}
	c->ops->close(c->device);
	pd_gate_release(&c->gate);
	free(c->stages);
	free(c);
}

void chain_copy(struct chain *c, void *dst, const void *src, size_t bytes, enum pd_copy way)
{
	struct pd_event ev;

	pd_event_arm(&ev);
	pd_submit_copy(c->stream, dst, src, bytes, way, &ev);
	pd_event_wait(&ev, &c->gate);
}

char *chain_put(struct chain *c, const void *host, size_t bytes)
{
	char *device = c->ops->memory.alloc(c->device, bytes, NULL);

	chain_copy(c, device, host, bytes, PD_COPY_TO_DEVICE);
	return device;
}

/* Returns the first input in 16 bits, rounded as the loader does. */
static void *rounded(const struct chain *c, const float *x)
{
	size_t n = (size_t)(c->batch * pd_shape_elements(&c->model->inputs[0].shape));
	uint16_t *out = pd_calloc(n, sizeof(*out));

	for (size_t i = 0; i < n; i++)
		out[i] = c->dtype == PD_BF16 ? pd_to_bf16(x[i]) : pd_to_f16(x[i]);
	return out;
}

void chain_load(struct chain *c, const float *x, const int32_t *y)
{
	bool rounds = c->dtype != PD_F32 && c->model->inputs[0].dtype == PD_F32;
	void *narrow = rounds ? rounded(c, x) : NULL;

	for (int i = 0; i < c->stage_count; i++)
		for (int k = 0; k < c->stages[i].sizes->in_count; k++) {
			const struct pd_net_tensor *t = &c->stages[i].sizes->in[k];
			const void *src = t->tensor != 0 ? (const void *)y
					  : narrow ? narrow : (const void *)x;

			if (t->tensor < c->model->input_count)
				chain_copy(c, c->stages[i].inbox + t->offset, src, t->bytes,
				     PD_COPY_TO_DEVICE);
		}
	free(narrow);
}

static bool pass_once(struct chain *c, struct stage *s, bool back, enum pd_backward_part part,
		      bool again)
{
	struct pd_pass p = {
		.weights = s->weights, .state = s->state, .gradients = s->gradients,
		.inbox = s->inbox, .slot = s->slot, .scratch = s->scratch, .gradient_in = s->in,
		.gradient_out = s->out, .first_sample = c->first_sample, .valid = c->valid,
		.evaluate = c->evaluate, .losses = &c->loss, .part = part,
		.again = again,
	};
	int step = c->singly ? 1 : s->count;
	struct pd_event ev;

	if (part == PD_BACKWARD_WEIGHT)
		p.gradient_in = p.gradient_out = NULL;
	for (int done = 0; done < s->count; done += step) {
		int from = back ? s->first + s->count - done - step : s->first + done;

		pd_event_arm(&ev);
		if (back)
			pd_submit_backward(c->stream, s->net, &p, from, step, &ev);
		else
			pd_submit_forward(c->stream, s->net, &p, from, step, &ev);
		pd_event_wait(&ev, &c->gate);
		if (pd_event_failed(&ev))
			return false;
	}
	return true;
}

static bool pass(struct chain *c, struct stage *s, bool back)
{
	enum pd_backward_part part = back && c->parts ? PD_BACKWARD_INPUT : PD_BACKWARD_ALL;

	return pass_once(c, s, back, part, false) &&
	       (!c->twice || pass_once(c, s, back, part, !back));
}

static void spoil(struct chain *c, void *memory, size_t bytes)
{
	char *rubbish = malloc(bytes ? bytes : 1);

	memset(rubbish, 0xff, bytes);
	chain_copy(c, memory, rubbish, bytes, PD_COPY_TO_DEVICE);
	free(rubbish);
}

static bool weight_parts(struct chain *c)
{
	for (int i = c->stage_count - 1; i >= 0; i--) {
		struct stage *s = &c->stages[i];

		spoil(c, s->scratch, s->sizes->scratch_bytes);
		spoil(c, s->in, s->sizes->gradient_in_bytes);
		spoil(c, s->out, s->sizes->gradient_out_bytes);
		if (!pass_once(c, s, true, PD_BACKWARD_WEIGHT, false))
			return false;
	}
	return true;
}

static const struct pd_net_tensor *find(const struct pd_net_tensor *list, int count, int tensor)
{
	for (int i = 0; i < count; i++)
		if (list[i].tensor == tensor)
			return &list[i];
	return NULL;
}

/* Copies the outputs of stage i to the first later stages that take them, or their gradients back. */
static void cross(struct chain *c, int i, bool back)
{
	struct stage *from = &c->stages[i];

	for (int k = 0; k < from->sizes->out_count; k++) {
		const struct pd_net_tensor *out = &from->sizes->out[k], *in = NULL;
		struct stage *to = from;

		while (!in) {
			to++;
			in = find(to->sizes->in, to->sizes->in_count, out->tensor);
		}
		if (!back)
			chain_copy(c, to->inbox + in->offset,
			     (out->inbox ? from->inbox : from->slot) + out->offset,
			     in->bytes, PD_COPY_WITHIN);
		else if (out->gradient_offset != SIZE_MAX)
			chain_copy(c, from->in + out->gradient_offset, to->out + in->gradient_offset,
			     in->bytes, PD_COPY_WITHIN);
	}
}

bool chain_forward(struct chain *c)
{
	for (int i = 0; i < c->stage_count; i++) {
		if (!pass(c, &c->stages[i], false))
			return false;
		cross(c, i, false);
	}
	return true;
}

bool chain_backward(struct chain *c)
{
	for (int i = c->stage_count - 1; i >= 0; i--) {
		cross(c, i, true);
		if (!pass(c, &c->stages[i], true))
			return false;
	}
	return !c->parts || weight_parts(c);
}

void chain_step(struct chain *c, const struct pd_update *how)
{
	for (int i = 0; i < c->stage_count; i++) {
		struct stage *s = &c->stages[i];
		struct pd_update update = *how;
		struct pd_event ev;

		update.weights = update.next = s->weights;
		update.master = s->master;
		update.gradients = s->gradients;
		update.velocity = pd_optimizer_moment_count(how->kind, how->hyper.momentum) > 0 ? s->velocity : NULL;
		update.second = s->second;
		pd_event_arm(&ev);
		pd_submit_update(c->stream, s->net, &update, s->first, s->count, &ev);
		pd_event_wait(&ev, &c->gate);
	}
}

void chain_update(struct chain *c, float rate, float momentum, float decay)
{
	chain_step(c, &(struct pd_update){ .rate = rate, .hyper.momentum = momentum,
					   .weight_decay = decay });
}

static char *arena_of(const struct stage *s, enum arena arena)
{
	switch (arena) {
	case WEIGHTS:
		return s->weights;
	case GRADIENTS:
		return s->gradients;
	case VELOCITY:
		return s->velocity;
	case STATE:
		return s->state;
	default:
		return s->master ? s->master : s->weights;
	}
}

float *chain_export(struct chain *c, enum arena arena, int64_t *count_p)
{
	float *all = NULL;
	size_t capacity = 0, count = 0;

	for (int i = 0; i < c->stage_count; i++) {
		struct stage *s = &c->stages[i];
		const struct pd_named *list;
		int n = c->ops->net.named(s->net, &list);

		for (int k = 0; k < n; k++) {
			size_t elements = (size_t)list[k].elements;

			if ((list[k].part != PD_PART_PARAMETER) != (arena == STATE))
				continue;
			all = pd_grow(all, &capacity, count + elements, sizeof(*all));
			c->ops->net.export(s->net, k, arena == WEIGHTS ? PD_WORKING : PD_FULL,
					   arena_of(s, arena), all + count);
			count += elements;
		}
	}
	*count_p = (int64_t)count;
	return all;
}

void chain_import_weights(struct chain *c, const float *all)
{
	for (int i = 0; i < c->stage_count; i++) {
		struct stage *s = &c->stages[i];
		const struct pd_named *list;
		int n = c->ops->net.named(s->net, &list);

		for (int k = 0; k < n; k++) {
			if (list[k].part != PD_PART_PARAMETER)
				continue;
			c->ops->net.import(s->net, k, PD_WORKING, s->weights, all);
			all += list[k].elements;
		}
	}
}

void chain_load_step(struct chain *c, int step)
{
	int64_t n = c->batch * pd_shape_elements(&c->model->inputs[0].shape);
	int64_t labels = c->batch * pd_shape_elements(&c->model->inputs[1].shape);
	float *x = pd_calloc((size_t)n, sizeof(*x));
	int32_t *y = pd_calloc((size_t)labels, sizeof(*y));

	for (int64_t i = 0; i < n; i++)
		x[i] = 2 * pd_unit(pd_random(3, (uint64_t)step, 0, (uint32_t)i).v[0]) - 1;
	for (int64_t i = 0; i < labels; i++)
		y[i] = (int32_t)((i * 3 + step) % 10);
	chain_load(c, x, y);
	free(x);
	free(y);
}
