/* SPDX-License-Identifier: Apache-2.0 */
/* Reading and writing pd-plan(5). */
#include "plan/plan.h"

#include "base/mem.h"
#include "plan/given_order.h"
#include "plan/order.h"
#include "plan/prediction.h"
#include "plan/recompute.h"
#include "plan/sparse.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The layers, while stages are read; numbers are the profile's. */
struct reading {
	int *stage;                     /* per layer, or -1 */
	int *order;                     /* layers, stage by stage */
	int next;
};

static int read_layer(const struct pd_place *at, const struct pd_plan *plan, int stage,
		      struct reading *reading, struct pd_error *err)
{
	const struct pd_profile_layer *layers = plan->profile->layers;
	char meant[PD_MEANT_TEXT];
	const char *name;
	int layer;

	if (pd_json_string(at, &name, err) < 0)
		return -1;
	layer = pd_profile_find(plan->profile, name);
	if (layer < 0)
		return pd_place_error(at, err, "the profile has no layer \"%.60s\"%s", name,
				      pd_profile_say(plan->profile, name, meant));
	if (reading->stage[layer] >= 0)
		return pd_place_error(at, err, "layer \"%.60s\" is there twice", name);
	for (int i = 0; i < layers[layer].input_count; i++)
		if (reading->stage[layers[layer].inputs[i]] < 0)
			return pd_place_error(at, err, "expected layer \"%.60s\", which \"%.60s\" "
					      "needs, before it",
					      layers[layers[layer].inputs[i]].name, name);
	reading->stage[layer] = stage;
	reading->order[reading->next++] = layer;
	return 0;
}

static int read_stage_layers(const struct pd_place *place, struct pd_plan *plan, int index,
			     struct reading *reading, struct pd_error *err)
{
	struct pd_place layers = pd_place_key(place, "layers");
	struct pd_stage *stage = &plan->stages[index];
	size_t count;

	stage->first_layer = reading->next;
	if (pd_json_array(&layers, &count, err) < 0)
		return -1;
	if (count < 1)
		return pd_place_expected(&layers, err, "at least one layer");
	for (size_t i = 0; i < count; i++) {
		struct pd_place at = pd_place_index(&layers, i);

		if (read_layer(&at, plan, index, reading, err) < 0)
			return -1;
		if (i && reading->order[reading->next - 1] < reading->order[reading->next - 2])
			return pd_place_error(&at, err, "expected the layers of a stage in the "
					      "profile's order, found \"%.60s\" after \"%.60s\"",
					      json_string_value(at.value), plan->profile->layers[
					      reading->order[reading->next - 2]].name);
	}
	stage->layer_count = (int)count;
	return 0;
}

/* Brings the profile into the order of the stages, if that is another. */
static int take_order(const struct pd_place *stages, struct pd_plan *plan,
		      const struct reading *reading, struct pd_error *err)
{
	struct pd_profile *profile = plan->profile;
	int tensor, user;

	for (int l = 0; l < profile->layer_count; l++)
		if (reading->stage[l] < 0)
			return pd_place_error(stages, err, "the profile's layer \"%.60s\" is in no "
					      "stage", profile->layers[l].name);
	for (int l = 0; l < profile->layer_count; l++) {
		if (reading->order[l] == l)
			continue;
		if (!pd_order_keeps_sums(profile, reading->stage, &tensor, &user))
			return pd_place_error(stages, err, "layer \"%.60s\" is in an earlier stage "
					      "than one before it that also uses \"%.60s\": gradients "
					      "would be summed in another order",
					      profile->layers[user].name,
					      profile->layers[tensor].name);
		pd_profile_reorder(profile, reading->order);
		break;
	}
	return 0;
}

static int read_ranks(const struct pd_place *place, const struct pd_plan *plan,
		      struct pd_stage *stage, struct pd_error *err)
{
	struct pd_place ranks = pd_place_key(place, "ranks");
	int64_t replicas;
	size_t count;

	if (pd_json_get_int(place, "replicas", 1, plan->topology.devices, &replicas, err) < 0 ||
	    pd_json_array(&ranks, &count, err) < 0)
		return -1;
	if (count != (size_t)replicas)
		return pd_place_expected(&ranks, err, "as many ranks as replicas, %" PRId64,
					 replicas);
	stage->replicas = (int)replicas;
	stage->ranks = pd_calloc(count, sizeof(*stage->ranks));
	for (size_t r = 0; r < count; r++) {
		struct pd_place at = pd_place_index(&ranks, r);
		int64_t rank;

		if (pd_json_int(&at, 0, plan->topology.devices - 1, &rank, err) < 0)
			return -1;
		stage->ranks[r] = (int)rank;
	}
	return 0;
}

/* Reads a layer of a segment; layers are numbered as the stages have them. */
static int read_rerun(const struct pd_place *at, struct pd_plan *plan, const struct pd_stage *stage,
		      int segment, const struct reading *reading, struct pd_error *err)
{
	char meant[PD_MEANT_TEXT];
	const char *name;
	int layer, l = stage->first_layer, end = l + stage->layer_count;

	if (pd_json_string(at, &name, err) < 0)
		return -1;
	layer = pd_profile_find(plan->profile, name);
	while (l < end && reading->order[l] != layer)
		l++;
	if (l == end)
		return pd_place_error(at, err, "the stage has no layer \"%.60s\"%s", name,
				      layer < 0 ? pd_profile_say(plan->profile, name, meant) : "");
	if (plan->segment[l] >= 0)
		return pd_place_error(at, err, "layer \"%.60s\" is there twice", name);
	plan->segment[l] = segment;
	return 0;
}

/* Reads the layers of a segment. */
static int read_segment(const struct pd_place *layers, struct pd_plan *plan,
			const struct pd_stage *stage, int segment, const struct reading *reading,
			struct pd_error *err)
{
	size_t count;

	if (pd_json_some(layers, stage->layer_count, "layers, as many as the stage has", &count, err) < 0)
		return -1;
	for (size_t i = 0; i < count; i++) {
		struct pd_place at = pd_place_index(layers, i);

		if (read_rerun(&at, plan, stage, segment, reading, err) < 0)
			return -1;
	}
	return 0;
}

static int read_recompute(const struct pd_place *place, struct pd_plan *plan, struct pd_stage *stage,
			  const struct reading *reading, struct pd_error *err)
{
	struct pd_place layers = pd_place_key(place, "recompute");
	size_t count;

	if (layers.value && !json_is_boolean(layers.value) && !json_is_array(layers.value))
		return pd_place_expected(&layers, err, "true, false, an array of layers or one of such arrays");
	if (!json_is_array(layers.value))
		return pd_json_opt_bool(place, "recompute", &stage->recompute, err);
	stage->recompute = true;
	if (!plan->segment)
		plan->segment = pd_calloc((size_t)plan->profile->layer_count, sizeof(*plan->segment));
	for (int l = 0; l < stage->layer_count; l++)
		plan->segment[stage->first_layer + l] = -1;
	if (!json_is_array(json_array_get(layers.value, 0)))
		return read_segment(&layers, plan, stage, 0, reading, err);
	if (pd_json_some(&layers, stage->layer_count, "arrays of layers", &count, err) < 0)
		return -1;
	for (size_t i = 0; i < count; i++) {
		struct pd_place at = pd_place_index(&layers, i);

		if (read_segment(&at, plan, stage, (int)i, reading, err) < 0)
			return -1;
	}
	return 0;
}

#define STAGE(member) PD_MEMBER(struct pd_stage, member)
#define FIGURE PD_ROW_INT, .always = true

static const struct pd_key_row stage_predicted_rows[] = {
	{ "forward_ns", FIGURE, STAGE(forward_ns) },
	{ "backward_ns", FIGURE, STAGE(backward_ns) },
	{ "allreduce_ns", FIGURE, STAGE(allreduce_ns) },
	{ "memory_bytes", FIGURE, STAGE(memory_bytes) },
	{ NULL }
};

/* A warm-up of -1 is replaced when all stages are known. */
static const struct pd_key_row stage_rows[] = {
	{ "layers", PD_ROW_BY, .needed = true },
	{ "replicas", PD_ROW_BY, .needed = true },
	{ "ranks", PD_ROW_BY, .needed = true },
	{ "warmup", FIGURE, STAGE(warmup), .most = PD_MAX_RANKS, .otherwise = -1 },
	{ "recompute", PD_ROW_BY },
	{ "predicted", PD_ROW_OBJECT, .always = true, .rows = stage_predicted_rows },
	{ NULL }
};

static int read_stage(const struct pd_place *place, struct pd_plan *plan, int index,
		      struct reading *reading, struct pd_error *err)
{
	struct pd_stage *stage = &plan->stages[index];

	return pd_rows_read(place, stage_rows, stage, err) < 0 ||
	       read_stage_layers(place, plan, index, reading, err) < 0 ||
	       read_ranks(place, plan, stage, err) < 0 ? -1 : read_recompute(place, plan, stage, reading, err);
}

/* Checks that the ranks are 0, 1, 2 and so on, each once; some schedules have stages share ranks. */
static int check_ranks(const struct pd_place *stages, struct pd_plan *plan, struct pd_error *err)
{
	bool shared = pd_schedule_has(plan->schedule, PD_FACT_SHARES);
	int64_t total = 0;
	bool *used;

	for (int s = 0; s < plan->stage_count; s++)
		if (!shared)
			total += plan->stages[s].replicas;
		else
			for (int r = 0; r < plan->stages[s].replicas; r++)
				if (plan->stages[s].ranks[r] >= total)
					total = plan->stages[s].ranks[r] + 1;
	if (total > plan->topology.devices)
		return pd_place_error(stages, err, "the stages have %" PRId64 " ranks, the "
				      "topology has %" PRId64 " devices", total,
				      plan->topology.devices);
	plan->rank_count = (int)total;
	used = pd_calloc((size_t)total, sizeof(*used));
	for (int s = 0; s < plan->stage_count; s++)
		for (int r = 0; r < plan->stages[s].replicas; r++) {
			struct pd_place stage = pd_place_index(stages, (size_t)s);
			struct pd_place ranks = pd_place_key(&stage, "ranks");
			struct pd_place at = pd_place_index(&ranks, (size_t)r);
			int rank = plan->stages[s].ranks[r];

			if (rank < total && (shared || !used[rank])) {
				used[rank] = true;
				continue;
			}
			free(used);
			return pd_place_expected(&at, err, "each rank from 0 to %" PRId64 " once",
						 total - 1);
		}
	for (int rank = 0; rank < total; rank++)
		if (!used[rank]) {
			free(used);
			return pd_place_error(stages, err, "expected each rank from 0 to %" PRId64
					      " in one of them, rank %d is in none", total - 1, rank);
		}
	free(used);
	return 0;
}

static int read_stage_list(const struct pd_place *stages, struct pd_plan *plan,
			   struct pd_error *err)
{
	size_t n = (size_t)plan->profile->layer_count;
	struct reading reading = {
		.stage = pd_calloc(n, sizeof(*reading.stage)),
		.order = pd_calloc(n, sizeof(*reading.order)),
	};
	int result = 0;

	for (size_t l = 0; l < n; l++)
		reading.stage[l] = -1;
	for (int s = 0; s < plan->stage_count && result == 0; s++) {
		struct pd_place stage = pd_place_index(stages, (size_t)s);

		result = read_stage(&stage, plan, s, &reading, err);
	}
	if (result == 0)
		result = take_order(stages, plan, &reading, err);
	free(reading.stage);
	free(reading.order);
	return result;
}

static int read_stages(const struct pd_place *root, struct pd_plan *plan, struct pd_error *err)
{
	struct pd_place stages = pd_place_key(root, "stages");
	size_t count;
	char *where;
	int result;

	if (pd_json_some(&stages, plan->profile->layer_count, "stages, the number of layers",
			 &count, err) < 0)
		return -1;
	plan->stages = pd_calloc(count, sizeof(*plan->stages));
	plan->stage_count = (int)count;
	if (read_stage_list(&stages, plan, err) < 0 || check_ranks(&stages, plan, err) < 0)
		return -1;
	for (int s = 0; s < plan->stage_count; s++)
		if (plan->stages[s].warmup < 0)
			plan->stages[s].warmup = pd_plan_warmup(plan, s);
	where = pd_format("%s: stages: ", root->document);
	result = pd_plan_check_shares(plan, where, err);
	if (result == 0)
		result = pd_plan_check_lanes(plan, where, err);
	if (result == 0)
		result = pd_plan_check_sparse(plan, where, err);
	free(where);
	where = pd_format("%s: stages", root->document);
	if (result == 0)
		result = pd_plan_check_reruns(plan, where, err);
	free(where);
	return result;
}

/* Reads the profile of each kind of device that the topology has. */
static int read_kinds(const struct pd_place *profiles, struct pd_plan *plan, struct pd_error *err)
{
	const char *known[PD_MAX_KINDS + 1] = { NULL };
	const struct pd_topology *topology = &plan->topology;
	int result = 0;

	for (int k = 0; k < topology->kinds; k++)
		known[k] = topology->kind[k].name;
	if (!pd_topology_mixed(topology))
		return pd_place_error(profiles, err, "the topology's devices are all alike: expected \"profile\"");
	if (pd_json_keys(profiles, known, err) < 0)
		return -1;
	for (int k = 0; k < topology->kinds && result == 0; k++) {
		struct pd_place at = pd_place_key(profiles, known[k]);
		struct pd_profile *profile = at.value ? pd_profile_parse_at(&at, err) : NULL;
		char *name, *first;

		if (!at.value)
			return pd_place_error(profiles, err, "expected one of device \"%.90s\", which the topology "
					      "has", known[k]);
		if (!profile)
			return -1;
		if (k == 0) {
			plan->profile = profile;
			continue;
		}
		name = pd_format("%s: profiles.%s", profiles->document, known[k]);
		first = pd_format("profiles.%s", known[0]);
		result = pd_profile_same_tensors(plan->profile, first, profile, name, err);
		pd_profile_add_kind(plan->profile, profile);
		free(name);
		free(first);
	}
	return result;
}

static int read_profiles(const struct pd_place *place, struct pd_plan *plan, struct pd_error *err)
{
	struct pd_place profile = pd_place_key(place, "profile"), kinds = pd_place_key(place, "profiles");

	if (kinds.value && profile.value)
		return pd_place_error(&kinds, err, "expected one of \"profile\" and \"profiles\"");
	if (kinds.value)
		return read_kinds(&kinds, plan, err);
	if (pd_topology_mixed(&plan->topology))
		return pd_place_error(&profile, err, "the topology has devices of %d kinds: expected \"profiles\", "
				      "one of each, by name", plan->topology.kinds);
	plan->profile = pd_profile_parse_at(&profile, err);
	return plan->profile ? 0 : -1;
}

/* Returns whether the stage recomputes, or the layers of which it does: at once, or in segments. */
static json_t *recompute_json(const struct pd_plan *plan, int s)
{
	const struct pd_stage *stage = &plan->stages[s];
	bool several = pd_plan_segment_count(plan, s) > 1;
	json_t *all, *layers;
	int last = -1;

	if (!pd_plan_reruns_some(plan, s))
		return json_boolean(stage->recompute);
	all = layers = json_array();
	for (int l = stage->first_layer; l < stage->first_layer + stage->layer_count; l++) {
		if (!pd_plan_reruns(plan, s, l))
			continue;
		if (several && plan->segment[l] != last)
			pd_json_add(all, layers = json_array());
		last = plan->segment[l];
		pd_json_add(layers, json_string(plan->profile->layers[l].name));
	}
	return all;
}

static json_t *stage_json(const struct pd_plan *plan, int s)
{
	const struct pd_stage *stage = &plan->stages[s];
	json_t *layers = json_array(), *ranks = json_array(), *json;

	for (int l = 0; l < stage->layer_count; l++)
		pd_json_add(layers,
				json_string(plan->profile->layers[stage->first_layer + l].name));
	for (int r = 0; r < stage->replicas; r++)
		pd_json_add(ranks, json_integer(stage->ranks[r]));
	json = json_pack("{so si so si so}", "layers", layers, "replicas", stage->replicas, "ranks",
			 ranks, "warmup", stage->warmup, "recompute", recompute_json(plan, s));
	pd_rows_write(stage_rows, stage, json);
	return json;
}

static json_t *stages_json(const void *of)
{
	const struct pd_plan *plan = of;
	json_t *stages = json_array();

	for (int s = 0; s < plan->stage_count; s++)
		pd_json_add(stages, stage_json(plan, s));
	return stages;
}

static json_t *profile_json(const void *of)
{
	const struct pd_plan *plan = of;

	return pd_plan_kinds(plan) == 1 ? pd_profile_json(plan->profile) : NULL;
}

/* Returns the profiles by the names of the topology's devices, where these are of several kinds. */
static json_t *profiles_json(const void *of)
{
	const struct pd_plan *plan = of;
	json_t *profiles = pd_plan_kinds(plan) > 1 ? json_object() : NULL;

	for (int k = 0; profiles && k < pd_plan_kinds(plan); k++)
		pd_json_set(profiles, plan->topology.kind[k].name,
			    pd_profile_json(pd_profile_of_kind(plan->profile, k)));
	return profiles;
}

static int read_topology(const struct pd_place *place, void *member, struct pd_error *err)
{
	return pd_topology_parse_at(place, member, err);
}

static json_t *topology_json(const void *member)
{
	return pd_topology_json(member);
}

#define IN(member) PD_MEMBER(struct pd_plan, member)

static const struct pd_key_row sparse_rows[] = {
	{ "sparsity", PD_ROW_REAL, .needed = true, IN(sparsity), .high = PD_SPARSITY_MOST },
	{ "chunk", PD_ROW_INT, .needed = true, IN(chunk), .least = 1, .most = PD_MAX_EXTENT },
	{ "warmup", PD_ROW_INT, .always = true, IN(sparsity_warmup), .most = PD_MAX_EXTENT },
	{ NULL }
};

const struct pd_key_row pd_plan_rows[] = {
	PD_ROWS_HEADER("pd-plan", 1),
	{ "profile", PD_ROW_BY, .rows = pd_profile_rows, .write = profile_json },
	{ "profiles", PD_ROW_BY, .write = profiles_json },
	{ "topology", PD_ROW_BY, .needed = true, IN(topology), .rows = pd_topology_rows, .read = read_topology,
	  .write = topology_json },
	{ "schedule", PD_ROW_CHOICE, .needed = true, IN(schedule), .names = pd_schedule_kind_name },
	{ "weights", PD_ROW_CHOICE, .needed = true, IN(weights), .names = pd_weight_kind_name },
	{ "startup", PD_ROW_CHOICE, IN(startup), .names = pd_startup_kind_name, .otherwise = PD_STARTUP_FRUGAL },
	{ "microbatches", FIGURE, IN(microbatches), .least = 1, .most = PD_MAX_EXTENT, .otherwise = 1 },
	{ "round", PD_ROW_INT, IN(round), .least = 1, .most = PD_MAX_ROUND },
	{ "agree", PD_ROW_BOOL, IN(agree) },
	{ "reducer", PD_ROW_CHOICE, IN(reducer), .names = pd_reducer_kind_name, .otherwise = PD_REDUCER_dense },
	{ "gradient_dtype", PD_ROW_CHOICE, IN(gradient_dtype), .names = pd_dtype_of_nets },
	{ "bucket_bytes", PD_ROW_INT, IN(bucket_bytes), .least = 1, .most = PD_MAX_BYTES },
	{ "sparse", PD_ROW_OBJECT, .rows = sparse_rows },
	{ "stages", PD_ROW_BY, .needed = true, .rows = stage_rows, .write = stages_json },
	{ "order", PD_ROW_BY, .write = pd_plan_order_json },
	{ "predicted", PD_ROW_OBJECT, .always = true, IN(predicted), .rows = pd_prediction_rows },
	{ NULL }
};

static int read_plan(const struct pd_place *place, struct pd_plan *plan, struct pd_error *err)
{
	struct pd_place dtype = pd_place_key(place, "gradient_dtype");

	if (pd_rows_read(place, pd_plan_rows, plan, err) < 0)
		return -1;
	if (plan->gradient_dtype != PD_F32 && pd_reducers[plan->reducer]->of_transport)
		return pd_place_expected(&dtype, err, "\"f32\" with reducer \"nccl\"");
	return read_profiles(place, plan, err) < 0 || read_stages(place, plan, err) < 0
		? -1 : pd_plan_read_order(place, plan, err);
}

struct pd_plan *pd_plan_parse_at(const struct pd_place *place, struct pd_error *err)
{
	struct pd_plan *plan = pd_zalloc(sizeof(*plan));

	plan->document = place->up ? pd_format("%s: %s", place->document, place->key)
				   : pd_strdup(place->document);
	if (read_plan(place, plan, err) < 0) {
		pd_plan_free(plan);
		return NULL;
	}
	return plan;
}

json_t *pd_plan_json(const struct pd_plan *plan)
{
	return pd_rows_json(pd_plan_rows, plan);
}
