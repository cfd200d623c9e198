/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model document (pd-model(5)) is read in passes: names and kinds, who uses which tensor, the
 * order of the layers, and shapes in that order.  Names are looked up in a hash table, so a million
 * layers take seconds.
 */
#include "model/model.h"

#include "base/json.h"
#include "base/mem.h"
#include "model/layer.h"
#include "model/normalize.h"
#include "model/order.h"
#include "model/outside.h"

#include <stdlib.h>
#include <string.h>

/* Reads "name" and enters it into the table as the name of this tensor. */
static int read_name(const struct pd_place *place, struct pd_model *model, int tensor,
		     char **name_p, struct pd_error *err)
{
	struct pd_place at = pd_place_key(place, "name");
	const char *name;

	if (pd_json_string(&at, &name, err) < 0)
		return -1;
	if (json_object_get(model->names, name))
		return pd_place_error(&at, err, "\"%.60s\" is the name of an earlier input or "
				      "layer: expected a name of its own", name);
	pd_json_set(model->names, name, json_integer(tensor));
	*name_p = pd_strdup(name);
	return 0;
}

static int read_shape(const struct pd_place *place, struct pd_shape *shape, struct pd_error *err)
{
	size_t count;
	int64_t elements = 1;

	if (pd_json_array(place, &count, err) < 0)
		return -1;
	if (count > PD_MAX_DIMS)
		return pd_place_expected(place, err, "at most %d dimensions", PD_MAX_DIMS);
	shape->dims = (int)count;
	for (size_t d = 0; d < count; d++) {
		struct pd_place extent = pd_place_index(place, d);

		if (pd_json_int(&extent, 1, PD_MAX_EXTENT, &shape->size[d], err) < 0)
			return -1;
		if (!pd_mul(elements, shape->size[d], &elements) || elements >= PD_MAX_ELEMENTS)
			return pd_place_error(place, err, "expected fewer than 2^40 elements");
	}
	return 0;
}

static int read_input(const struct pd_place *place, struct pd_model *model, int index,
		      struct pd_error *err)
{
	static const char *const known[] = { "name", "dtype", "shape", "normalize", NULL };
	struct pd_place dtype = pd_place_key(place, "dtype"), shape = pd_place_key(place, "shape");
	struct pd_place normalize = pd_place_key(place, "normalize");
	struct pd_input *input = &model->inputs[index];
	const char *type;

	if (pd_json_keys(place, known, err) < 0 ||
	    read_name(place, model, index, &input->name, err) < 0)
		return -1;
	type = json_string_value(dtype.value);
	if (!type || (strcmp(type, "f32") != 0 && strcmp(type, "i32") != 0))
		return pd_place_expected(&dtype, err, "\"f32\" or \"i32\"");
	input->dtype = strcmp(type, "f32") == 0 ? PD_F32 : PD_I32;
	return read_shape(&shape, &input->shape, err) < 0 ? -1
	       : pd_normalize_read(&normalize, input, err);
}

static int read_inputs(const struct pd_place *root, struct pd_model *model, struct pd_error *err)
{
	struct pd_place inputs = pd_place_key(root, "inputs");
	size_t count;

	if (pd_json_some(&inputs, PD_MAX_LAYERS, "inputs", &count, err) < 0)
		return -1;
	model->inputs = pd_calloc(count, sizeof(*model->inputs));
	model->input_count = (int)count;
	for (size_t i = 0; i < count; i++) {
		struct pd_place input = pd_place_index(&inputs, i);

		if (read_input(&input, model, (int)i, err) < 0)
			return -1;
	}
	return 0;
}

/* Writes the names of all kinds, for a message. */
static int unknown_kind(const struct pd_place *place, struct pd_error *err)
{
	const char *found = json_string_value(place->value);
	char list[512] = "", meant[PD_MEANT_TEXT];

	for (int kind = 0; kind < PD_LAYER_KINDS; kind++)
		pd_list_name(list, sizeof(list), pd_layer_kind_name[kind], "");
	return pd_place_error(place, err, "unknown kind \"%.40s\"; expected one of %s%s", found, list,
			      pd_names_say(pd_layer_kind_name, found, meant));
}

static int read_layer(const struct pd_place *place, struct pd_model *model, int index,
		      struct pd_error *err)
{
	struct pd_layer *layer = &model->layers[index];
	struct pd_place at;
	const char *kind;
	int found;

	layer->shares = -1;
	if (!json_is_object(place->value))
		return pd_place_expected(place, err, "an object");
	if (read_name(place, model, model->input_count + index, &layer->name, err) < 0)
		return -1;
	at = pd_place_key(place, "kind");
	if (pd_json_string(&at, &kind, err) < 0)
		return -1;
	found = pd_layer_kind_find(kind);
	if (found < 0)
		return unknown_kind(&at, err);
	layer->kind = (enum pd_layer_kind)found;
	return pd_json_opt_bool(place, "frozen", &layer->frozen, err) < 0 ? -1
	       : pd_layer_read(place, layer, err);
}

/* Looks up the layer's inputs.  Their tensor numbers count the layers in the document's order. */
static int resolve_inputs(const struct pd_place *place, struct pd_model *model, int index,
			  struct pd_error *err)
{
	struct pd_layer *layer = &model->layers[index];
	struct pd_place inputs = pd_place_key(place, "inputs");
	size_t count;

	if (pd_json_array(&inputs, &count, err) < 0)
		return -1;
	if (count < 1 || count > PD_MAX_LAYERS)
		return pd_place_expected(&inputs, err, "an array of input names");
	layer->inputs = pd_calloc(count, sizeof(*layer->inputs));
	layer->input_count = (int)count;
	for (size_t i = 0; i < count; i++) {
		struct pd_place at = pd_place_index(&inputs, i);
		char meant[PD_MEANT_TEXT];
		const char *name;
		json_t *tensor;

		if (pd_json_string(&at, &name, err) < 0)
			return -1;
		tensor = json_object_get(model->names, name);
		if (!tensor)
			return pd_place_error(&at, err, "no input or layer is called \"%.60s\"%s", name,
					      pd_json_keys_say(model->names, name, meant));
		layer->inputs[i] = (int)json_integer_value(tensor);
	}
	return 0;
}

static int read_layers(const struct pd_place *layers, struct pd_model *model, struct pd_error *err)
{
	size_t count;

	if (pd_json_some(layers, PD_MAX_LAYERS, "layers", &count, err) < 0)
		return -1;
	model->layers = pd_calloc(count, sizeof(*model->layers));
	model->layer_count = (int)count;
	for (size_t l = 0; l < count; l++) {
		struct pd_place layer = pd_place_index(layers, l);

		if (read_layer(&layer, model, (int)l, err) < 0)
			return -1;
	}
	for (size_t l = 0; l < count; l++) {
		struct pd_place layer = pd_place_index(layers, l);

		if (resolve_inputs(&layer, model, (int)l, err) < 0)
			return -1;
	}
	return 0;
}

/* order[n] is the place in the document of layer n. */
static int find_order(const struct pd_place *layers, const struct pd_model *model, int *order,
		      struct pd_error *err)
{
	int count = model->layer_count, cycle;
	int **inputs = pd_calloc((size_t)count, sizeof(*inputs));
	int *input_counts = pd_calloc((size_t)count, sizeof(*input_counts));

	for (int l = 0; l < count; l++) {
		const struct pd_layer *layer = &model->layers[l];

		input_counts[l] = layer->input_count;
		inputs[l] = pd_calloc((size_t)layer->input_count, sizeof(**inputs));
		for (int i = 0; i < layer->input_count; i++)
			inputs[l][i] = layer->inputs[i] - model->input_count;
	}
	cycle = pd_graph_order(count, inputs, input_counts, order);
	for (int l = 0; l < count; l++)
		free(inputs[l]);
	free(inputs);
	free(input_counts);
	if (cycle >= 0) {
		struct pd_place at = pd_place_index(layers, (size_t)cycle);

		return pd_place_error(&at, err, "layer \"%.60s\" lies on a cycle: expected an "
				      "acyclic graph", model->layers[cycle].name);
	}
	return 0;
}

/* The kinds may differ: an embedding and a linear layer behind it can have the same weight. */
static bool same_parameters(const struct pd_layer *a, const struct pd_layer *b)
{
	if (a->parameter_count != b->parameter_count)
		return false;
	for (int p = 0; p < a->parameter_count; p++)
		if (strcmp(a->parameters[p].name, b->parameters[p].name) != 0 ||
		    a->parameters[p].dims != b->parameters[p].dims ||
		    memcmp(a->parameters[p].size, b->parameters[p].size,
			   sizeof(a->parameters[p].size)) != 0)
			return false;
	return true;
}

static int resolve_shares(const struct pd_place *place, struct pd_model *model, int index,
			  struct pd_error *err)
{
	static const char *const owned[] = { "init", "frozen" };
	struct pd_place at = pd_place_key(place, "shares");
	const struct pd_layer *other;
	char meant[PD_MEANT_TEXT];
	const char *name;
	int found;

	if (!at.value)
		return 0;
	if (pd_json_string(&at, &name, err) < 0)
		return -1;
	for (size_t k = 0; k < PD_COUNT(owned); k++)
		if (pd_place_key(place, owned[k]).value)
			return pd_place_error(place, err, "\"%s\" beside \"shares\": expected it of the "
					      "layer that owns the parameters", owned[k]);
	found = pd_model_find(model, name);
	if (found < 0)
		return pd_place_error(&at, err, "no layer is called \"%.60s\"%s", name,
				      pd_json_keys_say(model->names, name, meant));
	other = &model->layers[found];
	if (found == index || other->parameter_count == 0 ||
	    !same_parameters(other, &model->layers[index]))
		return pd_place_error(&at, err, "\"%.60s\" is not another layer with parameters of "
				      "these names and shapes", name);
	model->layers[index].shares = found;
	model->layers[index].frozen = other->frozen;
	return 0;
}

/* Refuses a layer that shares with one that itself shares.  All names are resolved by now. */
static int check_shares(const struct pd_place *place, const struct pd_model *model, int index,
			struct pd_error *err)
{
	struct pd_place at = pd_place_key(place, "shares");
	int other = model->layers[index].shares;

	if (other >= 0 && model->layers[other].shares >= 0)
		return pd_place_error(&at, err, "\"%.60s\" shares parameters itself: expected the "
				      "layer that owns them", model->layers[other].name);
	return 0;
}

/* Samples are read for one number of lanes. */
static int check_lanes(const struct pd_place *place, const struct pd_model *model, int layer,
		       struct pd_error *err)
{
	const struct pd_layer *l = &model->layers[layer];
	int64_t lanes = l->lanes > 0 ? pd_model_lanes(model) : 0;

	return l->lanes == lanes ? 0
		: pd_place_error(place, err, "\"%.60s\" has %lld lanes: expected %lld, as another "
				 "layer has", l->name, (long long)l->lanes, (long long)lanes);
}

static int infer(const struct pd_place *layers, struct pd_model *model, const int *order,
		 struct pd_error *err)
{
	for (int l = 0; l < model->layer_count; l++) {
		struct pd_place place = pd_place_index(layers, (size_t)order[l]);

		if (pd_layer_infer(&place, model, &model->layers[l], err) < 0 ||
		    pd_names_read(&place, &model->layers[l], err) < 0)
			return -1;
	}
	for (int l = 0; l < model->layer_count; l++) {
		struct pd_place place = pd_place_index(layers, (size_t)order[l]);

		if (resolve_shares(&place, model, l, err) < 0)
			return -1;
	}
	for (int l = 0; l < model->layer_count; l++) {
		struct pd_place place = pd_place_index(layers, (size_t)order[l]);

		if (check_shares(&place, model, l, err) < 0 ||
		    check_lanes(&place, model, l, err) < 0)
			return -1;
	}
	return 0;
}

/* Do the layers agree on what the outside calls their parameters? */
static int check_names(const struct pd_place *layers, const struct pd_model *model, struct pd_error *err)
{
	struct pd_outsides outsides;
	struct pd_error why;

	for (int l = 0; l < model->layer_count; l++) {
		if (!model->layers[l].names)
			continue;
		if (pd_outsides_make(model, false, &outsides, &why) < 0)
			return pd_place_error(layers, err, "%s", why.text);
		pd_outsides_release(&outsides);
		return 0;
	}
	return 0;
}

/* Reads the type that the network is usually computed in. */
static int read_dtype(const struct pd_place *place, struct pd_model *model, struct pd_error *err)
{
	struct pd_place at = pd_place_key(place, "dtype");
	const char *name;

	model->dtype = PD_DTYPES;
	if (!at.value)
		return 0;
	if (pd_json_string(&at, &name, err) < 0)
		return -1;
	model->dtype = pd_dtype_find(name);
	return model->dtype < PD_DTYPES ? 0 : pd_place_expected(&at, err, "\"f32\", \"bf16\" or \"f16\"");
}

static int read_model(const struct pd_place *place, struct pd_model *model, struct pd_error *err)
{
	static const char *const known[] = { "format", "version", "name", "dtype", "source", "inputs",
					     "layers", NULL };
	struct pd_place layers;
	const char *name;
	int *order, result;

	if (json_object_get(place->value, "model_type") && !json_object_get(place->value, "format"))
		return pd_place_expected(place, err, "a model document, which pd-model writes of a Hugging Face "
					 "config.json");
	if (pd_json_header(place, "pd-model", err) < 0 || pd_json_keys(place, known, err) < 0 ||
	    pd_json_get_string(place, "name", &name, err) < 0 ||
	    read_dtype(place, model, err) < 0 || pd_source_check(place, err) < 0)
		return -1;
	model->name = pd_strdup(name);
	layers = pd_place_key(place, "layers");
	if (read_inputs(place, model, err) < 0 || read_layers(&layers, model, err) < 0)
		return -1;
	order = pd_calloc((size_t)model->layer_count, sizeof(*order));
	result = find_order(&layers, model, order, err);
	if (result == 0) {
		pd_model_sort(model, order);
		result = infer(&layers, model, order, err);
		if (result == 0)
			result = check_names(&layers, model, err);
	}
	free(order);
	if (result == 0)
		pd_model_index(model);
	return result;
}

struct pd_model *pd_model_parse_at(const struct pd_place *place, struct pd_error *err)
{
	struct pd_model *model = pd_zalloc(sizeof(*model));

	model->names = json_object();
	if (read_model(place, model, err) < 0) {
		pd_model_free(model);
		return NULL;
	}
	model->json = json_incref(place->value);
	return model;
}

struct pd_model *pd_model_parse(const char *document, json_t *value, struct pd_error *err)
{
	struct pd_place root = pd_place_root(document, value);

	return pd_model_parse_at(&root, err);
}

struct pd_model *pd_model_read(const char *file, struct pd_error *err)
{
	json_t *value = pd_json_load_most(file, PD_MAX_LAYERS, err);
	struct pd_model *model;

	if (!value)
		return NULL;
	model = pd_model_parse(pd_document_name(file), value, err);
	json_decref(value);
	return model;
}
