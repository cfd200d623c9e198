/* SPDX-License-Identifier: Apache-2.0 */
#include "network/builder.h"

#include "base/mem.h"
#include "base/opt.h"
#include "model/kind.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct pd_family *const pd_families[] = {
	&pd_family_mlp, &pd_family_cnn, &pd_family_lenet, &pd_family_alexnet, &pd_family_vgg,
	&pd_family_resnet, &pd_family_resnext, &pd_family_gpt, &pd_family_llama, &pd_family_bert,
	&pd_family_gnmt, &pd_family_awd, &pd_family_s2vt, NULL
};

enum kind { COUNT, REAL, FLAG };

static const struct option {
	const char *name;
	enum kind kind;
	size_t at;                      /* in struct pd_network_size */
} options[] = {
#define NETWORK_OPTION(field, name, kind, argument, least, most, help)                          \
	{ name, kind, offsetof(struct pd_network_size, field) },
#include "network/option.def"
#undef NETWORK_OPTION
};

static void *field(const struct option *option, const struct pd_network_size *size)
{
	return (char *)(uintptr_t)size + option->at;
}

static bool said(const struct option *option, const struct pd_network_size *size)
{
	switch (option->kind) {
	case COUNT:
		return *(int64_t *)field(option, size) != PD_NETWORK_UNSAID;
	case REAL:
		return *(double *)field(option, size) >= 0;
	case FLAG:
		return *(bool *)field(option, size);
	}
	return false;
}

static void copy_field(const struct option *option, const struct pd_network_size *from,
		       struct pd_network_size *to)
{
	static const size_t bytes[] = { sizeof(int64_t), sizeof(double), sizeof(bool) };

	memcpy(field(option, to), field(option, from), bytes[option->kind]);
}

void pd_network_size_init(struct pd_network_size *size_p)
{
	*size_p = (struct pd_network_size){ 0 };
	for (size_t o = 0; o < PD_COUNT(options); o++)
		if (options[o].kind == COUNT)
			*(int64_t *)field(&options[o], size_p) = PD_NETWORK_UNSAID;
		else if (options[o].kind == REAL)
			*(double *)field(&options[o], size_p) = PD_NETWORK_UNSAID;
}

/* Does the family take it?  Its first preset has all that it takes. */
static bool takes(const struct pd_family *family, const struct option *option)
{
	struct pd_word word;

	return pd_word_find(family->presets[0].size, option->name, strlen(option->name), &word);
}

static void read_word(const struct pd_word *word, struct pd_network_size *size)
{
	for (size_t o = 0; o < PD_COUNT(options); o++) {
		void *at = field(&options[o], size);

		if (strcmp(options[o].name, word->name) != 0)
			continue;
		switch (options[o].kind) {
		case COUNT:
			*(int64_t *)at = strtoll(word->value, NULL, 10);
			return;
		case REAL:
			*(double *)at = strtod(word->value, NULL);
			return;
		case FLAG:
			*(bool *)at = strcmp(word->value, "true") == 0;
			return;
		}
	}
	pd_bug("no option of networks is called \"%s\"", word->name);
}

static void read_words(const char *text, struct pd_network_size *size)
{
	struct pd_word word;

	while (pd_word_next(&text, &word))
		read_word(&word, size);
}

static void preset_size(const struct pd_family *family, const struct pd_preset *preset,
			struct pd_network_size *size_p)
{
	pd_network_size_init(size_p);
	read_words(family->presets[0].size, size_p);
	read_words(preset->size, size_p);
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

/* Lets given sizes replace the preset's.  *any_p: true if any is given. */
static int override(const struct pd_family *family, const struct pd_network_size *given,
		    struct pd_network_size *size, bool *any_p, struct pd_error *err)
{
	char list[400] = "";

	*any_p = false;
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
		*any_p = true;
	}
	return 0;
}

json_t *pd_network_document(const struct pd_family *family, const struct pd_preset *preset,
			    const struct pd_network_size *given, const char *name,
			    struct pd_error *err)
{
	struct pd_network network = { json_array(), json_array(), json_array() };
	struct pd_network_sizes sizes = { .given = *given };
	json_t *document = NULL;
	bool any, fits;

	preset_size(family, preset, &sizes.preset);
	sizes.size = sizes.preset;
	fits = override(family, given, &sizes.size, &any, err) == 0;
	if (fits && family->follow)
		family->follow(&sizes);
	if (fits && family->build(&network, &sizes.size, err) == 0)
		document = json_pack("{s:s, s:i, s:s, s:O, s:O}", "format", "pd-model", "version", 1,
				     "name", name ? name : any ? family->name : preset->name,
				     "inputs", network.inputs, "layers", network.layers);
	json_decref(network.inputs);
	json_decref(network.layers);
	json_decref(network.names);
	return document;
}
