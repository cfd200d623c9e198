/* SPDX-License-Identifier: Apache-2.0 */
#include "network/config.h"

#include "base/mem.h"
#include "base/names.h"
#include "model/kind.h"
#include "network/builder.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MOST_TOKENS 1024                /* of a sample, unless an option says otherwise */

/* Classes of transformers that a network is, and the words of its size that this says. */
struct architecture {
	const char *name, *words;
};

/* What transformers takes for keys that are missing. */
#define LLAMA "layers=32 hidden=4096 heads=32 kv-heads=0 head-dim=0 feed-forward=11008 vocabulary=32000 " \
	"padding=-1 window=0 tied=false rope-base=10000 rope-factor=1 " \
	"rope-low=1 rope-high=4 rope-original=0 qk-norm=false bias=none activation=silu eps=1e-6 " \
	"deviation=0.02 attention-dropout=0"
#define QWEN LLAMA " kv-heads=32 feed-forward=22016 vocabulary=151936"
static const struct type {
	const char *name;
	const struct pd_family *family;
	const char *size;
	/* positions; how many of them sliding windows see, and behind how many layers these begin */
	int64_t length, window, window_layers;
	bool windows;                   /* unless use_sliding_window says otherwise */
	struct architecture architectures[3];
} types[] = {
	{ "bert", &pd_family_bert, "layers=12 hidden=768 heads=12 feed-forward=3072 positions=512 "
	  "vocabulary=30522 types=2 padding=0 untied=false norm=post head=pretraining activation=gelu "
	  "eps=1e-12 deviation=0.02 dropout=0.1 attention-dropout=0.1", 0, 0, 0, false,
	  { { "BertForPreTraining", "head=pretraining" }, { "BertForMaskedLM", "head=masked" } } },
	{ "gpt2", &pd_family_gpt, "layers=12 hidden=768 heads=12 feed-forward=0 positions=1024 "
	  "vocabulary=50257 untied=false activation=gelu-tanh eps=1e-5 deviation=0.02 dropout=0.1 "
	  "attention-dropout=0.1", 0, 0, 0, false, { { "GPT2LMHeadModel", "" } } },
	{ "llama", &pd_family_llama, LLAMA, 2048, 0, 0, false, { { "LlamaForCausalLM", "" } } },
	{ "mistral", &pd_family_llama, LLAMA " kv-heads=8 feed-forward=14336", 131072, 4096, 0, true,
	  { { "MistralForCausalLM", "" } } },
	{ "qwen2", &pd_family_llama, QWEN " bias=qkv", 32768, 4096, 28, false,
	  { { "Qwen2ForCausalLM", "" } } },
	{ "qwen3", &pd_family_llama, QWEN " head-dim=128 qk-norm=true", 32768, 4096, 28, false,
	  { { "Qwen3ForCausalLM", "" } } },
	{ "vit", &pd_family_vit, "layers=12 hidden=768 heads=12 feed-forward=3072 channels=3 size=224 patch=16 "
	  "classes=2 activation=gelu eps=1e-12 deviation=0.02 dropout=0 attention-dropout=0", 0, 0, 0, false,
	  { { "ViTForImageClassification", "" } } },
};

/* A config.json that is being read. */
struct reader {
	const struct type *type;
	const struct pd_place *root;
	struct pd_network_size *size;
	int64_t length, window, window_layers;  /* as in struct type */
	bool typed;                             /* layer_types says which layers have windows */
	bool windows, attention_bias, mlp_bias;
	bool scaled;                            /* positions, as Llama 3 does */
	bool pads;                              /* a token is padding, as pad_token_id says */
	int64_t padding;                        /* < 0: counted from the end of the vocabulary */
};

typedef int rule(const struct pd_place *at, struct reader *r, const char *text, struct pd_error *err);

/* ---- rules of many keys ---- */

static int size(const struct pd_place *at, struct reader *r, const char *option, struct pd_error *err)
{
	return json_is_null(at->value) ? 0 : pd_network_size_read(at, option, r->size, err);
}

static int size0(const struct pd_place *at, struct reader *r, const char *option, struct pd_error *err)
{
	char words[48];

	if (!json_is_null(at->value))
		return pd_network_size_read(at, option, r->size, err);
	snprintf(words, sizeof(words), "%s=0", option);
	pd_network_size_words(words, r->size);
	return 0;
}

static int harmless(const struct pd_place *at, struct reader *r, const char *text, struct pd_error *err)
{
	(void)at, (void)r, (void)text, (void)err;
	return 0;
}

static bool is_empty(const json_t *value)
{
	return json_is_null(value) || json_is_false(value) ||
	       (json_is_number(value) && json_number_value(value) == 0) ||
	       (json_is_string(value) && json_string_length(value) == 0) ||
	       (json_is_array(value) && json_array_size(value) == 0) ||
	       (json_is_object(value) && json_object_size(value) == 0);
}

static int off(const struct pd_place *at, struct reader *r, const char *why, struct pd_error *err)
{
	(void)r;
	return is_empty(at->value) ? 0 : pd_place_expected(at, err, "none, since %s", why);
}

static int on(const struct pd_place *at, struct reader *r, const char *why, struct pd_error *err)
{
	(void)r;
	return json_is_null(at->value) || json_is_true(at->value) ? 0
		: pd_place_expected(at, err, "true, since %s", why);
}

/* ---- rules of one key ---- */

/* The first one is what the weights are of. */
static int architectures(const struct pd_place *at, struct reader *r, const char *text,
			 struct pd_error *err)
{
	struct pd_place first = pd_place_index(at, 0);
	const char *name = json_string_value(first.value);
	char list[128] = "";

	(void)text;
	if (is_empty(at->value))
		return 0;
	for (const struct architecture *of = r->type->architectures; of->name; of++) {
		if (name && strcmp(name, of->name) == 0) {
			pd_network_size_words(of->words, r->size);
			return 0;
		}
		pd_list_name(list, sizeof(list), of->name, "\"");
	}
	return pd_place_expected(&first, err, "%s, whose head and loss are known here", list);
}

static int length(const struct pd_place *at, struct reader *r, const char *text, struct pd_error *err)
{
	(void)text;
	return json_is_null(at->value) ? 0 : pd_json_int(at, 1, PD_NETWORK_MOST, &r->length, err);
}

static int tied(const struct pd_place *at, struct reader *r, const char *text, struct pd_error *err)
{
	(void)text;
	if (json_is_null(at->value))
		return 0;
	if (pd_json_bool(at, &r->size->tied, err) < 0)
		return -1;
	r->size->untied = !r->size->tied;
	return 0;
}

static int activation(const struct pd_place *at, struct reader *r, const char *text, struct pd_error *err)
{
	static const char *const names[] = {
		"relu", "gelu", "gelu_python", "gelu_new", "gelu_pytorch_tanh", "gelu_python_tanh",
		"gelu_fast", "gelu_accurate", "silu", "swish", "tanh", "sigmoid", NULL
	};
	static const enum pd_network_activation of[] = {
		PD_ACTIVATION_RELU, PD_ACTIVATION_GELU, PD_ACTIVATION_GELU, PD_ACTIVATION_GELU_TANH,
		PD_ACTIVATION_GELU_TANH, PD_ACTIVATION_GELU_TANH, PD_ACTIVATION_GELU_TANH,
		PD_ACTIVATION_GELU_TANH, PD_ACTIVATION_SILU, PD_ACTIVATION_SILU, PD_ACTIVATION_TANH,
		PD_ACTIVATION_SIGMOID
	};
	int name;

	(void)text;
	if (pd_json_get_choice(at->up, at->key, names, &name, err) < 0)
		return -1;
	r->size->activation = of[name];
	return 0;
}

static int attention_bias(const struct pd_place *at, struct reader *r, const char *text,
			  struct pd_error *err)
{
	(void)text;
	return json_is_null(at->value) ? 0 : pd_json_bool(at, &r->attention_bias, err);
}

static int mlp_bias(const struct pd_place *at, struct reader *r, const char *text, struct pd_error *err)
{
	(void)text;
	return json_is_null(at->value) ? 0 : pd_json_bool(at, &r->mlp_bias, err);
}

/* All features of a head are rotated. */
static int whole(const struct pd_place *at, struct reader *r, const char *text, struct pd_error *err)
{
	(void)r, (void)text;
	if (!at->value || json_is_null(at->value) || json_number_value(at->value) == 1)
		return 0;
	return pd_place_expected(at, err, "1, since heads are rotated as a whole here");
}

/* How positions are scaled. */
static int rope_type(const struct pd_place *at, const char **type_p, struct pd_error *err)
{
	struct pd_place type = pd_place_key(at, "rope_type"), old = pd_place_key(at, "type");

	*type_p = "default";
	if (!type.value)
		type = old;
	if (!type.value)
		return 0;
	*type_p = json_string_value(type.value);
	if (*type_p && (strcmp(*type_p, "default") == 0 || strcmp(*type_p, "linear") == 0 ||
			strcmp(*type_p, "llama3") == 0))
		return 0;
	return pd_place_expected(&type, err, "\"default\", \"linear\" or \"llama3\", since rotary positions "
				 "are not scaled otherwise here (delete %s for plain ones, which compute "
				 "something else)", at->key);
}

static int llama3(const struct pd_place *at, struct reader *r, struct pd_error *err)
{
	struct pd_place low = pd_place_key(at, "low_freq_factor"), high = pd_place_key(at, "high_freq_factor");
	struct pd_place original = pd_place_key(at, "original_max_position_embeddings");

	r->scaled = true;
	if (size(&low, r, "rope-low", err) < 0 || size(&high, r, "rope-high", err) < 0)
		return -1;
	return original.value ? size(&original, r, "rope-original", err) : 0;
}

/* Version 4 has an object only where positions are scaled, version 5 always. */
static int rope(const struct pd_place *at, struct reader *r, const char *text, struct pd_error *err)
{
	static const char *const known[] = {
		"rope_type", "type", "rope_theta", "partial_rotary_factor", "factor", "low_freq_factor",
		"high_freq_factor", "original_max_position_embeddings", NULL
	};
	struct pd_place base = pd_place_key(at, "rope_theta"), factor = pd_place_key(at, "factor");
	struct pd_place part = pd_place_key(at, "partial_rotary_factor");
	const char *type;

	(void)text;
	if (is_empty(at->value))
		return 0;
	if (rope_type(at, &type, err) < 0 || pd_json_keys(at, known, err) < 0 ||
	    whole(&part, r, "", err) < 0 || (base.value && size(&base, r, "rope-base", err) < 0))
		return -1;
	if (strcmp(type, "default") == 0)
		return 0;
	if (size(&factor, r, "rope-factor", err) < 0)
		return -1;
	return strcmp(type, "llama3") == 0 ? llama3(at, r, err) : 0;
}

static int window(const struct pd_place *at, struct reader *r, const char *text, struct pd_error *err)
{
	(void)text;
	r->window = 0;
	return json_is_null(at->value) ? 0 : pd_json_int(at, 1, PD_NETWORK_MOST, &r->window, err);
}

static int use_window(const struct pd_place *at, struct reader *r, const char *text, struct pd_error *err)
{
	(void)text;
	return json_is_null(at->value) ? 0 : pd_json_bool(at, &r->windows, err);
}

static int window_layers(const struct pd_place *at, struct reader *r, const char *text,
			 struct pd_error *err)
{
	int64_t layers = r->window_layers;

	(void)text;
	if (!json_is_null(at->value) && pd_json_int(at, 0, PD_NETWORK_MOST, &layers, err) < 0)
		return -1;
	if (!r->typed)
		r->window_layers = layers;
	return 0;
}

/* These count, and not the number of layers without a window. */
static int layer_types(const struct pd_place *at, struct reader *r, const char *text, struct pd_error *err)
{
	size_t count;

	(void)text;
	if (json_is_null(at->value))
		return 0;
	if (pd_json_array(at, &count, err) < 0)
		return -1;
	r->typed = true;
	r->window_layers = PD_NETWORK_MOST;
	for (size_t l = 0; l < count; l++) {
		struct pd_place type = pd_place_index(at, l);
		const char *name = json_string_value(type.value);

		if (name && strcmp(name, "sliding_attention") == 0 && r->type->window > 0)
			r->window_layers = 0;
		else if (!name || strcmp(name, "full_attention") != 0)
			return pd_place_expected(&type, err, "\"full_attention\"");
	}
	return 0;
}

static int positions_absolute(const struct pd_place *at, struct reader *r, const char *text,
			      struct pd_error *err)
{
	const char *name = json_string_value(at->value);

	(void)r, (void)text;
	if (json_is_null(at->value) || (name && strcmp(name, "absolute") == 0))
		return 0;
	return pd_place_expected(at, err, "\"absolute\", since relative positions are not computed here");
}

static int padding(const struct pd_place *at, struct reader *r, const char *text, struct pd_error *err)
{
	(void)text;
	r->pads = !json_is_null(at->value);
	r->size->padding = -1;
	return !r->pads ? 0 : pd_json_int(at, -PD_NETWORK_MOST, PD_NETWORK_MOST, &r->padding, err);
}

/* The classes of an image. */
static int classes(const struct pd_place *at, struct reader *r, const char *text, struct pd_error *err)
{
	(void)text;
	if (json_is_null(at->value))
		return 0;
	r->size->classes = (int64_t)json_object_size(at->value);
	return r->size->classes > 0 ? 0 : pd_place_expected(at, err, "an object with a name for each class");
}

/* There is one probability for all layers but attention. */
static int embedding_dropout(const struct pd_place *at, struct reader *r, const char *text,
			     struct pd_error *err)
{
	struct pd_place other = pd_place_key(r->root, "resid_pdrop");
	double p, blocks = json_is_number(other.value) ? json_number_value(other.value) : 0.1;

	(void)text;
	if (json_is_null(at->value))
		return 0;
	if (pd_json_real(at, 0, 1, &p, err) < 0)
		return -1;
	return p == blocks ? 0 : pd_place_expected(at, err, "%g, as resid_pdrop has, since both are one "
						   "--dropout here", blocks);
}

/* ---- a document ---- */

static const struct row {
	const char *types, *key;
	rule *rule;
	const char *text;
} rows[] = {
#define CONFIG_FIELD(types, key, rule, text) { types, key, rule, text },
#include "network/config.def"
};

static bool is_of(const struct row *row, const struct type *type)
{
	struct pd_word word;

	return strcmp(row->types, "*") == 0 ||
	       pd_word_find(row->types, type->name, strlen(type->name), &word);
}

static int unknown(const struct pd_place *at, const struct type *type, struct pd_error *err)
{
	struct pd_likeness likeness = { .word = at->key };
	char meant[PD_MEANT_TEXT];

	for (size_t f = 0; f < PD_COUNT(rows); f++)
		if (is_of(&rows[f], type))
			pd_likeness_try(&likeness, rows[f].key);
	return pd_place_error(at, err, "no such key of %s is known here, and it may change what is computed: "
			      "delete it if it does not%s", type->name, pd_likeness_say(&likeness, meant));
}

static int read_key(const struct pd_place *at, struct reader *r, struct pd_error *err)
{
	for (size_t f = 0; f < PD_COUNT(rows); f++)
		if (strcmp(rows[f].key, at->key) == 0 && is_of(&rows[f], r->type))
			return rows[f].rule(at, r, rows[f].text, err);
	return json_is_null(at->value) ? 0 : unknown(at, r->type, err);
}

static int find_type(const struct pd_place *root, const struct type **type_p, struct pd_error *err)
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
	return pd_place_expected(&at, err, "one of %s; pd-model(5) says how other networks are written",
				 names);
}

/* The key of the type that says what the option says. */
static struct pd_place place_of(const struct reader *r, const char *option)
{
	for (size_t f = 0; f < PD_COUNT(rows); f++)
		if (strcmp(rows[f].text, option) == 0 && is_of(&rows[f], r->type))
			return pd_place_key(r->root, rows[f].key);
	return *r->root;
}

/* Do the sizes fit each other? */
static int check_heads(const struct reader *r, struct pd_error *err)
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
static int finish_padding(struct reader *r, struct pd_error *err)
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
static int finish(struct reader *r, struct pd_error *err)
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
	if (r->windows && r->window > 0 && r->window_layers < s->layers)
		s->window = r->window;
	if (s->window > 0 && s->window < s->sequence)
		s->sequence = s->window;
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
	struct reader r = { .root = root, .size = &config_p->size };
	const char *key;
	json_t *value;

	if (find_type(root, &r.type, err) < 0)
		return -1;
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
