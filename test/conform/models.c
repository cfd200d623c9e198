/* SPDX-License-Identifier: Apache-2.0 */
/* Models that the tests of devices compute. */
#include "chain.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

struct pd_model *model_of(const char *shape, const char *layers)
{
	return model_with(shape, "", layers);
}

struct pd_model *model_with(const char *shape, const char *labels, const char *layers)
{
	char *text = pd_format("{'format': 'pd-model', 'version': 1, 'name': 'test', 'inputs': "
			       "[{'name': 'x', 'dtype': 'f32', 'shape': [%s]}, "
			       "{'name': 'y', 'dtype': 'i32', 'shape': [%s]}], 'layers': [%s]}",
			       shape, labels, layers);
	struct pd_error err = { .text = "not JSON" };
	struct pd_model *model;
	json_t *value;

	for (char *quote = text; (quote = strchr(quote, '\'')); )
		*quote = '"';
	value = json_loads(text, 0, NULL);
	model = value ? pd_model_parse("test", value, &err) : NULL;
	if (!model)
		pd_bug("%s", err.text);
	json_decref(value);
	free(text);
	return model;
}

/*
 * r1 is read by the next layer, soon after (j) and much later (p2).  n1 and p1 are each read by two
 * layers, one of them a relu that must not overwrite its input; c2 is read twice by one layer.  s1 and s2
 * share their parameters.  r4 reads t3 through one flatten, and another layer reads t3 through another.
 */
static const char branching[] =
	"{'name': 'c1', 'kind': 'conv2d', 'inputs': ['x'], 'out_channels': 20, 'kernel': 3, "
	"'padding': 1}, "
	"{'name': 'r1', 'kind': 'relu', 'inputs': ['c1']}, "
	"{'name': 'n1', 'kind': 'batchnorm2d', 'inputs': ['r1']}, "
	"{'name': 'c2', 'kind': 'conv2d', 'inputs': ['n1'], 'out_channels': 20, 'kernel': 3, "
	"'padding': 1, 'bias': false}, "
	"{'name': 'r5', 'kind': 'relu', 'inputs': ['n1']}, "
	"{'name': 'j', 'kind': 'add', 'inputs': ['c2', 'r1', 'c2', 'r5']}, "
	"{'name': 'r2', 'kind': 'relu', 'inputs': ['j']}, "
	"{'name': 'p1', 'kind': 'maxpool2d', 'inputs': ['r2'], 'kernel': 2}, "
	"{'name': 's1', 'kind': 'conv2d', 'inputs': ['p1'], 'out_channels': 20, 'kernel': 3, "
	"'padding': 1}, "
	"{'name': 't1', 'kind': 'tanh', 'inputs': ['s1']}, "
	"{'name': 's2', 'kind': 'conv2d', 'inputs': ['t1'], 'out_channels': 20, 'kernel': 3, "
	"'padding': 1, 'shares': 's1'}, "
	"{'name': 'd1', 'kind': 'dropout', 'inputs': ['s2'], 'p': 0.2}, "
	"{'name': 'p2', 'kind': 'avgpool2d', 'inputs': ['r1'], 'kernel': 2}, "
	"{'name': 'cat', 'kind': 'concat', 'inputs': ['d1', 'p1', 'p2']}, "
	"{'name': 'c3', 'kind': 'conv2d', 'inputs': ['cat'], 'out_channels': 32, 'kernel': 1}, "
	"{'name': 'u1', 'kind': 'conv_transpose2d', 'inputs': ['c3'], 'out_channels': 32, 'kernel': 2, "
	"'stride': 2}, "
	"{'name': 'u2', 'kind': 'upsample', 'inputs': ['u1'], 'scale_factor': 0.8, 'mode': 'bilinear'}, "
	"{'name': 'p3', 'kind': 'adaptive_avgpool2d', 'inputs': ['u2'], 'output_size': [3, 3]}, "
	"{'name': 't3', 'kind': 'tanh', 'inputs': ['p3']}, "
	"{'name': 'flat', 'kind': 'flatten', 'inputs': ['t3']}, "
	"{'name': 'r4', 'kind': 'relu', 'inputs': ['flat']}, "
	"{'name': 'flat2', 'kind': 'flatten', 'inputs': ['t3']}, "
	"{'name': 'both', 'kind': 'concat', 'inputs': ['r4', 'flat2']}, "
	"{'name': 'f1', 'kind': 'linear', 'inputs': ['both'], 'out_features': 24}, "
	"{'name': 'ln', 'kind': 'layernorm', 'inputs': ['f1']}, "
	"{'name': 'g1', 'kind': 'sigmoid', 'inputs': ['ln']}, "
	"{'name': 'f2', 'kind': 'linear', 'inputs': ['g1'], 'out_features': 10}, "
	"{'name': 'loss', 'kind': 'softmax_cross_entropy', 'inputs': ['f2', 'y']}";

/*
 * The blocks of residual networks: one whose shortcut is the input, one whose shortcut has a convolution,
 * one that normalises first and adds the block's input, and sums without a relu.
 */
static const char residual[] =
	"{'name': 'c0', 'kind': 'conv2d', 'inputs': ['x'], 'out_channels': 8, 'kernel': 3, "
	"'padding': 1}, "
	"{'name': 'n0', 'kind': 'batchnorm2d', 'inputs': ['c0']}, "
	"{'name': 'r0', 'kind': 'relu', 'inputs': ['n0']}, "
	"{'name': 'c1', 'kind': 'conv2d', 'inputs': ['r0'], 'out_channels': 8, 'kernel': 1}, "
	"{'name': 'n1', 'kind': 'batchnorm2d', 'inputs': ['c1']}, "
	"{'name': 'a1', 'kind': 'add', 'inputs': ['n1', 'r0']}, "
	"{'name': 'r1', 'kind': 'relu', 'inputs': ['a1']}, "
	"{'name': 'c2', 'kind': 'conv2d', 'inputs': ['r1'], 'out_channels': 16, 'kernel': 3, "
	"'padding': 1}, "
	"{'name': 'n2', 'kind': 'batchnorm2d', 'inputs': ['c2']}, "
	"{'name': 'c3', 'kind': 'conv2d', 'inputs': ['r1'], 'out_channels': 16, 'kernel': 1}, "
	"{'name': 'n3', 'kind': 'batchnorm2d', 'inputs': ['c3']}, "
	"{'name': 'a2', 'kind': 'add', 'inputs': ['n2', 'n3']}, "
	"{'name': 'n4', 'kind': 'batchnorm2d', 'inputs': ['a2']}, "
	"{'name': 'r4', 'kind': 'relu', 'inputs': ['n4']}, "
	"{'name': 'c4', 'kind': 'conv2d', 'inputs': ['r4'], 'out_channels': 16, 'kernel': 1}, "
	"{'name': 'a3', 'kind': 'add', 'inputs': ['c4', 'a2', 'c4']}, "
	"{'name': 'a4', 'kind': 'add', 'inputs': ['a3', 'a2']}, "
	"{'name': 'n5', 'kind': 'batchnorm2d', 'inputs': ['a4']}, "
	"{'name': 'p', 'kind': 'adaptive_avgpool2d', 'inputs': ['n5'], 'output_size': 1}, "
	"{'name': 'flat', 'kind': 'flatten', 'inputs': ['p']}, "
	"{'name': 'f', 'kind': 'linear', 'inputs': ['flat'], 'out_features': 10}, "
	"{'name': 'loss', 'kind': 'softmax_cross_entropy', 'inputs': ['f', 'y']}";

/* The layers of sequence_model(), on sequences of 11 rows; the labels are lengths, too. */
static const char sequence[] =
	"{'name': 'in', 'kind': 'linear', 'inputs': ['x'], 'out_features': 16}, "
	"{'name': 'ln', 'kind': 'layernorm', 'inputs': ['in']}, "
	"{'name': 'q', 'kind': 'linear', 'inputs': ['ln'], 'out_features': 16}, "
	"{'name': 'k', 'kind': 'linear', 'inputs': ['ln'], 'out_features': 8}, "
	"{'name': 'v', 'kind': 'linear', 'inputs': ['ln'], 'out_features': 12}, "
	"{'name': 'att', 'kind': 'attention', 'inputs': ['q', 'k', 'v', 'y'], 'heads': 4, "
	"'kv_heads': 2, 'causal': true, 'dropout': 0.1}, "
	"{'name': 'o', 'kind': 'linear', 'inputs': ['att'], 'out_features': 16}, "
	"{'name': 'sum', 'kind': 'add', 'inputs': ['o', 'in']}, "
	"{'name': 'add', 'kind': 'bias', 'inputs': ['sum']}, "
	"{'name': 'self', 'kind': 'attention', 'inputs': ['add', 'add', 'add'], 'heads': 2, "
	"'relative_buckets': 8, 'max_distance': 7}, "
	"{'name': 'look', 'kind': 'additive_attention', 'inputs': ['self', 'add', 'y']}, "
	"{'name': 'again', 'kind': 'add', 'inputs': ['look', 'self']}, "
	"{'name': 'few', 'kind': 'linear', 'inputs': ['again'], 'out_features': 3}, "
	"{'name': 'flat', 'kind': 'flatten', 'inputs': ['few']}, "
	"{'name': 't', 'kind': 'tanh', 'inputs': ['flat']}, "
	"{'name': 'f', 'kind': 'linear', 'inputs': ['t'], 'out_features': 10}, "
	"{'name': 'loss', 'kind': 'softmax_cross_entropy', 'inputs': ['f', 'y']}";

struct pd_model *sequence_model(void)
{
	return model_of("11, 6", sequence);
}

/*
 * The layers of recurrent_model().  The labels are lengths, too; b is read twice, and shares its
 * parameters with e; c carries on the state of the minibatch before the last one.
 */
static const char recurrent[] =
	"{'name': 'a', 'kind': 'lstm', 'inputs': ['x', 'y'], 'hidden_size': 7, "
	"'bidirectional': true, 'weight_dropout': 0.3}, "
	"{'name': 'b', 'kind': 'lstm', 'inputs': ['a'], 'hidden_size': 14}, "
	"{'name': 'c', 'kind': 'lstm', 'inputs': ['b'], 'hidden_size': 14, 'lanes': 12, "
	"'weight_dropout': 0.1}, "
	"{'name': 'j', 'kind': 'add', 'inputs': ['c', 'b']}, "
	"{'name': 'd', 'kind': 'dropout', 'inputs': ['j'], 'p': 0.2}, "
	"{'name': 'e', 'kind': 'lstm', 'inputs': ['d'], 'hidden_size': 14, 'shares': 'b'}, "
	"{'name': 'f', 'kind': 'lstm', 'inputs': ['e', 'y'], 'hidden_size': 6, 'bias': false, "
	"'bidirectional': true}, "
	"{'name': 'flat', 'kind': 'flatten', 'inputs': ['f']}, "
	"{'name': 'out', 'kind': 'linear', 'inputs': ['flat'], 'out_features': 10}, "
	"{'name': 'loss', 'kind': 'softmax_cross_entropy', 'inputs': ['out', 'y']}";

struct pd_model *recurrent_model(void)
{
	return model_of("9, 5", recurrent);
}

/*
 * The layers of transformer_model(): tokens and features with positions, a block of attention, in a window, on rotated
 * queries and keys, which are slices of one product, a block with a gate that is scaled by a parameter,
 * layers along the positions, and of features as channels, and a mean that is concatenated with its input.
 */
static const char transformer[] =
	"{'name': 'tok', 'kind': 'embedding', 'inputs': ['y'], 'num_embeddings': 10, "
	"'embedding_dim': 12, 'padding_idx': 7}, "
	"{'name': 'pos', 'kind': 'position_embedding', 'inputs': ['tok'], 'num_embeddings': 9}, "
	"{'name': 'in', 'kind': 'linear', 'inputs': ['x'], 'out_features': 12}, "
	"{'name': 'a0', 'kind': 'add', 'inputs': ['pos', 'in']}, "
	"{'name': 'n1', 'kind': 'rmsnorm', 'inputs': ['a0']}, "
	"{'name': 'qkv', 'kind': 'linear', 'inputs': ['n1'], 'out_features': 36}, "
	"{'name': 'q', 'kind': 'slice', 'inputs': ['qkv'], 'dim': 2, 'end': 12}, "
	"{'name': 'k', 'kind': 'slice', 'inputs': ['qkv'], 'dim': 2, 'start': 12, 'end': 24}, "
	"{'name': 'v', 'kind': 'slice', 'inputs': ['qkv'], 'dim': 2, 'start': 24}, "
	"{'name': 'qr', 'kind': 'rope', 'inputs': ['q'], 'head_dim': 6}, "
	"{'name': 'kr', 'kind': 'rope', 'inputs': ['k'], 'head_dim': 6, 'interleaved': true}, "
	"{'name': 'att', 'kind': 'attention', 'inputs': ['qr', 'kr', 'v'], 'heads': 2, "
	"'causal': true, 'window': 4}, "
	"{'name': 'o', 'kind': 'linear', 'inputs': ['att'], 'out_features': 12}, "
	"{'name': 'a1', 'kind': 'add', 'inputs': ['a0', 'o']}, "
	"{'name': 'n2', 'kind': 'layernorm', 'inputs': ['a1']}, "
	"{'name': 'up', 'kind': 'linear', 'inputs': ['n2'], 'out_features': 20}, "
	"{'name': 's', 'kind': 'silu', 'inputs': ['up']}, "
	"{'name': 'gate', 'kind': 'linear', 'inputs': ['n2'], 'out_features': 20}, "
	"{'name': 'm', 'kind': 'mul', 'inputs': ['s', 'gate']}, "
	"{'name': 'd', 'kind': 'dropout', 'inputs': ['m'], 'p': 0.2, 'shared_dim': 1}, "
	"{'name': 'down', 'kind': 'linear', 'inputs': ['d'], 'out_features': 12}, "
	"{'name': 'lambda', 'kind': 'parameter', 'inputs': ['n2'], 'shape': [1, 12]}, "
	"{'name': 'scaled', 'kind': 'mul', 'inputs': ['down', 'lambda']}, "
	"{'name': 'a2', 'kind': 'add', 'inputs': ['a1', 'scaled']}, "
	"{'name': 't', 'kind': 'transpose', 'inputs': ['a2'], 'dim0': 1, 'dim1': 2}, "
	"{'name': 'line', 'kind': 'conv1d', 'inputs': ['t'], 'out_channels': 12, 'kernel': 3, 'padding': 1, "
	"'groups': 2}, "
	"{'name': 'gn', 'kind': 'groupnorm', 'inputs': ['line'], 'num_groups': 3}, "
	"{'name': 'pr', 'kind': 'prelu', 'inputs': ['gn'], 'num_parameters': 12}, "
	"{'name': 'mix', 'kind': 'linear', 'inputs': ['pr'], 'out_features': 6}, "
	"{'name': 'g', 'kind': 'gelu', 'inputs': ['mix']}, "
	"{'name': 'r', 'kind': 'reshape', 'inputs': ['g'], 'shape': [6, 12]}, "
	"{'name': 'mean', 'kind': 'mean', 'inputs': ['r'], 'dim': 1, 'keepdim': true}, "
	"{'name': 'rest', 'kind': 'slice', 'inputs': ['r'], 'dim': 1, 'start': 1}, "
	"{'name': 'both', 'kind': 'concat', 'inputs': ['mean', 'rest'], 'dim': 1}, "
	"{'name': 'wide', 'kind': 'concat', 'inputs': ['both', 'a2'], 'dim': 2}, "
	"{'name': 'head', 'kind': 'linear', 'inputs': ['wide'], 'out_features': 10}, "
	"{'name': 'loss', 'kind': 'softmax_cross_entropy', 'inputs': ['head', 'y'], "
	"'ignore_index': 3, 'label_smoothing': 0.1}";

struct pd_model *transformer_model(void)
{
	return model_with("6, 8", "6", transformer);
}

struct pd_model *branching_model(void)
{
	return model_of("3, 8, 8", branching);
}

struct pd_model *residual_model(void)
{
	return model_of("3, 6, 6", residual);
}
