/* SPDX-License-Identifier: Apache-2.0 */
#include "profile/profile.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/minmax.h"
#include "profile/layers.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

const char *const pd_memory_model_name[PD_MEMORY_MODELS + 1] = {
#define MEMORY_MODEL(symbol, name, ...) name,
#include "profile/memory_model.def"
};

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

const char *pd_profile_say(const struct pd_profile *profile, const char *word, char text[PD_MEANT_TEXT])
{
	struct pd_likeness likeness = { .word = word };

	for (int l = 0; l < profile->layer_count; l++)
		pd_likeness_try(&likeness, profile->layers[l].name);
	return pd_likeness_say(&likeness, text);
}

int64_t pd_profile_lane_round(const struct pd_profile *profile)
{
	return profile->model ? pd_model_lanes(profile->model) / profile->batch_size : 0;
}

void pd_profile_free(struct pd_profile *profile)
{
	if (!profile)
		return;
	for (int l = 0; l < profile->layer_count; l++) {
		free(profile->layers[l].name);
		free(profile->layers[l].inputs);
		free(profile->layers[l].engines);
		free(profile->layers[l].slow_kernel);
	}
	free(profile->layers);
	free(profile->name);
	free(profile->device_kind);
	free(profile->device_name);
	free(profile->estimated_from);
	json_decref(profile->sheet);
	free(profile->numbers);
	for (int k = 0; k < profile->other_count; k++)
		pd_profile_free(profile->others[k]);
	free(profile->others);
	pd_model_free(profile->model);
	json_decref(profile->names);
	json_decref(profile->json);
	free(profile);
}

void pd_profile_sort(struct pd_profile *profile, const int *order)
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
	for (int n = 0; n < count; n++) {
		sorted[n].owner = sorted[n].shared ? now[sorted[n].owner] : 0;
		for (int i = 0; i < sorted[n].input_count; i++)
			sorted[n].inputs[i] = now[sorted[n].inputs[i]];
	}
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
	pd_profile_sort(profile, order);
	if (profile->model)
		pd_model_reorder(profile->model, order);
	for (int k = 0; k < profile->other_count; k++)
		pd_profile_reorder(profile->others[k], order);
}

void pd_profile_add_kind(struct pd_profile *profile, struct pd_profile *other)
{
	size_t room = (size_t)profile->other_count;

	profile->others = pd_grow(profile->others, &room, room + 1, sizeof(*profile->others));
	profile->others[profile->other_count++] = other;
}

struct pd_profile *pd_profile_in_order(const struct pd_profile *profile, const int *order)
{
	struct pd_profile *copy = pd_zalloc(sizeof(*copy));
	size_t n = (size_t)profile->layer_count;

	*copy = *profile;
	copy->name = pd_strdup(profile->name);
	copy->device_kind = pd_strdup(profile->device_kind);
	copy->device_name = pd_strdup(profile->device_name);
	copy->estimated_from = profile->estimated_from ? pd_strdup(profile->estimated_from) : NULL;
	copy->sheet = json_incref(profile->sheet);
	copy->json = copy->names = NULL;
	copy->model = NULL;
	copy->others = NULL;
	copy->other_count = 0;
	copy->layers = pd_calloc(n, sizeof(*copy->layers));
	copy->numbers = pd_calloc(n, sizeof(*copy->numbers));
	for (size_t l = 0; l < n; l++) {
		struct pd_profile_layer *layer = &copy->layers[l];
		size_t bytes = (size_t)profile->layers[l].input_count * sizeof(int);

		*layer = profile->layers[l];
		layer->name = pd_strdup(layer->name);
		layer->engines = layer->engines ? pd_strdup(layer->engines) : NULL;
		layer->slow_kernel = layer->slow_kernel ? pd_strdup(layer->slow_kernel) : NULL;
		layer->inputs = pd_memdup(layer->inputs, bytes);
		copy->numbers[l] = pd_profile_number(profile, (int)l);
	}
	pd_profile_reorder(copy, order);
	if (profile->model)
		copy->model = pd_model_in_order(profile->model, order);
	for (int k = 0; k < profile->other_count; k++)
		pd_profile_add_kind(copy, pd_profile_in_order(profile->others[k], order));
	return copy;
}

/* Makes times the least of both; parts of backward are known if both know them. */
static void take_fastest(struct pd_profile_layer *layer, const struct pd_profile_layer *other)
{
	int64_t input_ns = pd_min(pd_profile_input_ns(layer), pd_profile_input_ns(other));
	int64_t weight_ns = pd_min(pd_profile_weight_ns(layer), pd_profile_weight_ns(other));

	layer->update_apart_ns = pd_min(pd_profile_apart_ns(layer), pd_profile_apart_ns(other));
	layer->backward_input_ns = input_ns;
	layer->backward_weight_ns = weight_ns;
	layer->forward_ns = pd_min(layer->forward_ns, other->forward_ns);
	layer->backward_ns = pd_min(layer->backward_ns, other->backward_ns);
	layer->update_ns = pd_min(layer->update_ns, other->update_ns);
}

struct pd_profile *pd_profile_fastest(const struct pd_profile *profile)
{
	int *order = pd_calloc((size_t)profile->layer_count, sizeof(*order));
	struct pd_profile *fastest;

	for (int l = 0; l < profile->layer_count; l++)
		order[l] = l;
	fastest = pd_profile_in_order(profile, order);
	free(order);
	for (int k = 0; k < profile->other_count; k++) {
		const struct pd_profile *other = fastest->others[k];

		for (int l = 0; l < profile->layer_count; l++)
			take_fastest(&fastest->layers[l], &other->layers[l]);
		if (other->in_step.sum_bytes_per_s > fastest->in_step.sum_bytes_per_s)
			fastest->in_step.sum_bytes_per_s = other->in_step.sum_bytes_per_s;
	}
	return fastest;
}

void pd_profile_set_pairs(struct pd_profile *profile, double pairs)
{
	profile->pairs = pairs;
	for (int k = 0; k < profile->other_count; k++)
		profile->others[k]->pairs = pairs;
}

void pd_profile_uses(const struct pd_profile *profile, struct pd_uses *uses)
{
	int n = profile->layer_count;
	int **inputs = pd_calloc((size_t)n, sizeof(*inputs));
	int *counts = pd_calloc((size_t)n, sizeof(*counts));

	for (int l = 0; l < n; l++) {
		inputs[l] = profile->layers[l].inputs;
		counts[l] = profile->layers[l].input_count;
	}
	pd_uses_init(uses, n, n, inputs, counts);
	free(inputs);
	free(counts);
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

/* Tells whether layer l is the same in both, except for what depends on the batch size. */
static bool same_layer(const struct pd_profile_layer *a, const struct pd_profile_layer *b)
{
	return strcmp(a->name, b->name) == 0 && a->input_count == b->input_count &&
	       memcmp(a->inputs, b->inputs, (size_t)a->input_count * sizeof(*a->inputs)) == 0 &&
	       a->parameter_bytes == b->parameter_bytes && a->shared == b->shared &&
	       a->owner == b->owner;
}

/* Checks what is the same whatever the batch size and the device. */
static int same_network(const struct pd_profile *a, const char *a_name, const struct pd_profile *b,
			const char *b_name, const char *expected, struct pd_error *err)
{
	int least = a->layer_count < b->layer_count ? a->layer_count : b->layer_count;

	for (int l = 0; l < least; l++)
		if (!same_layer(&a->layers[l], &b->layers[l]))
			return pd_error_input(err, "%s: layers[%d]: layer \"%.60s\" is not the same as "
					      "\"%.60s\" of %s: %s", b_name, l, b->layers[l].name,
					      a->layers[l].name, a_name, expected);
	if (a->layer_count != b->layer_count)
		return pd_error_input(err, "%s: layers: found %d, and %d in %s: %s", b_name,
				      b->layer_count, a->layer_count, a_name, expected);
	if (!a->model != !b->model ||
	    (a->model && !json_equal(json_object_get(a->json, "model"),
				     json_object_get(b->json, "model"))))
		return pd_error_input(err, "%s: model: it is not the one of %s: %s", b_name, a_name,
				      expected);
	if (a->dtype != b->dtype)
		return pd_error_input(err, "%s: dtype: found \"%s\", and \"%s\" in %s: %s", b_name,
				      pd_dtype_name[b->dtype], pd_dtype_name[a->dtype], a_name,
				      expected);
	return 0;
}

int pd_profile_same_model(const struct pd_profile *a, const char *a_file,
			  const struct pd_profile *b, const char *b_file, struct pd_error *err)
{
	const char *expected = "expected profiles of one model at different batch sizes";
	const char *a_name = pd_document_name(a_file), *b_name = pd_document_name(b_file);

	if (same_network(a, a_name, b, b_name, expected, err) < 0)
		return -1;
	if (a->batch_size == b->batch_size && strcmp(a->device_name, b->device_name) == 0)
		return pd_error_input(err, "%s: batch_size: found %" PRId64 ", as in %s: %s", b_name,
				      b->batch_size, a_name, expected);
	return 0;
}

int pd_profile_same_tensors(const struct pd_profile *a, const char *a_name,
			    const struct pd_profile *b, const char *b_name, struct pd_error *err)
{
	const char *expected = "expected profiles of one model";

	if (same_network(a, a_name, b, b_name, expected, err) < 0)
		return -1;
	if (a->batch_size != b->batch_size)
		return pd_error_input(err, "%s: batch_size: found %" PRId64 ", and %" PRId64 " in %s: devices that "
				      "train together take the same", b_name, b->batch_size, a->batch_size, a_name);
	for (int l = 0; l < a->layer_count; l++)
		if (a->layers[l].activation_bytes != b->layers[l].activation_bytes)
			return pd_error_input(err, "%s: layers[%d].activation_bytes: found %" PRId64 ", and %" PRId64
					      " in %s: devices that train together exchange the same tensors",
					      b_name, l, b->layers[l].activation_bytes,
					      a->layers[l].activation_bytes, a_name);
	if (a->memory.model != b->memory.model || a->memory.sharded != b->memory.sharded ||
	    a->memory.margin != b->memory.margin)
		return pd_error_input(err, "%s: memory: it is not the one of %s: devices that train together run "
				      "one program", b_name, a_name);
	return 0;
}
