/* SPDX-License-Identifier: Apache-2.0 */
/* Reading and writing pd-profile(5). */
#include "profile/profile.h"

#include "base/mem.h"
#include "base/rows.h"
#include "profile/device.h"
#include "profile/layers.h"

#include <stdlib.h>

/* Reads the names of the network's inputs, which are -1 in the table. */
static int read_outer_inputs(const struct pd_place *root, struct pd_profile *profile,
			     struct pd_error *err)
{
	struct pd_place inputs = pd_place_key(root, "inputs");
	size_t count = 0;

	if (profile->model) {
		for (int i = 0; i < profile->model->input_count; i++)
			pd_json_set(profile->names, profile->model->inputs[i].name,
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
		pd_json_set(profile->names, name, json_integer(-1));
	}
	return 0;
}

static int read_model(const struct pd_place *place, void *member, struct pd_error *err)
{
	*(struct pd_model **)member = pd_model_parse_at(place, err);
	return *(struct pd_model **)member ? 0 : -1;
}

static json_t *model_json(const void *member)
{
	const struct pd_model *model = *(struct pd_model *const *)member;

	return model ? json_incref(model->json) : NULL;
}

/* The document is kept, as others are estimated from it; here it is only checked. */
static int read_sheet(const struct pd_place *place, void *member, struct pd_error *err)
{
	struct pd_sheet *sheet = pd_sheet_parse_at(place, err);

	if (!sheet)
		return -1;
	*(json_t **)member = json_incref(sheet->json);
	pd_sheet_free(sheet);
	return 0;
}

static json_t *sheet_json(const void *member)
{
	return json_incref(*(json_t *const *)member);
}

/* Returns the layers in the order in which the document had them. */
static json_t *layers_json(const void *of)
{
	const struct pd_profile *profile = of;
	json_t *layers = json_array();
	int *now = pd_calloc((size_t)profile->layer_count, sizeof(*now));

	for (int l = 0; l < profile->layer_count; l++)
		now[profile->numbers ? profile->numbers[l] : l] = l;
	for (int n = 0; n < profile->layer_count; n++)
		pd_json_add(layers, pd_profile_layer_json(profile, now[n]));
	free(now);
	return layers;
}

#define IN(member) PD_MEMBER(struct pd_profile, member)
#define MOST_FACTOR PD_PROFILE_MOST_FACTOR
#define SPREAD .read = pd_profile_read_spread, .write = pd_profile_spread_json

static const struct pd_key_row in_step_rows[] = {
	{ "forward", PD_ROW_REAL, .always = true, IN(in_step.forward), .high = MOST_FACTOR },
	{ "backward", PD_ROW_REAL, .always = true, IN(in_step.backward), .high = MOST_FACTOR },
	{ "update", PD_ROW_REAL, .always = true, IN(in_step.update), .high = MOST_FACTOR },
	{ "slowest_ns", PD_ROW_INT, .needed = true, IN(in_step.slowest_ns), .most = PD_MAX_TIME_NS },
	{ "sum_bytes_per_s", PD_ROW_INT, IN(in_step.sum_bytes_per_s) },
	{ NULL }
};

static const struct pd_key_row estimated_rows[] = {
	{ "from", PD_ROW_TEXT, .needed = true, IN(estimated_from) },
	{ "spread", PD_ROW_REAL, .always = true, IN(estimated_spread), .high = 10 },
	{ "sheet", PD_ROW_BY, IN(sheet), .rows = pd_sheet_rows, .read = read_sheet, .write = sheet_json },
	{ "tf32", PD_ROW_BOOL, IN(tf32) },
	{ NULL }
};

static const struct pd_key_row device_rows[] = {
	{ "kind", PD_ROW_TEXT, .needed = true, IN(device_kind) },
	{ "name", PD_ROW_TEXT, IN(device_name) },
	{ "threads", PD_ROW_INT, .always = true, IN(device_threads), .most = 1 << 20 },
	{ "memory_bytes", PD_ROW_INT, .always = true, IN(device_memory_bytes) },
	{ "sum_bytes_per_s", PD_ROW_INT, IN(sum_bytes_per_s) },
	{ "round_bytes_per_s", PD_ROW_INT, IN(round_bytes_per_s) },
	{ "mixed_sum_bytes_per_s", PD_ROW_INT, IN(mixed_sum_bytes_per_s) },
	{ "operation_ns", PD_ROW_INT, IN(operation_ns), .most = PD_MAX_TIME_NS },
	{ "launch_ns", PD_ROW_INT, IN(launch_ns), .most = PD_MAX_TIME_NS },
	{ "clock_ns", PD_ROW_INT, IN(clock_ns), .most = PD_MAX_TIME_NS },
	{ "beside_transfers", PD_ROW_REAL, IN(beside_transfers), .high = MOST_FACTOR },
	{ "pairs", PD_ROW_REAL, IN(pairs), .low = PD_PAIRS_LEAST, .high = 1 },
	{ "workers", PD_ROW_INT, IN(workers), .most = 1 << 20 },
	{ "in_step", PD_ROW_OBJECT, .rows = in_step_rows },
	{ "estimated", PD_ROW_OBJECT, .rows = estimated_rows },
	{ "in_turns", PD_ROW_REAL, IN(in_turns), .high = MOST_FACTOR },
	{ NULL }
};

static const struct pd_key_row link_rows[] = {
	{ "bandwidth_bytes_per_s", PD_ROW_INT, .needed = true, IN(link_bandwidth_bytes_per_s) },
	{ "latency_ns", PD_ROW_INT, .always = true, IN(link_latency_ns), .most = PD_MAX_TIME_NS },
	{ "spread", PD_ROW_BY, IN(link_spread), SPREAD },
	{ NULL }
};

static const struct pd_key_row memory_rows[] = {
	{ "model", PD_ROW_CHOICE, .needed = true, IN(memory.model), .names = pd_memory_model_name },
	{ "sharded", PD_ROW_BOOL, .always = true, IN(memory.sharded) },
	{ "margin", PD_ROW_REAL, .always = true, IN(memory.margin), .high = 10 },
	{ NULL }
};

static const struct pd_key_row rounds_rows[] = {
	{ "count", PD_ROW_INT, .needed = true, IN(rounds.count), .least = 1, .most = PD_MAX_TIME_NS },
	{ "elapsed_ns", PD_ROW_INT, .always = true, IN(rounds.elapsed_ns), .most = PD_MAX_TIME_NS },
	{ "step_spread", PD_ROW_BY, IN(rounds.step), SPREAD },
	{ NULL }
};

const struct pd_key_row pd_profile_rows[] = {
	PD_ROWS_HEADER("pd-profile", 1),
	{ "name", PD_ROW_TEXT, .needed = true, IN(name) },
	{ "model", PD_ROW_BY, IN(model), .read = read_model, .write = model_json },
	{ "batch_size", PD_ROW_INT, .needed = true, IN(batch_size), .least = 1, .most = PD_MAX_EXTENT },
	{ "dtype", PD_ROW_CHOICE, .always = true, IN(dtype), .names = pd_dtype_of_nets },
	{ "device", PD_ROW_OBJECT, .needed = true, .rows = device_rows },
	{ "link", PD_ROW_OBJECT, .rows = link_rows },
	{ "memory", PD_ROW_OBJECT, .rows = memory_rows },
	{ "group", PD_ROW_BY, IN(group), .rows = pd_degrees_rows, .read = pd_degrees_read, .write = pd_degrees_write },
	{ "step_ns", PD_ROW_INT, IN(step_ns), .most = PD_MAX_TIME_NS },
	{ "rounds", PD_ROW_OBJECT, .rows = rounds_rows },
	{ "inputs", PD_ROW_BY },
	{ "layers", PD_ROW_BY, .needed = true, .rows = pd_profile_layer_rows, .write = layers_json },
	{ NULL }
};

static void find_gradients(struct pd_profile *profile)
{
	for (int l = 0; l < profile->layer_count; l++) {
		struct pd_profile_layer *layer = &profile->layers[l];

		layer->needs_gradient = layer->parameter_bytes > 0 || layer->shared;
		for (int i = 0; i < layer->input_count; i++)
			layer->needs_gradient |= profile->layers[layer->inputs[i]].needs_gradient;
	}
}

static int read_profile(const struct pd_place *place, struct pd_profile *profile,
			struct pd_error *err)
{
	struct pd_place layers = pd_place_key(place, "layers");

	profile->group.tensor = profile->group.sharded = 1;
	if (pd_rows_read(place, pd_profile_rows, profile, err) < 0)
		return -1;
	if (!profile->device_name)
		profile->device_name = pd_strdup(profile->device_kind);
	if (profile->rounds.count > 0 && profile->rounds.step.high == 0)
		profile->rounds.step = (struct pd_spread){ 1, 1 };
	if (read_outer_inputs(place, profile, err) < 0 ||
	    pd_profile_read_layers(&layers, profile, err) < 0)
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

static struct pd_profile *parse(const char *name, json_t *value, struct pd_error *err)
{
	struct pd_place root = pd_place_root(name, value);
	struct pd_profile *profile = pd_profile_parse_at(&root, err);

	json_decref(value);
	return profile;
}

int pd_profile_read_all(const char *file, int most_layers, struct pd_profile **profiles, int most, int *count_p,
			struct pd_error *err)
{
	const char *name = pd_document_name(file);
	FILE *in = pd_document_open(file, err);
	struct pd_json_at at = { 0 };
	bool last = false;
	int status = in ? 0 : -1;

	while (status == 0 && !last) {
		json_t *value = pd_json_load_next(in, name, (size_t)(most_layers ? most_layers : PD_MAX_LAYERS), &at,
						  &last, err);

		if (value && *count_p == most)
			status = pd_error_input(err, "%s: expected at most %d profiles in all", name, most);
		else if (value)
			profiles[*count_p] = parse(name, value, err);
		if (!value || status < 0 || !profiles[*count_p])
			status = -1;
		else
			++*count_p;
	}
	if (in)
		pd_document_close(in);
	return status;
}

struct pd_profile *pd_profile_read(const char *file, int most_layers, struct pd_error *err)
{
	json_t *value = pd_json_load_most(file, (size_t)(most_layers ? most_layers : PD_MAX_LAYERS),
					  err);

	return value ? parse(pd_document_name(file), value, err) : NULL;
}

json_t *pd_profile_json(const struct pd_profile *profile)
{
	return pd_rows_json(pd_profile_rows, profile);
}
