/* SPDX-License-Identifier: Apache-2.0 */
/* The layers of pd-profile(5), read and written. */
#include "profile/layers.h"

#include "base/mem.h"
#include "model/graph.h"
#include "profile/spread.h"

#include <stdlib.h>
#include <string.h>

#define IN(member) PD_MEMBER(struct pd_profile_layer, member)
#define NUMBER PD_ROW_INT, .most = PD_MAX_TIME_NS
#define NEEDED NUMBER, .needed = true
#define UNKNOWN NUMBER, .otherwise = -1
#define SPREAD(part) PD_ROW_BY, IN(spreads[part]), .read = pd_profile_read_spread, .write = pd_profile_spread_json

const struct pd_key_row pd_profile_layer_rows[] = {
	{ "name", PD_ROW_TEXT, .needed = true, IN(name) },
	{ "inputs", PD_ROW_BY, .needed = true },
	{ "shares", PD_ROW_BY },
	{ "forward_ns", NEEDED, IN(forward_ns) },
	{ "backward_ns", NEEDED, IN(backward_ns) },
	{ "backward_input_ns", UNKNOWN, IN(backward_input_ns) },
	{ "backward_weight_ns", UNKNOWN, IN(backward_weight_ns) },
	{ "update_ns", NUMBER, IN(update_ns) },
	{ "update_apart_ns", UNKNOWN, IN(update_apart_ns) },
	{ "activation_bytes", NEEDED, IN(activation_bytes) },
	{ "parameter_bytes", NEEDED, IN(parameter_bytes) },
	{ "stash_bytes", UNKNOWN, IN(stash_bytes) },
	{ "workspace_bytes", NUMBER, IN(workspace_bytes) },
	{ "forward_workspace_bytes", UNKNOWN, IN(forward_workspace_bytes) },
	{ "backward_workspace_bytes", UNKNOWN, IN(backward_workspace_bytes) },
	{ "state_bytes", NUMBER, IN(state_bytes) },
	{ "algorithms", NUMBER, IN(algorithms) },
	{ "engines", PD_ROW_TEXT, IN(engines) },
	{ "slow_kernel", PD_ROW_TEXT, IN(slow_kernel) },
	{ "in_place", PD_ROW_BOOL, IN(in_place) },
	{ "passes_gradient", PD_ROW_BOOL, IN(passes_gradient) },
	{ "spread", PD_ROW_REAL, IN(spread) },
	{ "forward_spread", SPREAD(PD_TIMED_FORWARD) },
	{ "backward_spread", SPREAD(PD_TIMED_BACKWARD) },
	{ "update_spread", SPREAD(PD_TIMED_UPDATE) },
	{ NULL }
};

int pd_profile_read_spread(const struct pd_place *place, void *member, struct pd_error *err)
{
	struct pd_spread *out = member;
	struct pd_place low = pd_place_index(place, 0), high = pd_place_index(place, 1);
	size_t count;

	if (pd_json_array(place, &count, err) < 0)
		return -1;
	if (count != 2)
		return pd_place_expected(place, err, "two numbers, the low and the high part of a time");
	return pd_json_real(&low, 0, 1, &out->low, err) < 0 ||
	       pd_json_real(&high, 1, PD_PROFILE_MOST_FACTOR, &out->high, err) < 0 ? -1 : 0;
}

json_t *pd_profile_spread_json(const void *member)
{
	const struct pd_spread *spread = member;

	return spread->high > 0 ? json_pack("[f, f]", spread->low, spread->high) : NULL;
}

static int read_layer(const struct pd_place *place, struct pd_profile *profile, int index,
		      struct pd_error *err)
{
	struct pd_profile_layer *layer = &profile->layers[index];
	struct pd_place name = pd_place_key(place, "name");

	if (pd_rows_read(place, pd_profile_layer_rows, layer, err) < 0)
		return -1;
	if (json_object_get(profile->names, layer->name))
		return pd_place_error(&name, err, "\"%.60s\" is the name of an earlier input or "
				      "layer: expected a name of its own", layer->name);
	pd_json_set(profile->names, layer->name, json_integer(index));
	if (layer->stash_bytes < 0)
		layer->stash_bytes = layer->activation_bytes;
	if ((layer->backward_input_ns < 0) != (layer->backward_weight_ns < 0))
		return pd_place_error(place, err, "expected both of backward_input_ns and "
				      "backward_weight_ns, or neither");
	if ((layer->forward_workspace_bytes < 0) != (layer->backward_workspace_bytes < 0))
		return pd_place_error(place, err, "expected both of forward_workspace_bytes and "
				      "backward_workspace_bytes, or neither");
	return 0;
}

/*
 * Checks that the times and the sizes of all layers together keep to the bound of a single one, so
 * that sums need no check.
 */
static int check_sums(const struct pd_place *layers, struct pd_profile *profile,
		      struct pd_error *err)
{
	for (const struct pd_key_row *row = pd_profile_layer_rows; row->key; row++) {
		int64_t sum = 0;

		for (int l = 0; row->type == PD_ROW_INT && l < profile->layer_count; l++) {
			int64_t value = *(const int64_t *)((const char *)&profile->layers[l] + row->offset);

			sum += value > 0 ? value : 0;
			if (sum > PD_MAX_TIME_NS)
				return pd_place_error(layers, err, "the sum of %s over the layers "
						      "is 2^53 or more", row->key);
		}
	}
	return 0;
}

/* Reads the inputs of a layer, and keeps those that are layers, in the document's numbers. */
static int read_layer_inputs(const struct pd_place *place, struct pd_profile *profile, int index,
			     struct pd_error *err)
{
	struct pd_profile_layer *layer = &profile->layers[index];
	struct pd_place inputs = pd_place_key(place, "inputs");
	size_t count;

	if (pd_json_array(&inputs, &count, err) < 0)
		return -1;
	if (count > PD_MAX_LAYERS)
		return pd_place_expected(&inputs, err, "at most %d inputs", PD_MAX_LAYERS);
	layer->inputs = pd_calloc(count, sizeof(*layer->inputs));
	for (size_t i = 0; i < count; i++) {
		struct pd_place at = pd_place_index(&inputs, i);
		char meant[PD_MEANT_TEXT];
		const char *name;
		json_t *found;

		if (pd_json_string(&at, &name, err) < 0)
			return -1;
		found = json_object_get(profile->names, name);
		if (!found)
			return pd_place_error(&at, err, "no input or layer is called \"%.60s\"%s", name,
					      pd_json_keys_say(profile->names, name, meant));
		if (json_integer_value(found) >= 0)
			layer->inputs[layer->input_count++] = (int)json_integer_value(found);
	}
	return 0;
}

/* Notes that a layer uses the parameters of another, both in the document's numbers. */
static void share(struct pd_profile *profile, int layer, int owner)
{
	struct pd_profile_layer *layers = profile->layers;

	profile->shared_count += 1 + !layers[owner].shared;
	layers[owner].shared = layers[layer].shared = true;
	layers[owner].owner = layers[layer].owner = owner;
}

/* Reads whose parameters a layer uses, where no model says so. */
static int read_shares(const struct pd_place *place, struct pd_profile *profile, int index,
		       struct pd_error *err)
{
	struct pd_place at = pd_place_key(place, "shares");
	char meant[PD_MEANT_TEXT];
	const char *name;
	int owner;

	if (!at.value)
		return 0;
	if (profile->model)
		return pd_place_error(&at, err, "expected only where there is no model, which says it");
	if (pd_json_string(&at, &name, err) < 0)
		return -1;
	owner = pd_profile_find(profile, name);
	if (owner < 0)
		return pd_place_error(&at, err, "no layer is called \"%.60s\"%s", name,
				      pd_profile_say(profile, name, meant));
	if (owner == index || profile->layers[owner].parameter_bytes == 0 ||
	    json_object_get(json_array_get(place->up->value, (size_t)owner), "shares"))
		return pd_place_error(&at, err, "layer \"%.60s\" has no parameters of its own to share: "
				      "expected another layer that has", name);
	share(profile, index, owner);
	return 0;
}

static void share_as_model(struct pd_profile *profile)
{
	const struct pd_model *model = profile->model;

	for (int l = 0; model && l < model->layer_count; l++)
		if (model->layers[l].shares >= 0 && !model->layers[l].frozen)
			share(profile, l, model->layers[l].shares);
}

/* Checks that the layer has the same inputs as in the model. */
static int compare_inputs(const struct pd_place *place, const struct pd_model *model,
			  const struct pd_layer *layer, struct pd_error *err)
{
	struct pd_place inputs = pd_place_key(place, "inputs");
	size_t count = json_array_size(inputs.value);
	bool same = count == (size_t)layer->input_count;

	for (size_t i = 0; same && i < count; i++)
		same = strcmp(json_string_value(json_array_get(inputs.value, i)),
			      pd_model_tensor_name(model, layer->inputs[i])) == 0;
	if (!same)
		return pd_place_error(&inputs, err, "layer \"%.60s\" has other inputs in the model",
				      layer->name);
	return 0;
}

/* Matches the layers with all of the model's: order[n] is the place of layer n in the document. */
static int order_by_model(const struct pd_place *layers, const struct pd_profile *profile,
			  int *order, struct pd_error *err)
{
	const struct pd_model *model = profile->model;

	for (int d = 0; d < profile->layer_count; d++) {
		struct pd_place place = pd_place_index(layers, (size_t)d);
		int l = pd_model_find(model, profile->layers[d].name);

		if (l < 0)
			return pd_place_error(&place, err, "layer \"%.60s\" is not in the model",
					      profile->layers[d].name);
		if (compare_inputs(&place, model, &model->layers[l], err) < 0)
			return -1;
		order[l] = d;
	}
	if (profile->layer_count < model->layer_count)
		for (int l = 0; l < model->layer_count; l++)
			if (pd_profile_find(profile, model->layers[l].name) < 0)
				return pd_place_error(layers, err, "the model's layer \"%.60s\" is "
						      "missing",
						      model->layers[l].name);
	return 0;
}

static int order_by_inputs(const struct pd_place *layers, const struct pd_profile *profile,
			   int *order, struct pd_error *err)
{
	int count = profile->layer_count, cycle;
	int **inputs = pd_calloc((size_t)count, sizeof(*inputs));
	int *input_counts = pd_calloc((size_t)count, sizeof(*input_counts));

	for (int l = 0; l < count; l++) {
		inputs[l] = profile->layers[l].inputs;
		input_counts[l] = profile->layers[l].input_count;
	}
	cycle = pd_graph_order(count, inputs, input_counts, order);
	free(inputs);
	free(input_counts);
	if (cycle >= 0) {
		struct pd_place place = pd_place_index(layers, (size_t)cycle);

		return pd_place_error(&place, err, "layer \"%.60s\" lies on a cycle: expected an "
				      "acyclic graph", profile->layers[cycle].name);
	}
	return 0;
}

/*
 * Counts in-place outputs once, in a profile recorded elsewhere that has no stash at all, such as
 * PipeDream's.  These are outputs of layers without parameters that have the size of their only
 * input, which no other layer uses (relu, dropout).
 */
static void count_in_place_once(const struct pd_place *layers, struct pd_profile *profile)
{
	int count = profile->layer_count;
	int *users = pd_calloc((size_t)count, sizeof(*users));
	bool named = profile->model;

	for (int l = 0; l < count; l++) {
		struct pd_place at = pd_place_index(layers, (size_t)l);

		named |= json_object_get(at.value, "stash_bytes") != NULL;
		for (int i = 0; i < profile->layers[l].input_count; i++)
			users[profile->layers[l].inputs[i]]++;
	}
	for (int l = 0; l < count && !named; l++) {
		struct pd_place at = pd_place_index(layers, (size_t)l);
		struct pd_profile_layer *layer = &profile->layers[l];

		if (layer->input_count == 1 && users[layer->inputs[0]] == 1 &&
		    json_array_size(json_object_get(at.value, "inputs")) == 1 &&
		    layer->parameter_bytes == 0 &&
		    layer->activation_bytes == profile->layers[layer->inputs[0]].activation_bytes)
			layer->stash_bytes = 0;
	}
	free(users);
}

int pd_profile_read_layers(const struct pd_place *layers, struct pd_profile *profile,
			   struct pd_error *err)
{
	size_t count;
	int *order, result;

	if (pd_json_some(layers, PD_MAX_LAYERS, "layers", &count, err) < 0)
		return -1;
	profile->layers = pd_calloc(count, sizeof(*profile->layers));
	profile->layer_count = (int)count;
	for (size_t l = 0; l < count; l++) {
		struct pd_place place = pd_place_index(layers, l);

		if (read_layer(&place, profile, (int)l, err) < 0)
			return -1;
	}
	for (size_t l = 0; l < count; l++) {
		struct pd_place place = pd_place_index(layers, l);

		if (read_layer_inputs(&place, profile, (int)l, err) < 0 ||
		    read_shares(&place, profile, (int)l, err) < 0)
			return -1;
	}
	if (check_sums(layers, profile, err) < 0)
		return -1;
	count_in_place_once(layers, profile);
	order = pd_calloc(count, sizeof(*order));
	result = profile->model ? order_by_model(layers, profile, order, err)
				: order_by_inputs(layers, profile, order, err);
	if (result == 0) {
		pd_profile_sort(profile, order);
		share_as_model(profile);
	}
	free(order);
	return result;
}

json_t *pd_profile_layer_json(const struct pd_profile *profile, int index)
{
	struct pd_profile_layer *layer = &profile->layers[index];
	json_t *object = json_object(), *inputs = json_array();

	if (profile->model) {
		const struct pd_layer *of_model = &profile->model->layers[index];

		for (int i = 0; i < of_model->input_count; i++)
			pd_json_add(inputs,
				    json_string(pd_model_tensor_name(profile->model,
					      of_model->inputs[i])));
	} else {
		for (int i = 0; i < layer->input_count; i++)
			pd_json_add(inputs,
					json_string(profile->layers[layer->inputs[i]].name));
	}
	pd_json_set(object, "name", json_string(layer->name));
	pd_json_set(object, "inputs", inputs);
	if (!profile->model && pd_profile_owner(profile, index) != index)
		pd_json_set(object, "shares",
			    json_string(profile->layers[layer->owner].name));
	pd_rows_write(pd_profile_layer_rows, layer, object);
	return object;
}
