/* SPDX-License-Identifier: Apache-2.0 */
/* What a Hugging Face folder calls the parameters of the network that its config.json describes. */
#include "doors/huggingface/config.h"

#include "base/mem.h"
#include "doors/huggingface/config_rule.h"
#include "model/model.h"

#include <stdlib.h>
#include <string.h>

static const struct row {
	const char *type, *when, *ours, *outside;
	bool transposed;
	int part, leading;
} rows[] = {
#define CONFIG_NAME(type, when, ours, outside, transposed, part, leading) \
	{ type, when, ours, outside, transposed, part, leading },
#include "doors/huggingface/config_name.def"
};

/* Where it fits, *any_p is what the '*' stands for, *length_p bytes. */
static bool fits(const char *pattern, const char *name, const char **any_p, size_t *length_p)
{
	const char *star = strchr(pattern, '*');
	size_t before = star ? (size_t)(star - pattern) : strlen(pattern), after = star ? strlen(star + 1) : 0;
	size_t length = strlen(name);

	*any_p = name + before;
	*length_p = 0;
	if (!star)
		return strcmp(pattern, name) == 0;
	if (length < before + after || memcmp(pattern, name, before) != 0 ||
	    strcmp(star + 1, name + length - after) != 0)
		return false;
	*length_p = length - before - after;
	return true;
}

/* The outside's pattern with this in place of its '*'; a new reference. */
static json_t *filled(const char *pattern, const char *any, size_t length)
{
	const char *star = strchr(pattern, '*');

	return star ? json_sprintf("%.*s%.*s%s", (int)(star - pattern), pattern, (int)length, any, star + 1)
		    : json_string(pattern);
}

/* As in pd-model(5); a new reference. */
static json_t *entry(const struct row *row, json_t *name, const struct pd_layer_tensor *tensor)
{
	json_t *object, *shape = json_array();

	if (!row->transposed && row->part < 0 && row->leading == 0) {
		json_decref(shape);
		return name;
	}
	object = json_pack("{s:o}", "name", name);
	if (row->transposed)
		pd_json_set(object, "transpose", json_true());
	if (row->part >= 0)
		pd_json_set(object, "start", json_integer(row->part * tensor->size[0]));
	for (int d = -row->leading; d < tensor->dims; d++)
		pd_json_add(shape, json_integer(d < 0 ? 1 : tensor->size[d]));
	if (row->leading > 0)
		json_object_set(object, "shape", shape);
	json_decref(shape);
	return object;
}

/* Returns NULL where the name is ours. */
static json_t *find_name(const struct pd_config *config, const char *layer, const struct pd_layer_tensor *tensor)
{
	char *name = pd_format("%s.%s", layer, tensor->name);
	json_t *found = NULL;
	const char *any;
	size_t length;

	for (size_t r = 0; r < PD_COUNT(rows) && !found; r++)
		if (strcmp(rows[r].type, config->type->name) == 0 && (!*rows[r].when || config->size.untied) &&
		    fits(rows[r].ours, name, &any, &length))
			found = entry(&rows[r], filled(rows[r].outside, any, length), tensor);
	free(name);
	return found;
}

/* Layers that share parameters have no names: the file has these once. */
static void name_layer(const struct pd_config *config, const struct pd_layer *layer, json_t *object)
{
	json_t *names = json_object();

	for (int p = 0; p < layer->parameter_count && layer->shares < 0; p++) {
		json_t *name = find_name(config, layer->name, &layer->parameters[p]);

		if (name)
			pd_json_set(names, layer->parameters[p].name, name);
	}
	if (json_object_size(names) > 0)
		json_object_set(object, "names", names);
	json_decref(names);
}

int pd_config_name(const struct pd_config *config, const char *place, json_t *document, struct pd_error *err)
{
	struct pd_model *model = pd_model_parse(place, document, err);
	json_t *layers = json_object_get(document, "layers"), *layer;
	size_t l;

	if (!model)
		return -1;
	json_array_foreach(layers, l, layer)
		name_layer(config, &model->layers[pd_model_find(model, pd_member_text(layer, "name"))], layer);
	pd_model_free(model);
	return 0;
}

void pd_config_keep(const struct pd_config *config, json_t *json, const struct pd_network_size *given,
		    json_t *document, const char **changed_p)
{
	json_t *source = json_pack("{s:s, s:s}", "format", "huggingface", "prefix", config->type->prefix);

	*changed_p = pd_network_changed(&config->size, given);
	if (!*changed_p)
		json_object_set(source, "config", json);
	pd_json_set(document, "source", source);
}
