/* SPDX-License-Identifier: Apache-2.0 */
#include "model/model.h"

#include "base/rng.h"
#include "document.h"
#include "model/layer.h"
#include "tap.h"

#include <stdio.h>

static struct pd_model *parse(const char *text, struct pd_error *err)
{
	json_t *value = document_parse(text, err);
	struct pd_model *model = value ? pd_model_parse("doc", value, err) : NULL;

	json_decref(value);
	return model;
}

/* Returns a model of one layer on an input "x" of this shape, with a label "y". */
static char *one_layer(const char *shape, const char *layer)
{
	return pd_format("{'format': 'pd-model', 'version': 1, 'name': 'm', 'inputs': ["
			 "{'name': 'x', 'dtype': 'f32', 'shape': %s},"
			 "{'name': 'y', 'dtype': 'i32', 'shape': []}],"
			 "'layers': [{'name': 'l', %s}]}", shape, layer);
}

/* Tests that the shipped models have as many parameters as the papers' and torchvision's models. */
static void test_shipped(void)
{
	static const struct {
		const char *name;
		int64_t parameters;
	} shipped[] = {
		{ "mlp", 784 * 512 + 512 + 2 * (512 * 512 + 512) + 512 * 10 + 10 },
		{ "lenet5", 61706 }, { "fashion-cnn", 870634 }, { "alexnet", 61100840 },
		{ "vgg16", 138357544 }, { "resnet18", 11689512 }, { "resnet50", 25557032 },
	};

	for (size_t i = 0; i < PD_COUNT(shipped); i++) {
		char *file = model_file(shipped[i].name);
		struct pd_error err = { 0 };
		struct pd_model *model = pd_model_read(file, &err);
		int64_t sum = 0;

		free(file);
		if (!ok(model, "%s is read", shipped[i].name)) {
			diag("%s", err.text);
			continue;
		}
		for (int l = 0; l < model->layer_count; l++)
			sum += model->layers[l].parameter_elements;
		is_int(sum, shipped[i].parameters, "%s: parameters", shipped[i].name);
		is_str(model->name, shipped[i].name, "%s: name", shipped[i].name);
		ok(pd_model_data_input(model) == 0 && pd_model_label_input(model) == 1,
		   "%s: an image and a label", shipped[i].name);
		pd_model_free(model);
	}
}

/* Tests that shapes of outputs are those of PyTorch. */
static void test_shapes(void)
{
	static const struct {
		const char *in, *layer, *out;
		int64_t parameters;
	} cases[] = {
		{ "[3, 224, 224]", "'kind': 'conv2d', 'out_channels': 64, 'kernel': 11, 'stride': "
		 "4, "
		  "'padding': 2", "64 x 55 x 55", 64 * 3 * 121 + 64 },
		{ "[4, 9, 8]", "'kind': 'conv2d', 'out_channels': 6, 'kernel': [3, 2], 'stride': "
		 "[2, 3], "
		  "'padding': [0, 1], 'dilation': [2, 1], 'groups': 2, 'bias': false",
		  "6 x 3 x 3", 6 * 2 * 6 },
		{ "[4, 9]", "'kind': 'conv1d', 'out_channels': 6, 'kernel': 3, 'stride': 2, 'padding': 1, "
		  "'groups': 2", "6 x 5", 6 * 2 * 3 + 6 },
		{ "[4, 1]", "'kind': 'conv1d', 'out_channels': 6, 'kernel': 1, 'bias': false", "6 x 1", 24 },
		{ "[4, 9, 8]", "'kind': 'conv_transpose2d', 'out_channels': 6, 'kernel': [3, 2], 'stride': "
		  "[2, 3], 'padding': [0, 1], 'output_padding': [1, 2], 'dilation': [2, 1], 'groups': 2",
		  "6 x 22 x 23", 4 * 3 * 6 + 6 },
		{ "[4, 9, 8]", "'kind': 'upsample', 'scale_factor': [1.5, 2]", "4 x 13 x 16", 0 },
		{ "[4, 9, 8]", "'kind': 'upsample', 'size': 7, 'mode': 'bilinear'", "4 x 7 x 7", 0 },
		{ "[7]", "'kind': 'linear', 'out_features': 5", "5", 40 },
		{ "[7]", "'kind': 'linear', 'out_features': 5, 'bias': false", "5", 35 },
		{ "[2, 3, 4]", "'kind': 'relu'", "2 x 3 x 4", 0 },
		{ "[6, 7]", "'kind': 'linear', 'out_features': 5", "6 x 5", 40 },
		{ "[2, 3, 7]", "'kind': 'linear', 'out_features': 5", "2 x 3 x 5", 40 },
		{ "[]", "'kind': 'tanh'", "a scalar", 0 },
		{ "[5, 6]", "'kind': 'sigmoid'", "5 x 6", 0 },
		{ "[2, 7, 7]", "'kind': 'maxpool2d', 'kernel': 3, 'stride': 2", "2 x 3 x 3", 0 },
		{ "[2, 7, 7]", "'kind': 'maxpool2d', 'kernel': 3", "2 x 2 x 2", 0 },
		{ "[2, 8, 9]", "'kind': 'avgpool2d', 'kernel': [2, 3], 'padding': [1, 1], "
		  "'count_include_pad': false", "2 x 5 x 3", 0 },
		{ "[2, 5, 5]", "'kind': 'adaptive_avgpool2d', 'output_size': [2, 7]", "2 x 2 x 7",
		  0 },
		{ "[6, 5, 4]", "'kind': 'batchnorm2d'", "6 x 5 x 4", 12 },
		{ "[6, 5, 4]", "'kind': 'layernorm'", "6 x 5 x 4", 8 },
		{ "[6, 5, 4]", "'kind': 'layernorm', 'normalized_shape': [5, 4], 'bias': false",
		  "6 x 5 x 4", 20 },
		{ "[6, 5, 4]", "'kind': 'layernorm', 'elementwise_affine': false", "6 x 5 x 4", 0 },
		{ "[6, 5, 4]", "'kind': 'groupnorm', 'num_groups': 3", "6 x 5 x 4", 12 },
		{ "[6, 5]", "'kind': 'groupnorm', 'num_groups': 6, 'affine': false", "6 x 5", 0 },
		{ "[6, 5, 4]", "'kind': 'prelu'", "6 x 5 x 4", 1 },
		{ "[6, 5]", "'kind': 'prelu', 'num_parameters': 6", "6 x 5", 6 },
		{ "[6, 5, 4]", "'kind': 'dropout', 'p': 0.1", "6 x 5 x 4", 0 },
		{ "[6, 8]", "'kind': 'attention', 'inputs': ['x', 'x', 'x'], 'heads': 2", "6 x 8",
		  0 },
		{ "[6, 5]", "'kind': 'lstm', 'hidden_size': 3", "6 x 3", 4 * 3 * (5 + 3 + 2) },
		{ "[6, 5]", "'kind': 'lstm', 'hidden_size': 3, 'bidirectional': true, 'bias': false",
		  "6 x 6", 2 * 4 * 3 * (5 + 3) },
		{ "[6, 5]", "'kind': 'lstm', 'hidden_size': 3, 'inputs': ['x', 'y'], 'lanes': 4",
		  "6 x 3", 4 * 3 * (5 + 3 + 2) },
		{ "[6, 8]", "'kind': 'additive_attention', 'inputs': ['x', 'x', 'y']", "6 x 8",
		  2 * 64 + 8 + 1 + 8 },
		{ "[6, 5, 4]", "'kind': 'flatten'", "120", 0 },
		{ "[]", "'kind': 'flatten'", "1", 0 },
		{ "[9]", "'kind': 'softmax_cross_entropy', 'inputs': ['x', 'y']", "a scalar", 0 },
		{ "[6, 5, 4]", "'kind': 'concat', 'inputs': ['x', 'x', 'x']", "18 x 5 x 4", 0 },
		{ "[6, 5, 4]", "'kind': 'concat', 'inputs': ['x', 'x'], 'dim': 2", "6 x 10 x 4", 0 },
		{ "[6, 5, 4]", "'kind': 'concat', 'inputs': ['x', 'x'], 'dim': -1", "6 x 5 x 8", 0 },
		{ "[6, 5]", "'kind': 'gelu', 'approximate': 'tanh'", "6 x 5", 0 },
		{ "[6, 5]", "'kind': 'silu'", "6 x 5", 0 },
		{ "[6, 5]", "'kind': 'leaky_relu', 'negative_slope': -0.1", "6 x 5", 0 },
		{ "[6, 5]", "'kind': 'elu', 'alpha': 0", "6 x 5", 0 },
		{ "[6, 5]", "'kind': 'mul', 'inputs': ['x', 'x']", "6 x 5", 0 },
		{ "[6, 5]", "'kind': 'parameter', 'shape': [1, 5]", "1 x 5", 5 },
		{ "[6, 5]", "'kind': 'parameter', 'shape': 7, 'inputs': ['y']", "7", 7 },
		{ "[6, 5]", "'kind': 'softmax'", "6 x 5", 0 },
		{ "[6, 5]", "'kind': 'softmax', 'dim': 1", "6 x 5", 0 },
		{ "[6, 5]", "'kind': 'rmsnorm'", "6 x 5", 5 },
		{ "[6, 5]", "'kind': 'rmsnorm', 'normalized_shape': [6, 5]", "6 x 5", 30 },
		{ "[6, 5]", "'kind': 'dropout', 'shared_dim': 1", "6 x 5", 0 },
		{ "[6, 5, 4]", "'kind': 'dropout', 'shared_dim': [1, -1, 2]", "6 x 5 x 4", 0 },
		{ "[6, 5]", "'kind': 'reshape', 'shape': [2, 3, 5, 1]", "2 x 3 x 5 x 1", 0 },
		{ "[6, 5]", "'kind': 'reshape', 'shape': 30", "30", 0 },
		{ "[2, 3, 4, 5]", "'kind': 'transpose', 'dim0': 1, 'dim1': -2", "4 x 3 x 2 x 5", 0 },
		{ "[6, 5]", "'kind': 'slice', 'dim': 1, 'start': 2", "4 x 5", 0 },
		{ "[6, 5]", "'kind': 'slice', 'dim': -1, 'start': 2, 'end': 3", "6 x 1", 0 },
		{ "[6, 5, 4]", "'kind': 'mean', 'dim': 1", "5 x 4", 0 },
		{ "[6, 5, 4]", "'kind': 'mean', 'dim': 3, 'keepdim': true", "6 x 5 x 1", 0 },
		{ "[4]", "'kind': 'mean', 'dim': 1", "a scalar", 0 },
		{ "[4]", "'kind': 'embedding', 'inputs': ['y'], 'num_embeddings': 50, "
		  "'embedding_dim': 8", "8", 400 },
		{ "[6, 5]", "'kind': 'position_embedding'", "6 x 5", 30 },
		{ "[6, 5]", "'kind': 'position_embedding', 'num_embeddings': 9", "6 x 5", 45 },
		{ "[6, 5]", "'kind': 'bias'", "6 x 5", 5 },
		{ "[6, 2, 8]", "'kind': 'rope', 'head_dim': 4", "6 x 2 x 8", 0 },
		{ "[6, 5]", "'kind': 'mse', 'inputs': ['x', 'x']", "a scalar", 0 },
		{ "[6, 5, 4]", "'kind': 'add', 'inputs': ['x', 'x']", "6 x 5 x 4", 0 },
	};

	for (size_t i = 0; i < PD_COUNT(cases); i++) {
		char *layer = pd_format("%s%s", strstr(cases[i].layer, "inputs") ? "" :
					"'inputs': ['x'], ", cases[i].layer);
		char *text = one_layer(cases[i].in, layer), shape[64];
		struct pd_error err = { 0 };
		struct pd_model *model = parse(text, &err);

		is_str(model ? pd_shape_text(&model->layers[0].output, shape) : err.text,
		       cases[i].out,
		       "shape of %s on %s", cases[i].layer, cases[i].in);
		is_int(model ? model->layers[0].parameter_elements : -1, cases[i].parameters,
		       "its parameters");
		pd_model_free(model);
		free(layer);
		free(text);
	}
}

static struct pd_model *model_of_layer(const char *shape, const char *layer)
{
	char *text = one_layer(shape, layer);
	struct pd_model *model = parse(text, NULL);

	free(text);
	return model;
}

static void test_attributes(void)
{
	struct pd_model *model = model_of_layer("[4, 9, 9]", "'inputs': ['x'], 'kind': 'conv2d', "
						"'out_channels': 8, 'kernel': [3, 5], 'groups': 2");
	const struct pd_layer *l = model->layers;

	ok(l->stride[0] == 1 && l->stride[1] == 1 && l->dilation[1] == 1 && l->padding[0] == 0 &&
	   l->bias, "conv2d: PyTorch's defaults");
	ok(l->parameter_count == 2 && l->parameters[0].dims == 4 &&
	   memcmp(l->parameters[0].size, (int64_t[]){ 8, 2, 3, 5 }, 4 * sizeof(int64_t)) == 0 &&
	   l->parameters[1].size[0] == 8, "conv2d: weight is O, I/groups, KH, KW; bias O");
	is_str(l->parameters[1].name, "bias", "conv2d: the second parameter is the bias");
	pd_model_free(model);

	model = model_of_layer("[4, 9, 9]", "'inputs': ['x'], 'kind': 'batchnorm2d'");
	ok(model->layers->eps == 1e-5 && model->layers->momentum == 0.1, "batchnorm2d: defaults");
	pd_model_free(model);

	model = model_of_layer("[6, 8]", "'inputs': ['x', 'x', 'x', 'y'], 'kind': 'attention', 'heads': 2");
	ok(model->layers->kv_heads == 2 && model->layers->scale == 0.5 && model->layers->p == 0 &&
	   !model->layers->causal, "attention: defaults");
	ok(model->layers->index_least == 0 && model->layers->index_limit == 7, "attention: lengths");
	pd_model_free(model);

	model = model_of_layer("[6, 8]", "'inputs': ['x', 'x', 'x'], 'kind': 'attention', 'heads': 2, "
			       "'relative_buckets': 6");
	l = model->layers;
	ok(l->max_distance == 128 && l->parameter_count == 1 && l->parameters[0].size[0] == 6 &&
	   l->parameters[0].size[1] == 2 && l->parameters[0].begins == PD_BEGINS_NORMAL,
	   "attention: a bias of relative positions by bucket and head");
	pd_model_free(model);

	model = model_of_layer("[6, 16]", "'inputs': ['x', 'x', 'y'], 'kind': 'additive_attention'");
	l = model->layers;
	ok(l->index_limit == 7 && l->parameters[0].begins == PD_BEGINS_UNIFORM &&
	   l->parameters[0].value == 0.25f && l->parameters[2].value == 0.25f &&
	   l->parameters[3].begins == PD_BEGINS_CONSTANT && l->parameters[3].value == 0.25f &&
	   l->parameters[4].value == 0, "additive_attention: begins as GNMT's");
	pd_model_free(model);

	model = model_of_layer("[5, 4]", "'inputs': ['x'], 'kind': 'layernorm'");
	ok(model->layers->eps == 1e-5 && model->layers->normalized_shape.dims == 1 &&
	   model->layers->normalized_shape.size[0] == 4, "layernorm: defaults");
	ok(model->layers->parameters[0].value == 1 && model->layers->parameters[1].value == 0 &&
	   model->layers->parameters[0].begins == PD_BEGINS_CONSTANT, "layernorm: begins with 1 and 0");
	pd_model_free(model);

	model = model_of_layer("[4]", "'inputs': ['y'], 'kind': 'embedding', 'num_embeddings': 7, "
			 "'embedding_dim': 2, 'padding_idx': 3");
	l = model->layers;
	ok(l->parameters[0].begins == PD_BEGINS_NORMAL && l->parameters[0].value == 1 &&
	   l->parameters[0].zero_row == 3 && l->index_least == 0 && l->index_limit == 7,
	   "embedding: begins with normal numbers, and a row of zeros; numbers are below its rows");
	pd_model_free(model);

	model = model_of_layer("[9]", "'inputs': ['x', 'y'], 'kind': 'softmax_cross_entropy'");
	l = model->layers;
	ok(l->ignore_index == -100 && l->label_smoothing == 0 && l->index_limit == 9 && l->index_other == -100,
	   "softmax_cross_entropy: PyTorch's defaults");
	pd_model_free(model);

	model = model_of_layer("[6]", "'inputs': ['x'], 'kind': 'linear', 'out_features': 4, "
			 "'init': {'weight': 'normal(0.02)', 'bias': 0.5}");
	l = model->layers;
	ok(l->parameters[0].begins == PD_BEGINS_NORMAL && l->parameters[0].value == 0.02f &&
	   l->parameters[1].begins == PD_BEGINS_CONSTANT && l->parameters[1].value == 0.5f,
	   "init: normal, and a number");
	pd_model_free(model);

	model = model_of_layer("[6]", "'inputs': ['x'], 'kind': 'linear', 'out_features': 4, "
			 "'init': {'bias': 'uniform(0.1)'}");
	l = model->layers;
	ok(l->parameters[0].begins == PD_BEGINS_UNIFORM && l->parameters[0].value == 1 &&
	   l->parameters[1].begins == PD_BEGINS_UNIFORM && l->parameters[1].value == 0.1f,
	   "init: uniform; as the kind has it where nothing is said");
	pd_model_free(model);

	model = model_of_layer("[6, 5]", "'inputs': ['x', 'y'], 'kind': 'lstm', 'hidden_size': 4, "
			 "'lanes': 3");
	l = model->layers;
	ok(l->bias && !l->bidirectional && l->weight_dropout == 0, "lstm: defaults");
	ok(l->parameters[1].begins == PD_BEGINS_UNIFORM && l->parameters[1].value == 0.5f &&
	   l->parameters[3].value == 0.5f, "lstm: begins within 1 / sqrt(hidden_size)");
	is_str(l->parameters[1].name, "weight_hh_l0", "lstm: the second parameter");
	ok(l->index_least == 1 && l->index_limit == 7, "lstm: lengths are 1 to the steps");
	ok(l->state_count == 2 && l->states[0].size[0] == 3 && l->states[0].size[1] == 4 &&
	   pd_model_lanes(model) == 3, "lstm: the state of each lane");
	pd_model_free(model);

	model = model_of_layer("[4]", "'inputs': ['x'], 'kind': 'leaky_relu'");
	ok(model->layers->alpha == 0.01, "leaky_relu: default");
	pd_model_free(model);

	model = model_of_layer("[4]", "'inputs': ['x'], 'kind': 'elu'");
	ok(model->layers->alpha == 1, "elu: default");
	pd_model_free(model);

	model = model_of_layer("[4]", "'inputs': ['x'], 'kind': 'dropout'");
	ok(model->layers->p == 0.5, "dropout: default");
	pd_model_free(model);

	model = model_of_layer("[4, 9, 9]", "'inputs': ['x'], 'kind': 'avgpool2d', 'kernel': [2, 3]");
	ok(model->layers->stride[0] == 2 && model->layers->stride[1] == 3 &&
	   model->layers->count_include_pad, "pools: the stride is the kernel; padding counts");
	pd_model_free(model);
}

#define GRAPH(layers) "{'format': 'pd-model', 'version': 1, 'name': 'm', 'inputs': [" \
	"{'name': 'x', 'dtype': 'f32', 'shape': [4]}," \
	"{'name': 'y', 'dtype': 'i32', 'shape': []}]," \
	"'layers': [" layers "]}"

#define SEQUENCES(inputs) "{'format': 'pd-model', 'version': 1, 'name': 'm', 'inputs': [" \
	"{'name': 'q', 'dtype': 'f32', 'shape': [3, 4]}, " \
	"{'name': 'k', 'dtype': 'f32', 'shape': [7, 4]}, " \
	"{'name': 'v', 'dtype': 'f32', 'shape': [7, 6]}, " \
	"{'name': 'rows', 'dtype': 'i32', 'shape': [7]}], 'layers': [" \
	"{'name': 'a', " inputs "}]}"

static void test_graph(void)
{
	/* The layers are written as d c b a; a and b are ready first, and b is written before a. */
	struct pd_model *model = parse(GRAPH(
		"{'name': 'd', 'kind': 'add', 'inputs': ['c', 'a', 'c']},"
		"{'name': 'c', 'kind': 'linear', 'inputs': ['b'], 'out_features': 4},"
		"{'name': 'b', 'kind': 'tanh', 'inputs': ['x']},"
		"{'name': 'a', 'kind': 'relu', 'inputs': ['x']},"
		"{'name': 'e', 'kind': 'linear', 'inputs': ['d'], 'out_features': 4, 'shares': "
		"'c'}"),
		NULL);
	char names[8] = "";
	int users[4];

	for (int l = 0; l < model->layer_count; l++)
		strcat(names, model->layers[l].name);
	is_str(names, "bcade", "topological order, the first in the document among the ready");
	is_int(pd_model_find(model, "d"), 3, "find a layer");
	is_int(pd_model_find(model, "x"), -1, "an input is not a layer");
	is_int(pd_model_find(model, "z"), -1, "nobody is not a layer");
	ok(pd_model_consumers(model, 0, users) == 2 && users[0] == 0 && users[1] == 2,
	   "consumers of the input");
	ok(pd_model_consumers(model, 2 + 1, users) == 1 && users[0] == 3,
	   "a layer that takes a tensor twice is one consumer");
	is_int(pd_model_consumers(model, 2 + 4, NULL), 0, "nobody takes the last");
	ok(!pd_model_needs_gradient(model, 0) && !pd_model_needs_gradient(model, 2) &&
	   pd_model_needs_gradient(model, 3) && !pd_model_needs_gradient(model, 4) &&
	   pd_model_needs_gradient(model, 5), "gradients flow above parameters only");
	is_int(model->layers[4].shares, 1, "shared parameters");
	ok(model->layers[3].inputs[0] == 3 && model->layers[3].inputs[1] == 4,
	   "inputs follow the order");
	is_str(pd_model_tensor_name(model, model->layers[3].inputs[1]), "a", "name of a tensor");
	pd_model_free(model);
	model = parse(GRAPH(
		"{'name': 'a', 'kind': 'linear', 'inputs': ['x'], 'out_features': 4, 'frozen': true},"
		"{'name': 'b', 'kind': 'linear', 'inputs': ['a'], 'out_features': 4, 'shares': 'a'},"
		"{'name': 'c', 'kind': 'linear', 'inputs': ['b'], 'out_features': 4},"
		"{'name': 'd', 'kind': 'bias', 'inputs': ['c'], 'frozen': true}"),
		NULL);
	ok(model->layers[0].frozen && model->layers[1].frozen && !model->layers[2].frozen,
	   "a layer that shares frozen parameters is frozen");
	ok(!pd_model_needs_gradient(model, 2) && !pd_model_needs_gradient(model, 3) &&
	   pd_model_needs_gradient(model, 4) && pd_model_needs_gradient(model, 5),
	   "gradients flow above what learns, and through what is frozen");
	pd_model_free(model);
}

static void test_errors(void)
{
	static const struct {
		const char *in, *layer, *message;
	} cases[] = {
		{ "[4]", "'kind': 'conv3d', 'inputs': ['x']", "doc: in \"l\", layers[0].kind: unknown kind "
		 "\"conv3d\"; "
		  "expected one of conv2d, conv1d, conv_transpose2d, linear" },
		{ "[4]", "'kind': 'linear', 'inputs': ['x']", "layers[0].out_features: expected a "
		 "whole "
		  "number from 1 to 1073741824, found nothing" },
		{ "[4]", "'kind': 'linear', 'inputs': ['x'], 'out_features': 3, 'kernel': 3",
		  "layers[0]: unknown key \"kernel\"; expected one of name, kind, inputs, shares, "
		  "init, frozen, names, out_features, bias" },
		{ "[]", "'kind': 'linear', 'inputs': ['x'], 'out_features': 3",
		  "needs an input of one dimension or more, found a scalar" },
		{ "[6, 5, 4]", "'kind': 'layernorm', 'inputs': ['x'], 'normalized_shape': [6, 5]",
		  "normalises over 6 x 5: expected the last axes of its input of 6 x 5 x 4" },
		{ "[4]", "'kind': 'layernorm', 'inputs': ['x'], 'normalized_shape': [2, 4]",
		  "normalises over 2 x 4: expected the last axes of its input of 4" },
		{ "[4]", "'kind': 'layernorm', 'inputs': ['x'], 'normalized_shape': []",
		  "layers[0].normalized_shape: expected an array of 1 to 4 whole numbers or one" },
		{ "[]", "'kind': 'layernorm', 'inputs': ['x']",
		  "needs an input of one dimension or more, found a scalar" },
		{ "[4]", "'kind': 'conv2d', 'inputs': ['x'], 'out_channels': 3, 'kernel': 3",
		  "layers[0]: conv2d \"l\" needs an input of three dimensions" },
		{ "[1, 4, 4]", "'kind': 'conv2d', 'inputs': ['x'], 'out_channels': 3, 'kernel': "
		 "[3, '3']",
		  "layers[0].kernel[1]: expected a whole number from 1 to 1073741824, found "
		  "\"3\"" },
		{ "[1, 4, 4]", "'kind': 'conv2d', 'inputs': ['x'], 'out_channels': 3, 'kernel': "
		 "[3]",
		  "layers[0].kernel: expected [height, width] or one whole number for both" },
		{ "[1, 4, 4]", "'kind': 'conv2d', 'inputs': ['x'], 'out_channels': 3, 'kernel': 5",
		  "window of height 5, larger than its padded input of 4" },
		{ "[1, 4, 4]", "'kind': 'conv2d', 'inputs': ['x'], 'out_channels': 3, 'kernel': 2, "
		  "'dilation': 1073741824", "larger than its padded input" },
		{ "[1, 4, 4]", "'kind': 'upsample', 'inputs': ['x']", "needs a size or a scale_factor above 0" },
		{ "[1, 4, 4]", "'kind': 'upsample', 'inputs': ['x'], 'size': 8, 'scale_factor': 2", "and not both" },
		{ "[1, 4, 4]", "'kind': 'upsample', 'inputs': ['x'], 'scale_factor': [2, 0.2]",
		  "leaves none of its output's width" },
		{ "[1, 4, 4]", "'kind': 'upsample', 'inputs': ['x'], 'scale_factor': [2]",
		  "scale_factor: expected [height, width] or one number for both" },
		{ "[1, 4, 4]", "'kind': 'upsample', 'inputs': ['x'], 'size': 8, 'align_corners': true",
		  "has align_corners, which only mode" },
		{ "[4]", "'kind': 'linear', 'inputs': ['x'], 'out_features': 4, 'frozen': 1",
		  "layers[0].frozen: expected" },
		{ "[4]", "'kind': 'conv_transpose2d', 'inputs': ['x'], 'out_channels': 3, 'kernel': 3",
		  "needs an input of three dimensions" },
		{ "[1, 4, 4]", "'kind': 'conv_transpose2d', 'inputs': ['x'], 'out_channels': 3, 'kernel': 3, "
		  "'output_padding': [0, 1]", "output_padding of 1: expected less than its stride of 1" },
		{ "[1, 1, 4]", "'kind': 'conv_transpose2d', 'inputs': ['x'], 'out_channels': 3, 'kernel': 2, "
		  "'padding': 1", "has padding 1, which leaves none of its output's height" },
		{ "[4, 4, 4]", "'kind': 'conv2d', 'inputs': ['x'], 'out_channels': 6, 'kernel': 1, "
		  "'groups': 4", "has 4 groups: expected a divisor of its 4 input and 6 output" },
		{ "[1, 4, 4]", "'kind': 'maxpool2d', 'inputs': ['x'], 'kernel': 2, 'padding': 2",
		  "has padding 2: expected at most half its kernel of 2" },
		{ "[4]", "'kind': 'lstm', 'inputs': ['x'], 'hidden_size': 3",
		  "lstm \"l\" needs an input of two dimensions (steps x features), found 4" },
		{ "[4, 5]", "'kind': 'lstm', 'inputs': ['x', 'y', 'y'], 'hidden_size': 3",
		  "layers[0].inputs: expected 1 to 2 inputs for lstm, found 3" },
		{ "[4, 5]", "'kind': 'lstm', 'inputs': ['x', 'x'], 'hidden_size': 3",
		  "cannot take \"x\" as its input number 2: expected i32, found f32" },
		{ "[4, 5]", "'kind': 'lstm', 'inputs': ['x'], 'hidden_size': 3, 'lanes': 2, "
		  "'bidirectional': true", "has lanes and is bidirectional: expected one of the two" },
		{ "[4, 5]", "'kind': 'lstm', 'inputs': ['x']", "layers[0].hidden_size: expected a "
		  "whole number from 1 to 268435456, found nothing" },
		{ "[4, 5]", "'kind': 'lstm', 'inputs': ['x'], 'hidden_size': 3, 'weight_dropout': 1",
		  "layers[0].weight_dropout: expected a number from 0 to 0.999, found 1" },
		{ "[1, 4, 4]", "'kind': 'relu', 'inputs': ['z']",
		  "layers[0].inputs[0]: no input or layer is called \"z\"" },
		{ "[4]", "'kind': 'relu', 'inputs': ['x', 'x']", "layers[0].inputs: expected 1 "
		 "input for relu, "
		  "found 2" },
		{ "[4]", "'kind': 'add', 'inputs': ['x']", "expected 2 or more inputs for add, "
		 "found 1" },
		{ "[4]", "'kind': 'relu', 'inputs': ['y']", "cannot take \"y\" as its "
		 "input number 1: expected f32, found i32" },
		{ "[4]", "'kind': 'relu', 'inputs': ['l']", "layer \"l\" lies on a cycle" },
		{ "[4, 2, 2]", "'kind': 'softmax_cross_entropy', 'inputs': ['x', 'y']",
		  "needs a label for each row of its logits of 4 x 2 x 2, found labels of a scalar" },
		{ "[4]", "'kind': 'softmax_cross_entropy', 'inputs': ['x', 'x']",
		  "cannot take \"x\" as its input number 2: expected i32, found f32" },
		{ "[4]", "'kind': 'linear', 'inputs': ['x'], 'out_features': 4, 'shares': 'l'",
		  "layers[0].shares: \"l\" is not another layer" },
		{ "[4]", "'kind': 'linear', 'inputs': ['x'], 'out_features': 4, 'shares': 'k'",
		  "no layer is called \"k\"" },
		{ "[4]", "'kind': 'gelu', 'inputs': ['x'], 'approximate': 'erf'",
		  "layers[0].approximate: expected one of \"none\", \"tanh\", found \"erf\"" },
		{ "[4]", "'kind': 'elu', 'inputs': ['x'], 'negative_slope': 0.1",
		  "layers[0]: unknown key \"negative_slope\"; expected one of name, kind, inputs, shares, "
		  "init, frozen, names, alpha" },
		{ "[4]", "'kind': 'mul', 'inputs': ['x', 'x', 'x']",
		  "layers[0].inputs: expected 2 inputs for mul, found 3" },
		{ "[4]", "'kind': 'parameter', 'inputs': ['x']", "layers[0].shape: expected" },
		{ "[4, 5]", "'kind': 'concat', 'inputs': ['x', 'x'], 'dim': 0",
		  "has dim 0: expected 1 to 2, or -1 for the last axis to -2" },
		{ "[4, 5]", "'kind': 'softmax', 'inputs': ['x'], 'dim': 3", "has dim 3: expected 1 to 2" },
		{ "[4, 5]", "'kind': 'slice', 'inputs': ['x'], 'dim': 3", "has dim 3: expected 1 to 2" },
		{ "[4, 5]", "'kind': 'slice', 'inputs': ['x'], 'dim': -3", "has dim -3" },
		{ "[4, 5]", "'kind': 'slice', 'inputs': ['x'], 'dim': 2, 'start': 3, 'end': 6",
		  "is from 3 to 6: expected a part of an axis of 5" },
		{ "[4, 5]", "'kind': 'slice', 'inputs': ['x'], 'dim': 1, 'start': 4",
		  "is from 4 to 4: expected a part of an axis of 4" },
		{ "[4, 5]", "'kind': 'reshape', 'inputs': ['x'], 'shape': [4, 4]",
		  "has the shape 4 x 4: expected one of as many elements as its input of 4 x 5" },
		{ "[4, 5]", "'kind': 'reshape', 'inputs': ['x'], 'shape': [1073741824, 1073741824, "
		  "16]", "expected one of as many elements" },
		{ "[]", "'kind': 'transpose', 'inputs': ['x'], 'dim0': 1, 'dim1': 1",
		  "needs an input of one dimension or more" },
		{ "[4, 5, 6]", "'kind': 'conv1d', 'inputs': ['x'], 'out_channels': 4, 'kernel': 3",
		  "needs an input of two dimensions (channels x places), found 4 x 5 x 6" },
		{ "[4, 5]", "'kind': 'conv1d', 'inputs': ['x'], 'out_channels': 4, 'kernel': [1, 3]",
		  "has a kernel of two: expected one whole number" },
		{ "[4, 5]", "'kind': 'conv1d', 'inputs': ['x'], 'out_channels': 4, 'kernel': 6",
		  "has a window of width 6, larger than its padded input of 5" },
		{ "[4, 5]", "'kind': 'groupnorm', 'inputs': ['x'], 'num_groups': 3",
		  "has 3 groups: expected a divisor of its 4 channels" },
		{ "[4, 5]", "'kind': 'prelu', 'inputs': ['x'], 'num_parameters': 5",
		  "has num_parameters 5: expected 1, or the channels of its input of 4 x 5" },
		{ "[4]", "'kind': 'dropout', 'inputs': ['x'], 'shared_dim': 2", "has shared_dim 2" },
		{ "[4]", "'kind': 'dropout', 'inputs': ['x'], 'shared_dim': 0", "has shared_dim 0" },
		{ "[4, 5, 6]", "'kind': 'dropout', 'inputs': ['x'], 'shared_dim': [1, 3]",
		  "has a mask of 1 x 5 x 1: expected a shared_dim of axes side by side" },
		{ "[4]", "'kind': 'embedding', 'inputs': ['x'], 'num_embeddings': 3, "
		  "'embedding_dim': 2", "cannot take \"x\" as its input number 1: expected i32" },
		{ "[4]", "'kind': 'embedding', 'inputs': ['y'], 'num_embeddings': 6, 'embedding_dim': 2, "
		  "'padding_idx': 2, 'numbered': true", "is numbered: expected an input of one dimension" },
		{ "[4]", "'kind': 'embedding', 'inputs': ['y'], 'num_embeddings': 3, "
		  "'embedding_dim': 2, 'padding_idx': 3", "has padding_idx 3: expected one below its 3" },
		{ "[4]", "'kind': 'position_embedding', 'inputs': ['x']",
		  "needs an input of two dimensions or more" },
		{ "[4, 5]", "'kind': 'position_embedding', 'inputs': ['x'], 'num_embeddings': 3",
		  "has 3 embeddings from 0 on: expected at least its 4 positions" },
		{ "[4, 5]", "'kind': 'position_embedding', 'inputs': ['x'], 'num_embeddings': 5, 'start': 2",
		  "has 3 embeddings from 2 on: expected at least its 4 positions" },
		{ "[4, 6]", "'kind': 'rope', 'inputs': ['x'], 'head_dim': 3",
		  "has head_dim 3: expected an even divisor of its 6 features" },
		{ "[4, 6]", "'kind': 'rope', 'inputs': ['x'], 'head_dim': 4", "has head_dim 4" },
		{ "[4, 6]", "'kind': 'rope', 'inputs': ['x'], 'rotary_dim': 3",
		  "has rotary_dim 3: expected an even number up to its head_dim, 6" },
		{ "[4, 6]", "'kind': 'rope', 'inputs': ['x'], 'head_dim': 2, 'rotary_dim': 4", "has rotary_dim 4" },
		{ "[4, 6]", "'kind': 'rope', 'inputs': ['x'], 'low_freq_factor': 4",
		  "has high_freq_factor 4: expected more than its low_freq_factor, 4" },
		{ "[4]", "'kind': 'mse', 'inputs': ['x', 'y']",
		  "cannot take \"y\" as its input number 2: expected f32, found i32" },
		{ "[4]", "'kind': 'softmax_cross_entropy', 'inputs': ['x', 'y'], 'ignore_index': "
		  "2147483648", "layers[0].ignore_index: expected a whole number" },
		{ "[4]", "'kind': 'linear', 'inputs': ['x'], 'out_features': 4, 'init': 1",
		  "layers[0].init: expected an object, found 1" },
		{ "[4]", "'kind': 'linear', 'inputs': ['x'], 'out_features': 4, "
		  "'init': {'wieght': 1}", "layers[0].init: linear \"l\" has no parameter \"wieght\"" },
		{ "[4]", "'kind': 'linear', 'inputs': ['x'], 'out_features': 4, "
		  "'init': {'bias': 'normal(-1)'}", "layers[0].init.bias: expected a number "
		  "or a list of them, \"normal(S)\", \"uniform(B)\", \"fan_in\" or \"given\", found \"normal(-1)\"" },
		{ "[4]", "'kind': 'linear', 'inputs': ['x'], 'out_features': 4, "
		  "'init': {'bias': [1, 2, 3]}", "layers[0].init.bias: expected 4 numbers, as \"bias\" has elements" },
		{ "[4]", "'kind': 'linear', 'inputs': ['x'], 'out_features': 4, "
		  "'init': {'bias': [1, 2, 3, 'x']}", "layers[0].init.bias[3]: expected a number" },
		{ "[4]", "'kind': 'linear', 'inputs': ['x'], 'out_features': 4, "
		  "'init': {'bias': 'normal(1) '}", "layers[0].init.bias: expected a number" },
		{ "[4]", "'kind': 'linear', 'inputs': ['x'], 'out_features': 4, "
		  "'init': {'bias': 'nan'}", "layers[0].init.bias: expected a number" },
		{ "[4]", "'kind': 'dropout', 'inputs': ['x'], 'p': 1.5",
		  "layers[0].p: expected a number from 0 to 0.999, found 1.5" },
		{ "[4]", "'kind': 'relu', 'inputs': ['x'], 'name': 'l'", "not JSON: duplicate "
		 "object key" },
		{ "[1, 0]", "'kind': 'relu', 'inputs': ['x']", "doc: in \"x\", inputs[0].shape[1]: expected "
		 "a whole "
		  "number from 1 to 1073741824, found 0" },
		{ "[1, 2, 3, 4, 5]", "'kind': 'relu', 'inputs': ['x']", "expected at most 4 "
		 "dimensions" },
		{ "[6, 8]", "'kind': 'attention', 'inputs': ['x', 'x', 'x']", "heads" },
		{ "[6]", "'kind': 'attention', 'inputs': ['x', 'x', 'x'], 'heads': 2",
		  "needs sequences (positions x features), found 6" },
		{ "[6, 8]", "'kind': 'attention', 'inputs': ['x', 'x', 'x', 'x'], 'heads': 2",
		  "as its input number 4: expected i32, found f32" },
		{ "[6, 8]", "'kind': 'attention', 'inputs': ['x', 'x'], 'heads': 2",
		  "expected 3 to 4 inputs for attention, found 2" },
		{ "[6, 8]", "'kind': 'attention', 'inputs': ['x', 'x', 'x'], 'heads': 2, 'window': 3",
		  "has a window of 3: expected \"causal\": true" },
		{ "[6, 8]", "'kind': 'attention', 'inputs': ['x', 'x', 'x'], 'heads': 2, 'relative_buckets': 7",
		  "has relative_buckets 7: expected an even number from 4 on" },
		{ "[6, 8]", "'kind': 'attention', 'inputs': ['x', 'x', 'x'], 'heads': 2, 'causal': true, "
		  "'relative_buckets': 1", "has relative_buckets 1: expected 2 or more" },
		{ "[6, 8]", "'kind': 'attention', 'inputs': ['x', 'x', 'x'], 'heads': 2, 'relative_buckets': 32, "
		  "'max_distance': 8", "has max_distance 8: expected more than the 8 distances" },
		{ "[6, 8]", "'kind': 'attention', 'inputs': ['x', 'x', 'x'], 'heads': 3",
		  "has 3 heads: expected a divisor of its queries' 8 features" },
		{ "[6, 8]", "'kind': 'attention', 'inputs': ['x', 'x', 'x'], 'heads': 4, 'kv_heads': "
		  "3", "has 3 heads of keys and values: expected a divisor of its 4 heads" },
		{ "[6, 8]", "'kind': 'attention', 'inputs': ['x', 'x', 'x'], 'heads': 4, 'kv_heads': "
		  "2", "has keys of 8 features: expected 4, as many" },
		{ "[6, 8]", "'kind': 'attention', 'inputs': ['x', 'x', 'x'], 'heads': 2, 'dropout': "
		  "1", "layers[0].dropout: expected a number from 0 to 0.999" },
		{ "[6, 8]", "'kind': 'additive_attention', 'inputs': ['x']",
		  "expected 2 to 3 inputs for additive_attention, found 1" },
		{ "[6, 5, 4]", "'kind': 'additive_attention', 'inputs': ['x', 'x']",
		  "needs sequences (positions x features), found 6 x 5 x 4" },
		{ "[1048576, 8]", "'kind': 'attention', 'inputs': ['x', 'x', 'x'], 'heads': 1, "
		  "'dropout': 0.1", "has 2^40 or more probabilities in a sample" },
		/* The sizes of these are too large. */
		{ "[1073741824, 1073741824, 1073741824]", "'kind': 'relu', 'inputs': ['x']",
		  "doc: in \"x\", inputs[0].shape: expected fewer than 2^40 elements" },
		{ "[1073741824]", "'kind': 'linear', 'inputs': ['x'], 'out_features': 1073741824",
		  "has 2^40 or more elements in its weight" },
		{ "[1, 1, 1]", "'kind': 'conv2d', 'inputs': ['x'], 'out_channels': 1073741824, "
		 "'kernel': 1, "
		  "'padding': 1073741823", "has an output of 1073741824 x 2147483647 x "
		  "2147483647" },
		{ "[1, 65536, 65536]", "'kind': 'flatten', 'inputs': ['x']", "more than 2^30 "
		 "features" },
		{ "[1, 1, 1]", "'kind': 'adaptive_avgpool2d', 'inputs': ['x'], 'output_size': "
		 "1073741824",
		  "fewer than 2^40 elements" },
	};
	static const struct {
		const char *text, *message;
	} graphs[] = {
		{ GRAPH("{'name': 'x', 'kind': 'relu', 'inputs': ['x']}"),
		  "layers[0].name: \"x\" is the name of an earlier input or layer" },
		{ GRAPH("{'name': 'a', 'kind': 'relu', 'inputs': ['x']},"
			"{'name': 'c', 'kind': 'add', 'inputs': ['a', 'd']},"
			"{'name': 'd', 'kind': 'relu', 'inputs': ['c']},"
			"{'name': 'e', 'kind': 'relu', 'inputs': ['d']}"),
		  "lies on a cycle" },
		{ GRAPH("{'name': 'a', 'kind': 'linear', 'inputs': ['x'], 'out_features': 3},"
			"{'name': 'b', 'kind': 'add', 'inputs': ['a', 'x']}"),
		  "add \"b\" needs inputs of one shape, or 1 along axes" },
		{ GRAPH("{'name': 'a', 'kind': 'linear', 'inputs': ['x'], 'out_features': 4},"
			"{'name': 'b', 'kind': 'linear', 'inputs': ['a'], 'out_features': 4, "
			"'shares': 'a'},"
			"{'name': 'c', 'kind': 'linear', 'inputs': ['b'], 'out_features': 4, "
			"'shares': 'b'}"),
		  "layers[2].shares: \"b\" shares parameters itself" },
		{ GRAPH("{'name': 'a', 'kind': 'linear', 'inputs': ['x'], 'out_features': 4},"
			"{'name': 'b', 'kind': 'linear', 'inputs': ['a'], 'out_features': 4, "
			"'shares': 'a', 'frozen': true}"),
		  "\"frozen\" beside \"shares\": expected it of the layer that owns" },
		{ GRAPH("{'name': 'a', 'kind': 'linear', 'inputs': ['x'], 'out_features': 4},"
			"{'name': 'b', 'kind': 'linear', 'inputs': ['a'], 'out_features': 4, "
			"'bias': false, 'shares': 'a'}"),
		  "layers[1].shares: \"a\" is not another layer with parameters of "
		  "these" },
		{ GRAPH("{'name': 'a', 'kind': 'relu', 'inputs': ['x']},"
			"{'name': 'b', 'kind': 'relu', 'inputs': ['a'], 'shares': 'a'}"),
		  "layers[1].shares: \"a\" is not another layer with parameters" },
		{ GRAPH("{'name': 'a', 'kind': 'linear', 'inputs': ['x'], 'out_features': 4},"
			"{'name': 'b', 'kind': 'linear', 'inputs': ['a'], 'out_features': 4, "
			"'shares': 'a', 'init': {'weight': 1}}"),
		  "layers[1]: \"init\" beside \"shares\"" },
		{ "{'format': 'pd-model', 'version': 1, 'name': 'm', 'inputs': [{'name': 'x', 'dtype': "
		  "'f32', 'shape': [4, 5]}], 'layers': [{'name': 'a', 'kind': 'lstm', 'inputs': ['x'], "
		  "'hidden_size': 3, 'lanes': 2}, {'name': 'b', 'kind': 'lstm', 'inputs': ['a'], "
		  "'hidden_size': 3, 'lanes': 4}]}",
		  "layers[1]: \"b\" has 4 lanes: expected 2, as another layer has" },
		{ "{'format': 'pd-model', 'version': 1, 'name': 'm', 'inputs': [{'name': 'x', 'dtype': "
		  "'f32', 'shape': [4, 5]}, {'name': 'n', 'dtype': 'i32', 'shape': [4]}], 'layers': "
		  "[{'name': 'a', 'kind': 'lstm', 'inputs': ['x', 'n'], 'hidden_size': 3}]}",
		  "needs one length for each sample, found 4" },
		{ SEQUENCES("'kind': 'attention', 'heads': 1, 'inputs': ['q', 'k', 'v', 'rows']"),
		  "needs one length for each sample, found 7" },
		{ SEQUENCES("'kind': 'additive_attention', 'inputs': ['q', 'v']"),
		  "has keys of 6 features: expected 4, as its queries have" },
		{ SEQUENCES("'kind': 'additive_attention', 'inputs': ['q', 'k', 'rows']"),
		  "needs one length for each sample, found 7" },
		{ SEQUENCES("'kind': 'attention', 'heads': 1, 'inputs': ['q', 'k', 'q']"),
		  "has 7 keys and 3 values: expected as many" },
		{ SEQUENCES("'kind': 'attention', 'heads': 1, 'inputs': ['q', 'v', 'v']"),
		  "has keys of 6 features: expected 4" },
		{ SEQUENCES("'kind': 'attention', 'heads': 1, 'inputs': ['q', 'k', 'k', 'rows']"),
		  "needs one length for each sample" },
		{ SEQUENCES("'kind': 'mul', 'inputs': ['q', 'k']"), "mul \"a\" needs inputs of one shape, or "
		  "1 along axes side by side where the other has more, found 3 x 4 and 7 x 4" },
		{ "{'format': 'pd-model', 'version': 1, 'name': 'm', 'inputs': [{'name': 'x', 'dtype': "
		  "'f32', 'shape': [1, 5, 1]}, {'name': 'n', 'dtype': 'f32', 'shape': [4, 5, 6]}], 'layers': "
		  "[{'name': 'a', 'kind': 'add', 'inputs': ['x', 'n']}]}",
		  "1 along axes side by side where the other has more, found 1 x 5 x 1 and 4 x 5 x 6" },
		{ "{'format': 'pd-model', 'version': 1, 'name': 'm', 'inputs': [{'name': 'x', 'dtype': "
		  "'f32', 'shape': [1, 5]}, {'name': 'n', 'dtype': 'f32', 'shape': [4, 5]}], 'layers': "
		  "[{'name': 'a', 'kind': 'add', 'inputs': ['n', 'n', 'x']}]}",
		  "needs inputs of one shape, found 4 x 5 and 1 x 5" },
		{ GRAPH(""), "layers: expected 1 to 1000000 layers, found an array of 0" },
		{ "[]", "doc: expected a pd-model document" },
		{ "{'format': 'pd-plan'}", "doc: format: expected \"pd-model\", found "
		 "\"pd-plan\"" },
		{ "{'format': 'pd-model', 'version': 2}", "doc: version: expected 1, found 2" },
	};

	for (size_t i = 0; i < PD_COUNT(cases) + PD_COUNT(graphs); i++) {
		bool graph = i >= PD_COUNT(cases);
		size_t g = i - PD_COUNT(cases);
		char *text = graph ? pd_strdup(graphs[g].text) : one_layer(cases[i].in,
									   cases[i].layer);
		const char *expected = graph ? graphs[g].message : cases[i].message;
		struct pd_error err = { .text = "it was read" };
		struct pd_model *model = parse(text, &err);

		if (!ok(!model && err.status == PD_EXIT_USAGE && strstr(err.text, expected),
			"refused: %s", expected))
			diag("%s", err.text);
		pd_model_free(model);
		free(text);
	}
}

/* Tells whether the order always takes the lowest node that is ready, which is found the slow way. */
static bool is_expected_order(int nodes, int *const *inputs, const int *counts, const int *order)
{
	bool done[64] = { false };

	for (int at = 0; at < nodes; at++) {
		int next = 0;

		for (;; next++) {
			bool ready = !done[next];

			for (int i = 0; i < counts[next]; i++)
				ready &= inputs[next][i] < 0 || done[inputs[next][i]];
			if (ready)
				break;
		}
		if (order[at] != next)
			return false;
		done[next] = true;
	}
	return true;
}

/* Tests the orders of random graphs, whose nodes are numbered at random. */
static void test_orders(void)
{
	enum { GRAPHS = 300, NODES = 40 };
	int wrong = 0;

	for (uint32_t g = 0; g < GRAPHS; g++) {
		int name[NODES], inputs[NODES][3], counts[NODES], order[NODES];
		int *lists[NODES];

		for (int n = 0; n < NODES; n++) {
			int other = (int)(pd_random(7, 0, g, (uint32_t)n).v[0] % (uint32_t)(n + 1));

			name[n] = name[other];
			name[other] = n;
		}
		for (int n = 0; n < NODES; n++) {
			struct pd_random4 r = pd_random(7, 1, g, (uint32_t)n);
			int from = name[n];

			lists[from] = inputs[from];
			counts[from] = (int)(r.v[3] % 4);
			for (int i = 0; i < counts[from]; i++)
				inputs[from][i] = n && r.v[i] % 5 ? name[r.v[i] % (uint32_t)n] : -1;
		}
		if (pd_graph_order(NODES, lists, counts, order) >= 0 ||
		    !is_expected_order(NODES, lists, counts, order))
			wrong++;
	}
	is_int(wrong, 0, "orders of %d random graphs", GRAPHS);
}

/* Tests that a layer of the cycle of c and d is named; a comes before the cycle, e after it. */
static void test_cycle(void)
{
	struct pd_error err = { 0 };
	struct pd_model *model = parse(GRAPH(
		"{'name': 'e', 'kind': 'relu', 'inputs': ['d']},"
		"{'name': 'a', 'kind': 'relu', 'inputs': ['x']},"
		"{'name': 'c', 'kind': 'add', 'inputs': ['a', 'd']},"
		"{'name': 'd', 'kind': 'relu', 'inputs': ['c']}"), &err);

	ok(!model && (strstr(err.text, "\"c\"") || strstr(err.text, "\"d\"")),
	   "the layer named lies on the cycle, not behind it");
	pd_model_free(model);
}

/* Tests a long chain that is written backwards, for which a quadratic algorithm would take hours. */
static void test_many(void)
{
	enum { COUNT = 200000 };
	struct pd_error err = { 0 };
	json_t *layers = json_array(), *document;
	struct pd_model *model;
	char name[16], input[16];

	for (int l = COUNT - 1; l >= 0; l--) {
		snprintf(name, sizeof(name), "l%d", l);
		snprintf(input, sizeof(input), "l%d", l - 1);
		json_array_append_new(layers, json_pack("{ss ss s[s]}", "name", name, "kind",
							"relu",
				"inputs", l ? input : "x"));
	}
	document = json_pack("{ss si ss s[{ss ss s[i]}] so}", "format", "pd-model", "version", 1,
			     "name", "chain", "inputs", "name", "x", "dtype", "f32", "shape", 4,
			     "layers", layers);
	model = pd_model_parse("chain", document, &err);
	ok(model && strcmp(model->layers[COUNT - 1].name, "l199999") == 0 &&
	   pd_model_find(model, "l100000") == 100000, "a chain of %d layers, backwards", COUNT);
	pd_model_free(model);
	json_decref(document);
}

int main(void)
{
	test_shipped();
	test_shapes();
	test_attributes();
	test_graph();
	test_errors();
	test_orders();
	test_cycle();
	test_many();
	return done_testing();
}
