/* SPDX-License-Identifier: Apache-2.0 */
#include "layers.h"
#include "tap.h"

#include "base/mem.h"

#include <stdlib.h>

/* A layer of attention on sequences of `rows` rows, or, with more_queries or more_keys, twice as many. */
struct attention_case {
	int rows;
	bool more_queries, more_keys;
	int heads, kv_heads, width, value_width;
	const char *attributes;
	bool lengths;                   /* the sequences' lengths are the labels, 0 to 8 */
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
		"'bias': false}, "      /* no bias, since its gradient would be 0 */
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

/* Cases with rows below, at and above the edges of a tile, and heads that suit tensor cores or not. */
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
	{ 67, false, false, 2, 1, 64, 40, ", 'causal': true, 'dropout': 0.2", false },
	{ 65, true, false, 1, 1, 24, 64, "", true },
	{ 66, false, true, 2, 1, 72, 128, ", 'causal': true", true },
	{ 80, true, false, 1, 1, 128, 8, ", 'dropout': 0.3", false },
	{ 9, false, false, 2, 1, 72, 136, ", 'causal': true", false },
	{ 66, false, false, 1, 1, 80, 65, "", false },
	/* windows: of one key, past the end of the keys, over several tiles, with and without tensor cores */
	{ 9, false, false, 2, 1, 4, 4, ", 'causal': true, 'window': 1", false },
	{ 10, true, false, 2, 2, 3, 5, ", 'causal': true, 'window': 4", true },
	{ 12, false, true, 1, 1, 8, 8, ", 'causal': true, 'window': 100", false },
	{ 66, false, false, 2, 1, 8, 16, ", 'causal': true, 'window': 3, 'dropout': 0.2", true },
	{ 140, false, false, 1, 1, 72, 80, ", 'causal': true, 'window': 65", false },
	{ 131, true, false, 2, 1, 9, 5, ", 'causal': true, 'window': 20, 'dropout': 0.1", false },
	{ 260, false, false, 1, 1, 16, 8, ", 'causal': true, 'window': 70", false },
	/* biases of relative positions: both directions and one, buckets of one distance, of many and of none */
	{ 1, false, false, 1, 1, 1, 1, ", 'relative_buckets': 4, 'max_distance': 2", false },
	{ 9, false, false, 4, 2, 3, 4, ", 'relative_buckets': 6, 'scale': 1, 'max_distance': 5", false },
	{ 10, true, false, 2, 1, 4, 4, ", 'causal': true, 'relative_buckets': 5, 'max_distance': 8", true },
	{ 12, false, true, 2, 2, 8, 8, ", 'relative_buckets': 32, 'dropout': 0.2", true },
	{ 66, false, false, 2, 1, 8, 16, ", 'causal': true, 'window': 3, 'relative_buckets': 7, 'max_distance': 4", false },
	{ 67, true, false, 1, 1, 16, 16, ", 'relative_buckets': 12, 'max_distance': 100, 'dropout': 0.1", false },
	{ 65, false, true, 2, 1, 72, 80, ", 'relative_buckets': 32", true },
	{ 131, false, false, 2, 2, 9, 5, ", 'causal': true, 'relative_buckets': 16, 'max_distance': 40", false },
	{ 140, false, false, 1, 1, 72, 136, ", 'relative_buckets': 10, 'max_distance': 64", false },
	{ 200, false, false, 2, 1, 16, 8, ", 'relative_buckets': 256, 'max_distance': 4000", false },
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

/* Additive attention with queries and keys of `rows` rows, or twice as many, of `width` features. */
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

/* Returns the bytes of the layer called "it" on sequences of so many rows. */
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

/* Checks that bytes grow as the rows, which are multiples of a tile's so that none are rounded up. */
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

void layers_attention_reference(void)
{
	for (size_t i = 0; i < PD_COUNT(additive_cases); i++)
		conform_differences(additive_model(&additive_cases[i]), "additive attention");
	for (size_t i = 0; i < PD_COUNT(attention_cases); i++)
		if (attention_cases[i].rows < 20)
			conform_differences(attention_model(&attention_cases[i]), "attention");
}

void layers_attention(const struct pd_device_ops *ops)
{
	test_attention(ops);
	test_additive_attention(ops);
	test_attention_memory(ops, false);
	test_attention_memory(ops, true);
}
