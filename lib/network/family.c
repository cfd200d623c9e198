/* SPDX-License-Identifier: Apache-2.0 */
#include "network/builder.h"

#include "base/mem.h"
#include "base/names.h"
#include "model/kind.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct pd_family *const pd_families[] = {
	&pd_family_mlp, &pd_family_cnn, &pd_family_lenet, &pd_family_alexnet, &pd_family_vgg,
	&pd_family_resnet, &pd_family_resnext, &pd_family_gpt, &pd_family_llama, &pd_family_bert, &pd_family_vit,
	&pd_family_gnmt, &pd_family_awd, &pd_family_s2vt, NULL
};

const char *const pd_network_bias_name[] = { "none", "qkv", "output", "attention", "mlp", "qkv-mlp",
					     "output-mlp", "all", NULL };
const char *const pd_network_activation_name[] = { "relu", "gelu", "gelu-tanh", "silu", "tanh", "sigmoid",
						   "relu6", "leaky_relu", "hardswish", "relu2",
						   "quick-gelu", "gelu-10", "mish", "laplace",
						   "sqrt-softplus", "linear", NULL };
const char *const pd_network_norm_name[] = { "pre", "post", NULL };
const char *const pd_network_head_name[] = { "pretraining", "masked", "sequence", "token", NULL };
const char *const pd_network_block_name[] = { "pre", "output", "both", "parallel", "parallel-two",
					     "post", NULL };
const char *const pd_network_norm_kind_name[] = { "rms", "rms-1", "layer", "layer-scale",
						 "layer-plain", NULL };
const char *const pd_network_qk_norm_name[] = { "head", "heads", "row", NULL };

enum kind { COUNT, REAL, FLAG, CHOICE };

static const struct option {
	const char *name;
	enum kind kind;
	size_t at;                      /* in struct pd_network_size */
	double least, most;
	const char *const *choices;
	bool is_trait;
} options[] = {
#define NETWORK_OPTION(field, name, kind, argument, least, most, help)                          \
	{ name, kind, offsetof(struct pd_network_size, field), least, most, NULL, false },
#define NETWORK_CHOICE(field, name, choices, argument, help)                                    \
	{ name, CHOICE, offsetof(struct pd_network_size, field), 0, 0, choices, false },
#define NETWORK_TRAIT(field, name, kind, usual, least, most)                                    \
	{ name, kind, offsetof(struct pd_network_size, field), least, most, NULL, true },
#define NETWORK_TRAIT_CHOICE(field, name, choices, usual)                                       \
	{ name, CHOICE, offsetof(struct pd_network_size, field), 0, 0, choices, true },
#include "network/option.def"
};

static const size_t option_bytes[] = { sizeof(int64_t), sizeof(double), sizeof(bool), sizeof(int) };

static void *field(const struct option *option, const struct pd_network_size *size)
{
	return (char *)(uintptr_t)size + option->at;
}

static bool said(const struct option *option, const struct pd_network_size *size)
{
	if (option->is_trait)
		return false;           /* by nobody who could */
	switch (option->kind) {
	case COUNT:
		return *(int64_t *)field(option, size) != PD_NETWORK_UNSAID;
	case REAL:
		return *(double *)field(option, size) >= 0;
	case FLAG:
		return *(bool *)field(option, size);
	case CHOICE:
		return *(int *)field(option, size) != PD_NETWORK_UNSAID;
	}
	return false;
}

static void copy_field(const struct option *option, const struct pd_network_size *from,
		       struct pd_network_size *to)
{
	memcpy(field(option, to), field(option, from), option_bytes[option->kind]);
}

void pd_network_size_init(struct pd_network_size *size_p)
{
	*size_p = (struct pd_network_size){
#define NETWORK_OPTION(field, name, kind, argument, least, most, help)
#define NETWORK_CHOICE(field, name, choices, argument, help)
#define NETWORK_TRAIT(field, name, kind, usual, least, most) .field = (usual),
#define NETWORK_TRAIT_CHOICE(field, name, choices, usual) .field = (usual),
#include "network/option.def"
	};
	for (size_t o = 0; o < PD_COUNT(options); o++)
		if (options[o].is_trait)
			continue;
		else if (options[o].kind == COUNT)
			*(int64_t *)field(&options[o], size_p) = PD_NETWORK_UNSAID;
		else if (options[o].kind == REAL)
			*(double *)field(&options[o], size_p) = PD_NETWORK_UNSAID;
		else if (options[o].kind == CHOICE)
			*(int *)field(&options[o], size_p) = PD_NETWORK_UNSAID;
}

void pd_layer_set_add(struct pd_layer_set *set, int64_t layer)
{
	set->bits[layer / 64] |= UINT64_C(1) << (layer % 64);
}

bool pd_layer_set_has(const struct pd_layer_set *set, int64_t layer)
{
	return layer < PD_LAYER_SET && (set->bits[layer / 64] >> (layer % 64) & 1);
}

const char *pd_network_said(const struct pd_network_size *size)
{
	for (size_t o = 0; o < PD_COUNT(options); o++)
		if (said(&options[o], size))
			return options[o].name;
	return NULL;
}

static bool is_same(const struct option *option, const struct pd_network_size *a,
		    const struct pd_network_size *b)
{
	return memcmp(field(option, a), field(option, b), option_bytes[option->kind]) == 0;
}

const char *pd_network_changed(const struct pd_network_size *of, const struct pd_network_size *said_p)
{
	static const char *const training[] = { "sequence", "dropout", "attention-dropout", "deviation", NULL };

	for (size_t o = 0; o < PD_COUNT(options); o++)
		if (said(&options[o], said_p) && !is_same(&options[o], of, said_p) &&
		    pd_names_index(training, options[o].name) < 0)
			return options[o].name;
	return NULL;
}

static const struct option *find_option(const char *name)
{
	for (size_t o = 0; o < PD_COUNT(options); o++)
		if (strcmp(options[o].name, name) == 0)
			return &options[o];
	pd_bug("no option of networks is called \"%s\"", name);
}

/* Does the family take it?  Its first preset has all that it takes. */
static bool takes(const struct pd_family *family, const struct option *option)
{
	struct pd_word word;

	return pd_word_find(family->presets[0].size, option->name, strlen(option->name), &word);
}

static void read_word(const struct pd_word *word, struct pd_network_size *size)
{
	const struct option *option = find_option(word->name);
	void *at = field(option, size);

	switch (option->kind) {
	case COUNT:
		*(int64_t *)at = strtoll(word->value, NULL, 10);
		return;
	case REAL:
		*(double *)at = strtod(word->value, NULL);
		return;
	case FLAG:
		*(bool *)at = strcmp(word->value, "true") == 0;
		return;
	case CHOICE:
		*(int *)at = pd_names_index(option->choices, word->value);
		return;
	}
}

void pd_network_size_words(const char *words, struct pd_network_size *size)
{
	struct pd_word word;

	while (pd_word_next(&words, &word))
		read_word(&word, size);
}

int pd_network_size_read(const struct pd_place *place, const char *name, struct pd_network_size *size,
			 struct pd_error *err)
{
	const struct option *option = find_option(name);
	void *at = field(option, size);

	switch (option->kind) {
	case COUNT:
		return pd_json_int(place, option->least < 1 ? 1 : (int64_t)option->least,
				   (int64_t)option->most, at, err);
	case REAL:
		return pd_json_real(place, option->least, option->most, at, err);
	case FLAG:
		return pd_json_bool(place, at, err);
	case CHOICE:
		return pd_json_get_choice(place->up, place->key, option->choices, at, err);
	}
	return -1;
}

static void preset_size(const struct pd_family *family, const struct pd_preset *preset,
			struct pd_network_size *size_p)
{
	pd_network_size_init(size_p);
	pd_network_size_words(family->presets[0].size, size_p);
	pd_network_size_words(preset->size, size_p);
}

const struct pd_preset *pd_preset_find(const struct pd_family *family, const char *name)
{
	for (const struct pd_preset *preset = family->presets; preset->name; preset++)
		if (strcmp(preset->name, name) == 0)
			return preset;
	return NULL;
}

bool pd_family_find(const char *name, const struct pd_family **family_p,
		    const struct pd_preset **preset_p)
{
	for (const struct pd_family *const *family = pd_families; *family; family++) {
		const struct pd_preset *preset = pd_preset_find(*family, name);

		if (!preset && strcmp((*family)->name, name) != 0)
			continue;
		*family_p = *family;
		*preset_p = preset ? preset : (*family)->presets;
		return true;
	}
	return false;
}

/* Lets given sizes replace the preset's. */
static int override(const struct pd_family *family, const struct pd_network_size *given,
		    struct pd_network_size *size, struct pd_error *err)
{
	char list[400] = "";

	for (size_t o = 0; o < PD_COUNT(options); o++) {
		size_t used = strlen(list);

		if (takes(family, &options[o]))
			snprintf(list + used, sizeof(list) - used, " --%s", options[o].name);
	}
	for (size_t o = 0; o < PD_COUNT(options); o++) {
		if (!said(&options[o], given))
			continue;
		if (!takes(family, &options[o]))
			return pd_error_input(err, "--%s: %s has no such option; expected some of%s",
					      options[o].name, family->name, list);
		copy_field(&options[o], given, size);
	}
	return 0;
}

json_t *pd_network_sized(const struct pd_family *family, const struct pd_network_size *preset,
			 const struct pd_network_size *given, const char *name, struct pd_error *err)
{
	struct pd_network network = { json_array(), json_array(), json_array() };
	struct pd_network_sizes sizes = { *preset, *given, *preset };
	json_t *document = NULL;
	bool fits = override(family, given, &sizes.size, err) == 0;

	if (fits && family->follow)
		family->follow(&sizes);
	if (fits && family->build(&network, &sizes.size, err) == 0)
		document = json_pack("{s:s, s:i, s:s, s:O, s:O}", "format", "pd-model", "version", 1,
				     "name", name, "inputs", network.inputs, "layers", network.layers);
	json_decref(network.inputs);
	json_decref(network.layers);
	json_decref(network.names);
	return document;
}

json_t *pd_network_document(const struct pd_family *family, const struct pd_preset *preset,
			    const struct pd_network_size *given, const char *name,
			    struct pd_error *err)
{
	const char *own = pd_network_said(given) ? family->name : preset->name;
	struct pd_network_size size;

	preset_size(family, preset, &size);
	return pd_network_sized(family, &size, given, name ? name : own, err);
}
