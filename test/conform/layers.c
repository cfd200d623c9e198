/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every kind of layer, forward and backward, on every device of this machine, is compared with the
 * reference for many shapes, and the reference with finite differences.
 *
 * A layer is observed through its neighbours.  The 1x1 convolution before it has a weight gradient
 * that is a random projection of the layer's input gradient; the linear layer behind it has a weight
 * gradient with at least as many numbers for each element of the layer's output as there are samples.
 */
#include "kind_cases.h"
#include "layers.h"
#include "tap.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

struct size {
	int64_t channels, height, width, batch;
};

static const struct size sizes[] = {
	{ 1, 7, 9, 3 }, { 3, 8, 8, 8 }, { 5, 11, 6, 3 }, { 16, 9, 7, 1 }, { 16, 8, 8, 8 },
	{ 20, 7, 7, 3 }, { 32, 10, 10, 3 }, { 6, 9, 9, 1 },
};

/* Tests layers from 'in' to 'it'. */
static void test_layers(const struct pd_device_ops *ops, const char *what, const char *layers,
			double tolerance)
{
	bool good = true;

	for (size_t i = 0; i < PD_COUNT(sizes); i++) {
		const struct size *s = &sizes[i];
		struct pd_model *model = model_around(s->channels, s->height, s->width, layers);
		/* In every third case the last sample is padding. */
		bool one = conforms(ops, model, s->batch, s->batch - (i % 3 == 1), tolerance);

		if (!one)
			diag("%d channels, %d x %d, batch %d", (int)s->channels, (int)s->height,
			     (int)s->width, (int)s->batch);
		good = good && one;
		pd_model_free(model);
	}
	ok(good, "%s: %s", chain_name(ops), what);
}

static void test_sizes(const struct pd_device_ops *ops, const char *kind, const char *attributes,
		       double tolerance)
{
	char *what = pd_format("%s%s", kind, attributes);
	char *layer = pd_format("{'name': 'it', 'kind': '%s', 'inputs': ['in']%s}", kind, attributes);

	test_layers(ops, what, layer, tolerance);
	free(layer);
	free(what);
}

/* Tests a kind with an attribute that is the number of channels. */
static void test_channels(const struct pd_device_ops *ops, const char *kind, const char *attributes,
			  double tolerance)
{
	bool good = true;

	for (size_t i = 0; i < PD_COUNT(sizes); i++) {
		const struct size *s = &sizes[i];
		char *with = pd_format(attributes, (int)s->channels);
		char *layer = pd_format("{'name': 'it', 'kind': '%s', 'inputs': ['in']%s}", kind, with);
		struct pd_model *model = model_around(s->channels, s->height, s->width, layer);

		good = conforms(ops, model, s->batch, s->batch, tolerance) && good;
		pd_model_free(model);
		free(layer);
		free(with);
	}
	ok(good, "%s: %s of each channel", chain_name(ops), kind);
}

/* A curve of numbers from some -9 to 9, or, where it has no others, of positive ones. */
static char *curve_layers(const char *kind, const char *attributes)
{
	if (strcmp(kind, "log") == 0 || strstr(attributes, "'exponent': -0.5"))
		return pd_format("{'name': 'some', 'kind': 'softplus', 'inputs': ['in']}, "
				 "{'name': 'far', 'kind': 'affine', 'inputs': ['some'], 'times': 3, 'plus': 0.2}, "
				 "{'name': 'it', 'kind': '%s', 'inputs': ['far']%s}", kind, attributes);
	return pd_format("{'name': 'far', 'kind': 'add', 'inputs': ['in', 'in', 'in']}, "
			 "{'name': 'it', 'kind': '%s', 'inputs': ['far']%s}", kind, attributes);
}

static void test_curve(const struct pd_device_ops *ops, const char *kind, const char *attributes)
{
	char *what = pd_format("%s%s", kind, attributes), *layers = curve_layers(kind, attributes);

	test_layers(ops, what, layers, 5e-5);
	free(layers);
	free(what);
}

/* Calls test(kind, attributes) for all kinds that compute element by element. */
static void each_curve(void (*test)(const struct pd_device_ops *ops, const char *kind,
				    const char *attributes), const struct pd_device_ops *ops)
{
#define LAYER_KIND(name, shape, inputs, attributes, parameters, states, flags, what) \
	if (strcmp(#shape, "same") == 0) \
		test(ops, #name, "");
#include "model/layer_kind.def"
#undef LAYER_KIND
	test(ops, "gelu", ", 'approximate': 'tanh'");
	test(ops, "leaky_relu", ", 'negative_slope': 0.3");
	test(ops, "elu", ", 'alpha': 0.7");
	test(ops, "affine", ", 'times': -0.6, 'plus': 0.3");
	test(ops, "clamp", ", 'min': -1.5, 'max': 2");
	test(ops, "pow", ", 'exponent': -0.5");
	test(ops, "pow", ", 'exponent': 3");
}

static void test_curve_reference(const struct pd_device_ops *ops, const char *kind,
				 const char *attributes)
{
	char *layers = curve_layers(kind, attributes);

	conform_differences(model_around(3, 4, 5, layers), kind);
	free(layers);
}

static void test_grouped(const struct pd_device_ops *ops, const char *kind)
{
	static const struct {
		int channels, out, groups;
	} cases[] = { { 4, 6, 2 }, { 16, 16, 16 }, { 20, 20, 20 }, { 32, 64, 4 }, { 32, 32, 2 } };
	bool good = true;

	for (size_t i = 0; i < PD_COUNT(cases); i++) {
		char *layer = pd_format("{'name': 'it', 'kind': '%s', 'inputs': ['in'], "
		                        "'out_channels': %d, "
					"'groups': %d, 'kernel': [3, 2], 'padding': 1, "
					"'stride': [1, 2]}",
					kind, cases[i].out, cases[i].groups);
		struct pd_model *model = model_around(cases[i].channels, 8, 9, layer);

		good = conforms(ops, model, 3, 3, 2e-5) && good;
		pd_model_free(model);
		free(layer);
	}
	ok(good, "%s: %s in groups", chain_name(ops), kind);
}

/* Tests shapes for which the CPU may take Winograd's algorithm, some of them with cut-off tiles. */
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
		struct pd_model *model = model_around(cases[i].channels, cases[i].height,
						cases[i].width, layer);

		good = conforms(ops, model, cases[i].batch, cases[i].batch, 2e-5) && good;
		pd_model_free(model);
		free(layer);
	}
	ok(good, "%s: conv2d of 3x3 windows, many of them", chain_name(ops));
}

/* Tests layers behind a grouped convolution, whose output may have another layout than they take. */
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
		struct pd_model *model = model_around(cases[i].channels, 8, 9, layers);

		good = conforms(ops, model, 3, 3, 1e-4) && good;
		pd_model_free(model);
		free(layers);
	}
	ok(good, "%s: batchnorm2d and maxpool2d behind conv2d in groups", chain_name(ops));
}

/*
 * Tests linear layers.  The last but one case has more inputs and outputs than are computed at once
 * (lib/run/device/cpu/linear_blocked.c).  The last one, in f32 only, has so many weights that gradients are
 * transposed instead (linear_transposed.c).
 */
static void test_linear(const struct pd_device_ops *ops)
{
	static const struct {
		int inputs, first, second, batch;
	} cases[] = { { 1, 1, 1, 1 }, { 3, 7, 2, 3 }, { 20, 33, 5, 8 }, { 64, 16, 40, 3 },
		      { 10, 600, 260, 8 }, { 8, 2128, 2048, 19 } };
	size_t count = PD_COUNT(cases) - (chain_dtype != PD_F32);
	bool good = true;

	for (size_t i = 0; i < count; i++) {
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
 * Tests linear layers and a loss with several rows (along the last axis) per sample.  They follow a plain
 * input or a convolution, which may write another layout.  A linear layer may also do the relu behind it.
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
		/* There are so many rows that the CPU takes other kernels. */
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

/* A GPU has rows of logits in 16 bits at multiples of 16 bytes; nowhere else are there gaps. */
static void test_gaps(const struct pd_device_ops *ops)
{
	static const struct { const char *between, *logits; int64_t row; } cases[] = {
		{ "", "out", 16 },
		{ "{'name': 'r', 'kind': 'relu', 'inputs': ['out']}, ", "r", CLASSES },
	};
	bool gpu = chain_dtype != PD_F32 && ops->separate_memory;

	for (size_t i = 0; i < PD_COUNT(cases); i++) {
		char *layers = pd_format("{'name': 'out', 'kind': 'linear', 'inputs': ['x'], 'out_features': "
					 "%d}, %s{'name': 'loss', 'kind': 'softmax_cross_entropy', "
					 "'inputs': ['%s', 'y']}", CLASSES, cases[i].between,
					 cases[i].logits);
		struct pd_model *model = model_with("3, 5", "3", layers);
		struct chain *c = chain_open(ops, model, NULL, 0, 4, SEED, 1);
		struct pd_net_layer out;

		ops->net.layer(c->stages[0].net, 0, &out);
		is_int((int64_t)(out.activation_bytes / pd_dtype_bytes(chain_dtype)),
		       4 * 3 * (gpu ? cases[i].row : CLASSES), "%s: logits, gaps included", chain_name(ops));
		chain_close(c);
		pd_model_free(model);
		free(layers);
	}
}

/* Tests a loss over the last axis of logits in the layout that a convolution writes. */
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
 * Tests batch normalisation with a relu behind it, which a device may do in one kernel: with few and many
 * rows, the channels in one layout or, if the convolution has groups, in the other, and with numbers of
 * channels and areas that are multiples of 8, of 4, and odd.  In 16 bits nothing is tested, since an
 * element that is rounded to the other side of the relu's edge changes gradients by more than rounding.
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
		struct pd_model *model = model_around(s->channels, s->height, s->width, layers);
		double rows = (double)(s->batch * s->height * s->width);
		/* A mean has one rounding error for all its rows, so that the error of a sum over them
		 * which should be 0 grows with their number, that of other sums with its root. */
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

/* Tests layernorm over one, two and all axes, with some, all and no parameters, and with rows shorter and
 * longer than a kernel takes at once. */
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

/* Tests layers with several inputs: one input twice, a first input of another layout, unlike widths. */
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
		struct pd_model *model = model_around(at[i].channels, at[i].height, at[i].width, layers);

		good = conforms(ops, model, at[i].batch, at[i].batch, 2e-5) && good;
		pd_model_free(model);
		free(layers);
	}
	ok(good, "%s: %s of %d and %d channels", chain_name(ops), kind, a, b);
}

/* Tests branches, shared parameters and a relu behind a flatten in one model. */
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

static struct pd_model *many_kinds(void)
{
	return model_around(4, 9, 9,
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

/* Squeeze and excitation; channels that are added; a plane that all channels are multiplied by. */
static void test_repeated(const struct pd_device_ops *ops)
{
#define SQUEEZED "{'name': 'p', 'kind': 'adaptive_avgpool2d', 'inputs': ['in'], 'output_size': 1}, " \
		 "{'name': 'g', 'kind': 'hardsigmoid', 'inputs': ['p']}, "
	test_layers(ops, "mul by channels", SQUEEZED "{'name': 'it', 'kind': 'mul', 'inputs': ['in', 'g']}",
		    2e-5);
	test_layers(ops, "add to channels", SQUEEZED "{'name': 'it', 'kind': 'add', 'inputs': ['g', 'in']}",
		    2e-5);
	test_layers(ops, "mul by a plane", "{'name': 'p', 'kind': 'mean', 'inputs': ['in'], 'dim': 1, "
		    "'keepdim': true}, {'name': 'it', 'kind': 'mul', 'inputs': ['p', 'in']}", 2e-5);
}

/* Tests the kinds of images, which a device may lay out in several ways. */
static void test_images(const struct pd_device_ops *ops)
{
	test_sizes(ops, "conv2d", ", 'out_channels': 16, 'kernel': 3, 'padding': 1", 2e-5);
	test_sizes(ops, "conv2d", ", 'out_channels': 5, 'kernel': [3, 2], 'stride': [2, 1], "
	                "'bias': false", 2e-5);
	test_sizes(ops, "conv2d", ", 'out_channels': 20, 'kernel': 3, 'padding': [2, 1], "
	                "'dilation': 2", 2e-5);
	test_sizes(ops, "conv2d", ", 'out_channels': 32, 'kernel': 5, 'stride': 2, "
	                "'padding': 2", 2e-5);
	test_sizes(ops, "conv2d", ", 'out_channels': 1, 'kernel': 1", 2e-5);
	test_sizes(ops, "conv_transpose2d", ", 'out_channels': 16, 'kernel': 2, 'stride': 2", 2e-5);
	test_sizes(ops, "conv_transpose2d", ", 'out_channels': 5, 'kernel': [3, 2], 'stride': [2, 1], "
		   "'padding': 1, 'output_padding': [1, 0], 'bias': false", 2e-5);
	test_sizes(ops, "conv_transpose2d", ", 'out_channels': 20, 'kernel': 3, 'dilation': 2, "
		   "'padding': [2, 1]", 2e-5);
	/* oneDNN's kernels of bf16 round such an output twice, without a bias once */
	test_sizes(ops, "conv_transpose2d", ops == &pd_device_cpu
		   ? ", 'out_channels': 1, 'kernel': 1, 'bias': false" : ", 'out_channels': 1, 'kernel': 1", 2e-5);
	test_sizes(ops, "upsample", ", 'scale_factor': 2", 2e-5);
	test_sizes(ops, "upsample", ", 'size': [5, 13]", 2e-5);
	test_sizes(ops, "upsample", ", 'scale_factor': [1.5, 0.7], 'mode': 'bilinear'", 2e-5);
	test_sizes(ops, "upsample", ", 'size': [19, 3], 'mode': 'bilinear', 'align_corners': true", 2e-5);
	test_sizes(ops, "upsample", ", 'scale_factor': 2, 'mode': 'bilinear'", 2e-5);
	test_grouped(ops, "conv2d");
	test_grouped(ops, "conv_transpose2d");
	test_behind_groups(ops);
	test_winograd(ops);
	each_curve(test_curve, ops);
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
	test_sizes(ops, "groupnorm", ", 'num_groups': 1", 1e-4);
	test_channels(ops, "groupnorm", ", 'num_groups': %d, 'eps': 0.01", 1e-4);
	test_channels(ops, "prelu", ", 'num_parameters': %d", 2e-5);
	test_norm_relu(ops, false);
	test_norm_relu(ops, true);
	test_sizes(ops, "dropout", ", 'p': 0.3", 2e-5);
	test_sizes(ops, "dropout", ", 'p': 0.4, 'shared_dim': [2, 3]", 2e-5);
	test_sizes(ops, "dropout", ", 'p': 0.4, 'shared_dim': [1, 2, 3]", 2e-5);
	test_sizes(ops, "flatten", "", 2e-5);
	test_merges(ops, "add", 16, 16);
	test_merges(ops, "add", 5, 5);
	test_merges(ops, "concat", 16, 32);
	test_merges(ops, "concat", 16, 5);
	test_repeated(ops);
	test_branching(ops);
	test_residual(ops);
}

static void test_case(const struct pd_device_ops *ops, const struct kind_case *k)
{
	struct pd_model *model = kind_case_model(k);

	if (!k->edges || chain_dtype == PD_F32)
		ok(conforms(ops, model, 3, 3, 1e-4), "%s: small: %s", chain_name(ops), k->what);
	pd_model_free(model);
}

static void test_case_reference(const struct pd_device_ops *ops, const struct kind_case *k)
{
	conform_differences(kind_case_model(k), k->what);
}

static void test_rest(const struct pd_device_ops *ops)
{
	each_kind_case(test_case, ops);
	test_linear(ops);
	test_rows(ops);
	test_gaps(ops);
	test_planes_of_logits(ops);
	test_layernorm(ops);
	layers_attention(ops);
	layers_sequences(ops);
	layers_lstm(ops);
}

/* Tests the reference's gradients of each kind of layer against finite differences. */
static void test_reference(void)
{
	struct pd_model *model;

	each_kind_case(test_case_reference, NULL);
	conform_differences(many_kinds(), "of images");
	each_curve(test_curve_reference, NULL);
	layers_attention_reference();
	layers_lstm_reference();
	model = transformer_model();
	/* A padding row has no gradient although its finite difference is not zero. */
	model->layers[pd_model_find(model, "tok")].padding_idx = -1;
	model->layers[pd_model_find(model, "tok")].weight_dropout = 0.3;
	conform_differences(model, "a transformer");
	conform_differences(model_around(3, 4, 5, "{'name': 'q', 'kind': 'parameter', 'inputs': ['in'], "
		"'shape': [3, 1, 1]}, {'name': 'a', 'kind': 'mul', 'inputs': ['in', 'q']}, "
		"{'name': 'm', 'kind': 'mean', 'inputs': ['in'], 'dim': 2, 'keepdim': true}, "
		"{'name': 'b', 'kind': 'mul', 'inputs': ['m', 'a']}, "
		"{'name': 'it', 'kind': 'add', 'inputs': ['q', 'b']}"), "unlike shapes");
	conform_differences(model_around(4, 4, 5, "{'name': 'a', 'kind': 'conv_transpose2d', 'inputs': ['in'], "
		"'out_channels': 6, 'kernel': [3, 2], 'stride': 2, 'padding': 1, 'output_padding': [1, 0], "
		"'groups': 2}, {'name': 'it', 'kind': 'conv_transpose2d', 'inputs': ['a'], 'out_channels': 3, "
		"'kernel': 2, 'dilation': 2, 'bias': false}"), "conv_transpose2d");
	conform_differences(model_around(3, 4, 5, "{'name': 'a', 'kind': 'upsample', 'inputs': ['in'], "
		"'scale_factor': [1.7, 0.6]}, {'name': 'b', 'kind': 'upsample', 'inputs': ['a'], 'size': 7, "
		"'mode': 'bilinear'}, {'name': 'it', 'kind': 'upsample', 'inputs': ['b'], 'size': [9, 4], "
		"'mode': 'bilinear', 'align_corners': true}"), "upsample");
	conform_differences(model_around(3, 4, 5, "{'name': 'a', 'kind': 'softmax', 'inputs': ['in'], 'dim': "
		"2}, {'name': 'it', 'kind': 'softmax', 'inputs': ['a']}"), "softmax");
	conform_differences(model_of("3, 5",
		"{'name': 'a', 'kind': 'linear', 'inputs': ['x'], 'out_features': 4}, "
		"{'name': 'b', 'kind': 'gelu', 'inputs': ['a'], 'approximate': 'tanh'}, "
		"{'name': 'c', 'kind': 'rmsnorm', 'inputs': ['b'], 'normalized_shape': [3, 4]}, "
		"{'name': 'loss', 'kind': 'mse', 'inputs': ['c', 'a']}"), "mse");
	conform_differences(model_of("3, 5",
		"{'name': 'a', 'kind': 'linear', 'inputs': ['x'], 'out_features': 4}, "
		"{'name': 'loss', 'kind': 'mse', 'inputs': ['a'], 'weight': 0.7}"), "mse of one");
}

/*
 * Tests all types and kinds, or, with an argument, the type alone for which AMX has instructions (bf16,
 * test/t4021-amx.sh) or the kinds of images alone (images, test/t9006-layouts.sh).
 */
int main(int argc, char **argv)
{
	const char *only = argc > 1 ? argv[1] : "";
	int first = strcmp(only, "bf16") == 0;

	if (argc == 1 && !test_quick())
		test_reference();
	for (int i = 0; pd_devices[i]; i++) {
		int end = first ? 2 : chain_types(pd_devices[i]);

		for (int type = first; type < end && chain_usable(pd_devices[i]); type++) {
			if (!chain_take(pd_devices[i], type))
				continue;
			test_images(pd_devices[i]);
			if (strcmp(only, "images") != 0)
				test_rest(pd_devices[i]);
		}
	}
	if (getenv("PD_TEST_ENGINES"))
		ok(chain_engines > 0, "layers took the engines that were recorded");
	return done_testing();
}
