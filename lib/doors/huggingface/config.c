/* SPDX-License-Identifier: Apache-2.0 */
#include "doors/huggingface/config.h"

#include "base/mem.h"
#include "base/names.h"
#include "doors/huggingface/config_rule.h"
#include "model/kind.h"
#include "network/builder.h"

#include <inttypes.h>
#include <string.h>

#define MOST_TOKENS 8192                /* of a sample, unless an option says otherwise */

#define CONFIG_ARCHITECTURE(type, name, words)
#define CONFIG_TYPE(name, prefix, family, length, window, windows, words) \
	{ name, prefix, &pd_family_##family, words, length, window, windows },
static const struct pd_config_type types[] = {
#include "doors/huggingface/config_type.def"
};

static bool is_of(const struct pd_config_row *row, const struct pd_config_type *type)
{
	struct pd_word word;

	return strcmp(row->types, "*") == 0 ||
	       pd_word_find(row->types, type->name, strlen(type->name), &word);
}

const struct pd_config_row *pd_config_find(const struct pd_config_type *type, const char *key)
{
	for (const struct pd_config_row *row = pd_config_rows; row->key; row++)
		if (strcmp(row->key, key) == 0 && is_of(row, type))
			return row;
	return NULL;
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
	const struct pd_config_row *row = pd_config_find(r->type, at->key);

	if (row)
		return row->rule(at, r, row->text, err);
	return json_is_null(at->value) ? 0 : unknown(at, r->type, err);
}

static int find_type(const struct pd_place *root, const struct pd_config_type **type_p, struct pd_error *err)
{
	struct pd_place at = pd_place_key(root, "model_type");
	struct pd_likeness likeness = { 0 };
	char meant[PD_MEANT_TEXT];
	const char *name;

	if (pd_json_string(&at, &name, err) < 0)
		return -1;
	likeness.word = name;
	for (size_t t = 0; t < PD_COUNT(types); t++) {
		*type_p = &types[t];
		if (strcmp(name, types[t].name) == 0)
			return 0;
		pd_likeness_try(&likeness, types[t].name);
	}
	return pd_place_error(&at, err, "no network of type \"%.40s\" is known here%s; "
								    "pd-model(1) lists those that "
			      "are, and says how PyTorch exports others, such as T5, to be "
			      "read", name,
			      pd_likeness_say(&likeness, meant));
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

/* Which layers have windows. */
static int finish_windows(struct pd_config_reader *r, struct pd_error *err)
{
	struct pd_network_size *s = r->size;
	struct pd_place at = pd_place_key(r->root, "layer_types");

	if (!r->windows || r->window == 0) {
		s->windows = (struct pd_layer_set){ 0 };
		s->window_from = 0;
		return 0;
	}
	s->window = r->window;
	if (s->windows.is_said)
		s->window_from = 0;
	else if (s->unrotated_every > 0)
		return pd_place_expected(&at, err, "which layers have a window, an array "
						   "\"full_attention\" and "
					 "\"sliding_attention\"");
	return 0;
}

/* Works out what several keys say together. */
static int finish(struct pd_config_reader *r, struct pd_error *err)
{
	struct pd_network_size *s = r->size;
	int64_t positions = r->length > 0 ? r->length : s->positions;

	if (finish_padding(r, err) < 0)
		return -1;
	if (s->kv_heads == 0)
		s->kv_heads = s->heads;
	if (s->numbered)                /* those behind the padding's */
		positions -= s->padding + 1;
	r->length = positions;
	if (positions > 0)
		s->sequence = positions < MOST_TOKENS ? positions : MOST_TOKENS;
	if (r->scaled && s->rope_original > 0 && s->rope_original < s->sequence)
		s->sequence = s->rope_original;
	if (r->dynamic)
		s->rope_longest = positions;
	if (r->scaled && s->rope_original == 0)
		s->rope_original = positions;
	if (s->head == PD_HEAD_SEQUENCE && s->classes == 1) {
		struct pd_place at = place_of(r, "classes");

		return pd_place_expected(&at, err, "two classes or more: one is a regression, "
						   "whose loss is not "
					 "that of classes");
	}
	return finish_windows(r, err) < 0 || check_heads(r, err) < 0 ? -1 : 0;
}

bool pd_config_is(const json_t *document)
{
	return json_object_get(document, "model_type") || json_object_get(document, "architectures");
}

int pd_config_read(const struct pd_place *root, struct pd_config *config_p, struct pd_error *err)
{
	struct pd_config_reader r = { .root = root, .size = &config_p->size, .dtype = PD_DTYPES };
	struct pd_place first;
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
	r.windows = r.type->windows;
	first = pd_place_key(root, "architectures");
	if (first.value && read_key(&first, &r, err) < 0)
		return -1;
	json_object_foreach(root->value, key, value) {
		struct pd_place at = pd_place_key(root, key);

		if (strcmp(key, first.key) != 0 && read_key(&at, &r, err) < 0)
			return -1;
	}
	if (finish(&r, err) < 0)
		return -1;
	config_p->positions = r.length;
	config_p->dtype = r.dtype;
	return 0;
}
