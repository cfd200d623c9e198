/* SPDX-License-Identifier: Apache-2.0 */
#include "kind_cases.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define IT(kind, attributes) "{'name': 'it', 'kind': '" kind "', 'inputs': ['p']" attributes "}"
#define BLOCKED "{'name': 'c', 'kind': 'conv2d', 'inputs': ['p'], 'out_channels': 16, 'groups': 16, " \
		"'kernel': 1}, "
#define BLOCKED_IT(kind, attributes) \
	BLOCKED "{'name': 'it', 'kind': '" kind "', 'inputs': ['c']" attributes "}"
/* Two channels of one, which the CPU may pad to blocks. */
#define PADDED "{'name': 'c', 'kind': 'conv2d', 'inputs': ['p'], 'out_channels': 2, 'kernel': 1}, "
#define PADDED_IT(kind, attributes) \
	PADDED "{'name': 'it', 'kind': '" kind "', 'inputs': ['c']" attributes "}"
#define HALVES "{'name': 'a', 'kind': 'slice', 'inputs': ['p'], 'dim': -1, 'end': 3}, " \
	       "{'name': 'b', 'kind': 'slice', 'inputs': ['p'], 'dim': -1, 'start': 3}, "
#define THIRDS "{'name': 'q', 'kind': 'slice', 'inputs': ['p'], 'dim': -1, 'end': 4}, " \
	       "{'name': 'k', 'kind': 'slice', 'inputs': ['p'], 'dim': -1, 'start': 4, 'end': 8}, " \
	       "{'name': 'v', 'kind': 'slice', 'inputs': ['p'], 'dim': -1, 'start': 8}, "
#define AROUND_ADD "{'name': 't', 'kind': 'tanh', 'inputs': ['r']}, " \
		   "{'name': 'it', 'kind': 'add', 'inputs': ['t', 'r']}"

static const struct kind_case cases[] = {
	{ "relu and a sum behind it", "7, 6", "7, 6", "{'name': 'r', 'kind': 'relu', 'inputs': ['p']}, "
	  AROUND_ADD, false },
	{ "relu behind linear", "7, 6", "7, 24", "{'name': 'l', 'kind': 'linear', 'inputs': ['p'], "
	  "'out_features': 24}, {'name': 'it', 'kind': 'relu', 'inputs': ['l']}", false },
	{ "relu behind conv2d", "3, 5, 6", "16, 5, 6", "{'name': 'l', 'kind': 'conv2d', 'inputs': ['p'], "
	  "'out_channels': 16, 'kernel': 1}, {'name': 'it', 'kind': 'relu', 'inputs': ['l']}", true },
	{ "relu behind batchnorm2d", "16, 5, 6", "16, 5, 6", "{'name': 'n', 'kind': 'batchnorm2d', "
	  "'inputs': ['p']}, {'name': 'it', 'kind': 'relu', 'inputs': ['n']}", false, true },
	{ "relu behind batchnorm2d, and a sum", "16, 5, 6", "16, 5, 6", BLOCKED "{'name': 'n', 'kind': "
	  "'batchnorm2d', 'inputs': ['c']}, {'name': 'r', 'kind': 'relu', 'inputs': ['n']}, "
	  AROUND_ADD, false, true },
	{ "relu of a sum", "7, 6", "7, 3", HALVES "{'name': 's', 'kind': 'add', 'inputs': ['a', 'b']}, "
	  "{'name': 'it', 'kind': 'relu', 'inputs': ['s']}", false },
	{ "maxpool2d of padded blocks", "1, 8, 8", "2, 4, 4", PADDED_IT("maxpool2d", ", 'kernel': 2"), true },
	{ "gelu by tanh", "7, 6", "7, 6", IT("gelu", ", 'approximate': 'tanh'"), false },
	{ "maxpool2d", "3, 8, 9", "3, 4, 4", IT("maxpool2d", ", 'kernel': 2"), false },
	{ "maxpool2d of overlapping windows", "3, 9, 9", "3, 5, 5",
	  IT("maxpool2d", ", 'kernel': 3, 'stride': 2, 'padding': 1"), false },
	{ "maxpool2d of blocks", "16, 9, 9", "16, 5, 5",
	  BLOCKED_IT("maxpool2d", ", 'kernel': 3, 'stride': 2, 'padding': 1"), false },
	{ "maxpool2d of large windows", "3, 18, 18", "3, 2, 2",
	  IT("maxpool2d", ", 'kernel': 17, 'stride': 1"), false },
	{ "avgpool2d", "16, 9, 9", "16, 4, 4", IT("avgpool2d", ", 'kernel': 3, 'stride': 2"), false },
	{ "avgpool2d of blocks", "16, 9, 9", "16, 4, 4",
	  BLOCKED_IT("avgpool2d", ", 'kernel': 3, 'stride': 2"), false },
	{ "adaptive_avgpool2d", "3, 8, 9", "3, 4, 5", IT("adaptive_avgpool2d", ", 'output_size': [4, 5]"),
	  false },
	{ "batchnorm2d", "3, 5, 6", "3, 5, 6", IT("batchnorm2d", ""), false },
	{ "batchnorm2d of blocks", "16, 5, 6", "16, 5, 6", BLOCKED_IT("batchnorm2d", ""), false },
	{ "layernorm", "7, 6", "7, 6", IT("layernorm", ""), false },
	{ "rmsnorm", "7, 6", "7, 6", IT("rmsnorm", ""), false },
	{ "dropout", "7, 6", "7, 6", IT("dropout", ", 'p': 0.4"), false },
	{ "dropout along an axis", "7, 6", "7, 6", IT("dropout", ", 'p': 0.4, 'shared_dim': 1"), false },
	{ "dropout of samples", "7, 6", "7, 6", IT("dropout", ", 'p': 0.4, 'shared_dim': [1, 2]"), false },
	{ "linear", "7, 6", "7, 5", IT("linear", ", 'out_features': 5"), false },
	{ "conv2d", "3, 8, 9", "5, 8, 9",
	  IT("conv2d", ", 'out_channels': 5, 'kernel': 3, 'padding': 1"), true },
	{ "upsample", "3, 4, 5", "3, 8, 10", IT("upsample", ", 'scale_factor': 2"), false },
	{ "upsample of padded blocks", "1, 4, 5", "2, 8, 7", PADDED_IT("upsample", ", 'size': [8, 7]"), true },
	{ "upsample by blending", "3, 4, 5", "3, 8, 10",
	  IT("upsample", ", 'scale_factor': 2, 'mode': 'bilinear'"), false },
	{ "conv_transpose2d", "3, 4, 5", "5, 8, 10",
	  IT("conv_transpose2d", ", 'out_channels': 5, 'kernel': 2, 'stride': 2"), true },
	{ "add", "7, 6", "7, 3", HALVES "{'name': 'it', 'kind': 'add', 'inputs': ['a', 'b']}", false },
	{ "mul", "7, 6", "7, 3", HALVES "{'name': 'it', 'kind': 'mul', 'inputs': ['a', 'b']}", false },
	{ "mul of unlike shapes", "7, 6", "7, 6", "{'name': 'a', 'kind': 'slice', 'inputs': ['p'], 'dim': -1, "
	  "'start': 3, 'end': 4}, {'name': 'it', 'kind': 'mul', 'inputs': ['p', 'a']}", false },
	{ "add of unlike shapes", "7, 6", "7, 6", "{'name': 'a', 'kind': 'slice', 'inputs': ['p'], 'dim': 1, "
	  "'start': 3, 'end': 4}, {'name': 'it', 'kind': 'add', 'inputs': ['a', 'p']}", false },
	{ "parameter", "7, 6", "7, 6", "{'name': 'a', 'kind': 'parameter', 'inputs': ['p'], 'shape': [1, 6]}, "
	  "{'name': 'it', 'kind': 'add', 'inputs': ['p', 'a']}", false },
	{ "softmax", "7, 6", "7, 6", IT("softmax", ""), false },
	{ "softmax along positions", "7, 6", "7, 6", IT("softmax", ", 'dim': 1"), false },
	{ "concat", "7, 6", "7, 6", HALVES "{'name': 'it', 'kind': 'concat', 'inputs': ['b', 'a'], "
	  "'dim': -1}", false },
	{ "flatten", "7, 6", "42", IT("flatten", ""), false },
	{ "transpose", "7, 6", "6, 7", IT("transpose", ", 'dim0': 1, 'dim1': 2"), false },
	{ "mean", "7, 6", "6", IT("mean", ", 'dim': 1"), false },
	{ "bias", "7, 6", "7, 6", IT("bias", ""), false },
	{ "rope", "7, 6", "7, 6", IT("rope", ""), true },
	{ "embedding", "7, 6", "7, 6", "{'name': 'e', 'kind': 'embedding', 'inputs': ['y'], "
	  "'num_embeddings': 9, 'embedding_dim': 6}, {'name': 'it', 'kind': 'add', 'inputs': ['p', 'e']}",
	  false },
	{ "attention", "7, 12", "7, 4", THIRDS "{'name': 'it', 'kind': 'attention', 'inputs': ['q', 'k', "
	  "'v'], 'heads': 2}", true },
	{ "attention of one key", "1, 12", "1, 4", THIRDS "{'name': 'it', 'kind': 'attention', 'inputs': "
	  "['q', 'k', 'v'], 'heads': 2}", true },
	{ "attention with dropout", "7, 12", "7, 4", THIRDS "{'name': 'it', 'kind': 'attention', 'inputs': "
	  "['q', 'k', 'v'], 'heads': 2, 'causal': true, 'dropout': 0.3}", true },
	{ "attention with a window", "7, 12", "7, 4", THIRDS "{'name': 'it', 'kind': 'attention', 'inputs': "
	  "['q', 'k', 'v'], 'heads': 2, 'causal': true, 'window': 3}", true },
	{ "attention with a bias of positions", "7, 12", "7, 4", THIRDS "{'name': 'it', 'kind': 'attention', "
	  "'inputs': ['q', 'k', 'v'], 'heads': 2, 'relative_buckets': 8, 'max_distance': 6}", true },
	{ "additive_attention", "7, 12", "7, 4", THIRDS "{'name': 'w', 'kind': 'additive_attention', "
	  "'inputs': ['q', 'k']}, {'name': 'it', 'kind': 'add', 'inputs': ['w', 'v']}", false },
	{ "lstm", "7, 6", "7, 5", IT("lstm", ", 'hidden_size': 5"), false },
	{ "lstm in two directions", "7, 6", "7, 10",
	  IT("lstm", ", 'hidden_size': 5, 'bidirectional': true"), false },
	{ "groupnorm", "6, 7", "6, 7", IT("groupnorm", ", 'num_groups': 3"), false },
	{ "groupnorm of blocks", "16, 5, 6", "16, 5, 6", BLOCKED_IT("groupnorm", ", 'num_groups': 4, "
	  "'affine': false"), false },
	{ "prelu", "7, 6", "7, 6", IT("prelu", ""), false },
	{ "prelu by channel", "6, 5, 4", "6, 5, 4", IT("prelu", ", 'num_parameters': 6"), false },
	{ "conv1d", "6, 9", "5, 9", IT("conv1d", ", 'out_channels': 5, 'kernel': 3, 'padding': 1"), true },
};

int64_t kind_case_elements(const char *shape)
{
	int64_t n = 1;

	for (char *end; *shape; shape = *end ? end + 1 : end)
		n *= strtoll(shape, &end, 10);
	return n;
}

struct pd_model *kind_case_model(const struct kind_case *k)
{
	int64_t in = kind_case_elements(k->in), out = kind_case_elements(k->out);
	char *shape = pd_format("%d", (int)(in + out));
	char *layers = pd_format(
		"{'name': 'xs', 'kind': 'slice', 'inputs': ['x'], 'dim': 1, 'end': %d}, "
		"{'name': 'ts', 'kind': 'slice', 'inputs': ['x'], 'dim': 1, 'start': %d}, "
		"{'name': 'xr', 'kind': 'reshape', 'inputs': ['xs'], 'shape': [%s]}, "
		"{'name': 'tr', 'kind': 'reshape', 'inputs': ['ts'], 'shape': [%s]}, "
		"{'name': 'p', 'kind': 'position_embedding', 'inputs': ['xr']}, %s, "
		"{'name': 'r2', 'kind': 'reshape', 'inputs': ['it'], 'shape': [%d, 1]}, "
		"{'name': 'q2', 'kind': 'position_embedding', 'inputs': ['r2']}, "
		"{'name': 't2', 'kind': 'reshape', 'inputs': ['tr'], 'shape': [%d, 1]}, "
		"{'name': 'loss', 'kind': 'mse', 'inputs': ['q2', 't2']}",
		(int)in, (int)in, k->in, k->out, k->layers, (int)out, (int)out);
	struct pd_model *model = model_with(shape, "7", layers);

	free(shape);
	free(layers);
	return model;
}

static void each_of_curve(kind_case_test *test, const struct pd_device_ops *ops, const char *name)
{
	bool spreads = strcmp(name, "gelu") == 0;	/* oneDNN 3 makes a NaN of its infinity, with AVX-512 */
	bool positive = strcmp(name, "log") == 0;	/* it has no other numbers */
	static const struct {
		const char *what, *in, *out, *before, *input;
	} at[] = {
		{ "", "7, 6", "7, 6", "", "p" }, { " of blocks", "16, 5, 6", "16, 5, 6", BLOCKED, "c" },
		{ " of padded blocks", "1, 8, 8", "2, 8, 8", PADDED, "c" },
	};

	for (size_t i = 0; i < PD_COUNT(at); i++) {
		char *what = pd_format("%s%s", name, at[i].what);
		char *some = !positive ? pd_strdup("")
			: pd_format("{'name': 'some', 'kind': 'softplus', 'inputs': ['%s']}, ", at[i].input);
		char *layers = pd_format("%s%s{'name': 'it', 'kind': '%s', 'inputs': ['%s']}", at[i].before, some, name,
					 positive ? "some" : at[i].input);

		test(ops, &(struct kind_case){ what, at[i].in, at[i].out, layers,
						    spreads || i == 2, false });
		free(what);
		free(some);
		free(layers);
	}
}

void each_kind_case(kind_case_test *test, const struct pd_device_ops *ops)
{
	for (size_t k = 0; k < PD_COUNT(cases); k++)
		test(ops, &cases[k]);
#define LAYER_KIND(name, shape, inputs, attributes, parameters, states, flags, what) \
	if (strcmp(#shape, "same") == 0) \
		each_of_curve(test, ops, #name);
#include "model/layer_kind.def"
#undef LAYER_KIND
}
