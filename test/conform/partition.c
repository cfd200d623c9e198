/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A partition does not change a bit: a network that branches, cut at every place and at many places at
 * once, trains to the same weights, statistics and losses as in one piece.  It also does when each layer
 * is run by a call of its own, when forward is run twice, when backward is in two parts, and when all
 * was rehearsed.
 */
#include "chain.h"
#include "tap.h"

#include "base/mem.h"
#include "base/rng.h"
#include "memory/memory.h"
#include "run/device/rehearse.h"

#include <stdlib.h>
#include <string.h>

#define BATCH 6
#define STEPS 3
#define SEED 99

struct result {
	float *arenas[5];
	int64_t counts[5];
	double losses[STEPS + 1];
	int firsts;                     /* operations that the run did for the first time */
};

/* Only the emulated GPU (contrib/emulate-cuda.sh) defines this. */
extern int emulated_firsts(void) __attribute__((weak));

static int firsts(void)
{
	return emulated_firsts ? emulated_firsts() : 0;
}

/* Trains a chain, and closes it. */
static struct result train_chain(struct chain *c)
{
	struct result r = { .losses = { 0 }, .firsts = -firsts() };

	for (int step = 0; step < STEPS; step++) {
		chain_load_step(c, step);
		c->first_sample = step * BATCH;
		chain_forward(c);
		r.losses[step] = c->loss.sum;
		chain_backward(c);
		chain_update(c, 0.1f, 0.9f, 1e-3f);
	}
	c->evaluate = true;
	chain_load_step(c, STEPS);
	chain_forward(c);
	r.losses[STEPS] = c->loss.sum;
	r.firsts += firsts();
	for (int a = 0; a < 5; a++)
		r.arenas[a] = chain_export(c, (enum arena)a, &r.counts[a]);
	chain_close(c);
	return r;
}

static struct result train(const struct pd_device_ops *ops, const struct pd_model *model,
			   const int *cuts, int cut_count, int threads, bool singly)
{
	struct chain *c = chain_open(ops, model, cuts, cut_count, BATCH, SEED, threads);

	c->singly = singly;
	return train_chain(c);
}

static struct result train_split(const struct pd_device_ops *ops, const struct pd_model *model,
				 const int *cuts, int cut_count, int threads, bool parts,
				 bool singly)
{
	struct chain *c = chain_open_split(ops, model, cuts, cut_count, BATCH, SEED, threads);

	c->parts = parts;
	c->singly = singly;
	return train_chain(c);
}

static struct result train_rehearsed(const struct pd_device_ops *ops, const struct pd_model *model,
				     int threads, bool split)
{
	const struct pd_net_config config = {
		.model = model, .count = model->layer_count, .batch_size = BATCH,
		.dtype = chain_dtype, .split = split,
	};
	const struct pd_rehearsal what = { .config = &config, .update = PD_SGD, .turns = 2 };
	struct chain *c = split ? chain_open_split(ops, model, NULL, 0, BATCH, SEED, threads)
				: chain_open(ops, model, NULL, 0, BATCH, SEED, threads);
	struct pd_error err;
	struct result r;

	ok(pd_rehearse(c->device, c->stages[0].net, &what, &c->gate, &err) == 0 &&
	   pd_rehearse_sum(c->device, c->stream, &c->gate, &err) == 0, "%s, %d threads: rehearsal%s",
	   chain_name(ops), threads, split ? " in two parts" : "");
	c->parts = split;
	r = train_chain(c);
	is_int(r.firsts, 0, "%s, %d threads: and then nothing is made for the first time",
	       chain_name(ops), threads);
	return r;
}

static void release(struct result *r)
{
	for (int a = 0; a < 5; a++)
		free(r->arenas[a]);
}

static bool same(const struct result *a, const struct result *b)
{
	static const char *const names[] = { "weights", "gradients", "velocity", "state",
					      "master" };
	bool equal = memcmp(a->losses, b->losses, sizeof(a->losses)) == 0;

	if (!equal)
		diag("losses %.9g %.9g %.9g, expected %.9g %.9g %.9g", b->losses[0], b->losses[1],
		     b->losses[STEPS], a->losses[0], a->losses[1], a->losses[STEPS]);
	for (int i = 0; i < 5; i++)
		if (a->counts[i] != b->counts[i] || (a->counts[i] > 0 &&
		    memcmp(a->arenas[i], b->arenas[i], (size_t)a->counts[i] * 4) != 0)) {
			diag("%s differ", names[i]);
			equal = false;
		}
	return equal;
}

static bool cuttable(const struct pd_model *model, int cut)
{
	for (int l = cut; l < model->layer_count; l++)
		if (model->layers[l].shares >= 0 && model->layers[l].shares < cut)
			return false;
	return true;
}

static void test_device(const struct pd_device_ops *ops, const struct pd_model *model, int threads)
{
	const int stride = test_quick() ? 3 : 1;
	struct result whole = train(ops, model, NULL, 0, threads, false), other;
	int all[64], count = 0;

	ok(whole.losses[STEPS - 1] < whole.losses[0] * 1.5 && whole.losses[0] > 0 &&
	   whole.losses[0] != whole.losses[1], "%s, %d threads: it trains", chain_name(ops), threads);
	other = train(ops, model, NULL, 0, threads, true);
	ok(same(&whole, &other), "%s, %d threads: layer by layer", chain_name(ops), threads);
	release(&other);
	other = train_rehearsed(ops, model, threads, false);
	ok(same(&whole, &other), "%s, %d threads: rehearsed", chain_name(ops), threads);
	release(&other);
	for (int cut = 1; cut < model->layer_count; cut += stride) {
		if (!cuttable(model, cut))
			continue;
		all[count++] = cut;
		other = train(ops, model, &cut, 1, threads, false);
		ok(same(&whole, &other), "%s, %d threads: cut before %s", chain_name(ops), threads,
		   model->layers[cut].name);
		release(&other);
	}
	other = train(ops, model, all, count, threads, true);
	ok(same(&whole, &other), "%s, %d threads: cut in %d places", chain_name(ops), threads, count);
	release(&other);
	release(&whole);
}

/* Tests that backward in two parts, or in one by a net that can do both, gives the same bits. */
static void test_split(const struct pd_device_ops *ops, const struct pd_model *model, int threads)
{
	const int stride = test_quick() ? 3 : 1;
	struct result whole = train(ops, model, NULL, 0, threads, false), other;
	int all[64], count = 0;

	other = train_split(ops, model, NULL, 0, threads, false, false);
	ok(same(&whole, &other), "%s, %d threads: split, and in one", chain_name(ops), threads);
	release(&other);
	other = train_rehearsed(ops, model, threads, true);
	ok(same(&whole, &other), "%s, %d threads: in two parts, rehearsed", chain_name(ops),
	   threads);
	release(&other);
	for (int singly = 0; singly < 2; singly++) {
		other = train_split(ops, model, NULL, 0, threads, true, singly);
		ok(same(&whole, &other), "%s, %d threads: in two parts%s", chain_name(ops), threads,
		   singly ? ", layer by layer" : "");
		release(&other);
	}
	for (int cut = 1; cut < model->layer_count; cut += stride) {
		if (!cuttable(model, cut))
			continue;
		all[count++] = cut;
		other = train_split(ops, model, &cut, 1, threads, true, false);
		ok(same(&whole, &other), "%s, %d threads: in two parts, cut before %s", chain_name(ops),
		   threads, model->layers[cut].name);
		release(&other);
	}
	other = train_split(ops, model, all, count, threads, true, true);
	ok(same(&whole, &other), "%s, %d threads: in two parts, cut in %d places", chain_name(ops),
	   threads, count);
	release(&other);
	release(&whole);
}

/* Tests that a second forward into the same slot, as recomputation does it, leaves the same gradients. */
static void test_again(const struct pd_device_ops *ops, const struct pd_model *model)
{
	const int stride = test_quick() ? 3 : 1;
	struct chain *c = chain_open(ops, model, NULL, 0, BATCH, SEED, 1);
	float *once, *twice;
	bool equal = true;
	int64_t n;

	chain_load_step(c, 0);
	chain_forward(c);
	chain_backward(c);
	once = chain_export(c, GRADIENTS, &n);
	chain_close(c);
	for (int cut = 1; cut < model->layer_count; cut += stride) {
		if (!cuttable(model, cut))
			continue;
		c = chain_open(ops, model, &cut, 1, BATCH, SEED, 1);
		c->twice = true;
		chain_load_step(c, 0);
		chain_forward(c);
		chain_backward(c);
		twice = chain_export(c, GRADIENTS, &n);
		if (memcmp(once, twice, (size_t)n * sizeof(float)) != 0) {
			diag("gradients differ when cut before %s", model->layers[cut].name);
			equal = false;
		}
		free(twice);
		chain_close(c);
	}
	ok(equal, "%s: each stage forward twice, backward twice", chain_name(ops));
	free(once);
}

static void test_refusal(const struct pd_device_ops *ops, const struct pd_model *model)
{
	struct pd_device_config device = { .threads = 1 };
	struct pd_net_config config = { .model = model, .count = 9, .batch_size = BATCH };
	struct pd_error err = { .text = "" };
	struct pd_device *d = ops->open(&device, &err);
	struct pd_net *net = ops->net.open(d, &config, &err);

	ok(!net && strstr(err.text, "\"s1\"") && strstr(err.text, "\"s2\""),
	   "%s: a stage with half of those that share: %s", chain_name(ops), err.text);
	config.first = 9;
	ok(!ops->net.open(d, &config, &err), "%s: and the other half", chain_name(ops));
	ops->close(d);
}

static void test_layer_sizes(const struct pd_device_ops *ops, const struct pd_model *model,
			     bool split)
{
	struct chain *c = split ? chain_open_split(ops, model, NULL, 0, BATCH, SEED, 1)
				: chain_open(ops, model, NULL, 0, BATCH, SEED, 1);
	const struct pd_net_sizes *sizes = c->stages[0].sizes;
	size_t slot = 0, parameters = 0, more = 0;

	if (!ops->net.layer) {
		chain_close(c);
		return;
	}
	for (int l = 0; l < model->layer_count; l++) {
		struct pd_net_layer layer;

		ops->net.layer(c->stages[0].net, l, &layer);
		slot += layer.slot_bytes;
		more += layer.split_bytes;
		parameters += layer.parameter_bytes;
	}
	is_int((int64_t)slot, (int64_t)sizes->slot_bytes, "%s: layers' slots add up%s", chain_name(ops),
	       split ? ", split" : "");
	is_int((int64_t)parameters, (int64_t)sizes->full_bytes, "%s: parameters too", chain_name(ops));
	chain_close(c);
	if (!split)
		return;
	c = chain_open(ops, model, NULL, 0, BATCH, SEED, 1);
	is_int((int64_t)(slot - c->stages[0].sizes->slot_bytes), (int64_t)more,
	       "%s: and are larger by what they say", chain_name(ops));
	chain_close(c);
}

/* Checks that a plan counts the bytes of each layer that the device reports. */
static void check_predicted(const struct pd_device_ops *ops, struct pd_model *model)
{
	struct pd_profile profile = { .model = model, .layer_count = model->layer_count };
	size_t n = (size_t)model->layer_count;
	struct pd_net_layer *layers = pd_calloc(n, sizeof(*layers));
	struct chain *c = chain_open_split(ops, model, NULL, 0, BATCH, SEED, 1);
	int wrong = 0;

	profile.layers = pd_calloc(n, sizeof(*profile.layers));
	for (int l = 0; l < model->layer_count; l++) {
		int owner = model->layers[l].shares;

		if (owner >= 0) {
			profile.layers[l].shared = profile.layers[owner].shared = true;
			profile.layers[l].owner = profile.layers[owner].owner = owner;
		}
		ops->net.layer(c->stages[0].net, l, &layers[l]);
		profile.layers[l].parameter_bytes = (int64_t)layers[l].parameter_bytes;
		profile.layers[l].activation_bytes = (int64_t)layers[l].activation_bytes;
		profile.layers[l].owner = model->layers[l].shares >= 0 ? model->layers[l].shares : l;
		if (profile.layers[l].owner != l)
			profile.layers[l].shared = profile.layers[profile.layers[l].owner].shared = true;
	}
	for (int l = 0; l < model->layer_count; l++) {
		size_t predicted = pd_align((size_t)pd_memory_split(&profile, l));

		if (predicted == layers[l].split_bytes)
			continue;
		diag("%s: %zu bytes predicted, %zu kept", model->layers[l].name, predicted,
		     layers[l].split_bytes);
		wrong++;
	}
	is_int(wrong, 0, "%s: what is kept between the parts, as predicted", chain_name(ops));
	chain_close(c);
	free(layers);
	free(profile.layers);
}

/* Also checks a model of few channels, which in 16 bits do not fill their room in the f32 arena. */
static void test_predicted(const struct pd_device_ops *ops, struct pd_model *model)
{
	struct pd_model *few = model_of("3, 4, 4",
		"{'name': 'c', 'kind': 'conv2d', 'inputs': ['x'], 'out_channels': 4, 'kernel': 3}, "
		"{'name': 'n', 'kind': 'batchnorm2d', 'inputs': ['c']}, "
		"{'name': 'flat', 'kind': 'flatten', 'inputs': ['n']}, "
		"{'name': 'loss', 'kind': 'softmax_cross_entropy', 'inputs': ['flat', 'y']}");

	check_predicted(ops, model);
	check_predicted(ops, few);
	pd_model_free(few);
}

/* Tests blocks whose gradients are passed on and whose relus are done by other layers if in one piece. */
static void test_residual(const struct pd_device_ops *ops)
{
	struct pd_model *model = residual_model();

	test_device(ops, model, 1);
	if (ops->splits && chain_dtype == PD_BF16)
		test_split(ops, model, 1);
	pd_model_free(model);
}

/* Tests layers of sequences, which share no parameters. */
static void test_sequence(const struct pd_device_ops *ops)
{
	struct pd_model *model = sequence_model();

	test_device(ops, model, 1);
	test_device(ops, model, 2);
	test_again(ops, model);
	test_layer_sizes(ops, model, false);
	if (ops->splits) {
		test_split(ops, model, 2);
		test_predicted(ops, model);
	}
	pd_model_free(model);
}

/* Tests state that is carried on, and the bytes of gates that are kept for backward's second part. */
static void test_recurrent(const struct pd_device_ops *ops, int threads)
{
	struct pd_model *model = recurrent_model();

	test_device(ops, model, threads);
	test_again(ops, model);
	test_layer_sizes(ops, model, false);
	if (ops->splits) {
		test_split(ops, model, threads);
		test_layer_sizes(ops, model, true);
		check_predicted(ops, model);
	}
	pd_model_free(model);
}

/* Tests a transformer, for which the number of threads changes no bit either. */
static void test_transformer(const struct pd_device_ops *ops)
{
	struct pd_model *model = transformer_model();
	struct result one = train(ops, model, NULL, 0, 1, false);
	struct result two = train(ops, model, NULL, 0, 2, false);

	ok(same(&one, &two), "%s: with one thread and with two", chain_name(ops));
	release(&one);
	release(&two);
	test_device(ops, model, 2);
	test_again(ops, model);
	test_layer_sizes(ops, model, false);
	if (ops->splits) {
		test_split(ops, model, 1);
		test_layer_sizes(ops, model, true);
		check_predicted(ops, model);
	}
	pd_model_free(model);
}

/*
 * Tests cuts in 16 bits, where a tensor that crosses a cut is rounded as it is without the cut.  With
 * `quick` only the first type that the device takes is tested.
 */
static void test_rounded(const struct pd_device_ops *ops, struct pd_model *model, bool quick)
{
	bool tested = false;

	for (int type = 1; type < chain_types(ops) && !(quick && tested); type++) {
		if (!chain_take(ops, type))
			continue;
		tested = true;
		test_device(ops, model, 2);
		test_again(ops, model);
		test_layer_sizes(ops, model, false);
		test_residual(ops);
		test_sequence(ops);
		test_recurrent(ops, 2);
		test_transformer(ops);
		if (!ops->splits)
			continue;
		test_split(ops, model, 1);
		test_layer_sizes(ops, model, true);
		test_predicted(ops, model);
	}
	chain_take(ops, 0);
}

int main(void)
{
	const bool quick = test_quick();     /* tests with two threads alone */
	struct pd_model *model = branching_model();

	for (int i = 0; pd_devices[i]; i++) {
		if (!chain_usable(pd_devices[i]))
			continue;
		test_rounded(pd_devices[i], model, quick);
		if (!quick)
			test_device(pd_devices[i], model, 1);
		test_device(pd_devices[i], model, 2);
		test_again(pd_devices[i], model);
		test_residual(pd_devices[i]);
		test_sequence(pd_devices[i]);
		if (!quick)
			test_recurrent(pd_devices[i], 1);
		test_recurrent(pd_devices[i], 2);
		test_transformer(pd_devices[i]);
		test_refusal(pd_devices[i], model);
		test_layer_sizes(pd_devices[i], model, false);
		if (!pd_devices[i]->splits)
			continue;
		if (!quick)
			test_split(pd_devices[i], model, 1);
		test_split(pd_devices[i], model, 2);
		test_layer_sizes(pd_devices[i], model, true);
		test_predicted(pd_devices[i], model);
	}
	pd_model_free(model);
	return done_testing();
}
