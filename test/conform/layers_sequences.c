/* SPDX-License-Identifier: Apache-2.0 */
#include "layers.h"
#include "tap.h"

#include "base/mem.h"

#include <stdlib.h>

/*
 * A case of layers that work on sequences, between linear layers over the last axis: the input's shape,
 * the layers, which take 'in' and end with 'it', and the shape of the labels for the output of 'it'.
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
	static const struct sequence softmaxes[] = {
		{ "7, 5", IT("softmax", ""), "7" },
		/* behind a curve: a number that is added along the axis has no gradient but rounding */
		{ "7, 5", "{'name': 't', 'kind': 'tanh', 'inputs': ['in']}, "
		  "{'name': 'it', 'kind': 'softmax', 'inputs': ['t'], 'dim': 1}", "7" },
		{ "3, 4, 5", "{'name': 't', 'kind': 'tanh', 'inputs': ['in']}, "
		  "{'name': 'it', 'kind': 'softmax', 'inputs': ['t'], 'dim': 2}", "3, 4" },
		{ "1100, 5", "{'name': 't', 'kind': 'transpose', 'inputs': ['in'], 'dim0': 1, "
		  "'dim1': 2}, {'name': 's', 'kind': 'softmax', 'inputs': ['t']}, {'name': 'it', 'kind': "
		  "'mean', 'inputs': ['s'], 'dim': 1}", "" },
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
	TEST_SEQUENCES(ops, "softmax", 5e-5, softmaxes);
	TEST_SEQUENCES(ops, "reshape", 2e-5, reshapes);
	TEST_SEQUENCES(ops, "concat along an axis", 5e-5, concats);
}

static void test_features(const struct pd_device_ops *ops)
{
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
	/* an input, and one that has one place along axes at the end, at the beginning, between */
#define MEAN(dim) "{'name': 'm', 'kind': 'mean', 'inputs': ['in'], 'dim': " dim ", 'keepdim': true}, "
	static const struct sequence repeated[] = {
		{ "7, 5", MEAN("1") "{'name': 'it', 'kind': 'mul', 'inputs': ['in', 'm']}", "7" },
		{ "7, 5", MEAN("2") "{'name': 'it', 'kind': 'mul', 'inputs': ['m', 'in']}", "7" },
		{ "3, 4, 5", MEAN("2") "{'name': 'it', 'kind': 'add', 'inputs': ['m', 'in']}", "3, 4" },
		{ "3, 4, 5", MEAN("-1") "{'name': 'it', 'kind': 'add', 'inputs': ['in', 'm']}", "3, 4" },
		{ "2, 1, 3, 5", MEAN("3") "{'name': 'it', 'kind': 'mul', 'inputs': ['m', 'in']}",
		  "2, 1, 3" },
		{ "90, 5", MEAN("1") "{'name': 't', 'kind': 'tanh', 'inputs': ['m']}, "
		  "{'name': 'it', 'kind': 'mul', 'inputs': ['t', 'in']}", "90" },
		{ "7, 5", MEAN("1") "{'name': 'n', 'kind': 'mean', 'inputs': ['in'], 'dim': 2, 'keepdim': "
		  "true}, {'name': 'it', 'kind': 'mul', 'inputs': ['m', 'n']}", "7" },
		{ "7, 5", MEAN("1") "{'name': 'n', 'kind': 'mean', 'inputs': ['in'], 'dim': 2, 'keepdim': "
		  "true}, {'name': 'it', 'kind': 'add', 'inputs': ['n', 'm']}", "7" },
	};
	/* a scale, a token before others, and a learned query; what it hangs on has a gradient or not */
	static const struct sequence parameters[] = {
		{ "7, 5", "{'name': 's', 'kind': 'parameter', 'inputs': ['in'], 'shape': [1, 12]}, "
		  "{'name': 'it', 'kind': 'mul', 'inputs': ['in', 's']}", "7" },
		{ "7, 5", "{'name': 's', 'kind': 'parameter', 'inputs': ['x'], 'shape': [1, 12]}, "
		  "{'name': 'it', 'kind': 'concat', 'inputs': ['s', 'in']}", "8" },
		{ "7, 5", "{'name': 's', 'kind': 'parameter', 'inputs': ['y'], 'shape': [3, 12]}, "
		  "{'name': 'it', 'kind': 'attention', 'inputs': ['s', 'in', 'in'], 'heads': 2}", "3" },
		{ "7, 5", "{'name': 's', 'kind': 'parameter', 'inputs': ['in'], 'shape': [7, 1]}, "
		  "{'name': 'it', 'kind': 'add', 'inputs': ['in', 's']}", "7" },
	};
	static const struct sequence ropes[] = {
		{ "7, 5", IT("rope", ""), "7" },
		{ "9, 5", IT("rope", ", 'head_dim': 4, 'base': 100"), "9" },
		{ "7, 5", IT("rope", ", 'head_dim': 6, 'interleaved': true"), "7" },
		{ "7, 2, 5", IT("rope", ", 'head_dim': 12, 'interleaved': true"), "7, 2" },
		{ "1, 5", IT("rope", ", 'head_dim': 2"), "1" },
		{ "7, 5", IT("rope", ", 'head_dim': 6, 'rotary_dim': 2"), "7" },
		{ "9, 2, 5", IT("rope", ", 'head_dim': 12, 'rotary_dim': 8, 'interleaved': true, 'base': 50"), "9, 2" },
		{ "9, 5", IT("rope", ", 'rotary_dim': 10, 'base': 50, 'factor': 3"), "9" },
		{ "9, 5", IT("rope", ", 'head_dim': 4, 'base': 30, 'factor': 2"), "9" },
		{ "11, 5", IT("rope", ", 'head_dim': 12, 'base': 100, 'factor': 8, "
				      "'original_positions': 40, 'low_freq_factor': 1.5"), "11" },
	};
	/* groups of channels that are the first axis, of one and of many places; numbers for all or for each */
	static const struct sequence grouped[] = {
		{ "6, 5", IT("groupnorm", ", 'num_groups': 2"), "6" },
		{ "4, 3, 5", IT("groupnorm", ", 'num_groups': 4, 'affine': false"), "4, 3" },
		{ "5", IT("groupnorm", ", 'num_groups': 3"), "" },
		{ "300, 5", IT("groupnorm", ", 'num_groups': 3"), "300" },
		{ "2, 100, 5", IT("groupnorm", ", 'num_groups': 2"), "2, 100" },
	};
	static const struct sequence bent[] = {
		{ "7, 5", IT("prelu", ""), "7" }, { "5", IT("prelu", ", 'num_parameters': 12"), "" },
		{ "300, 5", IT("prelu", ", 'num_parameters': 300"), "300" },
		{ "3, 130, 5", IT("prelu", ", 'num_parameters': 3"), "3, 130" },
	};
	static const struct sequence lines[] = {
		{ "7, 5", IT("conv1d", ", 'out_channels': 5, 'kernel': 3"), "5" },
		{ "6, 5", IT("conv1d", ", 'out_channels': 4, 'kernel': 5, 'stride': 2, 'padding': 3, "
			     "'dilation': 2, 'groups': 2, 'bias': false"), "4" },
		{ "16, 5", IT("conv1d", ", 'out_channels': 32, 'kernel': 3, 'padding': 1"), "32" },
		{ "8, 5", IT("conv1d", ", 'out_channels': 8, 'kernel': 4, 'padding': 2, 'groups': 8"), "8" },
		{ "7, 5", "{'name': 'c', 'kind': 'conv1d', 'inputs': ['in'], 'out_channels': 8, 'kernel': 1}, "
		  "{'name': 'it', 'kind': 'relu', 'inputs': ['c']}", "8" },
	};
	static const struct sequence drops[] = {
		{ "7, 5", IT("dropout", ", 'p': 0.3, 'shared_dim': 1"), "7" },
		{ "7, 5", IT("dropout", ", 'p': 0.3, 'shared_dim': -1"), "7" },
		{ "3, 4, 5", IT("dropout", ", 'p': 0.4, 'shared_dim': 2"), "3, 4" },
		{ "7, 5", IT("dropout", ", 'p': 0.5, 'shared_dim': [1, 2]"), "7" },
		{ "300, 5", IT("dropout", ", 'p': 0.5, 'shared_dim': [2, 1]"), "300" },
		{ "3, 4, 5", IT("dropout", ", 'p': 0.4, 'shared_dim': [2, 3]"), "3, 4" },
	};

	TEST_SEQUENCES(ops, "rmsnorm", 1e-4, norms);
	TEST_SEQUENCES(ops, "mul", 5e-5, products);
	TEST_SEQUENCES(ops, "sums and products of unlike shapes", 5e-5, repeated);
	TEST_SEQUENCES(ops, "parameter", 5e-5, parameters);
	TEST_SEQUENCES(ops, "rope", 2e-5, ropes);
	TEST_SEQUENCES(ops, "dropout along axes", 2e-5, drops);
	TEST_SEQUENCES(ops, "groupnorm", 1e-4, grouped);
	TEST_SEQUENCES(ops, "prelu", 2e-5, bent);
	TEST_SEQUENCES(ops, "conv1d", 2e-5, lines);
}

/* Tests embeddings of the labels, which are so few that most occur in many places; one may be padding. */
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
		{ "40, 5", "{'name': 'e', 'kind': 'embedding', 'inputs': ['y'], 'num_embeddings': "
		  "50, 'embedding_dim': 70, 'padding_idx': 1, 'numbered': true}, {'name': 'it', 'kind': "
		  "'concat', 'inputs': ['in', 'e'], 'dim': 2}", "40" },
		/* Each number has so many places that they are read in several steps. */
		{ "90, 5", "{'name': 'e', 'kind': 'embedding', 'inputs': ['y'], 'num_embeddings': "
		  "11, 'embedding_dim': 12}, {'name': 'it', 'kind': 'add', 'inputs': ['in', 'e']}",
		  "90" },
	};
	static const struct sequence positions[] = {
		{ "7, 5", IT("position_embedding", ""), "7" },
		{ "7, 2, 5", IT("position_embedding", ", 'num_embeddings': 9"), "7, 2" },
		{ "7, 5", IT("position_embedding", ", 'start': 2"), "7" },
		{ "7, 2, 5", IT("position_embedding", ", 'num_embeddings': 12, 'start': 3"), "7, 2" },
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

/* Tests an embedding that shares its weight with a linear layer before or after it. */
static void test_tied(const struct pd_device_ops *ops)
{
	static const char *const layers[] = {
		"{'name': 'e', 'kind': 'embedding', 'inputs': ['y'], 'num_embeddings': 9, "
		"'embedding_dim': 6, 'weight_dropout': 0.3}, {'name': 'in', 'kind': 'linear', 'inputs': ['x'], "
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

/* Tests losses over rows with ignored and smoothed labels, and a loss that has no labels. */
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
		"{'name': 'loss', 'kind': 'mse', 'inputs': ['t', 'h'], 'weight': 0.3}",
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

void layers_sequences(const struct pd_device_ops *ops)
{
	test_axes(ops);
	test_features(ops);
	test_embedding(ops);
	test_tied(ops);
	test_losses(ops);
	test_mse(ops);
}
