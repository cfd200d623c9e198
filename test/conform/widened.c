/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares the arena of gradients, byte by byte and with the gaps between them, after backward over a
 * whole stage and after backward layer by layer.  A device may compute several gradients together in the
 * first case and not in the second, and use memory for that which it will overwrite anyway, but gaps
 * stay zero and gradients of other layers stay as they are.  On the emulated GPU backward over a whole
 * stage takes fewer kernels.
 */
#include "chain.h"
#include "engine/device/submit.h"
#include "tap.h"

#include "base/mem.h"
#include "base/rng.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 3
#define ROUNDS 3                        /* a device may run a repeated pass in another way */
#define DEEP 100

/* Only the emulated GPU (contrib/emulate-cuda.sh) defines this; on other devices none are counted. */
extern int emulated_kernels(void) __attribute__((weak));

struct made {
	char *arena;                    /* the arena of gradients */
	size_t bytes;
	int kernels;                    /* kernels of the last backward; 0 if not emulated */
};

static int kernels(void)
{
	return emulated_kernels ? emulated_kernels() : 0;
}

static void load(struct chain *c, int round)
{
	int64_t n = c->batch * pd_shape_elements(&c->model->inputs[0].shape);
	float *x = pd_calloc((size_t)n, sizeof(*x));
	int32_t y[BATCH];

	for (int64_t i = 0; i < n; i++)
		x[i] = 2 * pd_unit(pd_random(5, (uint64_t)round, 0, (uint32_t)i).v[0]) - 1;
	for (int i = 0; i < BATCH; i++)
		y[i] = (i + round) % 3;
	chain_load(c, x, y);
	free(x);
}

static char *arena_of(struct chain *c, size_t bytes)
{
	char *host = pd_calloc(1, bytes);

	chain_copy(c, host, c->stages[0].gradients, bytes, PD_COPY_TO_HOST);
	return host;
}

static struct made make(const struct pd_device_ops *ops, const struct pd_model *model, bool singly,
			bool parts)
{
	struct chain *c = parts ? chain_open_split(ops, model, NULL, 0, BATCH, 7, 1)
				: chain_open(ops, model, NULL, 0, BATCH, 7, 1);
	struct made m = { .bytes = c->stages[0].sizes->full_bytes };

	c->singly = singly;
	c->parts = parts;
	for (int round = 0; round < ROUNDS; round++) {
		load(c, round);
		chain_forward(c);
		m.kernels = -kernels();
		chain_backward(c);
		m.kernels += kernels();
	}
	m.arena = arena_of(c, m.bytes);
	chain_close(c);
	return m;
}

/* Tells whether layers share parameters; if so one layer's gradient is added to another's, and cannot be
 * computed again alone. */
static bool shares(const struct pd_model *model)
{
	for (int l = 0; l < model->layer_count; l++)
		if (model->layers[l].shares >= 0)
			return true;
	return false;
}

/* Tests that a second backward of a stage's last layers alone leaves all of the arena as it was. */
static void test_end(const struct pd_device_ops *ops, const char *name,
		     const struct pd_model *model)
{
	struct chain *c = chain_open(ops, model, NULL, 0, BATCH, 7, 1);
	struct stage *s = &c->stages[0];
	bool same = true;

	load(c, 0);
	chain_forward(c);
	chain_backward(c);
	for (int from = model->layer_count - 1; from > 0; from -= 1 + model->layer_count / 8) {
		const struct pd_pass pass = {
			.weights = s->weights, .state = s->state, .gradients = s->gradients,
			.inbox = s->inbox, .slot = s->slot, .scratch = s->scratch,
			.gradient_in = s->in, .gradient_out = s->out, .valid = BATCH,
		};
		char *before = arena_of(c, s->sizes->full_bytes), *after;
		struct pd_event ev;

		pd_event_arm(&ev);
		pd_submit_backward(c->stream, s->net, &pass, from, model->layer_count - from, &ev);
		pd_event_wait(&ev, &c->gate);
		after = arena_of(c, s->sizes->full_bytes);
		same = same && memcmp(before, after, s->sizes->full_bytes) == 0;
		free(before);
		free(after);
	}
	ok(same, "%s, %s: backward of the last layers leaves the others' gradients", chain_name(ops),
	   name);
	chain_close(c);
}

static void compare(const struct pd_device_ops *ops, const char *name,
		    const struct pd_model *model, bool parts, int least)
{
	struct made alone = make(ops, model, true, parts), whole = make(ops, model, false, parts);
	const char *how = parts ? " in two parts" : "";

	ok(whole.bytes == alone.bytes && memcmp(whole.arena, alone.arena, whole.bytes) == 0,
	   "%s, %s: the same gradients and gaps, at once%s and layer by layer", chain_name(ops),
	   name, how);
	if (least > 0 && alone.kernels > 0 && chain_dtype != PD_F32)
		ok(alone.kernels - whole.kernels >= least, "%s, %s: %d kernels%s, not %d",
		   chain_name(ops), name, whole.kernels, how, alone.kernels);
	free(alone.arena);
	free(whole.arena);
}

/* Tests a model; in 16 bits a whole stage must take at least `least` kernels fewer. */
static void test_model(const struct pd_device_ops *ops, const char *name,
		       const struct pd_model *model, int least)
{
	compare(ops, name, model, false, least);
	if (!shares(model))
		test_end(ops, name, model);
	if (ops->splits)
		compare(ops, name, model, true, least);
}

/* Returns a model of more convolutions than one kernel takes, each with room for two others' gradients. */
static struct pd_model *deep_model(void)
{
	char *layers = pd_format("{'name': 'c0', 'kind': 'conv2d', 'inputs': ['x'], "
				 "'out_channels': 8, 'kernel': 1}, "), *more;
	struct pd_model *model;

	for (int i = 1; i < DEEP; i++) {
		more = pd_format("%s{'name': 'c%d', 'kind': 'conv2d', 'inputs': ['c%d'], "
				 "'out_channels': 8, 'kernel': 1}, ", layers, i, i - 1);
		free(layers);
		layers = more;
	}
	more = pd_format("%s{'name': 'flat', 'kind': 'flatten', 'inputs': ['c%d']}, "
			 "{'name': 'fc', 'kind': 'linear', 'inputs': ['flat'], 'out_features': 3}, "
			 "{'name': 'loss', 'kind': 'softmax_cross_entropy', "
			 "'inputs': ['fc', 'y']}", layers, DEEP - 1);
	model = model_of("3, 2, 2", more);
	free(layers);
	free(more);
	return model;
}

/* Returns a model of small and large convolutions, some with gaps behind them, two that share parameters
 * and one whose output is not used. */
static struct pd_model *mixed_model(void)
{
	return model_of("3, 6, 6",
		"{'name': 'a', 'kind': 'conv2d', 'inputs': ['x'], 'out_channels': 7, 'kernel': 3, "
		"'padding': 1}, "
		"{'name': 'b', 'kind': 'conv2d', 'inputs': ['a'], 'out_channels': 7, 'kernel': 5, "
		"'padding': 2}, "
		"{'name': 'c', 'kind': 'conv2d', 'inputs': ['b'], 'out_channels': 7, 'kernel': 1}, "
		"{'name': 's1', 'kind': 'conv2d', 'inputs': ['c'], 'out_channels': 7, 'kernel': 3, "
		"'padding': 1}, "
		"{'name': 'n', 'kind': 'batchnorm2d', 'inputs': ['s1']}, "
		"{'name': 's2', 'kind': 'conv2d', 'inputs': ['n'], 'out_channels': 7, 'kernel': 3, "
		"'padding': 1, 'shares': 's1'}, "
		"{'name': 'unused', 'kind': 'conv2d', 'inputs': ['s2'], 'out_channels': 40, "
		"'kernel': 3}, "
		"{'name': 'd', 'kind': 'conv2d', 'inputs': ['s2'], 'out_channels': 9, 'kernel': 3}, "
		"{'name': 'e', 'kind': 'conv2d', 'inputs': ['d'], 'out_channels': 5, 'kernel': 1}, "
		"{'name': 'f', 'kind': 'conv2d', 'inputs': ['e'], 'out_channels': 5, 'kernel': 2}, "
		"{'name': 'flat', 'kind': 'flatten', 'inputs': ['f']}, "
		"{'name': 'fc', 'kind': 'linear', 'inputs': ['flat'], 'out_features': 3}, "
		"{'name': 'loss', 'kind': 'softmax_cross_entropy', 'inputs': ['fc', 'y']}");
}

int main(void)
{
	struct pd_model *deep = deep_model(), *mixed = mixed_model();
	struct pd_model *residual = residual_model(), *branching = branching_model();

	for (int i = 0; pd_devices[i]; i++) {
		if (!chain_usable(pd_devices[i]))
			continue;
		for (int type = 0; type < chain_types(pd_devices[i]); type++) {
			if (!chain_take(pd_devices[i], type))
				continue;
			test_model(pd_devices[i], "deep", deep, DEEP * 9 / 10);
			test_model(pd_devices[i], "mixed", mixed, 2);
			test_model(pd_devices[i], "residual", residual, 1);
			test_model(pd_devices[i], "branching", branching, 0);
		}
		chain_take(pd_devices[i], 0);
	}
	pd_model_free(deep);
	pd_model_free(mixed);
	pd_model_free(residual);
	pd_model_free(branching);
	return done_testing();
}
