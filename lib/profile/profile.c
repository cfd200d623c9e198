/* SPDX-License-Identifier: Apache-2.0 */
#include "profile/profile.h"

#include "base/json.h"
#include "base/mem.h"
#include "model/graph.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

int pd_profile_find(const struct pd_profile *profile, const char *name)
{
	json_t *layer = json_object_get(profile->names, name);

	if (layer)
		return (int)json_integer_value(layer);
	for (int l = 0; !profile->names && l < profile->layer_count; l++)
		if (strcmp(profile->layers[l].name, name) == 0)
			return l;
	return -1;
}

void pd_profile_free(struct pd_profile *profile)
{
	if (!profile)
		return;
	for (int l = 0; l < profile->layer_count; l++) {
		free(profile->layers[l].name);
		free(profile->layers[l].inputs);
	}
	free(profile->layers);
	free(profile->name);
	free(profile->device_kind);
	free(profile->device_name);
	free(profile->numbers);
	pd_model_free(profile->model);
	json_decref(profile->names);
	json_decref(profile->json);
	free(profile);
}

/* The integers of a layer: which key, where it goes, what an absent one means. */
enum absent { REQUIRED, ZERO, AS_ACTIVATION, UNSPLIT };

static const struct number {
	const char *key;
	size_t at;
	enum absent absent;
} numbers[] = {
	{ "forward_ns", offsetof(struct pd_profile_layer, forward_ns), REQUIRED },
	{ "backward_ns", offsetof(struct pd_profile_layer, backward_ns), REQUIRED },
	{ "backward_input_ns", offsetof(struct pd_profile_layer, backward_input_ns), UNSPLIT },
	{ "backward_weight_ns", offsetof(struct pd_profile_layer, backward_weight_ns), UNSPLIT },
	{ "update_ns", offsetof(struct pd_profile_layer, update_ns), ZERO },
	{ "update_apart_ns", offsetof(struct pd_profile_layer, update_apart_ns), UNSPLIT },
	{ "activation_bytes", offsetof(struct pd_profile_layer, activation_bytes), REQUIRED },
	{ "parameter_bytes", offsetof(struct pd_profile_layer, parameter_bytes), REQUIRED },
	{ "stash_bytes", offsetof(struct pd_profile_layer, stash_bytes), AS_ACTIVATION },
	{ "workspace_bytes", offsetof(struct pd_profile_layer, workspace_bytes), ZERO },
	{ "forward_workspace_bytes", offsetof(struct pd_profile_layer, forward_workspace_bytes),
	  UNSPLIT },
	{ "backward_workspace_bytes", offsetof(struct pd_profile_layer, backward_workspace_bytes),
	  UNSPLIT },
	{ "state_bytes", offsetof(struct pd_profile_layer, state_bytes), ZERO },
	{ "algorithms", offsetof(struct pd_profile_layer, algorithms), ZERO },
};

static int64_t *field(struct pd_profile_layer *layer, size_t n)
{
	return (int64_t *)((char *)layer + numbers[n].at);
}

static int read_numbers(const struct pd_place *place, struct pd_profile_layer *layer,
			struct pd_error *err)
{
	for (size_t n = 0; n < PD_COUNT(numbers); n++) {
		struct pd_place at = pd_place_key(place, numbers[n].key);
		int64_t *out_p = field(layer, n);

		if (numbers[n].absent == AS_ACTIVATION)
			*out_p = layer->activation_bytes;
		else if (numbers[n].absent == UNSPLIT)
			*out_p = -1;
		if ((at.value || numbers[n].absent == REQUIRED) &&
		    pd_json_int(&at, 0, PD_MAX_TIME_NS, out_p, err) < 0)
			return -1;
	}
	if ((layer->backward_input_ns < 0) != (layer->backward_weight_ns < 0))
		return pd_place_error(place, err, "expected both of backward_input_ns and "
				      "backward_weight_ns, or neither");
	if ((layer->forward_workspace_bytes < 0) != (layer->backward_workspace_bytes < 0))
		return pd_place_error(place, err, "expected both of forward_workspace_bytes and "
				      "backward_workspace_bytes, or neither");
	if (pd_json_opt_bool(place, "in_place", &layer->in_place, err) < 0)
		return -1;
	return pd_json_opt_real(place, "spread", 0, HUGE_VAL, &layer->spread, err);
}

static int read_layer(const struct pd_place *place, struct pd_profile *profile, int index,
		      struct pd_error *err)
{
	static const char *const known[] = {
		"name", "inputs", "forward_ns", "backward_ns", "backward_input_ns",
		"backward_weight_ns", "update_ns", "update_apart_ns", "activation_bytes",
		"parameter_bytes", "stash_bytes", "workspace_bytes", "forward_workspace_bytes",
		"backward_workspace_bytes", "state_bytes", "algorithms", "in_place", "spread", NULL
	};
	struct pd_profile_layer *layer = &profile->layers[index];
	struct pd_place at;
	const char *name;

	if (pd_json_keys(place, known, err) < 0)
		return -1;
	at = pd_place_key(place, "name");
	if (pd_json_string(&at, &name, err) < 0)
		return -1;
	if (json_object_get(profile->names, name))
		return pd_place_error(&at, err, "\"%.60s\" is the name of an earlier input or "
				      "layer: expected a name of its own", name);
	json_object_set_new(profile->names, name, json_integer(index));
	layer->name = pd_strdup(name);
	return read_numbers(place, layer, err);
}

/*
 * The times of all layers together, and their sizes, keep to the same bound as one: what
 * adds up layers need not check.
 */
static int check_sums(const struct pd_place *layers, struct pd_profile *profile,
		      struct pd_error *err)
{
	for (size_t n = 0; n < PD_COUNT(numbers); n++) {
		int64_t sum = 0;

		for (int l = 0; l < profile->layer_count; l++) {
			int64_t value = *field(&profile->layers[l], n);

			sum += value > 0 ? value : 0;
			if (sum > PD_MAX_TIME_NS)
				return pd_place_error(layers, err, "the sum of %s over the layers "
						      "is 2^53 or more", numbers[n].key);
		}
	}
	return 0;
}

/* One layer's inputs: the layers among them are kept, in the document's numbers. */
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
		const char *name;
		json_t *found;

		if (pd_json_string(&at, &name, err) < 0)
			return -1;
		found = json_object_get(profile->names, name);
		if (!found)
			return pd_place_error(&at, err, "no input or layer is called \"%.60s\"",
					      name);
		if (json_integer_value(found) >= 0)
			layer->inputs[layer->input_count++] = (int)json_integer_value(found);
	}
	return 0;
}

/* Does this layer say the same inputs as the model's? */
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

/* The layers are the model's, all of them: order[n] is where the document has layer n. */
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

static void reorder(struct pd_profile *profile, const int *order)
{
	int count = profile->layer_count;
	struct pd_profile_layer *sorted = pd_calloc((size_t)count, sizeof(*sorted));
	int *now = pd_calloc((size_t)count, sizeof(*now));

	for (int n = 0; n < count; n++) {
		sorted[n] = profile->layers[order[n]];
		now[order[n]] = n;
		if (profile->names)
			json_integer_set(json_object_get(profile->names, sorted[n].name), n);
	}
	for (int n = 0; n < count; n++)
		for (int i = 0; i < sorted[n].input_count; i++)
			sorted[n].inputs[i] = now[sorted[n].inputs[i]];
	free(profile->layers);
	free(now);
	profile->layers = sorted;
}

void pd_profile_reorder(struct pd_profile *profile, const int *order)
{
	int *was = pd_calloc((size_t)profile->layer_count, sizeof(*was));

	for (int n = 0; n < profile->layer_count; n++)
		was[n] = profile->numbers ? profile->numbers[order[n]] : order[n];
	free(profile->numbers);
	profile->numbers = was;
	reorder(profile, order);
	if (profile->model)
		pd_model_reorder(profile->model, order);
}

struct pd_profile *pd_profile_in_order(const struct pd_profile *profile, const int *order)
{
	struct pd_profile *copy = pd_zalloc(sizeof(*copy));
	size_t n = (size_t)profile->layer_count;

	*copy = *profile;
	copy->name = pd_strdup(profile->name);
	copy->dtype = profile->dtype;
	copy->device_kind = pd_strdup(profile->device_kind);
	copy->device_name = pd_strdup(profile->device_name);
	copy->json = copy->names = NULL;
	copy->model = NULL;
	copy->layers = pd_calloc(n, sizeof(*copy->layers));
	copy->numbers = pd_calloc(n, sizeof(*copy->numbers));
	for (size_t l = 0; l < n; l++) {
		struct pd_profile_layer *layer = &copy->layers[l];
		size_t bytes = (size_t)profile->layers[l].input_count * sizeof(int);

		*layer = profile->layers[l];
		layer->name = pd_strdup(layer->name);
		layer->inputs = pd_calloc(bytes, 1);
		if (bytes)
			memcpy(layer->inputs, profile->layers[l].inputs, bytes);
		copy->numbers[l] = pd_profile_number(profile, (int)l);
	}
	pd_profile_reorder(copy, order);
	if (profile->model)
		copy->model = pd_model_in_order(profile->model, order);
	return copy;
}

/*
 * A profile recorded elsewhere that names no stash at all, as PipeDream's do not: what is
 * made in place is counted once.  Those are the outputs of layers without parameters that
 * have the size of their only input, which nobody else uses (relu, dropout).
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

static int read_layers(const struct pd_place *layers, struct pd_profile *profile,
		       struct pd_error *err)
{
	size_t count;
	int *order, result;

	if (pd_json_array(layers, &count, err) < 0)
		return -1;
	if (count < 1 || count > PD_MAX_LAYERS)
		return pd_place_expected(layers, err, "1 to %d layers", PD_MAX_LAYERS);
	profile->layers = pd_calloc(count, sizeof(*profile->layers));
	profile->layer_count = (int)count;
	for (size_t l = 0; l < count; l++) {
		struct pd_place place = pd_place_index(layers, l);

		if (read_layer(&place, profile, (int)l, err) < 0)
			return -1;
	}
	for (size_t l = 0; l < count; l++) {
		struct pd_place place = pd_place_index(layers, l);

		if (read_layer_inputs(&place, profile, (int)l, err) < 0)
			return -1;
	}
	if (check_sums(layers, profile, err) < 0)
		return -1;
	count_in_place_once(layers, profile);
	order = pd_calloc(count, sizeof(*order));
	result = profile->model ? order_by_model(layers, profile, order, err)
				: order_by_inputs(layers, profile, order, err);
	if (result == 0)
		reorder(profile, order);
	free(order);
	return result;
}

/* The names that layers may use besides layers: -1 in the table. */
static int read_outer_inputs(const struct pd_place *root, struct pd_profile *profile,
			     struct pd_error *err)
{
	struct pd_place inputs = pd_place_key(root, "inputs");
	size_t count = 0;

	if (profile->model) {
		for (int i = 0; i < profile->model->input_count; i++)
			json_object_set_new(profile->names, profile->model->inputs[i].name,
					    json_integer(-1));
		if (inputs.value)
			return pd_place_error(&inputs, err, "expected only where there is no "
					      "model, which says them");
		return 0;
	}
	if (inputs.value && pd_json_array(&inputs, &count, err) < 0)
		return -1;
	for (size_t i = 0; i < count; i++) {
		struct pd_place at = pd_place_index(&inputs, i);
		const char *name;

		if (pd_json_string(&at, &name, err) < 0)
			return -1;
		if (json_object_get(profile->names, name))
			return pd_place_error(&at, err, "\"%.60s\" is the name of an earlier input",
					      name);
		json_object_set_new(profile->names, name, json_integer(-1));
	}
	return 0;
}

static int read_device(const struct pd_place *root, struct pd_profile *profile,
		       struct pd_error *err)
{
	static const char *const known[] = { "kind", "name", "threads", "memory_bytes",
					     "sum_bytes_per_s", "operation_ns", "workers",
					     NULL };
	struct pd_place device = pd_place_key(root, "device");
	const char *kind, *name;

	if (pd_json_keys(&device, known, err) < 0 ||
	    pd_json_get_string(&device, "kind", &kind, err) < 0)
		return -1;
	name = kind;
	if (pd_json_opt_string(&device, "name", &name, err) < 0)
		return -1;
	profile->device_kind = pd_strdup(kind);
	profile->device_name = pd_strdup(name);
	if (pd_json_opt_int(&device, "threads", 0, 1 << 20, &profile->device_threads, err) < 0 ||
	    pd_json_opt_int(&device, "operation_ns", 0, PD_MAX_TIME_NS, &profile->operation_ns,
			    err) < 0 ||
	    pd_json_opt_int(&device, "workers", 0, 1 << 20, &profile->workers, err) < 0 ||
	    pd_json_opt_int(&device, "sum_bytes_per_s", 0, INT64_MAX, &profile->sum_bytes_per_s,
			    err) < 0)
		return -1;
	return pd_json_opt_int(&device, "memory_bytes", 0, INT64_MAX, &profile->device_memory_bytes,
			       err);
}

static int read_link(const struct pd_place *root, struct pd_profile *profile, struct pd_error *err)
{
	static const char *const known[] = { "bandwidth_bytes_per_s", "latency_ns", NULL };
	struct pd_place link = pd_place_key(root, "link");

	if (!link.value)
		return 0;
	if (pd_json_keys(&link, known, err) < 0 ||
	    pd_json_get_int(&link, "bandwidth_bytes_per_s", 0, INT64_MAX,
			    &profile->link_bandwidth_bytes_per_s, err) < 0)
		return -1;
	return pd_json_opt_int(&link, "latency_ns", 0, PD_MAX_TIME_NS, &profile->link_latency_ns,
			       err);
}

static int read_dtype(const struct pd_place *root, struct pd_profile *profile,
		      struct pd_error *err)
{
	struct pd_place at = pd_place_key(root, "dtype");
	const char *dtype = at.value ? json_string_value(at.value) : "f32";

	if (!dtype || pd_dtype_find(dtype) == PD_DTYPES)
		return pd_place_expected(&at, err, "\"f32\", \"bf16\" or \"f16\"");
	profile->dtype = pd_dtype_find(dtype);
	return 0;
}

static void find_gradients(struct pd_profile *profile)
{
	for (int l = 0; l < profile->layer_count; l++) {
		struct pd_profile_layer *layer = &profile->layers[l];

		layer->needs_gradient = layer->parameter_bytes > 0;
		for (int i = 0; i < layer->input_count; i++)
			layer->needs_gradient |= profile->layers[layer->inputs[i]].needs_gradient;
	}
}

static int read_profile(const struct pd_place *place, struct pd_profile *profile,
			struct pd_error *err)
{
	static const char *const known[] = { "format", "version", "name", "model", "batch_size",
					     "dtype", "device", "link", "step_ns", "inputs",
					     "layers", NULL };
	struct pd_place model, layers;
	const char *name;

	if (pd_json_header(place, "pd-profile", err) < 0 || pd_json_keys(place, known, err) < 0 ||
	    pd_json_get_string(place, "name", &name, err) < 0)
		return -1;
	profile->name = pd_strdup(name);
	if (pd_json_get_int(place, "batch_size", 1, PD_MAX_EXTENT, &profile->batch_size, err) < 0 ||
	    pd_json_opt_int(place, "step_ns", 0, PD_MAX_TIME_NS, &profile->step_ns, err) < 0 ||
	    read_dtype(place, profile, err) < 0 || read_device(place, profile, err) < 0 ||
	    read_link(place, profile, err) < 0)
		return -1;
	model = pd_place_key(place, "model");
	if (model.value) {
		profile->model = pd_model_parse_at(&model, err);
		if (!profile->model)
			return -1;
	}
	layers = pd_place_key(place, "layers");
	if (read_outer_inputs(place, profile, err) < 0 || read_layers(&layers, profile, err) < 0)
		return -1;
	find_gradients(profile);
	return 0;
}

struct pd_profile *pd_profile_parse_at(const struct pd_place *place, struct pd_error *err)
{
	struct pd_profile *profile = pd_zalloc(sizeof(*profile));

	profile->names = json_object();
	if (read_profile(place, profile, err) < 0) {
		pd_profile_free(profile);
		return NULL;
	}
	profile->json = json_incref(place->value);
	return profile;
}

struct pd_profile *pd_profile_read(const char *file, int most_layers, struct pd_error *err)
{
	json_t *value = pd_json_load_most(file, (size_t)(most_layers ? most_layers : PD_MAX_LAYERS),
					  err);
	struct pd_profile *profile;
	struct pd_place root;

	if (!value)
		return NULL;
	root = pd_place_root(pd_document_name(file), value);
	profile = pd_profile_parse_at(&root, err);
	json_decref(value);
	return profile;
}

static json_t *layer_json(const struct pd_profile *profile, int index)
{
	struct pd_profile_layer *layer = &profile->layers[index];
	json_t *object = json_object(), *inputs = json_array();

	if (profile->model) {
		const struct pd_layer *of_model = &profile->model->layers[index];

		for (int i = 0; i < of_model->input_count; i++)
			json_array_append_new(inputs,
					      json_string(pd_model_tensor_name(profile->model,
							of_model->inputs[i])));
	} else {
		for (int i = 0; i < layer->input_count; i++)
			json_array_append_new(inputs,
					json_string(profile->layers[layer->inputs[i]].name));
	}
	json_object_set_new(object, "name", json_string(layer->name));
	json_object_set_new(object, "inputs", inputs);
	for (size_t n = 0; n < PD_COUNT(numbers); n++) {
		int64_t value = *field(layer, n);

		if (value > 0 || (value == 0 && numbers[n].absent != ZERO))
			json_object_set_new(object, numbers[n].key, json_integer(value));
	}
	if (layer->in_place)
		json_object_set_new(object, "in_place", json_true());
	if (layer->spread > 0 && isfinite(layer->spread))
		json_object_set_new(object, "spread", json_real(layer->spread));
	return object;
}

static json_t *device_json(const struct pd_profile *profile)
{
	json_t *device = json_pack("{ss ss sI sI}", "kind", profile->device_kind, "name",
				   profile->device_name, "threads", profile->device_threads,
				   "memory_bytes", profile->device_memory_bytes);

	if (profile->sum_bytes_per_s > 0)
		json_object_set_new(device, "sum_bytes_per_s",
				    json_integer(profile->sum_bytes_per_s));
	if (profile->operation_ns > 0)
		json_object_set_new(device, "operation_ns", json_integer(profile->operation_ns));
	if (profile->workers > 0)
		json_object_set_new(device, "workers", json_integer(profile->workers));
	return device;
}

json_t *pd_profile_json(const struct pd_profile *profile)
{
	json_t *object = json_pack("{ss si ss}", "format", "pd-profile", "version", 1,
				   "name", profile->name);
	json_t *layers = json_array();
	int *now = pd_calloc((size_t)profile->layer_count, sizeof(*now));

	if (profile->model)
		json_object_set(object, "model", profile->model->json);
	json_object_set_new(object, "batch_size", json_integer(profile->batch_size));
	json_object_set_new(object, "dtype", json_string(pd_dtype_name[profile->dtype]));
	json_object_set_new(object, "device", device_json(profile));
	if (profile->link_bandwidth_bytes_per_s > 0)
		json_object_set_new(object, "link", json_pack("{sI sI}", "bandwidth_bytes_per_s",
				profile->link_bandwidth_bytes_per_s, "latency_ns",
				profile->link_latency_ns));
	if (profile->step_ns > 0)
		json_object_set_new(object, "step_ns", json_integer(profile->step_ns));
	for (int l = 0; l < profile->layer_count; l++)
		now[profile->numbers ? profile->numbers[l] : l] = l;
	for (int n = 0; n < profile->layer_count; n++)
		json_array_append_new(layers, layer_json(profile, now[n]));
	free(now);
	json_object_set_new(object, "layers", layers);
	return object;
}

int64_t pd_profile_input_ns(const struct pd_profile_layer *layer)
{
	return layer->backward_input_ns >= 0 ? layer->backward_input_ns
					     : (layer->backward_ns + 1) / 2;
}

int64_t pd_profile_weight_ns(const struct pd_profile_layer *layer)
{
	return layer->backward_weight_ns >= 0 ? layer->backward_weight_ns : layer->backward_ns / 2;
}

int64_t pd_profile_apart_ns(const struct pd_profile_layer *layer)
{
	return layer->update_apart_ns > layer->update_ns ? layer->update_apart_ns
							 : layer->update_ns;
}
