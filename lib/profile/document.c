/* SPDX-License-Identifier: Apache-2.0 */
/* Reading and writing pd-profile(5). */
#include "profile/profile.h"

#include "base/json.h"
#include "base/mem.h"
#include "profile/layers.h"

#include <stdlib.h>

#define MOST_FACTOR PD_PROFILE_MOST_FACTOR

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

static int read_in_step(const struct pd_place *device, struct pd_in_step *in_step,
			struct pd_error *err)
{
	static const char *const known[] = { "forward", "backward", "update", "slowest_ns",
					     "sum_bytes_per_s", NULL };
	struct pd_place place = pd_place_key(device, "in_step");

	if (!place.value)
		return 0;
	if (pd_json_keys(&place, known, err) < 0 ||
	    pd_json_get_int(&place, "slowest_ns", 0, PD_MAX_TIME_NS, &in_step->slowest_ns, err) < 0 ||
	    pd_json_opt_int(&place, "sum_bytes_per_s", 0, INT64_MAX, &in_step->sum_bytes_per_s, err) < 0)
		return -1;
	return pd_json_opt_real(&place, "forward", 0, MOST_FACTOR, &in_step->forward, err) < 0 ||
	       pd_json_opt_real(&place, "backward", 0, MOST_FACTOR, &in_step->backward, err) < 0 ||
	       pd_json_opt_real(&place, "update", 0, MOST_FACTOR, &in_step->update, err) < 0 ? -1 : 0;
}

static int read_rounds(const struct pd_place *root, struct pd_rounds *rounds, struct pd_error *err)
{
	static const char *const known[] = { "count", "elapsed_ns", "step_spread", NULL };
	struct pd_place place = pd_place_key(root, "rounds");

	if (!place.value)
		return 0;
	if (pd_json_keys(&place, known, err) < 0 ||
	    pd_json_get_int(&place, "count", 1, PD_MAX_TIME_NS, &rounds->count, err) < 0 ||
	    pd_json_opt_int(&place, "elapsed_ns", 0, PD_MAX_TIME_NS, &rounds->elapsed_ns, err) < 0)
		return -1;
	rounds->step = (struct pd_spread){ 1, 1 };
	return pd_profile_read_spread(&place, "step_spread", &rounds->step, err);
}

static int read_estimated(const struct pd_place *device, struct pd_profile *profile, struct pd_error *err)
{
	static const char *const known[] = { "from", "spread", "sheet", "tf32", NULL };
	struct pd_place place = pd_place_key(device, "estimated"), sheet = pd_place_key(&place, "sheet");
	const char *from;

	if (!place.value)
		return 0;
	if (pd_json_keys(&place, known, err) < 0 || pd_json_get_string(&place, "from", &from, err) < 0)
		return -1;
	profile->estimated_from = pd_strdup(from);
	profile->sheet = json_incref(sheet.value);
	return pd_json_opt_bool(&place, "tf32", &profile->tf32, err) < 0 ? -1 :
	       pd_json_opt_real(&place, "spread", 0, 10, &profile->estimated_spread, err);
}

static int read_device(const struct pd_place *root, struct pd_profile *profile,
		       struct pd_error *err)
{
	static const char *const known[] = { "kind", "name", "threads", "memory_bytes",
					     "sum_bytes_per_s", "round_bytes_per_s",
					     "mixed_sum_bytes_per_s", "operation_ns", "workers",
					     "in_step", "in_turns", "launch_ns", "clock_ns", "beside_transfers",
					     "pairs", "estimated", NULL };
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
	    pd_json_opt_int(&device, "clock_ns", 0, PD_MAX_TIME_NS, &profile->clock_ns, err) < 0 ||
	    pd_json_opt_int(&device, "launch_ns", 0, PD_MAX_TIME_NS, &profile->launch_ns, err) < 0 ||
	    pd_json_opt_int(&device, "workers", 0, 1 << 20, &profile->workers, err) < 0 ||
	    pd_json_opt_int(&device, "sum_bytes_per_s", 0, INT64_MAX, &profile->sum_bytes_per_s,
			    err) < 0 ||
	    pd_json_opt_int(&device, "round_bytes_per_s", 0, INT64_MAX, &profile->round_bytes_per_s,
			    err) < 0 ||
	    pd_json_opt_int(&device, "mixed_sum_bytes_per_s", 0, INT64_MAX,
			    &profile->mixed_sum_bytes_per_s, err) < 0)
		return -1;
	if (read_estimated(&device, profile, err) < 0 || read_in_step(&device, &profile->in_step, err) < 0 ||
	    pd_json_opt_real(&device, "in_turns", 0, MOST_FACTOR, &profile->in_turns, err) < 0 ||
	    pd_json_opt_real(&device, "beside_transfers", 0, MOST_FACTOR, &profile->beside_transfers, err) < 0 ||
	    pd_json_opt_real(&device, "pairs", PD_PAIRS_LEAST, 1, &profile->pairs, err) < 0)
		return -1;
	return pd_json_opt_int(&device, "memory_bytes", 0, INT64_MAX, &profile->device_memory_bytes,
			       err);
}

static int read_link(const struct pd_place *root, struct pd_profile *profile, struct pd_error *err)
{
	static const char *const known[] = { "bandwidth_bytes_per_s", "latency_ns", "spread", NULL };
	struct pd_place link = pd_place_key(root, "link");

	if (!link.value)
		return 0;
	if (pd_json_keys(&link, known, err) < 0 ||
	    pd_json_get_int(&link, "bandwidth_bytes_per_s", 0, INT64_MAX,
			    &profile->link_bandwidth_bytes_per_s, err) < 0 ||
	    pd_profile_read_spread(&link, "spread", &profile->link_spread, err) < 0)
		return -1;
	return pd_json_opt_int(&link, "latency_ns", 0, PD_MAX_TIME_NS, &profile->link_latency_ns,
			       err);
}

static int read_dtype(const struct pd_place *root, struct pd_profile *profile,
		      struct pd_error *err)
{
	int dtype = 0;

	if (pd_place_key(root, "dtype").value &&
	    pd_json_get_choice(root, "dtype", pd_dtype_of_nets, &dtype, err) < 0)
		return -1;
	profile->dtype = pd_dtype_find(pd_dtype_of_nets[dtype]);
	return 0;
}

static int read_memory(const struct pd_place *root, struct pd_profile *profile, struct pd_error *err)
{
	static const char *const known[] = { "model", "sharded", "margin", NULL };
	struct pd_place memory = pd_place_key(root, "memory");
	int model;

	if (!memory.value)
		return 0;
	if (pd_json_keys(&memory, known, err) < 0 ||
	    pd_json_get_choice(&memory, "model", pd_memory_model_name, &model, err) < 0 ||
	    pd_json_opt_bool(&memory, "sharded", &profile->memory.sharded, err) < 0)
		return -1;
	profile->memory.model = (enum pd_memory_model)model;
	return pd_json_opt_real(&memory, "margin", 0, 10, &profile->memory.margin, err);
}

static int read_group(const struct pd_place *root, struct pd_profile *profile, struct pd_error *err)
{
	static const char *const known[] = { "tensor",
					     "sequence",
					     "sharded",
					     "bandwidth_bytes_per_s",
					     "latency_ns",
					     "sharded_bandwidth_bytes_per_s",
					     "sharded_latency_ns",
					     NULL };
	struct pd_place place = pd_place_key(root, "group");
	struct pd_degrees *group = &profile->group;
	struct pd_group_link *tensor = &group->tensor_link, *sharded = &group->sharded_link;

	group->tensor = group->sharded = 1;
	if (!place.value)
		return 0;
	if (pd_json_keys(&place, known, err) < 0 ||
	    pd_json_opt_int(&place, "tensor", 1, PD_MOST_GROUP, &group->tensor, err) < 0 ||
	    pd_json_opt_bool(&place, "sequence", &group->sequence, err) < 0 ||
	    pd_json_opt_int(&place, "sharded", 1, PD_MOST_GROUP, &group->sharded, err) < 0 ||
	    pd_json_opt_int(&place, "bandwidth_bytes_per_s", 1, INT64_MAX,
			    &tensor->bandwidth_bytes_per_s, err) < 0 ||
	    pd_json_opt_int(&place, "latency_ns", 0, PD_MAX_TIME_NS, &tensor->latency_ns, err) < 0)
		return -1;
	*sharded = *tensor;
	return pd_json_opt_int(&place, "sharded_bandwidth_bytes_per_s", 1, INT64_MAX,
			       &sharded->bandwidth_bytes_per_s, err) < 0 ||
			       pd_json_opt_int(&place, "sharded_latency_ns", 0, PD_MAX_TIME_NS,
					       &sharded->latency_ns, err) < 0
		       ? -1
		       : 0;
}

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
	static const char *const known[] = { "format", "version", "name", "model", "batch_size",
					     "dtype", "device", "link", "memory", "group", "step_ns",
					     "rounds", "inputs", "layers", NULL };
	struct pd_place model, layers;
	const char *name;

	if (pd_json_header(place, "pd-profile", err) < 0 || pd_json_keys(place, known, err) < 0 ||
	    pd_json_get_string(place, "name", &name, err) < 0)
		return -1;
	profile->name = pd_strdup(name);
	if (pd_json_get_int(place, "batch_size", 1, PD_MAX_EXTENT, &profile->batch_size, err) < 0 ||
	    pd_json_opt_int(place, "step_ns", 0, PD_MAX_TIME_NS, &profile->step_ns, err) < 0 ||
	    read_dtype(place, profile, err) < 0 || read_device(place, profile, err) < 0 ||
	    read_link(place, profile, err) < 0 || read_memory(place, profile, err) < 0 ||
	    read_group(place, profile, err) < 0 || read_rounds(place, &profile->rounds, err) < 0)
		return -1;
	model = pd_place_key(place, "model");
	if (model.value) {
		profile->model = pd_model_parse_at(&model, err);
		if (!profile->model)
			return -1;
	}
	layers = pd_place_key(place, "layers");
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

static json_t *device_json(const struct pd_profile *profile)
{
	const struct pd_in_step *in_step = &profile->in_step;
	json_t *device = json_pack("{ss so sI sI}", "kind", profile->device_kind, "name",
				   pd_json_shown(profile->device_name), "threads", profile->device_threads,
				   "memory_bytes", profile->device_memory_bytes);

	if (profile->sum_bytes_per_s > 0)
		pd_json_set(device, "sum_bytes_per_s",
			    json_integer(profile->sum_bytes_per_s));
	if (profile->round_bytes_per_s > 0)
		pd_json_set(device, "round_bytes_per_s",
			    json_integer(profile->round_bytes_per_s));
	if (profile->mixed_sum_bytes_per_s > 0)
		pd_json_set(device, "mixed_sum_bytes_per_s",
			    json_integer(profile->mixed_sum_bytes_per_s));
	if (profile->operation_ns > 0)
		pd_json_set(device, "operation_ns", json_integer(profile->operation_ns));
	if (profile->launch_ns > 0)
		pd_json_set(device, "launch_ns", json_integer(profile->launch_ns));
	if (profile->clock_ns > 0)
		pd_json_set(device, "clock_ns", json_integer(profile->clock_ns));
	if (profile->beside_transfers > 0)
		pd_json_set(device, "beside_transfers", json_real(profile->beside_transfers));
	if (profile->pairs > 0)
		pd_json_set(device, "pairs", json_real(profile->pairs));
	if (profile->workers > 0)
		pd_json_set(device, "workers", json_integer(profile->workers));
	if (in_step->update > 0 || in_step->sum_bytes_per_s > 0)
		pd_json_set(device, "in_step", json_pack(
			"{sf sf sf sI so*}", "forward", in_step->forward, "backward",
			in_step->backward, "update", in_step->update, "slowest_ns",
			in_step->slowest_ns, "sum_bytes_per_s", in_step->sum_bytes_per_s > 0
			? json_integer(in_step->sum_bytes_per_s) : NULL));
	if (profile->estimated_from)
		pd_json_set(device, "estimated", json_pack(
			"{ss sf sO* so*}", "from", profile->estimated_from, "spread", profile->estimated_spread,
			"sheet", profile->sheet, "tf32", profile->tf32 ? json_true() : NULL));
	if (profile->in_turns > 0)
		pd_json_set(device, "in_turns", json_real(profile->in_turns));
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
	pd_json_set(object, "batch_size", json_integer(profile->batch_size));
	pd_json_set(object, "dtype", json_string(pd_dtype_name[profile->dtype]));
	pd_json_set(object, "device", device_json(profile));
	if (profile->link_bandwidth_bytes_per_s > 0)
		pd_json_set(object, "link", json_pack("{sI sI so*}", "bandwidth_bytes_per_s",
				profile->link_bandwidth_bytes_per_s, "latency_ns",
				profile->link_latency_ns, "spread",
				pd_profile_spread_json(&profile->link_spread)));
	if (profile->memory.model != PD_MEMORY_OWN)
		pd_json_set(object, "memory", json_pack(
			"{ss sb sf}", "model", pd_memory_model_name[profile->memory.model], "sharded",
			profile->memory.sharded, "margin", profile->memory.margin));
	if (pd_degrees_devices(&profile->group) > 1)
		pd_json_set(object, "group", pd_degrees_json(&profile->group));
	if (profile->step_ns > 0)
		pd_json_set(object, "step_ns", json_integer(profile->step_ns));
	if (profile->rounds.count > 0)
		pd_json_set(object, "rounds", json_pack("{sI sI so}", "count", profile->rounds.count, "elapsed_ns",
				profile->rounds.elapsed_ns, "step_spread",
				pd_profile_spread_json(&profile->rounds.step)));
	for (int l = 0; l < profile->layer_count; l++)
		now[profile->numbers ? profile->numbers[l] : l] = l;
	for (int n = 0; n < profile->layer_count; n++)
		pd_json_add(layers, pd_profile_layer_json(profile, now[n]));
	free(now);
	pd_json_set(object, "layers", layers);
	return object;
}
