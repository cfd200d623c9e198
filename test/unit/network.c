/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the networks that pd-model writes, layer by layer, against the figures of the papers. */
#include "network/network.h"

#include "model/model.h"
#include "tap.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static struct pd_model *model_of(const char *preset)
{
	const struct pd_family *family;
	const struct pd_preset *found;
	struct pd_network_size size;
	struct pd_error err = { .text = "" };
	struct pd_model *model = NULL;
	json_t *document;

	pd_network_size_init(&size);
	if (pd_family_find(preset, &family, &found)) {
		document = pd_network_document(family, found, &size, NULL, &err);
		model = document ? pd_model_parse(preset, document, &err) : NULL;
		json_decref(document);
	}
	if (!model)
		diag("%s: %s", preset, err.text);
	return model;
}

/* Counts parameters of layers whose names begin with `prefix`, but not those shared from another layer. */
static int64_t parameters(const struct pd_model *model, const char *prefix)
{
	int64_t sum = 0;

	for (int l = 0; l < model->layer_count; l++)
		if (model->layers[l].shares < 0 &&
		    strncmp(model->layers[l].name, prefix, strlen(prefix)) == 0)
			sum += model->layers[l].parameter_elements;
	return sum;
}

/* Compares GNMT with the network that PipeDream profiled, in bytes of f32. */
static void test_gnmt(void)
{
	static const struct {
		const char *layers;
		int64_t bytes;
	} expected[] = {
		{ "encoder.embedding", 132382720 }, { "decoder.embedding", 132382720 },
		{ "encoder.1", 67174400 }, { "encoder.2", 50364416 }, { "encoder.3", 33587200 },
		{ "encoder.4", 33587200 }, { "decoder.1", 33587200 }, { "attention", 8396804 },
		{ "decoder.2", 50364416 }, { "decoder.3", 50364416 }, { "decoder.4", 50364416 },
		{ "classifier", 132512000 }, { "", 775067908 },
	};
	struct pd_model *model = model_of("gnmt-8");

	for (size_t i = 0; model && i < sizeof(expected) / sizeof(*expected); i++)
		is_int(4 * parameters(model, expected[i].layers), expected[i].bytes,
		       "gnmt-8, %s", *expected[i].layers ? expected[i].layers : "in all");
	pd_model_free(model);
}

/* Checks the parameters of Megatron's networks: 12 h^2 + 13 h in each block, and the layers around. */
static void test_megatron(const char *preset, int64_t layers, int64_t h, int64_t vocabulary,
			  bool bert)
{
	struct pd_model *model = model_of(preset);
	char block[32];

	if (!ok(model != NULL, "%s is a model", preset))
		return;
	for (int64_t l = 0; l < layers; l += layers - 1) {
		snprintf(block, sizeof(block), "h.%" PRId64 ".", l);
		is_int(parameters(model, block), 12 * h * h + 13 * h, "%s: block %d", preset, (int)l);
	}
	is_int(parameters(model, "h."), layers * (12 * h * h + 13 * h), "%s: blocks", preset);
	is_int(parameters(model, "wte"), vocabulary * h, "%s: embedding of tokens", preset);
	is_int(parameters(model, "wpe"), 512 * h, "%s: of positions", preset);
	is_int(parameters(model, "ln_f"), 2 * h, "%s: last normalisation", preset);
	if (bert) {
		is_int(parameters(model, "wtt"), 2 * h, "%s: token types", preset);
		is_int(parameters(model, "pooler"), h * h + h, "%s: pooler", preset);
		is_int(parameters(model, "next"), 2 * h + 2, "%s: next sentence", preset);
	}
	is_int(parameters(model, "head"), bert ? h * h + 3 * h + vocabulary : 0, "%s: head", preset);
	pd_model_free(model);
}

static void test_awd(void)
{
	struct pd_model *model = model_of("awd-lm");

	if (!ok(model != NULL, "awd-lm is a model"))
		return;
	is_int(parameters(model, "embedding"), 10000 * 400, "awd-lm: embedding");
	is_int(parameters(model, "lstm1"), 4 * 1150 * (400 + 1150 + 2), "awd-lm: 400 to 1150");
	is_int(parameters(model, "lstm2"), 4 * 1150 * (1150 + 1150 + 2), "awd-lm: 1150 to 1150");
	is_int(parameters(model, "lstm3"), 4 * 400 * (1150 + 400 + 2), "awd-lm: 1150 to 400");
	is_int(parameters(model, "decoder"), 10000, "awd-lm: a bias beside the shared weight");
	is_int(parameters(model, ""), 24221600, "awd-lm: in all");
	pd_model_free(model);
}

static void test_s2vt(void)
{
	struct pd_model *model = model_of("s2vt");

	if (!ok(model != NULL, "s2vt is a model"))
		return;
	is_int(parameters(model, "frame"), 4097 * 500, "s2vt: 4096 to 500");
	is_int(parameters(model, "word"), 46168 * 500, "s2vt: words");
	is_int(parameters(model, "lstm1"), 4 * 1000 * (500 + 1000 + 1), "s2vt: first LSTM, one bias");
	is_int(parameters(model, "lstm2"), 4 * 1000 * (1501 + 1000 + 1), "s2vt: second, one bias");
	is_int(parameters(model, "classifier"), 46168 * 1001, "s2vt: 1000 to words");
	is_int(4 * parameters(model, ""), 349434672, "s2vt: bytes in all");
	pd_model_free(model);
}

static void test_llama(void)
{
	struct pd_model *model = model_of("llama-3-8b");
	int64_t h = 4096, f = 14336, d = 128;

	if (!ok(model != NULL, "llama-3-8b is a model"))
		return;
	is_int(parameters(model, "model.layers.31."), 2 * h + h * d * (2 * 32 + 2 * 8) + 3 * h * f,
	       "llama-3-8b: a block");
	is_int(parameters(model, ""), 8030261248, "llama-3-8b: in all");
	pd_model_free(model);
}

static void test_totals(void)
{
	static const struct {
		const char *preset;
		int64_t parameters;
	} expected[] = {
		{ "gnmt-16", 1110874372 / 4 }, { "gpt2", 124439808 }, { "gpt-355m", 354347008 },
		{ "gpt-1.3b", 1312673792 }, { "gpt-2.2b", 2156474880 }, { "gpt-3.8b", 3781269504 },
		{ "bert-336m", 336297858 }, { "bert-2.2b", 2121724290 }, { "bert-3.8b", 3739643778 },
		{ "llama-2-7b", 6738415616 }, { "llama-2-13b", 13015864320 },
		{ "tinyllama", 1100048384 }, { "awd-lm-6", 101997200 },
	};

	for (size_t i = 0; i < sizeof(expected) / sizeof(*expected); i++) {
		struct pd_model *model = model_of(expected[i].preset);

		is_int(model ? parameters(model, "") : -1, expected[i].parameters, "%s in all",
		       expected[i].preset);
		pd_model_free(model);
	}
}

int main(void)
{
	test_gnmt();
	test_megatron("gpt-355m", 24, 1024, 50304, false);
	test_megatron("bert-2.2b", 32, 2304, 30592, true);
	test_llama();
	test_awd();
	test_s2vt();
	test_totals();
	return done_testing();
}
