/* SPDX-License-Identifier: Apache-2.0 */
#include "doors/huggingface/config_rule.h"

#include <stdio.h>
#include <string.h>

/* ---- rules of many keys ---- */

static int size(const struct pd_place *at, struct pd_config_reader *r, const char *option, struct pd_error *err)
{
	return json_is_null(at->value) ? 0 : pd_network_size_read(at, option, r->size, err);
}

static int size0(const struct pd_place *at, struct pd_config_reader *r, const char *option, struct pd_error *err)
{
	char words[48];

	if (!json_is_null(at->value))
		return pd_network_size_read(at, option, r->size, err);
	snprintf(words, sizeof(words), "%s=0", option);
	pd_network_size_words(words, r->size);
	return 0;
}

static int harmless(const struct pd_place *at, struct pd_config_reader *r, const char *text, struct pd_error *err)
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

static int off(const struct pd_place *at, struct pd_config_reader *r, const char *why, struct pd_error *err)
{
	(void)r;
	return is_empty(at->value) ? 0 : pd_place_expected(at, err, "none, since %s", why);
}

static int on(const struct pd_place *at, struct pd_config_reader *r, const char *why, struct pd_error *err)
{
	(void)r;
	return json_is_null(at->value) || json_is_true(at->value) ? 0
		: pd_place_expected(at, err, "true, since %s", why);
}

/* ---- rules of one key ---- */

/* The first one is what the weights are of. */
static int architectures(const struct pd_place *at, struct pd_config_reader *r, const char *text,
			 struct pd_error *err)
{
	struct pd_place first = pd_place_index(at, 0);
	const char *name = json_string_value(first.value);
	char list[128] = "";

	(void)text;
	if (is_empty(at->value))
		return 0;
	for (const struct pd_config_architecture *of = r->type->architectures; of->name; of++) {
		if (name && strcmp(name, of->name) == 0) {
			pd_network_size_words(of->words, r->size);
			return 0;
		}
		pd_list_name(list, sizeof(list), of->name, "\"");
	}
	return pd_place_expected(&first, err, "%s, whose head and loss are known here", list);
}

static int length(const struct pd_place *at, struct pd_config_reader *r, const char *text, struct pd_error *err)
{
	(void)text;
	return json_is_null(at->value) ? 0 : pd_json_int(at, 1, PD_NETWORK_MOST, &r->length, err);
}

static int tied(const struct pd_place *at, struct pd_config_reader *r, const char *text, struct pd_error *err)
{
	(void)text;
	if (json_is_null(at->value))
		return 0;
	if (pd_json_bool(at, &r->size->tied, err) < 0)
		return -1;
	r->size->untied = !r->size->tied;
	return 0;
}

static int activation(const struct pd_place *at, struct pd_config_reader *r, const char *text, struct pd_error *err)
{
	static const char *const names[] = {
		"relu", "gelu", "gelu_python", "gelu_new", "gelu_pytorch_tanh", "gelu_python_tanh",
		"gelu_fast", "gelu_accurate", "silu", "swish", "tanh", "sigmoid", "relu6", "leaky_relu",
		"hardswish", NULL
	};
	static const enum pd_network_activation of[] = {
		PD_ACTIVATION_RELU, PD_ACTIVATION_GELU, PD_ACTIVATION_GELU, PD_ACTIVATION_GELU_TANH,
		PD_ACTIVATION_GELU_TANH, PD_ACTIVATION_GELU_TANH, PD_ACTIVATION_GELU_TANH,
		PD_ACTIVATION_GELU_TANH, PD_ACTIVATION_SILU, PD_ACTIVATION_SILU, PD_ACTIVATION_TANH,
		PD_ACTIVATION_SIGMOID, PD_ACTIVATION_RELU6, PD_ACTIVATION_LEAKY_RELU, PD_ACTIVATION_HARDSWISH
	};
	int name;

	(void)text;
	if (pd_json_get_choice(at->up, at->key, names, &name, err) < 0)
		return -1;
	r->size->activation = of[name];
	return 0;
}

static int attention_bias(const struct pd_place *at, struct pd_config_reader *r, const char *text,
			  struct pd_error *err)
{
	(void)text;
	return json_is_null(at->value) ? 0 : pd_json_bool(at, &r->attention_bias, err);
}

static int mlp_bias(const struct pd_place *at, struct pd_config_reader *r, const char *text, struct pd_error *err)
{
	(void)text;
	return json_is_null(at->value) ? 0 : pd_json_bool(at, &r->mlp_bias, err);
}

/*
 * What says how positions are rotated, as transformers 5 reads a file that has several: rope_scaling of version 4, or
 * else rope_parameters; and what these say counts more than the same key beside them.
 */
static struct pd_place rope_place(const struct pd_place *root)
{
	struct pd_place old = pd_place_key(root, "rope_scaling");

	return !old.value || is_empty(old.value) ? pd_place_key(root, "rope_parameters") : old;
}

/* Is a key of the root said again, where it counts? */
static bool said_in_rope(const struct pd_place *at, const struct pd_config_reader *r)
{
	struct pd_place rope = rope_place(r->root);

	return at->up == r->root && json_object_get(rope.value, at->key);
}

static int rope_base(const struct pd_place *at, struct pd_config_reader *r, const char *text, struct pd_error *err)
{
	(void)text;
	return said_in_rope(at, r) ? 0 : size(at, r, "rope-base", err);
}

/* All features of a head are rotated. */
static int whole(const struct pd_place *at, struct pd_config_reader *r, const char *text, struct pd_error *err)
{
	(void)text;
	if (!at->value || json_is_null(at->value) || json_number_value(at->value) == 1 || said_in_rope(at, r))
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

static int llama3(const struct pd_place *at, struct pd_config_reader *r, struct pd_error *err)
{
	struct pd_place low = pd_place_key(at, "low_freq_factor"), high = pd_place_key(at, "high_freq_factor");
	struct pd_place original = pd_place_key(at, "original_max_position_embeddings");

	r->scaled = true;
	if (size(&low, r, "rope-low", err) < 0 || size(&high, r, "rope-high", err) < 0)
		return -1;
	return original.value ? size(&original, r, "rope-original", err) : 0;
}

/* Version 4 has an object only where positions are scaled, version 5 always. */
static int rope(const struct pd_place *at, struct pd_config_reader *r, const char *text, struct pd_error *err)
{
	static const char *const known[] = {
		"rope_type", "type", "rope_theta", "partial_rotary_factor", "factor", "low_freq_factor",
		"high_freq_factor", "original_max_position_embeddings", NULL
	};
	struct pd_place base = pd_place_key(at, "rope_theta"), factor = pd_place_key(at, "factor");
	struct pd_place part = pd_place_key(at, "partial_rotary_factor");
	const char *type;

	(void)text;
	if (is_empty(at->value) || rope_place(r->root).value != at->value)
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

static int window(const struct pd_place *at, struct pd_config_reader *r, const char *text, struct pd_error *err)
{
	(void)text;
	r->window = 0;
	return json_is_null(at->value) ? 0 : pd_json_int(at, 1, PD_NETWORK_MOST, &r->window, err);
}

static int use_window(const struct pd_place *at, struct pd_config_reader *r, const char *text, struct pd_error *err)
{
	(void)text;
	return json_is_null(at->value) ? 0 : pd_json_bool(at, &r->windows, err);
}

static int window_layers(const struct pd_place *at, struct pd_config_reader *r, const char *text,
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

/* These count, and not the number of layers without a window.  Windows begin at one layer, and do not end. */
static int layer_types(const struct pd_place *at, struct pd_config_reader *r, const char *text, struct pd_error *err)
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
			r->window_layers = r->window_layers < (int64_t)l ? r->window_layers : (int64_t)l;
		else if (!name || strcmp(name, "full_attention") != 0)
			return pd_place_expected(&type, err, "\"full_attention\"");
		else if (r->window_layers < PD_NETWORK_MOST)
			return pd_place_expected(&type, err, "\"sliding_attention\", since windows begin at "
						 "one layer and do not end here");
	}
	return 0;
}

static int positions_absolute(const struct pd_place *at, struct pd_config_reader *r, const char *text,
			      struct pd_error *err)
{
	const char *name = json_string_value(at->value);

	(void)r, (void)text;
	if (json_is_null(at->value) || (name && strcmp(name, "absolute") == 0))
		return 0;
	return pd_place_expected(at, err, "\"absolute\", since relative positions are not computed here");
}

static int padding(const struct pd_place *at, struct pd_config_reader *r, const char *text, struct pd_error *err)
{
	(void)text;
	r->pads = !json_is_null(at->value);
	r->size->padding = -1;
	return !r->pads ? 0 : pd_json_int(at, -PD_NETWORK_MOST, PD_NETWORK_MOST, &r->padding, err);
}

/* The classes of an image. */
static int classes(const struct pd_place *at, struct pd_config_reader *r, const char *text, struct pd_error *err)
{
	(void)text;
	if (json_is_null(at->value))
		return 0;
	r->size->classes = (int64_t)json_object_size(at->value);
	return r->size->classes > 0 ? 0 : pd_place_expected(at, err, "an object with a name for each class");
}

/* There is one probability for all layers but attention. */
static int embedding_dropout(const struct pd_place *at, struct pd_config_reader *r, const char *text,
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

const struct pd_config_row pd_config_rows[] = {
#define CONFIG_FIELD(types, key, rule, text) { types, key, rule, text },
#include "doors/huggingface/config.def"
	{ NULL, NULL, NULL, NULL }
};
