/* SPDX-License-Identifier: Apache-2.0 */
#include "doors/huggingface/config.h"

#include "base/mem.h"
#include "base/names.h"
#include "doors/huggingface/config_rule.h"
#include "model/kind.h"
#include "network/builder.h"

#include <inttypes.h>
#include <string.h>

#define MOST_TOKENS 1024                /* of a sample, unless an option says otherwise */

/* What transformers takes for keys that are missing. */
#define LLAMA "layers=32 hidden=4096 heads=32 kv-heads=0 head-dim=0 feed-forward=11008 vocabulary=32000 " \
	"padding=-1 window=0 window-from=0 tied=false rope-base=10000 rope-factor=1 " \
	"rope-low=1 rope-high=4 rope-original=0 qk-norm=false bias=none activation=silu eps=1e-6 " \
	"deviation=0.02 attention-dropout=0"
#define QWEN LLAMA " kv-heads=32 feed-forward=22016 vocabulary=151936"
static const struct pd_config_type types[] = {
	{ "bert", "bert.", &pd_family_bert, "layers=12 hidden=768 heads=12 feed-forward=3072 positions=512 "
	  "vocabulary=30522 types=2 padding=0 untied=false norm=post head=pretraining activation=gelu "
	  "eps=1e-12 deviation=0.02 dropout=0.1 attention-dropout=0.1", 0, 0, 0, false,
	  { { "BertForPreTraining", "head=pretraining" }, { "BertForMaskedLM", "head=masked" } } },
	{ "gpt2", "transformer.", &pd_family_gpt, "layers=12 hidden=768 heads=12 feed-forward=0 positions=1024 "
	  "vocabulary=50257 untied=false activation=gelu-tanh eps=1e-5 deviation=0.02 dropout=0.1 "
	  "attention-dropout=0.1", 0, 0, 0, false, { { "GPT2LMHeadModel", "" } } },
	{ "llama", "model.", &pd_family_llama, LLAMA, 2048, 0, 0, false, { { "LlamaForCausalLM", "" } } },
	{ "mistral", "model.", &pd_family_llama, LLAMA " kv-heads=8 feed-forward=14336", 131072, 4096, 0, true,
	  { { "MistralForCausalLM", "" } } },
	{ "qwen2", "model.", &pd_family_llama, QWEN " bias=qkv", 32768, 4096, 28, false,
	  { { "Qwen2ForCausalLM", "" } } },
	{ "qwen3", "model.", &pd_family_llama, QWEN " head-dim=128 qk-norm=true", 32768, 4096, 28, false,
	  { { "Qwen3ForCausalLM", "" } } },
	{ "vit", "vit.", &pd_family_vit, "layers=12 hidden=768 heads=12 feed-forward=3072 channels=3 size=224 patch=16 "
	  "classes=2 activation=gelu eps=1e-12 deviation=0.02 dropout=0 attention-dropout=0", 0, 0, 0, false,
	  { { "ViTForImageClassification", "" } } },
};

static bool is_of(const struct pd_config_row *row, const struct pd_config_type *type)
{
	struct pd_word word;

	return strcmp(row->types, "*") == 0 ||
	       pd_word_find(row->types, type->name, strlen(type->name), &word);
}

static int unknown(const struct pd_place *at, const struct pd_config_type *type, struct pd_error *err)
{
	struct pd_likeness likeness = { .word = at->key };
	char meant[PD_MEANT_TEXT];

	for (const struct pd_config_row *row = pd_config_rows; row->key; row++)
		if (is_of(row, type))
			pd_likeness_try(&likeness, row->key);
	return pd_place_error(at, err, "no such key of %s is known here, and it may change what is computed: "
			      "delete it if it does not%s", type->name, pd_likeness_say(&likeness, meant));
}

static int read_key(const struct pd_place *at, struct pd_config_reader *r, struct pd_error *err)
{
	for (const struct pd_config_row *row = pd_config_rows; row->key; row++)
		if (strcmp(row->key, at->key) == 0 && is_of(row, r->type))
			return row->rule(at, r, row->text, err);
	return json_is_null(at->value) ? 0 : unknown(at, r->type, err);
}

static int find_type(const struct pd_place *root, const struct pd_config_type **type_p, struct pd_error *err)
{
	struct pd_place at = pd_place_key(root, "model_type");
	char names[128] = "";
	const char *name;

	if (pd_json_string(&at, &name, err) < 0)
		return -1;
	for (size_t t = 0; t < PD_COUNT(types); t++) {
		*type_p = &types[t];
		if (strcmp(name, types[t].name) == 0)
			return 0;
		pd_list_name(names, sizeof(names), types[t].name, "");
	}
	return pd_place_expected(&at, err, "one of %s; pd-model(5) says how other networks are written, pd-model(1) "
				 "how PyTorch exports them, such as T5, to be read", names);
}

/* The key of the type that says what the option says. */
static struct pd_place place_of(const struct pd_config_reader *r, const char *option)
{
	for (const struct pd_config_row *row = pd_config_rows; row->key; row++)
		if (strcmp(row->text, option) == 0 && is_of(row, r->type))
			return pd_place_key(r->root, row->key);
	return *r->root;
}

/* Do the sizes fit each other? */
static int check_heads(const struct pd_config_reader *r, struct pd_error *err)
{
	const struct pd_network_size *s = r->size;
	struct pd_place heads = place_of(r, "heads"), kv = place_of(r, "kv-heads");

	if (s->head_dim <= 0 && s->hidden % s->heads != 0)
		return pd_place_error(&heads, err, "expected a divisor of its %" PRId64 " hidden features, "
				      "found %" PRId64, s->hidden, s->heads);
	if (s->kv_heads != PD_NETWORK_UNSAID && s->heads % s->kv_heads != 0)
		return pd_place_error(&kv, err, "expected a divisor of its %" PRId64 " heads, found %" PRId64,
				      s->heads, s->kv_heads);
	return 0;
}

/* As in PyTorch, a number below 0 is counted from the end. */
static int finish_padding(struct pd_config_reader *r, struct pd_error *err)
{
	struct pd_place at = pd_place_key(r->root, "pad_token_id");
	int64_t vocabulary = r->size->vocabulary;

	if (!r->pads)
		return 0;
	r->size->padding = r->padding < 0 ? vocabulary + r->padding : r->padding;
	return r->size->padding >= 0 && r->size->padding < vocabulary ? 0 :
	       pd_place_expected(&at, err, "null or a token below vocab_size, %" PRId64, vocabulary);
}

/* Works out what several keys say together. */
static int finish(struct pd_config_reader *r, struct pd_error *err)
{
	static const enum pd_network_bias biases[2][2] = { { PD_BIAS_NONE, PD_BIAS_MLP },
							   { PD_BIAS_ATTENTION, PD_BIAS_ALL } };
	struct pd_network_size *s = r->size;
	int64_t positions = r->length > 0 ? r->length : s->positions;

	if (s->kv_heads == 0)
		s->kv_heads = s->heads;
	if (r->attention_bias || r->mlp_bias)
		s->bias = biases[r->attention_bias][r->mlp_bias];
	if (positions > 0)
		s->sequence = positions < MOST_TOKENS ? positions : MOST_TOKENS;
	if (r->windows && r->window > 0 && r->window_layers < s->layers) {
		s->window = r->window;
		s->window_from = r->window_layers;
	}
	if (r->scaled && s->rope_original == 0)
		s->rope_original = positions;
	return finish_padding(r, err) < 0 || check_heads(r, err) < 0 ? -1 : 0;
}

bool pd_config_is(const json_t *document)
{
	return json_object_get(document, "model_type") || json_object_get(document, "architectures");
}

int pd_config_read(const struct pd_place *root, struct pd_config *config_p, struct pd_error *err)
{
	struct pd_config_reader r = { .root = root, .size = &config_p->size };
	const char *key;
	json_t *value;

	if (find_type(root, &r.type, err) < 0)
		return -1;
	config_p->type = r.type;
	config_p->family = r.type->family;
	pd_network_size_init(r.size);
	pd_network_size_words(r.type->size, r.size);
	r.length = r.type->length;
	r.window = r.type->window;
	r.window_layers = r.type->window_layers;
	r.windows = r.type->windows;
	json_object_foreach(root->value, key, value) {
		struct pd_place at = pd_place_key(root, key);

		if (read_key(&at, &r, err) < 0)
			return -1;
	}
	return finish(&r, err);
}
