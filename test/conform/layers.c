/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every kind of layer, forward and backward, on every device of this machine, against the
 * reference, for many shapes; and the reference against finite differences.
 *
 * A layer is seen through its neighbours: a 1x1 convolution before it, whose weight gradient
 * is a random projection of the layer's input gradient; a linear layer behind it, whose
 * weight gradient has, for each element of the layer's output, as many numbers as there
 * are samples or more.
 */
#include "chain.h"
#include "ref.h"
#include "tap.h"

#include "base/mem.h"
#include "base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CLASSES 9
#define SEED 12345

static float random_at(uint32_t stream, int64_t i)
{
	return 2 * pd_unit(pd_random(7, stream, 0, (uint32_t)i).v[0]) - 1;
}

/* Owned parameters in the order of chain_export. */
static void import_ref(struct ref *r, const float *weights)
{
	for (int l = 0; l < r->model->layer_count; l++)
		for (int p = 0; r->model->layers[l].shares < 0 &&
		     p < r->model->layers[l].parameter_count; p++)
			for (int64_t i = 0; i < r->model->layers[l].parameters[p].elements; i++)
				r->w[l][p][i] = *weights++;
}

static double greatest(const double *values, int64_t count)
{
	double most = 0;

	for (int64_t i = 0; i < count; i++)
		most = fabs(values[i]) > most ? fabs(values[i]) : most;
	return most;
}

/* The greatest difference, in units of the greatest value, or of `floor` if that is more. */
static double difference(const double *expected, const float *got, int64_t count, double floor)
{
	double most = 0, scale = greatest(expected, count);

	for (int64_t i = 0; i < count; i++) {
		double d = fabs(expected[i] - (double)got[i]);

		most = d > most || isnan(d) ? d : most;
	}
	return most / (scale > floor ? scale : floor);
}

/*
 * A gradient that is zero but for rounding (a bias before batchnorm2d) is held against others:
 * more so in 16 bits, where the numbers that add up to zero are rounded before.
 */
static bool compare_gradients(const struct ref *r, const float *got, double tolerance)
{
	bool same = true;
	double most = 1e-20;    /* all is zero when no sample is valid */

	for (int l = 0; l < r->model->layer_count; l++)
		for (int p = 0; p < r->model->layers[l].parameter_count; p++)
			most = fmax(most, greatest(r->dw[l][p],
						   r->model->layers[l].parameters[p].elements));
	for (int l = 0; l < r->model->layer_count; l++) {
		const struct pd_layer *layer = &r->model->layers[l];

		for (int p = 0; layer->shares < 0 && p < layer->parameter_count; p++) {
			int64_t n = layer->parameters[p].elements;
			double d = difference(r->dw[l][p], got, n,
					      most / (chain_dtype == PD_F32 ? 100 : 25));

			if (!(d <= tolerance)) {
				diag("gradient of %s.%s is off by %g", layer->name,
				     layer->parameters[p].name, d);
				same = false;
			}
			got += n;
		}
	}
	return same;
}

static bool compare_state(const struct ref *r, const float *got, double tolerance)
{
	bool same = true;

	for (int l = 0; l < r->model->layer_count; l++)
		for (int s = 0; s < r->model->layers[l].state_count; s++) {
			const struct pd_layer_tensor *state = &r->model->layers[l].states[s];
			int64_t n = state->elements;
			double d = difference(r->state[l][s], got, n, 0.01);

			if (!(d <= tolerance)) {
				diag("%s.%s is off by %g", r->model->layers[l].name, state->name,
				     d);
				same = false;
			}
			got += n;
		}
	return same;
}

/* Those of a new net, but no bias is 0. */
static float *weights_of(struct chain *c)
{
	int64_t n;
	float *weights = chain_export(c, WEIGHTS, &n);

	for (int64_t i = 0; i < n; i++)
		if (weights[i] == 0)
			weights[i] = 0.3f * random_at(3, i);
	chain_import_weights(c, weights);
	free(weights);
	return chain_export(c, WEIGHTS, &n);
}

static void load(struct chain *c, struct ref *r)
{
	int64_t n = c->batch * pd_shape_elements(&c->model->inputs[0].shape);
	float *x = pd_calloc((size_t)n, sizeof(*x));
	int64_t labels = c->batch * pd_shape_elements(&c->model->inputs[1].shape);
	int32_t *y = pd_calloc((size_t)labels, sizeof(*y));

	for (int64_t i = 0; i < n; i++)
		r->x[0][i] = x[i] = chain_round(c->dtype, random_at(1, i));
	for (int64_t i = 0; i < labels; i++)
		r->x[1][i] = y[i] = (int32_t)(i * 5 % CLASSES);
	chain_load(c, x, y);
	free(x);
	free(y);
}

/*
 * In 16 bits the reference rounds as the device does, but where the device's sums, taken in
 * f32, fall on the other side of a middle: one in some thousand.  A few units in the last of 8
 * or 11 bits is what is left.
 */
static const double tolerances[PD_DTYPES] = { [PD_BF16] = 6.0 / 256, [PD_F16] = 6.0 / 2048 };

static double rounding(double x)
{
	return chain_round(chain_dtype, (float)x);
}

static bool conforms(const struct pd_device_ops *ops, const struct pd_model *model, int64_t batch,
		     int64_t valid, double tolerance)
{
	struct chain *c = chain_open(ops, model, NULL, 0, batch, SEED, 1);
	struct ref *r = ref_new(model, batch, SEED);
	float *weights, *gradients, *state;
	int64_t n;
	bool good;

	/* a GPU's convolutions may go another way (Winograd), at some cost in the last bits */
	if (ops != &pd_device_cpu)
		tolerance *= 5;
	if (chain_dtype != PD_F32) {
		tolerance = tolerances[chain_dtype];
		r->round = rounding;
	}
	c->valid = r->valid = valid;
	c->first_sample = r->first_sample = 640;
	weights = weights_of(c);
	import_ref(r, weights);
	load(c, r);
	good = chain_forward(c) && chain_backward(c);
	ref_forward(r);
	ref_backward(r);
	gradients = chain_export(c, GRADIENTS, &n);
	state = chain_export(c, STATE, &n);
	good = good && compare_gradients(r, gradients, tolerance) &&
	       compare_state(r, state, tolerance);
	if (!(fabs(c->loss.sum - r->loss) <= tolerance * fabs(r->loss)) ||
	    c->loss.correct != r->correct || c->loss.samples != valid ||
	    c->loss.rows != r->rows) {
		diag("loss %.9g, correct %d; expected %.9g, %d", c->loss.sum, (int)c->loss.correct,
		     r->loss, (int)r->correct);
		good = false;
	}
	/* evaluation: running statistics, no dropout */
	c->evaluate = r->evaluate = true;
	good = chain_forward(c) && good;
	ref_forward(r);
	if (!(fabs(c->loss.sum - r->loss) <= tolerance * fabs(r->loss))) {
		diag("evaluation: loss %.9g, expected %.9g", c->loss.sum, r->loss);
		good = false;
	}
	free(weights);
	free(gradients);
	free(state);
	ref_free(r);
	chain_close(c);
	return good;
}

/* Each element of the output must change the loss: no classes that vanish. */
static struct pd_model *around(int64_t channels, int64_t height, int64_t width, const char *layers)
{
	char *shape = pd_format("5, %d, %d", (int)height, (int)width);
	char *text = pd_format("{'name': 'in', 'kind': 'conv2d', 'inputs': ['x'], "
	                       "'out_channels': %d, 'kernel': 1}, "
			       "%s, {'name': 'flat', 'kind': 'flatten', 'inputs': ['it']}, "
			       "{'name': 'out', 'kind': 'linear', 'inputs': ['flat'], "
			       "'out_features': %d}, "
			       "{'name': 'loss', 'kind': 'softmax_cross_entropy', "
			       "'inputs': ['out', 'y']}",
			       (int)channels, layers, CLASSES);
	struct pd_model *model = model_of(shape, text);

	free(shape);
	free(text);
	return model;
}

struct size {
	int64_t channels, height, width, batch;
};

static const struct size sizes[] = {
	{ 1, 7, 9, 3 }, { 3, 8, 8, 8 }, { 5, 11, 6, 3 }, { 16, 9, 7, 1 }, { 16, 8, 8, 8 },
	{ 20, 7, 7, 3 }, { 32, 10, 10, 3 }, { 6, 9, 9, 1 },
};

static void test_sizes(const struct pd_device_ops *ops, const char *kind, const char *attributes,
		       double tolerance)
{
	char *layer = pd_format("{'name': 'it', 'kind': '%s', 'inputs': ['in']%s}", kind,
				attributes);
	bool good = true;

	for (size_t i = 0; i < PD_COUNT(sizes); i++) {
		const struct size *s = &sizes[i];
		struct pd_model *model = around(s->channels, s->height, s->width, layer);
		/* the last samples are padding, now and then */
		bool one = conforms(ops, model, s->batch, s->batch - (i % 3 == 1), tolerance);

		if (!one)
			diag("%d channels, %d x %d, batch %d", (int)s->channels, (int)s->height,
			     (int)s->width, (int)s->batch);
		good = good && one;
		pd_model_free(model);
	}
	ok(good, "%s: %s%s", chain_name(ops), kind, attributes);
	free(layer);
}

static void test_grouped(const struct pd_device_ops *ops)
{
	static const struct {
		int channels, out, groups;
	} cases[] = { { 4, 6, 2 }, { 16, 16, 16 }, { 20, 20, 20 }, { 32, 64, 4 }, { 32, 32, 2 } };
	bool good = true;

	for (size_t i = 0; i < PD_COUNT(cases); i++) {
		char *layer = pd_format("{'name': 'it', 'kind': 'conv2d', 'inputs': ['in'], "
		                        "'out_channels': %d, "
					"'groups': %d, 'kernel': [3, 2], 'padding': 1, "
					"'stride': [1, 2]}",
					cases[i].out, cases[i].groups);
		struct pd_model *model = around(cases[i].channels, 8, 9, layer);

		good = conforms(ops, model, 3, 3, 2e-5) && good;
		pd_model_free(model);
		free(layer);
	}
	ok(good, "%s: conv2d in groups", chain_name(ops));
}

/* Shapes for which the CPU may take Winograd's algorithm, edges of its tiles among them. */
static void test_winograd(const struct pd_device_ops *ops)
{
	static const struct {
		int channels, out, height, width, batch, padding;
	} cases[] = {
		{ 32, 32, 16, 16, 3, 1 }, { 32, 48, 15, 12, 3, 1 }, { 64, 32, 14, 10, 4, 0 },
		{ 48, 64, 7, 7, 8, 1 },
	};
	bool good = true;

	for (size_t i = 0; i < PD_COUNT(cases); i++) {
		char *layer = pd_format("{'name': 'it', 'kind': 'conv2d', 'inputs': ['in'], "
					"'out_channels': %d, 'kernel': 3, 'padding': %d}",
					cases[i].out, cases[i].padding);
		struct pd_model *model = around(cases[i].channels, cases[i].height,
						cases[i].width, layer);

		good = conforms(ops, model, cases[i].batch, cases[i].batch, 2e-5) && good;
		pd_model_free(model);
		free(layer);
	}
	ok(good, "%s: conv2d of 3x3 windows, many of them", chain_name(ops));
}

/* What a grouped convolution writes may not be the layout that the layers behind it take. */
static void test_behind_groups(const struct pd_device_ops *ops)
{
	static const struct {
		int channels, groups;
	} cases[] = { { 32, 8 }, { 32, 4 }, { 20, 5 }, { 12, 3 } };
	bool good = true;

	for (size_t i = 0; i < PD_COUNT(cases); i++) {
		char *layers = pd_format("{'name': 'grouped', 'kind': 'conv2d', 'inputs': ['in'], "
					 "'out_channels': %d, 'groups': %d, 'kernel': 3, "
					 "'padding': 1}, "
					 "{'name': 'norm', 'kind': 'batchnorm2d', 'inputs': "
					 "['grouped']}, {'name': 'it', 'kind': 'maxpool2d', "
					 "'inputs': ['norm'], 'kernel': 3, 'stride': 2}",
					 cases[i].channels, cases[i].groups);
		struct pd_model *model = around(cases[i].channels, 8, 9, layers);

		good = conforms(ops, model, 3, 3, 1e-4) && good;
		pd_model_free(model);
		free(layers);
	}
	ok(good, "%s: batchnorm2d and maxpool2d behind conv2d in groups", chain_name(ops));
}

/* The last is wider both ways than what is taken at once (lib/device/cpu/linear_blocked.c). */
static void test_linear(const struct pd_device_ops *ops)
{
	static const struct {
		int inputs, first, second, batch;
	} cases[] = { { 1, 1, 1, 1 }, { 3, 7, 2, 3 }, { 20, 33, 5, 8 }, { 64, 16, 40, 3 },
		      { 10, 600, 260, 8 } };
	bool good = true;

	for (size_t i = 0; i < PD_COUNT(cases); i++) {
		char *shape = pd_format("%d", cases[i].inputs);
		char *layers = pd_format("{'name': 'in', 'kind': 'linear', 'inputs': ['x'], "
		                         "'out_features': %d, 'bias': false}, "
					 "{'name': 'it', 'kind': 'linear', 'inputs': ['in'], "
					 "'out_features': %d}, "
					 "{'name': 'out', 'kind': 'linear', 'inputs': ['it'], "
					 "'out_features': %d}, "
					 "{'name': 'loss', 'kind': 'softmax_cross_entropy', "
					 "'inputs': ['out', 'y']}",
					 cases[i].first, cases[i].second, CLASSES);
		struct pd_model *model = model_of(shape, layers);

		good = conforms(ops, model, cases[i].batch, cases[i].batch, 2e-5) && good;
		pd_model_free(model);
		free(shape);
		free(layers);
	}
	ok(good, "%s: linear", chain_name(ops));
}

/*
 * Rows of the last axis: linear layers and a loss with several for each sample, of a plain input
 * and behind a convolution, which may write another layout; and so a relu that linear may do.
 */
static void test_rows(const struct pd_device_ops *ops)
{
	static const struct {
		const char *shape, *labels, *first;
	} cases[] = {
		{ "7, 12", "7", "'kind': 'linear', 'out_features': 20, 'inputs': ['x']" },
		{ "1, 5", "1", "'kind': 'linear', 'out_features': 16, 'inputs': ['x']" },
		{ "2, 3, 6", "2, 3", "'kind': 'linear', 'out_features': 5, 'bias': false, "
		  "'inputs': ['x']" },
		/* so many that the CPU takes other kernels */
		{ "260, 6", "260", "'kind': 'linear', 'out_features': 5, 'bias': false, "
		  "'inputs': ['x']" },
		{ "3, 6, 16", "16, 6", "'kind': 'conv2d', 'out_channels': 16, 'kernel': 3, "
		  "'padding': 1, 'inputs': ['x']" },
		{ "2, 5, 7", "6, 5", "'kind': 'conv2d', 'out_channels': 6, 'kernel': 1, "
		  "'inputs': ['x']" },
	};
	bool good = true;

	for (size_t i = 0; i < PD_COUNT(cases); i++) {
		char *layers = pd_format("{'name': 'in', %s}, "
					 "{'name': 'it', 'kind': 'linear', 'inputs': ['in'], "
					 "'out_features': 24}, "
					 "{'name': 'r', 'kind': 'relu', 'inputs': ['it']}, "
					 "{'name': 'out', 'kind': 'linear', 'inputs': ['r'], "
					 "'out_features': %d}, "
					 "{'name': 'loss', 'kind': 'softmax_cross_entropy', "
					 "'inputs': ['out', 'y']}", cases[i].first, CLASSES);
		struct pd_model *model = model_with(cases[i].shape, cases[i].labels, layers);
		bool one = conforms(ops, model, 4, 4 - (int64_t)(i % 2), 2e-5);

		if (!one)
			diag("%s, then linear", cases[i].first);
		good = good && one;
		pd_model_free(model);
		free(layers);
	}
	ok(good, "%s: linear and softmax_cross_entropy by rows", chain_name(ops));
}

/* Logits as a convolution writes them, and the loss over their last axis. */
static void test_planes_of_logits(const struct pd_device_ops *ops)
{
	struct pd_model *model = model_with("3, 5, 9", "16, 5",
		"{'name': 'out', 'kind': 'conv2d', 'inputs': ['x'], 'out_channels': 16, "
		"'kernel': 3, 'padding': 1}, {'name': 'loss', 'kind': "
		"'softmax_cross_entropy', 'inputs': ['out', 'y']}");

	ok(conforms(ops, model, 4, 3, 2e-5), "%s: softmax_cross_entropy of planes",
	   chain_name(ops));
	pd_model_free(model);
}

/*
 * Batch normalisation with a relu behind it, which a device may do in one: few and many rows, with
 * the channels in one layout or, where a convolution has groups, in the other; numbers of channels
 * and areas that are multiples of 8, of 4, and odd.  Not in 16 bits: there an element that is
 * rounded to the other side of the relu's edge changes gradients by more than rounding does.
 */
static void test_norm_relu(const struct pd_device_ops *ops, bool grouped)
{
	static const struct size at[] = {
		{ 2, 7, 9, 3 }, { 8, 8, 8, 8 }, { 16, 9, 7, 1 }, { 16, 8, 8, 8 }, { 20, 6, 6, 3 },
		{ 32, 10, 10, 3 }, { 16, 24, 24, 8 }, { 6, 31, 29, 5 }, { 72, 4, 5, 2 },
	};
	bool good = true;

	if (chain_dtype != PD_F32)
		return;
	for (size_t i = 0; i < PD_COUNT(at); i++) {
		const struct size *s = &at[i];
		char *layers = pd_format("{'name': 'c', 'kind': 'conv2d', 'inputs': ['in'], "
					 "'out_channels': %d, 'groups': %d, 'kernel': 1}, "
					 "{'name': 'n', 'kind': 'batchnorm2d', 'inputs': ['c']}, "
					 "{'name': 'it', 'kind': 'relu', 'inputs': ['n']}",
					 (int)s->channels, grouped ? 2 : 1);
		struct pd_model *model = around(s->channels, s->height, s->width, layers);
		double rows = (double)(s->batch * s->height * s->width);
		/* A mean is rounded alike for all its rows, so that a sum over them which should be
		 * 0 is off by their number, others by the root of it. */
		bool one = conforms(ops, model, s->batch, s->batch,
				    1e-4 * fmax(1, sqrt(rows / 500)));

		if (!one)
			diag("%d channels, %d x %d, batch %d", (int)s->channels, (int)s->height,
			     (int)s->width, (int)s->batch);
		good = good && one;
		pd_model_free(model);
		free(layers);
	}
	ok(good, "%s: batchnorm2d and a relu%s", chain_name(ops),
	   grouped ? ", behind a convolution in groups" : "");
}

/* One, two and all axes; with few, all and no parameters; rows shorter and longer than a kernel
 * takes at once. */
static void test_layernorm(const struct pd_device_ops *ops)
{
	static const struct {
		const char *shape, *attributes;
		int width;
	} cases[] = {
		{ "7", "", 12 }, { "1", "", 1 }, { "3, 2", ", 'bias': false", 33 },
		{ "2, 5", ", 'normalized_shape': [5, 6], 'eps': 0.01", 6 },
		{ "3, 4", ", 'normalized_shape': [3, 4, 5], 'elementwise_affine': false", 5 },
		{ "70", ", 'normalized_shape': 5", 5 }, { "2", "", 300 },
	};
	bool good = true;

	for (size_t i = 0; i < PD_COUNT(cases); i++) {
		char *shape = pd_format("%s, 4", cases[i].shape);
		char *layers = pd_format("{'name': 'in', 'kind': 'linear', 'inputs': ['x'], "
					 "'out_features': %d}, "
					 "{'name': 'it', 'kind': 'layernorm', 'inputs': ['in']%s}, "
					 "{'name': 'out', 'kind': 'linear', 'inputs': ['it'], "
					 "'out_features': %d}, "
					 "{'name': 'loss', 'kind': 'softmax_cross_entropy', "
					 "'inputs': ['out', 'y']}", cases[i].width,
					 cases[i].attributes, CLASSES);
		struct pd_model *model = model_with(shape, cases[i].shape, layers);
		bool one = conforms(ops, model, 5, 5 - (int64_t)(i % 2), 1e-4);

		if (!one)
			diag("%s x %d%s", cases[i].shape, cases[i].width, cases[i].attributes);
		good = good && one;
		pd_model_free(model);
		free(layers);
		free(shape);
	}
	ok(good, "%s: layernorm", chain_name(ops));
}

/* A layer of attention on sequences of so many rows, or where it says so twice as many. */
struct attention_case {
	int rows;
	bool more_queries, more_keys;
	int heads, kv_heads, width, value_width;
	const char *attributes;
	bool lengths;                   /* the labels, which are 0 to 8 */
};

static struct pd_model *attention_model(const struct attention_case *c)
{
	char *shape = pd_format("%d, 5", c->rows);
	char *doubled = pd_format("%s%s",
		c->more_queries ? "{'name': 'qq', 'kind': 'concat', 'inputs': ['q', 'q']}, " : "",
		c->more_keys ? "{'name': 'kk', 'kind': 'concat', 'inputs': ['k', 'k']}, "
			       "{'name': 'vv', 'kind': 'concat', 'inputs': ['v', 'v']}, " : "");
	char *layers = pd_format(
		"{'name': 'in', 'kind': 'linear', 'inputs': ['x'], 'out_features': 6}, "
		"{'name': 'q', 'kind': 'linear', 'inputs': ['in'], 'out_features': %d}, "
		"{'name': 'k', 'kind': 'linear', 'inputs': ['in'], 'out_features': %d, "
		"'bias': false}, "      /* whose gradient would be 0 */
		"{'name': 'v', 'kind': 'linear', 'inputs': ['in'], 'out_features': %d}, "
		"%s{'name': 'it', 'kind': 'attention', 'inputs': ['%s', '%s'%s], 'heads': %d, "
		"'kv_heads': %d%s}, "
		"{'name': 'flat', 'kind': 'flatten', 'inputs': ['it']}, "
		"{'name': 'out', 'kind': 'linear', 'inputs': ['flat'], 'out_features': %d}, "
		"{'name': 'loss', 'kind': 'softmax_cross_entropy', 'inputs': ['out', 'y']}",
		c->heads * c->width, c->kv_heads * c->width, c->kv_heads * c->value_width, doubled,
		c->more_queries ? "qq" : "q", c->more_keys ? "kk', 'vv" : "k', 'v",
		c->lengths ? ", 'y'" : "", c->heads, c->kv_heads, c->attributes, CLASSES);
	struct pd_model *model = model_with(shape, "", layers);

	free(shape);
	free(doubled);
	free(layers);
	return model;
}

/* Rows below, at and above the edges of a tile. */
static const struct attention_case attention_cases[] = {
	{ 1, false, false, 1, 1, 1, 1, ", 'causal': true", false },
	{ 9, false, false, 2, 2, 3, 4, "", false },
	{ 9, false, true, 4, 2, 3, 5, ", 'causal': true", false },
	{ 9, true, false, 4, 1, 8, 8, ", 'causal': true, 'scale': 0.25", false },
	{ 11, false, false, 3, 3, 4, 4, "", true },
	{ 12, false, true, 2, 1, 5, 2, ", 'causal': true", true },
	{ 10, true, false, 2, 2, 4, 4, ", 'dropout': 0.3", false },
	{ 13, false, false, 4, 2, 4, 3, ", 'causal': true, 'dropout': 0.2", true },
	{ 64, false, false, 1, 1, 16, 16, "", false },
	{ 65, true, true, 2, 1, 16, 20, ", 'causal': true", false },
	{ 66, true, false, 1, 1, 33, 16, ", 'causal': true, 'dropout': 0.1", false },
	{ 66, false, true, 2, 2, 8, 8, "", false },
};

static void test_attention(const struct pd_device_ops *ops)
{
	bool good = true;

	for (size_t i = 0; i < PD_COUNT(attention_cases); i++) {
		const struct attention_case *c = &attention_cases[i];
		struct pd_model *model = attention_model(c);
		bool one = conforms(ops, model, 3, 3 - (int64_t)(i % 2), 2e-5);

		if (!one)
			diag("%d rows, heads %d and %d of %d and %d%s%s", c->rows, c->heads,
			     c->kv_heads, c->width, c->value_width, c->attributes,
			     c->lengths ? ", lengths" : "");
		good = good && one;
		pd_model_free(model);
	}
	ok(good, "%s: attention", chain_name(ops));
}

/* Queries and keys of so many rows of their features. */
struct additive_case {
	int rows, width;
	bool more_queries, more_keys, lengths;
};

static const struct additive_case additive_cases[] = {
	{ 1, 1, false, false, false }, { 9, 3, false, true, true }, { 4, 16, true, false, false },
	{ 11, 17, false, false, true }, { 5, 40, false, true, true },
};

static struct pd_model *additive_model(const struct additive_case *c)
{
	char *shape = pd_format("%d, 5", c->rows);
	char *doubled = pd_format("%s%s",
		c->more_queries ? "{'name': 'qq', 'kind': 'concat', 'inputs': ['q', 'q']}, " : "",
		c->more_keys ? "{'name': 'kk', 'kind': 'concat', 'inputs': ['k', 'k']}, " : "");
	char *layers = pd_format(
		"{'name': 'in', 'kind': 'linear', 'inputs': ['x'], 'out_features': 6}, "
		"{'name': 'q', 'kind': 'linear', 'inputs': ['in'], 'out_features': %d}, "
		"{'name': 'k', 'kind': 'linear', 'inputs': ['in'], 'out_features': %d}, "
		"%s{'name': 'it', 'kind': 'additive_attention', 'inputs': ['%s', '%s'%s]}, "
		"{'name': 'flat', 'kind': 'flatten', 'inputs': ['it']}, "
		"{'name': 'out', 'kind': 'linear', 'inputs': ['flat'], 'out_features': %d}, "
		"{'name': 'loss', 'kind': 'softmax_cross_entropy', 'inputs': ['out', 'y']}",
		c->width, c->width, doubled, c->more_queries ? "qq" : "q", c->more_keys ? "kk" : "k",
		c->lengths ? ", 'y'" : "", CLASSES);
	struct pd_model *model = model_with(shape, "", layers);

	free(shape);
	free(doubled);
	free(layers);
	return model;
}

static void test_additive_attention(const struct pd_device_ops *ops)
{
	bool good = true;

	for (size_t i = 0; i < PD_COUNT(additive_cases); i++) {
		const struct additive_case *c = &additive_cases[i];
		struct pd_model *model = additive_model(c);
		bool one = conforms(ops, model, 3, 3 - (int64_t)(i % 2), 5e-5);

		if (!one)
			diag("%d rows of %d%s%s%s", c->rows, c->width,
			     c->more_queries ? ", twice the queries" : "",
			     c->more_keys ? ", twice the keys" : "", c->lengths ? ", lengths" : "");
		good = good && one;
		pd_model_free(model);
	}
	ok(good, "%s: additive_attention", chain_name(ops));
}

/* Bytes of the layer called "it" on sequences of so many rows. */
static struct pd_net_layer attention_bytes(const struct pd_device_ops *ops,
					   struct attention_case c, int rows)
{
	struct pd_net_layer bytes;
	struct pd_model *model;
	struct chain *chain;

	c.rows = rows;
	model = attention_model(&c);
	chain = chain_open(ops, model, NULL, 0, 3, SEED, 2);
	ops->net.layer(chain->stages[0].net, pd_model_find(model, "it"), &bytes);
	chain_close(chain);
	pd_model_free(model);
	return bytes;
}

/* Rows that are multiples of a tile's, so that nothing is rounded up. */
static void test_attention_memory(const struct pd_device_ops *ops, bool lengths)
{
	const struct attention_case c = { 0, false, false, 4, 2, 16, 16,
					  lengths ? ", 'dropout': 0.1" : "", lengths };
	struct pd_net_layer one = attention_bytes(ops, c, 512), two = attention_bytes(ops, c, 1024);
	struct pd_net_layer four = attention_bytes(ops, c, 2048);

	ok(one.slot_bytes > 0 && four.slot_bytes == 4 * one.slot_bytes &&
	   four.forward_bytes - two.forward_bytes == 2 * (two.forward_bytes - one.forward_bytes) &&
	   four.backward_bytes - two.backward_bytes == 2 * (two.backward_bytes - one.backward_bytes),
	   "%s: bytes of attention grow as the length%s", chain_name(ops),
	   lengths ? ", with dropout and lengths" : "");
}

/*
 * A kind that works on sequences: it lies between linear layers over the last axis.  Each case is a
 * shape, the layers called 'it' that take 'in', and the shape of the labels of what 'it' makes.
 */
struct sequence {
	const char *shape, *layers, *labels;
};

static bool conforms_in(const struct pd_device_ops *ops, const struct sequence *s, const char *loss,
			int64_t batch, int64_t valid, double tolerance)
{
	char *layers = pd_format("{'name': 'in', 'kind': 'linear', 'inputs': ['x'], "
				 "'out_features': 12}, %s, "
				 "{'name': 'out', 'kind': 'linear', 'inputs': ['it'], "
				 "'out_features': %d}, "
				 "{'name': 'loss', 'kind': 'softmax_cross_entropy', "
				 "'inputs': ['out', 'y']%s}", s->layers, CLASSES, loss);
	struct pd_model *model = model_with(s->shape, s->labels, layers);
	bool good = conforms(ops, model, batch, valid, tolerance);

	if (!good)
		diag("%s of %s%s", s->layers, s->shape, loss);
	pd_model_free(model);
	free(layers);
	return good;
}

static void test_sequences(const struct pd_device_ops *ops, const char *name, double tolerance,
			   const struct sequence *cases, size_t count)
{
	bool good = true;

	for (size_t i = 0; i < count; i++)
		good = conforms_in(ops, &cases[i], "", 3, 3 - (int64_t)(i % 2), tolerance) && good;
	ok(good, "%s: %s", chain_name(ops), name);
}

#define IT(kind, attributes) "{'name': 'it', 'kind': '" kind "', 'inputs': ['in']" attributes "}"
#define TEST_SEQUENCES(ops, name, tolerance, cases) \
	test_sequences(ops, name, tolerance, cases, PD_COUNT(cases))

static void test_axes(const struct pd_device_ops *ops)
{
	static const struct sequence slices[] = {
		{ "7, 5", IT("slice", ", 'dim': 1, 'start': 2, 'end': 5"), "3" },
		{ "3, 5", IT("slice", ", 'dim': -1, 'end': 5"), "3" },
		{ "3, 4, 5", IT("slice", ", 'dim': 2, 'start': 1"), "3, 3" },
		{ "2", IT("slice", ", 'dim': 1, 'start': 11"), "" },
	};
	static const struct sequence transposes[] = {
		{ "7, 5", IT("transpose", ", 'dim0': 1, 'dim1': 2"), "12" },
		{ "3, 4, 5", IT("transpose", ", 'dim0': 2, 'dim1': 1"), "4, 3" },
		{ "3, 4, 5", IT("transpose", ", 'dim0': 1, 'dim1': -1"), "12, 4" },
		{ "2, 3, 4, 5", IT("transpose", ", 'dim0': 1, 'dim1': 3"), "4, 3, 2" },
		{ "2, 3, 4, 5", IT("transpose", ", 'dim0': 4, 'dim1': 2"), "2, 12, 4" },
		{ "3, 5", IT("transpose", ", 'dim0': 2, 'dim1': 2"), "3" },
	};
	static const struct sequence means[] = {
		{ "7, 5", IT("mean", ", 'dim': 1"), "" },
		{ "3, 4, 5", IT("mean", ", 'dim': 1, 'keepdim': true"), "1, 4" },
		{ "3, 5", IT("mean", ", 'dim': 2, 'keepdim': true"), "3" },
		{ "35, 4, 5", IT("mean", ", 'dim': 2"), "35" },
		{ "70, 5", "{'name': 't', 'kind': 'transpose', 'inputs': ['in'], 'dim0': 1, "
		  "'dim1': 2}, {'name': 'it', 'kind': 'mean', 'inputs': ['t'], 'dim': 2}", "" },
	};
	static const struct sequence reshapes[] = {
		{ "7, 5", IT("reshape", ", 'shape': [7, 3, 4]"), "7, 3" },
		{ "4, 3, 5", IT("reshape", ", 'shape': [2, 72]"), "2" },
		{ "4, 3, 5", IT("reshape", ", 'shape': 144"), "" },
		{ "1, 5", IT("reshape", ", 'shape': [2, 1, 2, 3]"), "2, 1, 2" },
	};
	static const struct sequence concats[] = {
		{ "3, 5", "{'name': 's', 'kind': 'slice', 'inputs': ['in'], 'dim': 2, 'start': 7}, "
		  "{'name': 'it', 'kind': 'concat', 'inputs': ['in', 's', 's'], 'dim': 2}", "3" },
		{ "3, 5", "{'name': 's', 'kind': 'slice', 'inputs': ['in'], 'dim': 1, 'start': 1}, "
		  "{'name': 'it', 'kind': 'concat', 'inputs': ['s', 'in']}", "5" },
		{ "2, 3, 4", "{'name': 's', 'kind': 'tanh', 'inputs': ['in']}, "
		  "{'name': 'it', 'kind': 'concat', 'inputs': ['s', 'in'], 'dim': -2}", "2, 6" },
	};

	TEST_SEQUENCES(ops, "slice", 2e-5, slices);
	TEST_SEQUENCES(ops, "transpose", 2e-5, transposes);
	TEST_SEQUENCES(ops, "mean", 2e-5, means);
	TEST_SEQUENCES(ops, "reshape", 2e-5, reshapes);
	TEST_SEQUENCES(ops, "concat along an axis", 5e-5, concats);
}

static void test_features(const struct pd_device_ops *ops)
{
	static const struct sequence curves[] = {
		{ "7, 5", IT("gelu", ""), "7" }, { "5", IT("gelu", ", 'approximate': 'tanh'"), "" },
		{ "3, 4, 5", IT("silu", ""), "3, 4" },
	};
	static const struct sequence norms[] = {
		{ "7, 5", IT("rmsnorm", ""), "7" },
		{ "5", IT("rmsnorm", ", 'eps': 0.1, 'elementwise_affine': false"), "" },
		{ "3, 4, 5", IT("rmsnorm", ", 'normalized_shape': [4, 12]"), "3, 4" },
		{ "70, 5", IT("rmsnorm", ""), "70" },
	};
	static const struct sequence products[] = {
		{ "7, 5", "{'name': 't', 'kind': 'tanh', 'inputs': ['in']}, "
		  "{'name': 'it', 'kind': 'mul', 'inputs': ['in', 't']}", "7" },
		{ "5", "{'name': 'it', 'kind': 'mul', 'inputs': ['in', 'in']}", "" },
	};
	static const struct sequence ropes[] = {
		{ "7, 5", IT("rope", ""), "7" },
		{ "9, 5", IT("rope", ", 'head_dim': 4, 'base': 100"), "9" },
		{ "7, 5", IT("rope", ", 'head_dim': 6, 'interleaved': true"), "7" },
		{ "7, 2, 5", IT("rope", ", 'head_dim': 12, 'interleaved': true"), "7, 2" },
		{ "1, 5", IT("rope", ", 'head_dim': 2"), "1" },
	};
	static const struct sequence drops[] = {
		{ "7, 5", IT("dropout", ", 'p': 0.3, 'shared_dim': 1"), "7" },
		{ "7, 5", IT("dropout", ", 'p': 0.3, 'shared_dim': -1"), "7" },
		{ "3, 4, 5", IT("dropout", ", 'p': 0.4, 'shared_dim': 2"), "3, 4" },
	};

	TEST_SEQUENCES(ops, "gelu, silu", 5e-5, curves);
	TEST_SEQUENCES(ops, "rmsnorm", 1e-4, norms);
	TEST_SEQUENCES(ops, "mul", 5e-5, products);
	TEST_SEQUENCES(ops, "rope", 2e-5, ropes);
	TEST_SEQUENCES(ops, "dropout along an axis", 2e-5, drops);
}

/* Numbers are the labels: so few that most come often, in many places, and one of them is padding. */
static void test_embedding(const struct pd_device_ops *ops)
{
	static const struct sequence cases[] = {
		{ "7, 5", "{'name': 'e', 'kind': 'embedding', 'inputs': ['y'], 'num_embeddings': 9, "
		  "'embedding_dim': 12}, {'name': 'it', 'kind': 'add', 'inputs': ['in', 'e']}",
		  "7" },
		{ "40, 5", "{'name': 'e', 'kind': 'embedding', 'inputs': ['y'], 'num_embeddings': "
		  "11, 'embedding_dim': 150, 'padding_idx': 5}, {'name': 'it', 'kind': 'concat', "
		  "'inputs': ['in', 'e'], 'dim': 2}", "40" },
		{ "2, 3, 5", "{'name': 'e', 'kind': 'embedding', 'inputs': ['y'], 'num_embeddings': "
		  "9, 'embedding_dim': 1}, {'name': 'it', 'kind': 'concat', 'inputs': ['in', 'e'], "
		  "'dim': 3}", "2, 3" },
		{ "5", "{'name': 'e', 'kind': 'embedding', 'inputs': ['y'], 'num_embeddings': 300, "
		  "'embedding_dim': 12}, {'name': 'it', 'kind': 'mul', 'inputs': ['in', 'e']}", "" },
		{ "40, 5", "{'name': 'e', 'kind': 'embedding', 'inputs': ['y'], 'num_embeddings': "
		  "11, 'embedding_dim': 150, 'weight_dropout': 0.4}, {'name': 'it', 'kind': "
		  "'concat', 'inputs': ['in', 'e'], 'dim': 2}", "40" },
	};
	static const struct sequence positions[] = {
		{ "7, 5", IT("position_embedding", ""), "7" },
		{ "7, 2, 5", IT("position_embedding", ", 'num_embeddings': 9"), "7, 2" },
	};
	static const struct sequence biases[] = {
		{ "7, 5", IT("bias", ""), "7" },
		{ "3, 7, 150", IT("bias", ""), "3, 7" },
		{ "70", IT("bias", ""), "" },
	};

	TEST_SEQUENCES(ops, "embedding", 5e-5, cases);
	TEST_SEQUENCES(ops, "position_embedding", 2e-5, positions);
	TEST_SEQUENCES(ops, "bias", 2e-5, biases);
}

/* The weight of an embedding is that of a linear layer, which comes before it or after. */
static void test_tied(const struct pd_device_ops *ops)
{
	static const char *const layers[] = {
		"{'name': 'e', 'kind': 'embedding', 'inputs': ['y'], 'num_embeddings': 9, "
		"'embedding_dim': 6}, {'name': 'in', 'kind': 'linear', 'inputs': ['x'], "
		"'out_features': 6}, {'name': 'it', 'kind': 'mul', 'inputs': ['in', 'e']}, "
		"{'name': 'out', 'kind': 'linear', 'inputs': ['it'], 'out_features': 9, 'bias': "
		"false, 'shares': 'e'}",
		"{'name': 'l', 'kind': 'linear', 'inputs': ['x'], 'out_features': 32, 'bias': false}, "
		"{'name': 't', 'kind': 'tanh', 'inputs': ['l']}, "
		"{'name': 'e', 'kind': 'embedding', 'inputs': ['y'], 'num_embeddings': 32, "
		"'embedding_dim': 40, 'shares': 'l'}, "
		"{'name': 'c', 'kind': 'concat', 'inputs': ['t', 'e'], 'dim': 2}, "
		"{'name': 'out', 'kind': 'linear', 'inputs': ['c'], 'out_features': 9}",
	};
	bool good = true;

	for (size_t i = 0; i < PD_COUNT(layers); i++) {
		char *all = pd_format("%s, {'name': 'loss', 'kind': 'softmax_cross_entropy', "
				      "'inputs': ['out', 'y']}", layers[i]);
		struct pd_model *model = model_with("7, 40", "7", all);

		good = conforms(ops, model, 4, 4, 5e-5) && good;
		pd_model_free(model);
		free(all);
	}
	ok(good, "%s: an embedding and a linear layer of one weight", chain_name(ops));
}

/* Rows of many classes, of labels that are ignored, smoothed: and a loss that has no labels. */
static void test_losses(const struct pd_device_ops *ops)
{
	static const struct sequence as_it_is = { "7, 5", IT("tanh", ""), "7" };
	static const char *const losses[] = {
		", 'ignore_index': 5", ", 'label_smoothing': 0.1",
		", 'ignore_index': 0, 'label_smoothing': 0.3", ", 'ignore_index': -1",
	};
	bool good = true;

	for (size_t i = 0; i < PD_COUNT(losses); i++)
		good = conforms_in(ops, &as_it_is, losses[i], 3, 3 - (int64_t)(i % 2), 2e-5) && good;
	ok(good, "%s: labels ignored and smoothed", chain_name(ops));
	good = true;
	for (int classes = 500; classes <= 3000; classes += 1037) {
		char *layers = pd_format("{'name': 'out', 'kind': 'linear', 'inputs': ['x'], "
					 "'out_features': %d}, {'name': 'loss', 'kind': "
					 "'softmax_cross_entropy', 'inputs': ['out', 'y'], "
					 "'ignore_index': 4}", classes);
		struct pd_model *model = model_with("20, 5", "20", layers);

		good = conforms(ops, model, 8, 7, 2e-5) && good;
		pd_model_free(model);
		free(layers);
	}
	ok(good, "%s: many classes, and many rows", chain_name(ops));
}

static void test_mse(const struct pd_device_ops *ops)
{
	static const char *const models[] = {
		"{'name': 'h', 'kind': 'linear', 'inputs': ['x'], 'out_features': 6}, "
		"{'name': 't', 'kind': 'tanh', 'inputs': ['h']}, "
		"{'name': 'out', 'kind': 'linear', 'inputs': ['t'], 'out_features': 5}, "
		"{'name': 'loss', 'kind': 'mse', 'inputs': ['out', 'x']}",
		"{'name': 'h', 'kind': 'linear', 'inputs': ['x'], 'out_features': 600}, "
		"{'name': 't', 'kind': 'tanh', 'inputs': ['h']}, "
		"{'name': 'loss', 'kind': 'mse', 'inputs': ['t', 'h']}",
		"{'name': 'h', 'kind': 'linear', 'inputs': ['x'], 'out_features': 600}, "
		"{'name': 'loss', 'kind': 'mse', 'inputs': ['h'], 'weight': 2.5}",
	};
	bool good = true;

	for (size_t i = 0; i < PD_COUNT(models); i++) {
		struct pd_model *model = model_of("3, 5", models[i]);

		good = conforms(ops, model, 4, 4 - (int64_t)i, 2e-5) && good;
		pd_model_free(model);
	}
	ok(good, "%s: mse", chain_name(ops));
}

/* Several inputs, one of them twice; a first input of another layout; concat of unlike widths. */
static void test_merges(const struct pd_device_ops *ops, const char *kind, int a, int b)
{
	static const struct size at[] = { { 3, 6, 7, 3 }, { 16, 8, 8, 8 }, { 20, 5, 5, 1 } };
	bool good = true;

	for (size_t i = 0; i < PD_COUNT(at); i++) {
		char *layers = pd_format("{'name': 'a', 'kind': 'conv2d', 'inputs': ['in'], "
		                         "'out_channels': %d, 'kernel': 3, 'padding': 1}, "
					 "{'name': 'b', 'kind': 'conv2d', 'inputs': ['in'], "
					 "'out_channels': %d, 'kernel': 1}, "
					 "{'name': 'd', 'kind': 'dropout', 'inputs': ['b'], "
					 "'p': 0.25}, "
					 "{'name': 'it', 'kind': '%s', 'inputs': ['d', 'a', 'b', "
					 "'a']}",
					 a, b, kind);
		struct pd_model *model = around(at[i].channels, at[i].height, at[i].width, layers);

		good = conforms(ops, model, at[i].batch, at[i].batch, 2e-5) && good;
		pd_model_free(model);
		free(layers);
	}
	ok(good, "%s: %s of %d and %d channels", chain_name(ops), kind, a, b);
}

/* On sequences of so many steps; lengths: the labels, which are 0 to 8. */
struct lstm_case {
	int steps, inputs, hidden, batch;
	const char *attributes;
	bool lengths;
};

static struct pd_model *lstm_model(const struct lstm_case *c)
{
	char *shape = pd_format("%d, 5", c->steps);
	char *layers = pd_format(
		"{'name': 'in', 'kind': 'linear', 'inputs': ['x'], 'out_features': %d}, "
		"{'name': 'it', 'kind': 'lstm', 'inputs': ['in'%s], 'hidden_size': %d%s}, "
		"{'name': 'flat', 'kind': 'flatten', 'inputs': ['it']}, "
		"{'name': 'out', 'kind': 'linear', 'inputs': ['flat'], 'out_features': %d}, "
		"{'name': 'loss', 'kind': 'softmax_cross_entropy', 'inputs': ['out', 'y']}",
		c->inputs, c->lengths ? ", 'y'" : "", c->hidden, c->attributes, CLASSES);
	struct pd_model *model = model_with(shape, "", layers);

	free(shape);
	free(layers);
	return model;
}

static const struct lstm_case lstm_cases[] = {
	{ 1, 1, 1, 1, "", false },
	{ 7, 5, 6, 3, "", false },
	{ 9, 16, 32, 8, "", false },
	{ 10, 7, 17, 4, ", 'bias': false", false },
	{ 6, 5, 11, 4, ", 'biases': 1", false },
	{ 9, 4, 7, 6, ", 'biases': 1, 'bidirectional': true", true },
	{ 8, 6, 9, 5, ", 'bidirectional': true", false },
	{ 11, 5, 7, 9, ", 'bidirectional': true", true },
	{ 10, 3, 20, 9, ", 'bidirectional': true, 'bias': false, 'weight_dropout': 0.3", true },
	{ 9, 4, 8, 9, "", true },
	{ 6, 5, 12, 4, ", 'weight_dropout': 0.5", false },
	{ 4, 70, 67, 2, ", 'bidirectional': true", false },
};

static void test_lstm(const struct pd_device_ops *ops)
{
	bool good = true;

	for (size_t i = 0; i < PD_COUNT(lstm_cases); i++) {
		const struct lstm_case *c = &lstm_cases[i];
		struct pd_model *model = lstm_model(c);
		bool one = conforms(ops, model, c->batch, c->batch - (i % 3 == 1), 2e-5);

		if (!one)
			diag("%d steps of %d, hidden size %d, batch %d%s%s", c->steps, c->inputs,
			     c->hidden, c->batch, c->attributes, c->lengths ? ", lengths" : "");
		good = good && one;
		pd_model_free(model);
	}
	ok(good, "%s: lstm", chain_name(ops));
}

/* One microbatch, or one of an evaluation, which starts afresh, and leaves the other lanes alone. */
static bool carries(struct chain *c, struct ref *r, int64_t number, bool evaluate, double tolerance)
{
	int64_t n;
	float *state;
	bool good;

	c->evaluate = r->evaluate = evaluate;
	c->first_sample = r->first_sample = number * c->batch;
	load(c, r);
	good = chain_forward(c);
	ref_forward(r);
	state = chain_export(c, STATE, &n);
	good = good && compare_state(r, state, tolerance);
	if (!(fabs(c->loss.sum - r->loss) <= tolerance * fabs(r->loss))) {
		diag("microbatch %d%s: loss %.9g, expected %.9g", (int)number,
		     evaluate ? " of an evaluation" : "", c->loss.sum, r->loss);
		good = false;
	}
	free(state);
	return good;
}

/* Microbatches of a third of the lanes, and an evaluation among them. */
static void test_lanes(const struct pd_device_ops *ops, bool lengths)
{
	const struct lstm_case at = { 9, 5, 14, 3, ", 'lanes': 9, 'weight_dropout': 0.2", lengths };
	double tolerance = chain_dtype == PD_F32 ? 1e-4 : tolerances[chain_dtype];
	struct pd_model *model = lstm_model(&at);
	struct chain *c = chain_open(ops, model, NULL, 0, at.batch, SEED, 2);
	struct ref *r = ref_new(model, at.batch, SEED);
	float *weights = weights_of(c), *gradients;
	bool good = true;
	int64_t n;

	if (chain_dtype != PD_F32)
		r->round = rounding;
	import_ref(r, weights);
	for (int64_t number = 0; number < 8; number++) {
		good = carries(c, r, number, false, tolerance) && good;
		good = carries(c, r, number, true, tolerance) && good;
	}
	good = carries(c, r, 8, false, tolerance) && chain_backward(c) && good;
	ref_backward(r);
	gradients = chain_export(c, GRADIENTS, &n);
	good = compare_gradients(r, gradients, tolerance) && good;
	ok(good, "%s: lanes of an lstm%s", chain_name(ops), lengths ? " with lengths" : "");
	free(weights);
	free(gradients);
	ref_free(r);
	chain_close(c);
	pd_model_free(model);
}

/* Branches, shared parameters, a relu seen through a flatten, all at once. */
static void test_branching(const struct pd_device_ops *ops)
{
	struct pd_model *model = branching_model();

	ok(conforms(ops, model, 6, 6, 1e-4), "%s: a branching network", chain_name(ops));
	pd_model_free(model);
}

static void test_residual(const struct pd_device_ops *ops)
{
	struct pd_model *model = residual_model();

	if (chain_dtype == PD_F32)
		ok(conforms(ops, model, 6, 6, 1e-4), "%s: a residual network", chain_name(ops));
	pd_model_free(model);
}

/* Compares (loss(w + h) - loss(w - h)) / 2h with the gradients, for some elements of every parameter
 * of the model, which it frees. */
static void test_finite_differences(struct pd_model *model, const char *what)
{
	struct ref *r = ref_new(model, 2, SEED);
	const double h = 1e-6;
	double worst = 0;
	uint32_t draws = 0;

	for (int64_t i = 0; i < 2 * pd_shape_elements(&model->inputs[0].shape); i++)
		r->x[0][i] = random_at(1, i);
	for (int64_t i = 0; i < 2 * pd_shape_elements(&model->inputs[1].shape); i++)
		r->x[1][i] = (double)(i * 7 % CLASSES);
	for (int l = 0; l < model->layer_count; l++)
		for (int p = 0; p < model->layers[l].parameter_count; p++)
			for (int64_t i = 0; i < model->layers[l].parameters[p].elements; i++)
				r->w[l][p][i] = 0.5 * random_at(2, draws++);
	ref_forward(r);
	ref_backward(r);
	for (int l = 0; l < model->layer_count; l++)
		for (int p = 0; p < model->layers[l].parameter_count; p++)
			for (int64_t i = 0; i < model->layers[l].parameters[p].elements; i += 7) {
				double *w = &r->w[l][p][i], was = *w, up, slope, d;

				*w = was + h;
				ref_forward(r);
				up = r->loss;
				*w = was - h;
				ref_forward(r);
				slope = (up - r->loss) / (2 * h) / (double)r->rows;
				*w = was;
				d = fabs(slope - r->dw[l][p][i]);
				worst = d > worst ? d : worst;
			}
	if (!ok(worst < 1e-7, "the reference's gradients are its finite differences: %s", what))
		diag("off by %g", worst);
	ref_free(r);
	pd_model_free(model);
}

static struct pd_model *many_kinds(void)
{
	return around(4, 9, 9,
		"{'name': 'c', 'kind': 'conv2d', 'inputs': ['in'], 'out_channels': 6, "
		"'kernel': [3, 2], 'groups': 2, 'dilation': 2, 'padding': 1}, "
		"{'name': 'n', 'kind': 'batchnorm2d', 'inputs': ['c']}, "
		"{'name': 'r', 'kind': 'relu', 'inputs': ['n']}, "
		"{'name': 'm', 'kind': 'maxpool2d', 'inputs': ['r'], 'kernel': 3, 'stride': 1, "
		"'padding': 1}, "
		"{'name': 't', 'kind': 'tanh', 'inputs': ['n']}, "
		"{'name': 'a', 'kind': 'avgpool2d', 'inputs': ['t'], 'kernel': 3, 'stride': 1, "
		"'padding': 1}, "
		"{'name': 's', 'kind': 'sigmoid', 'inputs': ['a']}, "
		"{'name': 'j', 'kind': 'add', 'inputs': ['m', 's']}, "
		"{'name': 'k', 'kind': 'concat', 'inputs': ['j', 't']}, "
		"{'name': 'd', 'kind': 'dropout', 'inputs': ['k'], 'p': 0.3}, "
		"{'name': 'l', 'kind': 'layernorm', 'inputs': ['d']}, "
		"{'name': 'it', 'kind': 'adaptive_avgpool2d', 'inputs': ['l'], 'output_size': [4, "
		"3]}");
}

static void test_device(const struct pd_device_ops *ops)
{
	test_sizes(ops, "conv2d", ", 'out_channels': 16, 'kernel': 3, 'padding': 1", 2e-5);
	test_sizes(ops, "conv2d", ", 'out_channels': 5, 'kernel': [3, 2], 'stride': [2, 1], "
	                "'bias': false", 2e-5);
	test_sizes(ops, "conv2d", ", 'out_channels': 20, 'kernel': 3, 'padding': [2, 1], "
	                "'dilation': 2", 2e-5);
	test_sizes(ops, "conv2d", ", 'out_channels': 32, 'kernel': 5, 'stride': 2, "
	                "'padding': 2", 2e-5);
	test_sizes(ops, "conv2d", ", 'out_channels': 1, 'kernel': 1", 2e-5);
	test_grouped(ops);
	test_behind_groups(ops);
	test_winograd(ops);
	test_linear(ops);
	test_rows(ops);
	test_planes_of_logits(ops);
	test_sizes(ops, "relu", "", 2e-5);
	test_sizes(ops, "tanh", "", 5e-5);
	test_sizes(ops, "sigmoid", "", 5e-5);
	test_sizes(ops, "maxpool2d", ", 'kernel': 2", 2e-5);
	test_sizes(ops, "maxpool2d", ", 'kernel': [3, 2], 'stride': [2, 1], 'padding': 1", 2e-5);
	test_sizes(ops, "avgpool2d", ", 'kernel': 3, 'stride': 2, 'padding': 1", 2e-5);
	test_sizes(ops, "avgpool2d", ", 'kernel': [2, 3], 'padding': 1, "
	                "'count_include_pad': false", 2e-5);
	test_sizes(ops, "adaptive_avgpool2d", ", 'output_size': 1", 2e-5);
	test_sizes(ops, "adaptive_avgpool2d", ", 'output_size': [4, 5]", 2e-5);
	test_sizes(ops, "batchnorm2d", "", 1e-4);
	test_sizes(ops, "batchnorm2d", ", 'eps': 0.01, 'momentum': 0.4", 1e-4);
	test_sizes(ops, "layernorm", "", 1e-4);
	test_layernorm(ops);
	test_norm_relu(ops, false);
	test_norm_relu(ops, true);
	test_sizes(ops, "dropout", ", 'p': 0.3", 2e-5);
	test_attention(ops);
	test_additive_attention(ops);
	test_attention_memory(ops, false);
	test_attention_memory(ops, true);
	test_sizes(ops, "flatten", "", 2e-5);
	test_merges(ops, "add", 16, 16);
	test_merges(ops, "add", 5, 5);
	test_merges(ops, "concat", 16, 32);
	test_merges(ops, "concat", 16, 5);
	test_axes(ops);
	test_features(ops);
	test_embedding(ops);
	test_tied(ops);
	test_losses(ops);
	test_mse(ops);
	test_lstm(ops);
	test_lanes(ops, false);
	test_lanes(ops, true);
	test_branching(ops);
	test_residual(ops);
}

/* What plain C has of each kind, against finite differences. */
static void test_reference(void)
{
	struct pd_model *model;

	test_finite_differences(many_kinds(), "of images");
	for (size_t i = 0; i < PD_COUNT(additive_cases); i++)
		test_finite_differences(additive_model(&additive_cases[i]), "additive attention");
	for (size_t i = 0; i < PD_COUNT(attention_cases) && attention_cases[i].rows < 20; i++)
		test_finite_differences(attention_model(&attention_cases[i]), "attention");
	test_finite_differences(lstm_model(&(struct lstm_case){ 4, 3, 5, 2, ", 'weight_dropout': 0.3",
								false }), "lstm with dropout");
	test_finite_differences(lstm_model(&(struct lstm_case){ 9, 4, 5, 2, ", 'bidirectional': true",
								true }), "lstm with lengths");
	model = transformer_model();
	/* the row of padding has no gradient, whatever the differences say */
	model->layers[pd_model_find(model, "tok")].padding_idx = -1;
	model->layers[pd_model_find(model, "tok")].weight_dropout = 0.3;
	test_finite_differences(model, "a transformer");
	test_finite_differences(model_of("3, 5",
		"{'name': 'a', 'kind': 'linear', 'inputs': ['x'], 'out_features': 4}, "
		"{'name': 'b', 'kind': 'gelu', 'inputs': ['a'], 'approximate': 'tanh'}, "
		"{'name': 'c', 'kind': 'rmsnorm', 'inputs': ['b'], 'normalized_shape': [3, 4]}, "
		"{'name': 'loss', 'kind': 'mse', 'inputs': ['c', 'a']}"), "mse");
	test_finite_differences(model_of("3, 5",
		"{'name': 'a', 'kind': 'linear', 'inputs': ['x'], 'out_features': 4}, "
		"{'name': 'loss', 'kind': 'mse', 'inputs': ['a'], 'weight': 0.7}"), "mse of one");
}

/* With an argument: in 16 bits alone (test/t4021-amx.sh). */
int main(int argc, char **argv)
{
	if (argc == 1)
		test_reference();
	for (int i = 0; pd_devices[i]; i++)
		for (int type = argc > 1 ? 1 : 0; type < CHAIN_TYPES && chain_usable(pd_devices[i]); type++)
			if (chain_take(pd_devices[i], type))
				test_device(pd_devices[i]);
			else
				skip("not here", chain_name(pd_devices[i]));
	if (getenv("PD_TEST_ENGINES"))
		ok(chain_engines > 0, "layers took the engines that were recorded");
	return done_testing();
}
