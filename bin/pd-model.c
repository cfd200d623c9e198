/* SPDX-License-Identifier: Apache-2.0 */
/* the name of a family of networks and sizes, a Hugging Face folder or an ONNX model -> model */
#include "base/file_kind.h"
#include "base/mem.h"
#include "base/names.h"
#include "base/opt.h"
#include "doors/huggingface/config.h"
#include "doors/onnx/onnx.h"
#include "model/kind.h"
#include "model/model.h"
#include "model/summary.h"
#include "network/network.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static struct pd_network_size size;
static const char *preset, *name, *frozen;
static const char *place = "the network";       /* what messages call the document */
static bool list, summary;
static bool imported;                           /* of an ONNX file */
static int loss = PD_NETWORK_UNSAID;

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
	{ "loss", 0, PD_OPT_CHOICE, "NAME", "of an ONNX model: cross-entropy (default) or mse", &loss,
	  .choices = pd_onnx_loss_name },
	{ "freeze", 0, PD_OPT_STRING, "NAME,...", "leave the parameters of layers of these names as they are", &frozen },
	{ "summary", 's', PD_OPT_FLAG, NULL, "print layers, shapes and parameters as a table", &summary },
	{ "list", 'l', PD_OPT_FLAG, NULL, "list families and presets with their sizes, and end", &list,
	  .excludes = "preset name loss freeze summary" },
	{ NULL }
};

static const struct pd_command command = {
	.name = "pd-model",
	.synopsis = "[OPTION]... FAMILY | PRESET | FOLDER | FILE.onnx | FILE.json",
	.summary = "Write a network as a model document: a family, a Hugging Face folder, ONNX.",
	.options = options,
	.max_operands = 1,
};

static int print_preset(const struct pd_family *family, const struct pd_preset *of,
			struct pd_error *err)
{
	json_t *document = pd_network_document(family, of, &size, NULL, err);
	struct pd_model *model = document ? pd_model_parse("the network", document, err) : NULL;

	if (model)
		printf("  %-18s%14" PRId64 "  %s\n", of->name, pd_model_parameters(model), of->size);
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

/* Tells whether it looks like OWNER/NAME, as repositories of the Hugging Face hub are called. */
static bool is_hub_name(const char *what)
{
	const char *slash = strchr(what, '/');

	return slash && slash != what && slash[1] && !strchr(slash + 1, '/') && *what != '.';
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
		return pd_error_input(err, "expected a family of networks, one of %s; a preset (--list); or "
				      "a Hugging Face folder", names);
	if (is_hub_name(what))
		return pd_error_input(err, "\"%.100s\" is no folder here: download it, such as with hf download "
				      "%.100s config.json --local-dir DIR, and give DIR", what, what);
	return pd_error_input(err, "expected a family of networks, one of %s; a preset (--list); or a folder "
			      "or file, found \"%.60s\"%s", names, what, pd_likeness_say(&likeness, meant));
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

static json_t *family_document(const struct pd_family *family, const struct pd_preset *of,
			       struct pd_error *err)
{
	if (preset)
		of = pd_preset_find(family, preset);
	if (!of) {
		unknown_preset(family, err);
		return NULL;
	}
	return pd_network_document(family, of, &size, name, err);
}

/* The name of the folder that the file is in, or NULL: its path does not say.  free() it. */
static char *folder_name(const char *file)
{
	const char *end = strrchr(file, '/'), *begin = end;

	while (begin && begin > file && begin[-1] != '/')
		begin--;
	return !end || begin == end || *begin == '.' ? NULL
						      : pd_format("%.*s", (int)(end - begin), begin);
}

/* It is called like its folder, or else like its family.  Returns a new reference. */
static json_t *config_name(const char *file, const struct pd_family *family)
{
	char *folder = folder_name(file);
	json_t *called = folder ? pd_json_shown(folder) : json_string(family->name);

	for (const char *c = folder; c && *c; c++)
		if ((unsigned char)*c < ' ' || *c == 127) {
			json_decref(called);
			called = json_string(family->name);
			break;
		}
	free(folder);
	return called;
}

static json_t *config_document(const struct pd_place *root, struct pd_error *err)
{
	struct pd_config config;
	json_t *document, *called;
	const char *changed;

	if (pd_config_read(root, &config, err) < 0)
		return NULL;
	called = config_name(root->document, config.family);
	document = pd_network_sized(config.family, &config.size, &size,
				    name ? name : json_string_value(called), err);
	json_decref(called);
	if (!document) {
		pd_error_prefix(err, "%s", root->document);
		return NULL;
	}
	if (pd_config_name(&config, place, document, err) < 0) {
		json_decref(document);
		return NULL;
	}
	pd_config_keep(&config, root->value, &size, document, &changed);
	if (changed && !summary)
		pd_say("--%s: the network is not that of %s, so that no config.json will be exported with it",
		       changed, root->document);
	return document;
}

/* A model document stays as it is, but for its name. */
static json_t *same_document(const struct pd_place *root, struct pd_error *err)
{
	const char *said = pd_network_said(&size);

	if (!json_object_get(root->value, "format")) {
		pd_place_expected(root, err, "a model document, which says its \"format\", or a config.json, "
				  "which says its \"model_type\"");
		return NULL;
	}
	if (said) {
		pd_error_input(err, "--%s: %s is a model document, whose network stays as it is; expected a "
			       "family, a preset or a Hugging Face folder", said, root->document);
		return NULL;
	}
	place = root->document;
	if (name)
		pd_json_set(root->value, "name", json_string(name));
	return json_incref(root->value);
}

static bool ends_with(const char *text, const char *end)
{
	size_t length = strlen(text), count = strlen(end);

	return length > count && strcmp(text + length - count, end) == 0;
}

/* What a file of ONNX cannot say. */
static void say_assumed(const char *file, const json_t *document)
{
	json_t *layer;
	size_t l, normal = 0;

	json_array_foreach(json_object_get(document, "layers"), l, layer)
		normal += strcmp(pd_member_text(layer, "kind"), "batchnorm2d") == 0 &&
			  !json_object_get(layer, "shares");
	pd_say("%s: it does not say what is frozen or dropped out: parameters learn%s, and nothing is dropped out; "
	       "--freeze=NAME,... has some stay as they are", file,
	       normal > 0 ? ", batch normalisation sees each microbatch and moves its statistics" : "");
}

/* It is called like its file. */
static json_t *onnx_document(const char *file, struct pd_error *err)
{
	const char *slash = strrchr(file, '/'), *base = slash ? slash + 1 : file, *said = pd_network_said(&size);
	char *stem = pd_format("%.*s", (int)strlen(base) - (ends_with(base, ".onnx") ? 5 : 0), base);
	json_t *called = pd_json_shown(stem), *document = NULL;

	place = file;
	imported = true;
	if (said)
		pd_error_input(err, "--%s: %s is an ONNX model, whose network stays as it is", said, file);
	else
		document = pd_onnx_document(file, name ? name : json_string_value(called),
					    loss == PD_NETWORK_UNSAID ? PD_ONNX_CROSS_ENTROPY : (enum pd_onnx_loss)loss,
					    frozen, err);
	json_decref(called);
	free(stem);
	return document;
}

static json_t *file_document(const char *file, struct pd_error *err)
{
	const struct pd_file_kind *kind = strcmp(file, "-") == 0 ? NULL : pd_file_kind_of(file);
	json_t *value, *document;
	struct pd_place root;

	if (ends_with(file, ".onnx") || (kind && kind->maker == PD_FILE_ONNX))
		return onnx_document(file, err);
	if (kind && kind->maker == PD_FILE_PYTORCH) {
		pd_error_input(err, "%s: expected a network, found %s: in Python, torch.onnx.export(model.eval(), (x,), "
			       "\"net.onnx\", dynamo=True, optimize=False, opset_version=23) writes one that pd-model "
			       "reads", file, kind->what);
		return NULL;
	}
	value = pd_json_load(file, err);
	root = pd_place_root(pd_document_name(file), value);
	if (!value)
		return NULL;
	if (loss != PD_NETWORK_UNSAID) {
		pd_error_input(err, "--loss: %s has its losses already; expected an ONNX model", file);
		json_decref(value);
		return NULL;
	}
	document = pd_config_is(value) ? config_document(&root, err) : same_document(&root, err);
	json_decref(value);
	return document;
}

static json_t *folder_document(const char *folder, struct pd_error *err)
{
	bool slash = folder[0] && folder[strlen(folder) - 1] == '/';
	char *file = pd_format("%s%sconfig.json", folder, slash ? "" : "/");
	json_t *document = NULL;
	struct stat found;

	if (stat(file, &found) != 0)
		pd_error_input(err, "%s: expected a Hugging Face folder, but it has no config.json", folder);
	else
		document = file_document(file, err);
	free(file);
	return document;
}

/* A document has no other text. */
static int check_name(struct pd_error *err)
{
	json_t *text = name ? json_string(name) : json_null();

	json_decref(text);
	return text ? 0 : pd_error_input(err, "--name: expected text in UTF-8, found \"%s\"", name);
}

/* Families come first: a folder that is called like one is written ./gpt. */
static json_t *find_document(const char *what, struct pd_error *err)
{
	const struct pd_family *family;
	const struct pd_preset *of;
	struct stat found;

	if (check_name(err) < 0)
		return NULL;
	if (what && pd_family_find(what, &family, &of)) {
		if (loss == PD_NETWORK_UNSAID)
			return family_document(family, of, err);
		pd_error_input(err, "--loss: networks of a family have their losses; expected an ONNX model");
		return NULL;
	}
	if (!what || (strcmp(what, "-") != 0 && stat(what, &found) != 0)) {
		unknown(what, err);
		return NULL;
	}
	if (preset) {
		pd_error_input(err, "--preset: expected a family beside it, found \"%.200s\"", what);
		return NULL;
	}
	return strcmp(what, "-") != 0 && S_ISDIR(found.st_mode) ? folder_document(what, err)
								 : file_document(what, err);
}

/* Freezes the layers that own parameters and are called so; returns how many there are. */
static int freeze_layers(json_t *layers, const char *pattern)
{
	json_t *layer;
	size_t l;
	int count = 0;

	json_array_foreach(layers, l, layer) {
		const char *kind = pd_member_text(layer, "kind"), *called = pd_member_text(layer, "name");
		int known = kind ? pd_layer_kind_find(kind) : -1;

		if (known < 0 || !called || pd_kind_parameters((enum pd_layer_kind)known) == 0 ||
		    json_object_get(layer, "shares") || !pd_name_matches(pattern, called))
			continue;
		pd_json_set(layer, "frozen", json_true());
		count++;
	}
	return count;
}

static int freeze(json_t *document, struct pd_error *err)
{
	const char *names = frozen;
	char *pattern;
	int status = 0;

	while (status == 0 && (pattern = pd_names_next(&names))) {
		if (freeze_layers(json_object_get(document, "layers"), pattern) == 0)
			status = pd_error_input(err, "--freeze: no layer with parameters of its own is called \"%.80s\"",
						pattern);
		free(pattern);
	}
	return status;
}

static int write_network(const char *what, struct pd_error *err)
{
	json_t *document = find_document(what, err);
	struct pd_model *model;
	int status;

	if (!document)
		return -1;
	if (freeze(document, err) < 0) {
		json_decref(document);
		return -1;
	}
	model = pd_model_parse(place, document, err);     /* sizes may not fit each other */
	if (model && !summary && imported)
		say_assumed(place, document);
	status = !model ? -1 : summary ? pd_model_summary(model, stdout, err)
			: pd_network_write(document, stdout, err);
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
