/* SPDX-License-Identifier: Apache-2.0 */
/* What a Hugging Face folder calls the parameters of the network that its config.json describes. */
#include "doors/huggingface/config.h"

#include "base/mem.h"
#include "doors/huggingface/config_rule.h"
#include "model/kind.h"
#include "model/model.h"

#include <stdlib.h>
#include <string.h>

static const struct row {
	const char *types, *when, *ours, *outside;
	bool transposed;
	int part, leading;
} rows[] = {
#define CONFIG_NAME(type, when, ours, outside, transposed, part, leading) \
	{ type, when, ours, outside, transposed, part, leading },
#include "doors/huggingface/config_name.def"
};

#define MOST_STARS 2

/* What the '*' of a pattern stand for in a name. */
struct stars {
	const char *begin[MOST_STARS];
	size_t length[MOST_STARS];
};

/* The first '*' stands for as little as possible. */
static bool fits(const char *pattern, const char *name, struct stars *stars, int star)
{
	size_t before = strcspn(pattern, "*");

	if (strncmp(pattern, name, before) != 0)
		return false;
	if (!pattern[before])
		return !name[before];
	if (star == MOST_STARS)
		pd_bug("config_name.def: \"%s\" has more than %d stars", pattern, MOST_STARS);
	name += before;
	stars->begin[star] = name;
	for (size_t length = 0; ; length++) {
		stars->length[star] = length;
		if (fits(pattern + before + 1, name + length, stars, star + 1))
			return true;
		if (!name[length])
			return false;
	}
}

/* The outside's pattern with these in place of its '*'; free() it. */
static char *filled(const char *pattern, const struct stars *stars)
{
	char *text = pd_format("%s", "");

	for (int star = 0; *pattern; star++) {
		size_t before = strcspn(pattern, "*");
		bool more = pattern[before] == '*';
		char *longer = pd_format("%s%.*s%.*s", text, (int)before, pattern,
					 more ? (int)stars->length[star] : 0,
					 more ? stars->begin[star] : "");

		free(text);
		text = longer;
		pattern += before + more;
	}
	return text;
}

/*
 * A network whose tensors are being named, and the rows of tensors of several parts that have one
 * so far.
 */
struct naming {
	const struct pd_config *config;
	json_t *rows;
};

/* The first row of the next part, which `tensor` is, of the outside's tensor. */
static int64_t next_part(struct naming *n, const char *name, const struct pd_layer_tensor *tensor)
{
	int64_t start = json_integer_value(json_object_get(n->rows, name));

	pd_json_set(n->rows, name, json_integer(start + tensor->size[0]));
	return start;
}

/* As in pd-model(5); a new reference. */
static json_t *entry(struct naming *n, const struct row *row, const char *name,
		     const struct pd_layer_tensor *tensor)
{
	json_t *object, *shape;

	if (!row->transposed && row->part < 0 && row->leading == 0)
		return json_string(name);
	object = json_pack("{s:s}", "name", name);
	if (row->transposed)
		pd_json_set(object, "transpose", json_true());
	if (row->part >= 0)
		pd_json_set(object, "start", json_integer(next_part(n, name, tensor)));
	if (row->leading == 0)
		return object;
	shape = json_array();
	for (int d = -row->leading; d < tensor->dims; d++)
		pd_json_add(shape, json_integer(d < 0 ? 1 : tensor->size[d]));
	pd_json_set(object, "shape", shape);
	return object;
}

static bool is_row_of(const struct row *row, const struct pd_config *config)
{
	struct pd_word word;

	bool is = strcmp(row->when, "two") == 0 ? config->size.block == PD_BLOCK_PARALLEL_TWO
		  : strcmp(row->when, "sequence") == 0 ? config->size.head == PD_HEAD_SEQUENCE
		  : config->size.untied;

	return (!*row->when || is) &&
	       pd_word_find(row->types, config->type->name, strlen(config->type->name), &word);
}

/* Returns NULL where the name is ours. */
static json_t *find_name(struct naming *n, const char *layer, const struct pd_layer_tensor *tensor)
{
	char *name = pd_format("%s.%s", layer, tensor->name), *outside;
	struct stars stars;
	json_t *found = NULL;

	for (size_t r = 0; r < PD_COUNT(rows) && !found; r++)
		if (is_row_of(&rows[r], n->config) && fits(rows[r].ours, name, &stars, 0)) {
			outside = filled(rows[r].outside, &stars);
			found = entry(n, &rows[r], outside, tensor);
			free(outside);
		}
	free(name);
	return found;
}

/* Layers that share parameters have no names: the file has these once. */
static void name_layer(struct naming *n, const struct pd_layer *layer, json_t *object)
{
	json_t *names = json_object();

	for (int p = 0; p < layer->parameter_count && layer->shares < 0; p++) {
		json_t *name = find_name(n, layer->name, &layer->parameters[p]);

		if (name)
			pd_json_set(names, layer->parameters[p].name, name);
	}
	if (json_object_size(names) > 0)
		json_object_set(object, "names", names);
	json_decref(names);
}

int pd_config_name(const struct pd_config *config, const char *place, json_t *document,
		   struct pd_error *err)
{
	struct pd_model *model = pd_model_parse(place, document, err);
	json_t *layers = json_object_get(document, "layers"), *layer;
	struct naming n = { config, json_object() };
	size_t l;

	if (!model) {
		json_decref(n.rows);
		return -1;
	}
	json_array_foreach(layers, l, layer)
		name_layer(&n, &model->layers[pd_model_find(model, pd_member_text(layer, "name"))],
			   layer);
	json_decref(n.rows);
	pd_model_free(model);
	return 0;
}

void pd_config_keep(const struct pd_config *config, json_t *json,
		    const struct pd_network_size *given, json_t *document, const char **changed_p)
{
	json_t *source = json_pack("{s:s, s:s}", "format", "huggingface", "prefix", config->type->prefix);

	*changed_p = pd_network_changed(&config->size, given);
	if (!*changed_p)
		json_object_set(source, "config", json);
	if (config->dtype < PD_DTYPES)
		pd_json_set(document, "dtype", json_string(pd_dtype_name[config->dtype]));
	pd_json_set(document, "source", source);
}
