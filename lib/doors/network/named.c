/* SPDX-License-Identifier: Apache-2.0 */
#include "doors/network/named.h"

#include "base/file_kind.h"
#include "base/mem.h"
#include "base/names.h"
#include "doors/huggingface/config.h"
#include "model/kind.h"
#include "network/network.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A network that is being looked for. */
struct naming {
	const struct pd_network_ask *ask;
	const char *place;              /* what messages call the document */
	bool imported;                  /* of an ONNX file */
};

static void try_presets(const struct pd_family *family, struct pd_likeness *likeness)
{
	for (const struct pd_preset *of = family->presets; of->name; of++)
		pd_likeness_try(likeness, of->name);
}

/* Tells whether it looks like OWNER/NAME, as repositories of the Hugging Face hub are called. */
static bool is_hub_name(const char *what)
{
	const char *slash = strchr(what, '/');

	return slash && slash != what && slash[1] && !strchr(slash + 1, '/') && *what != '.' &&
	       !pd_name_ends(what, ".json") && !pd_name_ends(what, ".onnx");
}

static int unknown_network(const char *what, struct pd_error *err)
{
	struct pd_likeness likeness = { .word = what ? what : "" };
	char names[256] = "", meant[PD_MEANT_TEXT];

	for (const struct pd_family *const *family = pd_families; *family; family++) {
		pd_list_name(names, sizeof(names), (*family)->name, "");
		pd_likeness_try(&likeness, (*family)->name);
		try_presets(*family, &likeness);
	}
	if (!what)
		return pd_error_input(err, "expected a family of networks, one of %s; a preset "
				      "(pd-model --list); or a Hugging Face folder", names);
	if (is_hub_name(what))
		return pd_error_input(err, "\"%.100s\" is no folder here: download it, such as with hf download "
				      "%.100s config.json --local-dir DIR, and give DIR", what, what);
	return pd_error_input(err, "expected a family of networks, one of %s; a preset "
			      "(pd-model --list); or a folder or file, found \"%.60s\"%s", names, what,
			      pd_likeness_say(&likeness, meant));
}

static int unknown_preset(const struct pd_family *family, const char *preset, struct pd_error *err)
{
	struct pd_likeness likeness = { .word = preset };
	char names[256] = "", meant[PD_MEANT_TEXT];

	try_presets(family, &likeness);
	for (const struct pd_preset *of = family->presets; of->name; of++)
		pd_list_name(names, sizeof(names), of->name, "");
	return pd_error_input(err, "--preset: expected one of %s, found \"%.60s\"%s", names, preset,
			      pd_likeness_say(&likeness, meant));
}

static json_t *family_document(const struct naming *n, const struct pd_family *family,
			       const struct pd_preset *of, struct pd_error *err)
{
	if (n->ask->preset)
		of = pd_preset_find(family, n->ask->preset);
	if (!of) {
		unknown_preset(family, n->ask->preset, err);
		return NULL;
	}
	return pd_network_document(family, of, &n->ask->size, n->ask->name, err);
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

/* Says how long samples are where the file allows longer ones, and nobody said. */
static void say_sequence(const struct pd_network_ask *ask, const struct pd_config *config,
			 const char *file)
{
	if (!ask->quiet && ask->size.sequence == PD_NETWORK_UNSAID &&
	    config->size.sequence < config->positions)
		pd_say("%s: samples have %" PRId64 " tokens, of at most %" PRId64 " (--sequence)", file, config->size.sequence, config->positions);
}

static json_t *config_document(const struct naming *n, const struct pd_place *root,
			       struct pd_error *err)
{
	struct pd_config config;
	json_t *document, *called;
	const char *changed;

	if (pd_config_read(root, &config, err) < 0)
		return NULL;
	called = config_name(root->document, config.family);
	document = pd_network_sized(config.family, &config.size, &n->ask->size,
				    n->ask->name ? n->ask->name : json_string_value(called), err);
	json_decref(called);
	if (!document) {
		pd_error_prefix(err, "%s", root->document);
		return NULL;
	}
	if (pd_config_name(&config, n->place, document, err) < 0) {
		json_decref(document);
		return NULL;
	}
	say_sequence(n->ask, &config, root->document);
	pd_config_keep(&config, root->value, &n->ask->size, document, &changed);
	if (changed && !n->ask->quiet)
		pd_say("--%s: the network is not that of %s, so that no config.json will be exported with it",
		       changed, root->document);
	return document;
}

/* A model document stays as it is, but for its name. */
static json_t *same_document(struct naming *n, const struct pd_place *root, struct pd_error *err)
{
	const char *said = pd_network_said(&n->ask->size);

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
	n->place = root->document;
	if (n->ask->name)
		pd_json_set(root->value, "name", json_string(n->ask->name));
	return json_incref(root->value);
}

/* What a file of ONNX cannot say. */
static void say_assumed(const char *file, const json_t *document)
{
	json_t *layer;
	size_t l, normal = 0;

	json_array_foreach(json_object_get(document, "layers"), l, layer)
		normal += strcmp(pd_member_text(layer, "kind"), "batchnorm2d") == 0 &&
			  !json_object_get(layer, "shares");
	pd_say("%s: it does not say what is frozen or dropped out: parameters learn%s, and "
	       "nothing is dropped out; --freeze=NAME,... has some stay as they are", file,
	       normal > 0 ? ", batch normalisation sees each microbatch and moves its statistics" : "");
}

/* It is called like its file. */
static json_t *onnx_document(struct naming *n, const char *file, struct pd_error *err)
{
	const char *slash = strrchr(file, '/'), *base = slash ? slash + 1 : file;
	const char *said = pd_network_said(&n->ask->size);
	char *stem = pd_format("%.*s", (int)strlen(base) - (pd_name_ends(base, ".onnx") ? 5 : 0), base);
	json_t *called = pd_json_shown(stem), *document = NULL;

	n->place = file;
	n->imported = true;
	if (said)
		pd_error_input(err, "--%s: %s is an ONNX model, whose network stays as it is", said, file);
	else
		document = pd_onnx_document(file, n->ask->name ? n->ask->name : json_string_value(called),
					    n->ask->loss == PD_NETWORK_UNSAID ? PD_ONNX_CROSS_ENTROPY
					    : (enum pd_onnx_loss)n->ask->loss, n->ask->frozen, err);
	json_decref(called);
	free(stem);
	return document;
}

static json_t *file_document(struct naming *n, const char *file, struct pd_error *err)
{
	const struct pd_file_kind *kind = strcmp(file, "-") == 0 ? NULL : pd_file_kind_of(file);
	json_t *value, *document;
	struct pd_place root;

	if (pd_name_ends(file, ".onnx") || (kind && kind->maker == PD_FILE_ONNX))
		return onnx_document(n, file, err);
	if (kind && kind->maker == PD_FILE_PYTORCH) {
		pd_error_input(err, "%s: expected a network, found %s: in Python, "
			       "torch.onnx.export(model.eval(), (x,), \"net.onnx\", dynamo=True, "
			       "optimize=False, opset_version=23) writes one that pd-model reads",
			       file, kind->what);
		return NULL;
	}
	value = pd_json_load(file, err);
	root = pd_place_root(pd_document_name(file), value);
	if (!value)
		return NULL;
	if (n->ask->loss != PD_NETWORK_UNSAID) {
		pd_error_input(err, "--loss: %s has its losses already; expected an ONNX model", file);
		json_decref(value);
		return NULL;
	}
	document = pd_config_is(value) ? config_document(n, &root, err)
					: same_document(n, &root, err);
	json_decref(value);
	return document;
}

static json_t *folder_document(struct naming *n, const char *folder, struct pd_error *err)
{
	bool slash = folder[0] && folder[strlen(folder) - 1] == '/';
	char *file = pd_format("%s%sconfig.json", folder, slash ? "" : "/");
	json_t *document = NULL;
	struct stat found;

	if (stat(file, &found) != 0)
		pd_error_input(err, "%s: expected a Hugging Face folder, but it has no config.json", folder);
	else
		document = file_document(n, file, err);
	free(file);
	return document;
}

/* A document has no other text. */
static int check_name(const char *name, struct pd_error *err)
{
	json_t *text = name ? json_string(name) : json_null();

	json_decref(text);
	return text ? 0 : pd_error_input(err, "--name: expected text in UTF-8, found \"%s\"", name);
}

/* Families come first: a folder that is called like one is written ./gpt. */
static json_t *find_document(struct naming *n, const char *what, struct pd_error *err)
{
	const struct pd_family *family;
	const struct pd_preset *of;
	struct stat found;

	if (check_name(n->ask->name, err) < 0)
		return NULL;
	if (what && pd_family_find(what, &family, &of)) {
		if (n->ask->loss == PD_NETWORK_UNSAID)
			return family_document(n, family, of, err);
		pd_error_input(err, "--loss: networks of a family have their losses; expected an ONNX model");
		return NULL;
	}
	if (!what || (strcmp(what, "-") != 0 && stat(what, &found) != 0)) {
		unknown_network(what, err);
		return NULL;
	}
	if (n->ask->preset) {
		pd_error_input(err, "--preset: expected a family beside it, found \"%.200s\"", what);
		return NULL;
	}
	return strcmp(what, "-") != 0 && S_ISDIR(found.st_mode) ? folder_document(n, what, err)
								 : file_document(n, what, err);
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

static int freeze_named(json_t *document, const char *names, struct pd_error *err)
{
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

void pd_network_ask_init(struct pd_network_ask *ask)
{
	*ask = (struct pd_network_ask){ .loss = PD_NETWORK_UNSAID };
	pd_network_size_init(&ask->size);
}

int pd_network_named(const char *what, const struct pd_network_ask *ask, struct pd_named_network *out,
		     struct pd_error *err)
{
	struct naming n = { .ask = ask, .place = "the network" };
	json_t *document = find_document(&n, what, err);

	*out = (struct pd_named_network){ .document = document };
	if (document && freeze_named(document, ask->frozen, err) == 0)
		out->model = pd_model_parse(n.place, document, err);    /* sizes may not fit each other */
	if (!out->model) {
		json_decref(document);
		return -1;
	}
	if (n.imported && !ask->quiet)
		say_assumed(n.place, document);
	return 0;
}

bool pd_network_known(const char *what)
{
	const struct pd_family *family;
	const struct pd_preset *of;
	struct stat found;
	char *config;
	bool known;

	if (stat(what, &found) == 0 && !S_ISDIR(found.st_mode))
		return pd_name_ends(what, ".onnx") || pd_name_ends(what, "config.json");
	config = pd_format("%s/config.json", what);
	known = pd_family_find(what, &family, &of) || stat(config, &found) == 0 ||
		(is_hub_name(what) && stat(what, &found) != 0);
	free(config);
	return known;
}

void pd_named_network_release(struct pd_named_network *network)
{
	pd_model_free(network->model);
	json_decref(network->document);
}
