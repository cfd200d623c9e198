/* SPDX-License-Identifier: Apache-2.0 */
/* the name of a family of networks and sizes -> model */
#include "base/mem.h"
#include "base/names.h"
#include "base/opt.h"
#include "model/model.h"
#include "network/network.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct pd_network_size size;
static const char *preset, *name;
static bool list;

static const struct pd_opt options[] = {
	PD_OPT_GROUP("Size"),
	{ "preset", 'p', PD_OPT_STRING, "NAME", "begin with a size that has a name (--list)", &preset },
#define NETWORK_OPTION(field, option, kind, argument, least, most, help)                        \
	{ option, 0, PD_OPT_##kind, argument, help, &size.field, least, most },
#define NETWORK_CHOICE(field, option, names, argument, help)                                    \
	{ option, 0, PD_OPT_CHOICE, argument, help, &size.field, .choices = names },
#define NETWORK_GROUP(title) PD_OPT_GROUP(title),
#include "network/option.def"
	PD_OPT_GROUP("Document"),
	{ "name", 'n', PD_OPT_STRING, "NAME", "the model's name", &name },
	{ "list", 'l', PD_OPT_FLAG, NULL, "list families and presets with their sizes, and end", &list },
	{ NULL }
};

static const struct pd_command command = {
	.name = "pd-model",
	.synopsis = "[OPTION]... FAMILY | PRESET",
	.summary = "Write a network of a family, of any size, as a model document.",
	.options = options,
	.max_operands = 1,
};

static int64_t parameters(const struct pd_model *model)
{
	int64_t sum = 0;

	for (int l = 0; l < model->layer_count; l++)
		if (model->layers[l].shares < 0)
			sum += model->layers[l].parameter_elements;
	return sum;
}

static int print_preset(const struct pd_family *family, const struct pd_preset *of,
			struct pd_error *err)
{
	json_t *document = pd_network_document(family, of, &size, NULL, err);
	struct pd_model *model = document ? pd_model_parse("the network", document, err) : NULL;

	if (model)
		printf("  %-18s%14" PRId64 "  %s\n", of->name, parameters(model), of->size);
	json_decref(document);
	pd_model_free(model);
	return model ? 0 : -1;
}

/* Families, and below each its presets with their parameters and in what they differ. */
static int print_list(struct pd_error *err)
{
	for (const struct pd_family *const *family = pd_families; *family; family++) {
		printf("%s: %s\n", (*family)->name, (*family)->what);
		for (const struct pd_preset *of = (*family)->presets; of->name; of++)
			if (print_preset(*family, of, err) < 0)
				return -1;
	}
	return 0;
}

static void try_presets(const struct pd_family *family, struct pd_likeness *likeness)
{
	for (const struct pd_preset *of = family->presets; of->name; of++)
		pd_likeness_try(likeness, of->name);
}

static int unknown(const char *what, struct pd_error *err)
{
	struct pd_likeness likeness = { .word = what ? what : "" };
	char names[256] = "", meant[PD_MEANT_TEXT];

	for (const struct pd_family *const *family = pd_families; *family; family++) {
		pd_list_name(names, sizeof(names), (*family)->name, "");
		pd_likeness_try(&likeness, (*family)->name);
		try_presets(*family, &likeness);
	}
	if (!what)
		return pd_error_input(err, "expected a family of networks, one of %s; or a preset "
				      "(--list)", names);
	return pd_error_input(err, "expected a family of networks, one of %s, or a preset (--list), found "
			      "\"%.60s\"%s", names, what, pd_likeness_say(&likeness, meant));
}

static int unknown_preset(const struct pd_family *family, struct pd_error *err)
{
	struct pd_likeness likeness = { .word = preset };
	char names[256] = "", meant[PD_MEANT_TEXT];

	try_presets(family, &likeness);
	for (const struct pd_preset *of = family->presets; of->name; of++)
		pd_list_name(names, sizeof(names), of->name, "");
	return pd_error_input(err, "--preset: expected one of %s, found \"%.60s\"%s", names, preset,
			      pd_likeness_say(&likeness, meant));
}

static int choose(const char *what, const struct pd_family **family_p,
		  const struct pd_preset **preset_p, struct pd_error *err)
{
	if (!what || !pd_family_find(what, family_p, preset_p))
		return unknown(what, err);
	if (!preset)
		return 0;
	*preset_p = pd_preset_find(*family_p, preset);
	return *preset_p ? 0 : unknown_preset(*family_p, err);
}

static int write_network(const char *what, struct pd_error *err)
{
	const struct pd_family *family;
	const struct pd_preset *of;
	struct pd_model *model;
	json_t *document;
	int status;

	if (choose(what, &family, &of, err) < 0)
		return -1;
	document = pd_network_document(family, of, &size, name, err);
	if (!document)
		return -1;
	model = pd_model_parse("the network", document, err);   /* sizes may not fit each other */
	status = model ? pd_network_write(document, stdout, err) : -1;
	pd_model_free(model);
	json_decref(document);
	return status;
}

int main(int argc, char **argv)
{
	struct pd_error err;
	int first;

	pd_network_size_init(&size);
	first = pd_command_parse(&command, argc, argv);
	if (pd_output_check(&err) < 0 ||
	    (list ? print_list(&err) : write_network(first < argc ? argv[first] : NULL, &err)) < 0)
		return pd_command_fail(&err);
	return pd_command_end(PD_EXIT_YES);
}
