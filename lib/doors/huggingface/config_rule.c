/* SPDX-License-Identifier: Apache-2.0 */
#include "doors/huggingface/config_rule.h"

#include "base/mem.h"
#include "base/names.h"

#include <math.h>
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

static const struct pd_config_architecture architecture_rows[] = {
#define CONFIG_TYPE(name, prefix, family, length, window, windows, words)
#define CONFIG_ARCHITECTURE(type, name, words) { type, name, words },
#include "doors/huggingface/config_type.def"
};

/* The first one is what the weights are of. */
static int architectures(const struct pd_place *at, struct pd_config_reader *r, const char *text,
			 struct pd_error *err)
{
	struct pd_place first = pd_place_index(at, 0);
	const char *name = json_string_value(first.value);
	char list[300] = "";

	(void)text;
	if (is_empty(at->value))
		return 0;
	for (size_t a = 0; a < PD_COUNT(architecture_rows); a++) {
		const struct pd_config_architecture *of = &architecture_rows[a];

		if (strcmp(of->type, r->type->name) != 0)
			continue;
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

/* Names of transformers' table of activations that several of ours have, and others' own. */
static const struct activation_name {
	const char *name;
	enum pd_network_activation is;
} activation_names[] = {
	{ "relu", PD_ACTIVATION_RELU }, { "gelu", PD_ACTIVATION_GELU }, 
	{ "gelu_python", PD_ACTIVATION_GELU },
	{ "gelu_new", PD_ACTIVATION_GELU_TANH }, { "gelu_pytorch_tanh", PD_ACTIVATION_GELU_TANH },
	{ "gelu_python_tanh", PD_ACTIVATION_GELU_TANH }, { "gelu_fast", PD_ACTIVATION_GELU_TANH },
	{ "gelu_accurate", PD_ACTIVATION_GELU_TANH }, { "gelu_10", PD_ACTIVATION_GELU_10 },
	{ "quick_gelu", PD_ACTIVATION_QUICK_GELU }, { "silu", PD_ACTIVATION_SILU },
	{ "swish", PD_ACTIVATION_SILU }, { "tanh", PD_ACTIVATION_TANH }, 
	{ "sigmoid", PD_ACTIVATION_SIGMOID },
	{ "relu6", PD_ACTIVATION_RELU6 }, { "leaky_relu", PD_ACTIVATION_LEAKY_RELU },
	{ "hardswish", PD_ACTIVATION_HARDSWISH }, { "relu2", PD_ACTIVATION_RELU2 },
	{ "mish", PD_ACTIVATION_MISH }, { "laplace", PD_ACTIVATION_LAPLACE },
	{ "sqrtsoftplus", PD_ACTIVATION_SQRT_SOFTPLUS }, { "linear", PD_ACTIVATION_LINEAR },
};

static int activation(const struct pd_place *at, struct pd_config_reader *r, const char *text, struct pd_error *err)
{
	const char *names[PD_COUNT(activation_names) + 1] = { NULL };
	int name;

	(void)text;
	for (size_t a = 0; a < PD_COUNT(activation_names); a++)
		names[a] = activation_names[a].name;
	if (pd_json_get_choice(at->up, at->key, names, &name, err) < 0)
		return -1;
	r->size->activation = activation_names[name].is;
	return 0;
}

/*
 * As in transformers, "gelu" is the approximation in networks for which it was written by mistake.
 */
static int activation_tanh(const struct pd_place *at, struct pd_config_reader *r, const char *text,
			   struct pd_error *err)
{
	if (activation(at, r, text, err) < 0)
		return -1;
	if (r->size->activation == PD_ACTIVATION_GELU)
		r->size->activation = PD_ACTIVATION_GELU_TANH;
	return 0;
}

/* Whether the parts of a block that the text names have biases. */
static int biased(const struct pd_place *at, struct pd_config_reader *r, const char *parts,
		  struct pd_error *err)
{
	int set = pd_names_index(pd_network_bias_name, parts);
	bool has;

	if (json_is_null(at->value))
		return 0;
	if (pd_json_bool(at, &has, err) < 0)
		return -1;
	r->size->bias = has ? r->size->bias | set : r->size->bias & ~set;
	return 0;
}

/* "WORDS|WORDS": the words of a size if it is true, and if it is false. */
static int either(const struct pd_place *at, struct pd_config_reader *r, const char *text,
		  struct pd_error *err)
{
	size_t first = strcspn(text, "|");
	char words[80];
	bool is;

	if (json_is_null(at->value))
		return 0;
	if (pd_json_bool(at, &is, err) < 0)
		return -1;
	snprintf(words, sizeof(words), "%.*s", (int)first, text);
	pd_network_size_words(is ? words : text + first + 1, r->size);
	return 0;
}

/* One over the number, or over its root. */
static int inverse_of(const struct pd_place *at, struct pd_config_reader *r, const char *option,
		      bool root, struct pd_error *err)
{
	char words[80];
	double x;

	if (json_is_null(at->value))
		return 0;
	if (pd_json_real(at, 1e-6, 1e9, &x, err) < 0)
		return -1;
	snprintf(words, sizeof(words), "%s=%.17g", option, 1 / (root ? sqrt(x) : x));
	pd_network_size_words(words, r->size);
	return 0;
}

static int inverse(const struct pd_place *at, struct pd_config_reader *r, const char *option,
		   struct pd_error *err)
{
	return inverse_of(at, r, option, false, err);
}

static int inverse_root(const struct pd_place *at, struct pd_config_reader *r, const char *option,
			struct pd_error *err)
{
	return inverse_of(at, r, option, true, err);
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

	return at->up == r->root &&
	       (json_object_get(rope.value, at->key) ||
		json_object_get(json_object_get(rope.value, "full_attention"), at->key));
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
	return pd_place_expected(at, err, "1, since networks of that name rotate heads as a whole");
}

/* Which part of a head's features is rotated. */
static int rope_part(const struct pd_place *at, struct pd_config_reader *r, const char *text,
		     struct pd_error *err)
{
	(void)text;
	return !at->value || said_in_rope(at, r) ? 0 : size(at, r, "rope-part", err);
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
			strcmp(*type_p, "llama3") == 0 || strcmp(*type_p, "dynamic") == 0))
		return 0;
	return pd_place_expected(&type, err, "\"default\", \"linear\", \"dynamic\" or \"llama3\", "
											       "since rotary positions "
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

/*
 * The part that is said among the positions, by the rule that the network has for it beside them.
 */
static int rope_part_of(const struct pd_place *at, struct pd_config_reader *r, struct pd_error *err)
{
	const struct pd_config_row *row = pd_config_find(r->type, "partial_rotary_factor");

	return row ? row->rule(at, r, row->text, err) : 0;
}

/* How some layers are rotated. */
static int rope_object(const struct pd_place *at, struct pd_config_reader *r, struct pd_error *err)
{
	static const char *const known[] = {
		"rope_type", "type", "rope_theta", "partial_rotary_factor", "factor", "low_freq_factor",
		"high_freq_factor", "original_max_position_embeddings", NULL
	};
	struct pd_place base = pd_place_key(at, "rope_theta"), factor = pd_place_key(at, "factor");
	struct pd_place part = pd_place_key(at, "partial_rotary_factor");
	const char *type;

	if (rope_type(at, &type, err) < 0 || pd_json_keys(at, known, err) < 0 ||
	    rope_part_of(&part, r, err) < 0 || (base.value && size(&base, r, "rope-base", err) < 0))
		return -1;
	if (strcmp(type, "default") == 0)
		return 0;
	if (size(&factor, r, "rope-factor", err) < 0)
		return -1;
	if (strcmp(type, "dynamic") == 0) {
		r->size->rope_factor = 1;
		r->dynamic = true;
	}
	return strcmp(type, "llama3") == 0 ? llama3(at, r, err) : 0;
}

/* Version 4 has an object only where positions are scaled, version 5 always. */
static int rope(const struct pd_place *at, struct pd_config_reader *r, const char *text,
		struct pd_error *err)
{
	(void)text;
	if (is_empty(at->value) || rope_place(r->root).value != at->value)
		return 0;
	return rope_object(at, r, err);
}

static int rope_local_base(const struct pd_place *at, struct pd_config_reader *r, const char *text,
			   struct pd_error *err)
{
	struct pd_place rope = rope_place(r->root);

	(void)text;
	return json_object_get(json_object_get(rope.value, "sliding_attention"), "rope_theta") ? 0
		: size(at, r, "rope-local-base", err);
}

/* Layers with a window are rotated by another base, and not scaled. */
static int rope_two(const struct pd_place *at, struct pd_config_reader *r, const char *text,
		    struct pd_error *err)
{
	static const char *const known[] = { "full_attention", "sliding_attention", NULL };
	static const char *const local[] = { "rope_type", "rope_theta", NULL };
	struct pd_place full = pd_place_key(at, "full_attention");
	struct pd_place slides = pd_place_key(at, "sliding_attention");
	struct pd_place base = pd_place_key(&slides, "rope_theta");
	const char *type = "default";

	if (is_empty(at->value) || rope_place(r->root).value != at->value ||
	    (!full.value && !slides.value))
		return rope(at, r, text, err);
	if (pd_json_keys(at, known, err) < 0 ||
	    (!is_empty(full.value) && rope_object(&full, r, err) < 0))
		return -1;
	if (is_empty(slides.value))
		return 0;
	if (rope_type(&slides, &type, err) < 0 || pd_json_keys(&slides, local, err) < 0)
		return -1;
	if (strcmp(type, "default") != 0)
		return pd_place_expected(&slides, err, "\"default\", since layers with a window "
								  "are not scaled here");
	return base.value ? size(&base, r, "rope-local-base", err) : 0;
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

static int window_from(const struct pd_place *at, struct pd_config_reader *r, const char *text,
		       struct pd_error *err)
{
	(void)text;
	return json_is_null(at->value) ? 0 : pd_json_int(at, 0, PD_NETWORK_MOST,
							 &r->size->window_from, err);
}

static int layer_array(const struct pd_place *at, size_t *count_p, struct pd_error *err)
{
	if (pd_json_array(at, count_p, err) < 0)
		return -1;
	return *count_p <= PD_LAYER_SET ? 0
		: pd_place_expected(at, err, "at most %d layers", PD_LAYER_SET);
}

/*
 * These count, and not the number of layers without a window; the text is "" where no layer has
 * windows.
 */
static int layer_types(const struct pd_place *at, struct pd_config_reader *r, const char *windows,
		       struct pd_error *err)
{
	struct pd_layer_set *set = &r->size->windows;
	size_t count;

	if (json_is_null(at->value))
		return 0;
	if (layer_array(at, &count, err) < 0)
		return -1;
	set->is_said = true;
	for (size_t l = 0; l < count; l++) {
		struct pd_place type = pd_place_index(at, l);
		const char *name = json_string_value(type.value);
		bool slides = *windows && name && strcmp(name, "sliding_attention") == 0;

		if (slides)
			pd_layer_set_add(set, (int64_t)l);
		else if (!name || strcmp(name, "full_attention") != 0)
			return pd_place_expected(&type, err, "\"full_attention\"%s",
						 *windows ? " or \"sliding_attention\"" : "");
	}
	return 0;
}

/* Layers whose number here is 0 have no rotary positions. */
static int rotated_layers(const struct pd_place *at, struct pd_config_reader *r, const char *text,
			  struct pd_error *err)
{
	struct pd_layer_set *set = &r->size->unrotated;
	size_t count;

	(void)text;
	if (is_empty(at->value))
		return 0;
	if (layer_array(at, &count, err) < 0)
		return -1;
	set->is_said = true;
	for (size_t l = 0; l < count; l++) {
		struct pd_place layer = pd_place_index(at, l);
		int64_t is;

		if (pd_json_int(&layer, 0, 1, &is, err) < 0)
			return -1;
		if (!is)
			pd_layer_set_add(set, (int64_t)l);
	}
	return 0;
}

/* As many rows of the weight are used, behind those of positions_from. */
static int positions(const struct pd_place *at, struct pd_config_reader *r, const char *text,
		     struct pd_error *err)
{
	if (length(at, r, text, err) < 0)
		return -1;
	r->size->positions = r->length + r->size->positions_from;
	return 0;
}

/* Positions of texts begin behind the row of the padding. */
static int numbered_positions(const struct pd_place *at, struct pd_config_reader *r,
			      const char *text,
			      struct pd_error *err)
{
	(void)text;
	return json_is_null(at->value) ? 0 : size(at, r, "positions", err);
}

/* The dropout of a head of these classes; "": of any. */
static int head_dropout(const struct pd_place *at, struct pd_config_reader *r, const char *head,
			struct pd_error *err)
{
	if (json_is_null(at->value))
		return 0;
	if (*head && r->size->head != pd_names_index(pd_network_head_name, head))
		return 0;
	return size(at, r, "head-dropout", err);
}

static int one(const struct pd_place *at, struct pd_config_reader *r, const char *text,
	       struct pd_error *err)
{
	(void)r, (void)text;
	return json_is_null(at->value) || json_number_value(at->value) == 1 ? 0
		: pd_place_expected(at, err, "1, since all layers share their parameters here");
}

static int single_label(const struct pd_place *at, struct pd_config_reader *r, const char *text,
			struct pd_error *err)
{
	const char *name = json_string_value(at->value);

	(void)text;
	if (r->size->head != PD_HEAD_SEQUENCE || json_is_null(at->value) ||
	    (name && strcmp(name, "single_label_classification") == 0))
		return 0;
	return pd_place_expected(at, err, "\"single_label_classification\", whose loss is known "
									 "here");
}

/* Tokens are embedded with as many features as all layers have. */
static int as_hidden(const struct pd_place *at, struct pd_config_reader *r, const char *text,
		     struct pd_error *err)
{
	struct pd_place hidden = pd_place_key(r->root, "hidden_size");

	(void)text;
	return json_is_null(at->value) || (hidden.value && json_equal(at->value, hidden.value)) ? 0
		: pd_place_expected(at, err, "hidden_size, since embeddings of another size are "
					     "not read here");
}

static bool root_flag(const struct pd_config_reader *r, const char *key, bool usual)
{
	struct pd_place at = pd_place_key(r->root, key);

	return json_is_boolean(at.value) ? json_is_true(at.value) : usual;
}

/* What Falcon's keys say together: heads of keys, and where a block normalises. */
static int falcon(const struct pd_place *at, struct pd_config_reader *r, const char *text,
		  struct pd_error *err)
{
	bool is_new = root_flag(r, "new_decoder_architecture", false);
	struct pd_place kv = pd_place_key(r->root, "num_kv_heads");
	struct pd_place norms = pd_place_key(r->root, "num_ln_in_parallel_attn");
	bool parallel = root_flag(r, "parallel_attn", true);
	int64_t count = is_new ? 2 : 1;

	if (norms.value && !json_is_null(norms.value) && pd_json_int(&norms, 1, 2, &count, err) < 0)
		return -1;
	if ((is_new && !parallel) || (!is_new && parallel && count == 2))
		return pd_place_error(at, err, "new_decoder_architecture, parallel_attn and "
					       "num_ln_in_parallel_attn "
				      "do not fit each other");
	pd_network_size_words(!parallel ? "block=pre" : is_new && count == 2 ? "block=parallel-two"
			      : "block=parallel", r->size);
	pd_network_size_words(!is_new && root_flag(r, "multi_query", true)
			      ? "kv-heads=1" : "kv-heads=0", r->size);
	if (is_new && kv.value)
		return size0(&kv, r, "kv-heads", err);
	(void)text;
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

/* The type that the folder's parameters have.  Others than the three change nothing here. */
static int dtype(const struct pd_place *at, struct pd_config_reader *r, const char *text,
		 struct pd_error *err)
{
	static const char *const names[] = { "float32", "bfloat16", "float16", NULL };
	static const enum pd_dtype dtypes[] = { PD_F32, PD_BF16, PD_F16 };
	const char *name = json_string_value(at->value);
	int found = name ? pd_names_index(names, strncmp(name, "torch.", 6) == 0 ? name + 6 : name) : -1;

	(void)text;
	(void)err;
	if (found >= 0)
		r->dtype = dtypes[found];
	return 0;
}

const struct pd_config_row pd_config_rows[] = {
#define CONFIG_FIELD(types, key, rule, text) { types, key, rule, text },
#include "doors/huggingface/config.def"
	{ NULL, NULL, NULL, NULL }
};
