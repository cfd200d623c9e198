/* SPDX-License-Identifier: Apache-2.0 */
/* What layers cost is what loops over their elements count. */
#include "estimate/split.h"

#include "base/json.h"
#include "base/mem.h"
#include "tap.h"
#include "unit/document.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The kinds whose products test_products() counts. */
static const enum pd_layer_kind counted_kinds[] = {
	PD_LAYER_conv2d, PD_LAYER_conv1d, PD_LAYER_conv_transpose2d, PD_LAYER_linear, PD_LAYER_attention,
	PD_LAYER_additive_attention, PD_LAYER_lstm,
};

static void test_rows(void)
{
	bool multiplies[PD_LAYER_KINDS] = { false };
	int rows[PD_LAYER_KINDS] = { 0 };
	const char *without = NULL;

#define KIND_COST(kind, ...) rows[PD_LAYER_##kind]++;
#include "estimate/kind_cost.def"
	for (int k = 0; k < PD_LAYER_KINDS; k++)
		if (rows[k] != 1)
			without = pd_layer_kind_name[k];
	is_str(without ? without : "all", "all", "every kind has one row of costs");
	/* whoever adds a kind with products counts them below, too */
#define KIND_COST(kind, products, ...) if (strcmp(#products, "none") != 0) multiplies[PD_LAYER_##kind] = true;
#include "estimate/kind_cost.def"
	for (size_t i = 0; i < PD_COUNT(counted_kinds); i++)
		multiplies[counted_kinds[i]] = false;
	for (int k = 0; k < PD_LAYER_KINDS; k++)
		if (multiplies[k])
			without = pd_layer_kind_name[k];
	is_str(without ? without : "all", "all", "the products of every kind that has some are counted");
}

/* Returns the operations of a part of layer 0 of a network with one layer that counts, and its loss. */
static double operations(const char *input, const char *layers, enum pd_cost_part part)
{
	char text[1024];
	struct pd_error err;
	struct pd_model *model;
	struct pd_cost_layer of;
	struct pd_cost cost;
	json_t *json;

	snprintf(text, sizeof(text), "{'format': 'pd-model', 'version': 1, 'name': 'n', 'inputs': [{'name': 'x', "
		 "'dtype': 'f32', 'shape': %s}], 'layers': [%s]}", input, layers);
	json = document_parse(text, &err);
	model = json ? pd_model_parse("model", json, &err) : NULL;
	json_decref(json);
	if (!model) {
		diag("%s", err.text);
		return -1;
	}
	of = (struct pd_cost_layer){ model, &model->layers[model->layer_count - 1], 3, PD_F32, false, false, PD_SHARE_ALL };
	pd_cost_count(&of, part, &cost);
	pd_model_free(model);
	return pd_cost_operations(&cost);
}

/* A layer in front, so that there is a gradient of the inputs. */
#define FRONT "{'name': 'p', 'kind': 'bias', 'inputs': ['x']}, "

static void test_products(void)
{
	static const char conv[] = FRONT "{'name': 'c', 'kind': 'conv2d', 'inputs': ['p'], 'out_channels': 6, 'kernel': "
				   "[3, 2], 'stride': [2, 1], 'groups': 2}";
	static const char up[] = FRONT "{'name': 'c', 'kind': 'conv_transpose2d', 'inputs': ['p'], 'out_channels': 6, "
				 "'kernel': [3, 2], 'groups': 2}";
	static const char line[] = FRONT "{'name': 'c', 'kind': 'conv1d', 'inputs': ['p'], 'out_channels': 6, 'kernel': 3}";
	static const char full[] = FRONT "{'name': 'l', 'kind': 'linear', 'inputs': ['p'], 'out_features': 7}";
	static const char attention[] = FRONT "{'name': 'a', 'kind': 'attention', 'inputs': ['p', 'p', 'p'], 'heads': 2, "
					"'causal': true}";
	static const char biased[] = FRONT "{'name': 'a', 'kind': 'attention', 'inputs': ['p', 'p', 'p'], 'heads': 2, "
				     "'causal': true, 'relative_buckets': 8}";
	static const char windowed[] = FRONT "{'name': 'a', 'kind': 'attention', 'inputs': ['p', 'p', 'p'], 'heads': 2, "
				       "'causal': true, 'window': 4}";
	static const char lstm[] = FRONT "{'name': 'l', 'kind': 'lstm', 'inputs': ['p'], 'hidden_size': 5, "
				   "'bidirectional': true}";
	static const char additive[] = FRONT "{'name': 'a', 'kind': 'additive_attention', 'inputs': ['p', 'p']}";
	int64_t counted;

	for (int part = 0; part < PD_COST_PARTS; part++) {
		counted = 0;
		for (int n = 0; n < 3; n++)
			for (int o = 0; o < 6; o++)
				for (int y = 0; y + 3 <= 9; y += 2)
					for (int x = 0; x + 2 <= 8; x++)
						counted += 2 * 3 * 2 * (4 / 2);
		is_int((int64_t)operations("[4, 9, 8]", conv, (enum pd_cost_part)part), counted, "conv2d, part %d", part);
		counted = 0;
		for (int n = 0; n < 3; n++)
			for (int i = 0; i < 4; i++)
				for (int at = 0; at < 9 * 8; at++)
					counted += 2 * 3 * 2 * (6 / 2);
		is_int((int64_t)operations("[4, 9, 8]", up, (enum pd_cost_part)part), counted,
		       "conv_transpose2d, part %d", part);
		is_int((int64_t)operations("[4, 9]", line, (enum pd_cost_part)part), 2 * 3 * 6 * 7 * 3 * 4,
		       "conv1d, part %d", part);
		is_int((int64_t)operations("[5, 4]", full, (enum pd_cost_part)part), 2 * 3 * 5 * 4 * 7, "linear, part %d",
		       part);
		is_int((int64_t)operations("[11, 6]", lstm, (enum pd_cost_part)part),
		       (int64_t)2 * 3 * 11 * 2 * 20 * (6 + 5), "lstm, part %d", part);
	}
	counted = 0;
	for (int query = 0; query < 11; query++)
		for (int key = 0; key <= query; key++)
			counted += 3 * 2 * 2 * (3 + 3);
	is_int((int64_t)operations("[11, 6]", attention, PD_COST_FORWARD), counted, "attention: what it sees");
	is_int((int64_t)operations("[11, 6]", attention, PD_COST_INPUT), counted / 2 * 5,
	       "its backward has five products for two");
	is_int((int64_t)operations("[11, 6]", attention, PD_COST_WEIGHT), 0, "and no parameters");
	is_int((int64_t)operations("[11, 6]", biased, PD_COST_INPUT), counted / 2 * 5, "with a bias, too");
	is_int((int64_t)operations("[11, 6]", biased, PD_COST_WEIGHT), 0, "whose gradient is made beside the others");
	/* queries and keys by their matrices; each pair has a score, a sum over features, and a part of the output */
	for (int part = 0; part < PD_COST_PARTS; part++) {
		counted = 3 * 2 * (11 + 11) * 6 * 6;
		for (int query = 0; query < 11 && part != PD_COST_WEIGHT; query++)
			for (int key = 0; key < 11; key++)      /* backward makes scores again, and both their gradients */
				counted += 3 * 2 * (part == PD_COST_INPUT ? 2 * 6 + 2 * 6 : 6 + 6);
		is_int((int64_t)operations("[11, 6]", additive, (enum pd_cost_part)part), counted,
		       "additive_attention, part %d", part);
	}
	counted = 0;
	for (int query = 0; query < 16; query++)
		for (int key = query < 3 ? 0 : query - 3; key <= query; key++)
			counted += 3 * 2 * 2 * (3 + 3);
	/* 58 pairs of 16 queries are 3.6 for each, and count as four */
	is_int((int64_t)operations("[16, 6]", windowed, PD_COST_FORWARD), counted / 58 * 64, "a window of keys");
	is_int((int64_t)operations("[4]", "{'name': 'l', 'kind': 'linear', 'inputs': ['x'], 'out_features': 7}",
				   PD_COST_INPUT), 0, "nobody wants a gradient of the network's inputs");
}

/* Parses layers of a network of 8 x 12 numbers, and writes how each is shared out over two devices. */
static const char *splits(const char *layers, char text[64])
{
	char json_text[2048];
	struct pd_error err;
	struct pd_model *model;
	struct pd_split split;
	json_t *json;

	snprintf(json_text, sizeof(json_text), "{'format': 'pd-model', 'version': 1, 'name': 'n', 'inputs': [{'name': "
		 "'x', 'dtype': 'f32', 'shape': [8, 12]}, {'name': 'y', 'dtype': 'i32', 'shape': [8]}], 'layers': [%s]}",
		 layers);
	json = document_parse(json_text, &err);
	model = json ? pd_model_parse("model", json, &err) : NULL;
	json_decref(json);
	if (!model || pd_split_find(model, 2, false, &split, &err) < 0) {
		snprintf(text, 64, "%.60s", err.text);
		pd_model_free(model);
		return text;
	}
	for (int l = 0; l < model->layer_count; l++)
		text[l] = "WCRFV"[split.layers[l].kind];
	text[model->layer_count] = '\0';
	pd_split_release(&split);
	pd_model_free(model);
	return text;
}

#define LINEAR(name, input, features) "{'name': '" name "', 'kind': 'linear', 'inputs': ['" input "'], " \
				      "'out_features': " #features "}, "
#define GELU(name, input) "{'name': '" name "', 'kind': 'gelu', 'inputs': ['" input "']}, "
#define NORM(name, input) "{'name': '" name "', 'kind': 'layernorm', 'inputs': ['" input "']}, "
#define LOSS(input) "{'name': 'loss', 'kind': 'softmax_cross_entropy', 'inputs': ['" input "', 'y']}"

static void test_splits(void)
{
	char text[64];

	is_str(splits(LINEAR("a", "x", 20) GELU("g", "a") LINEAR("b", "g", 12) NORM("n", "b") LOSS("n"), text), "CFRWW",
	       "two with an activation between them");
	is_str(splits(LINEAR("q", "x", 12) LINEAR("k", "x", 12) LINEAR("v", "x", 12) "{'name': 'a', 'kind': 'attention', "
		      "'inputs': ['q', 'k', 'v'], 'heads': 4}, " LINEAR("o", "a", 12) LOSS("o"), text), "CCCFRW",
	       "attention by heads");
	is_str(splits(LINEAR("a", "x", 12) LINEAR("b", "a", 12) LINEAR("c", "b", 12) LINEAR("d", "c", 12) LOSS("d"), text),
	       "CRCRW", "one behind the other: each in one pair");
	is_str(splits(LINEAR("a", "x", 20) NORM("n", "a") LINEAR("b", "n", 12) LINEAR("c", "b", 12) LINEAR("d", "c", 64)
		      LOSS("d"), text), "WWCRCF", "a normalisation needs all features; many classes are shared out");
	is_str(splits(LINEAR("a", "x", 12) GELU("g", "a") LINEAR("b", "g", 12) "{'name': 's', 'kind': 'add', 'inputs': "
		      "['a', 'b']}, " LINEAR("c", "s", 12) LINEAR("d", "c", 12) LOSS("d"), text), "WWWWCRW",
	       "what is used elsewhere stays whole");
	is_str(splits(LINEAR("a", "x", 15) LINEAR("b", "a", 12) LOSS("b"), text),
	       "layer \"a\" has 15 features, which 2 devices cannot share out", "features that are no multiple");
}

int main(void)
{
	test_splits();
	test_rows();
	test_products();
	return done_testing();
}
