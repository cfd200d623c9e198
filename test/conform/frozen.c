/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layers that are frozen change no bit of what the others learn, keep their parameters, and have neither
 * gradients nor a place in arenas that updates move; and a partition changes no bit of that.  Of each model
 * one half of the layers is frozen, then the other.
 */
#include "chain.h"
#include "tap.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "memory/memory.h"

#include <stdlib.h>
#include <string.h>

#define BATCH 6
#define STEPS 3
#define SEED 99

/* Returns the model with every second of the layers that own parameters frozen, from the first or the second on. */
static struct pd_model *half_frozen(const struct pd_model *model, int half)
{
	json_t *value = json_deep_copy(model->json), *layer;
	struct pd_model *frozen;
	struct pd_error err;
	int owners = 0;
	size_t i;

	json_array_foreach(json_object_get(value, "layers"), i, layer) {
		int l = pd_model_find(model, json_string_value(json_object_get(layer, "name")));

		if (model->layers[l].shares < 0 && model->layers[l].parameter_count > 0 &&
		    owners++ % 2 == half)
			pd_json_set(layer, "frozen", json_true());
	}
	frozen = pd_model_parse("frozen", value, &err);
	if (!frozen)
		pd_bug("%s", err.text);
	json_decref(value);
	return frozen;
}

/* Returns a named tensor of a chain of one stage, of a part, or NULL where it has none of that part. */
static float *tensor(struct chain *c, const char *name, enum pd_part part, const void *arena, int64_t *count_p)
{
	const struct pd_named *list;
	int n = c->ops->net.named(c->stages[0].net, &list);
	float *values;

	for (int k = 0; k < n; k++) {
		if (list[k].part != part || strcmp(list[k].name, name) != 0)
			continue;
		values = pd_calloc((size_t)list[k].elements, sizeof(*values));
		c->ops->net.export(c->stages[0].net, k, PD_FULL, arena, values);
		*count_p = list[k].elements;
		return values;
	}
	return NULL;
}

/* Compares gradients of the first step with those of the model of which nothing is frozen. */
static void test_gradients(const struct pd_device_ops *ops, const struct pd_model *model,
			   const struct pd_model *frozen, int half)
{
	struct chain *one = chain_open(ops, model, NULL, 0, BATCH, SEED, 1);
	struct chain *other = chain_open(ops, frozen, NULL, 0, BATCH, SEED, 1);
	const struct pd_named *list;
	int n = ops->net.named(other->stages[0].net, &list), compared = 0, unlike = 0;
	struct chain *both[] = { one, other };

	for (int k = 0; k < 2; k++) {
		chain_load_step(both[k], 0);
		chain_forward(both[k]);
		chain_backward(both[k]);
	}
	for (int k = 0; k < n; k++) {
		int64_t count = 0;
		float *a, *b;

		if (list[k].part != PD_PART_PARAMETER)
			continue;
		a = tensor(one, list[k].name, PD_PART_PARAMETER, one->stages[0].gradients, &count);
		b = tensor(other, list[k].name, PD_PART_PARAMETER, other->stages[0].gradients, &count);
		compared++;
		if (!a || memcmp(a, b, (size_t)count * sizeof(*a)) != 0) {
			diag("the gradient of %s differs", list[k].name);
			unlike++;
		}
		free(a);
		free(b);
	}
	ok(compared > 0 && unlike == 0 && one->loss.sum == other->loss.sum,
	   "%s, %s, half %d: gradients and loss as if nothing was frozen", chain_name(ops), model->layers[0].name,
	   half);
	ok(other->stages[0].sizes->full_bytes < one->stages[0].sizes->full_bytes &&
	   other->stages[0].sizes->moved_bytes == one->stages[0].sizes->state_bytes,
	   "%s: and memory for others alone", chain_name(ops));
	chain_close(one);
	chain_close(other);
}

/* Trains a chain, and closes it; returns all that it ends with. */
static float *train(struct chain *c, int64_t *count_p)
{
	int64_t weights, states;
	float *all, *rest;

	for (int step = 0; step < STEPS; step++) {
		chain_load_step(c, step);
		c->first_sample = step * BATCH;
		chain_forward(c);
		chain_backward(c);
		chain_update(c, 0.1f, 0.9f, 1e-3f);
	}
	all = chain_export(c, WEIGHTS, &weights);
	rest = chain_export(c, STATE, &states);
	*count_p = weights + states + 1;
	all = pd_regrow(all, (size_t)*count_p, sizeof(*all));
	if (states > 0)
		memcpy(all + weights, rest, (size_t)states * sizeof(*all));
	all[weights + states] = (float)c->loss.sum;
	free(rest);
	chain_close(c);
	return all;
}

/* Layers whose places an update moves may share none with others in another stage. */
static bool cuttable(const struct pd_model *model, int cut)
{
	for (int l = cut; l < model->layer_count; l++)
		if (model->layers[l].shares >= 0 && model->layers[l].shares < cut && !model->layers[l].frozen)
			return false;
	return true;
}

static void test_cuts(const struct pd_device_ops *ops, const struct pd_model *model, int half)
{
	int64_t count, others;
	float *whole = train(chain_open(ops, model, NULL, 0, BATCH, SEED, 1), &count), *other;
	int wrong = 0;

	for (int cut = 1; cut < model->layer_count; cut += test_quick() ? 9 : 4) {
		struct chain *c;

		if (!cuttable(model, cut))
			continue;
		c = ops->splits ? chain_open_split(ops, model, &cut, 1, BATCH, SEED, 1)
				: chain_open(ops, model, &cut, 1, BATCH, SEED, 1);
		c->parts = ops->splits;
		other = train(c, &others);
		/* a copy of what is shared is exported twice, in any cut */
		if (others != count || memcmp(whole, other, (size_t)count * sizeof(*whole)) != 0) {
			diag("cut before %s", model->layers[cut].name);
			wrong++;
		}
		free(other);
	}
	is_int(wrong, 0, "%s, %s, half %d: cuts, and backward in two parts, change no bit", chain_name(ops),
	       model->layers[0].name, half);
	free(whole);
}

/* Trains, and compares what is frozen with how it began. */
static void test_kept(const struct pd_device_ops *ops, const struct pd_model *model, int half)
{
	struct chain *c = chain_open(ops, model, NULL, 0, BATCH, SEED, 1);
	const struct pd_named *list;
	int n = ops->net.named(c->stages[0].net, &list), changed = 0, frozen = 0;
	float **before = pd_calloc((size_t)n, sizeof(*before));

	for (int step = 0; step < 2; step++) {
		for (int k = 0; k < n; k++) {
			int64_t count = 0;
			float *now = list[k].part != PD_PART_FROZEN ? NULL
				: tensor(c, list[k].name, PD_PART_FROZEN, c->stages[0].state, &count);

			frozen += now != NULL;
			if (before[k] && memcmp(before[k], now, (size_t)count * sizeof(*now)) != 0)
				changed++;
			free(before[k]);
			before[k] = now;
		}
		chain_load_step(c, step);
		chain_forward(c);
		chain_backward(c);
		chain_update(c, 0.1f, 0.9f, 1e-3f);
	}
	ok(frozen > 0 && changed == 0, "%s, %s, half %d: what is frozen stays", chain_name(ops),
	   model->layers[0].name, half);
	for (int k = 0; k < n; k++)
		free(before[k]);
	free(before);
	chain_close(c);
}

/* Checks that a plan counts the bytes that the device reports. */
static void test_predicted(const struct pd_device_ops *ops, struct pd_model *model, int half)
{
	struct chain *c = ops->splits ? chain_open_split(ops, model, NULL, 0, BATCH, SEED, 1)
				      : chain_open(ops, model, NULL, 0, BATCH, SEED, 1);
	struct pd_profile profile = { .model = model, .layer_count = model->layer_count };
	const struct pd_net_sizes *sizes = c->stages[0].sizes;
	struct pd_net_layer bytes;
	size_t state = 0, parameters = 0;
	int wrong = 0;

	profile.layers = pd_calloc((size_t)model->layer_count, sizeof(*profile.layers));
	for (int l = 0; l < model->layer_count; l++) {
		ops->net.layer(c->stages[0].net, l, &bytes);
		profile.layers[l].parameter_bytes = (int64_t)bytes.parameter_bytes;
		profile.layers[l].activation_bytes = (int64_t)bytes.activation_bytes;
		state += pd_align(bytes.state_bytes);
		parameters += bytes.parameter_bytes;
		wrong += model->layers[l].frozen &&
			 (bytes.parameter_bytes > 0 || bytes.split_bytes > 0 || pd_memory_split(&profile, l) > 0);
	}
	ok(state == sizes->state_bytes && parameters == sizes->full_bytes && wrong == 0,
	   "%s, %s, half %d: layers' bytes add up", chain_name(ops), model->layers[0].name, half);
	free(profile.layers);
	chain_close(c);
}

static void test_model(const struct pd_device_ops *ops, struct pd_model *model)
{
	for (int half = 0; half < 2; half++) {
		struct pd_model *frozen = half_frozen(model, half);

		test_gradients(ops, model, frozen, half);
		test_kept(ops, frozen, half);
		test_predicted(ops, frozen, half);
		test_cuts(ops, frozen, half);
		pd_model_free(frozen);
	}
	pd_model_free(model);
}

int main(void)
{
	for (int i = 0; pd_devices[i]; i++)
		for (int type = 0; chain_usable(pd_devices[i]) && type < chain_types(pd_devices[i]); type++) {
			if (!chain_take(pd_devices[i], type))
				continue;
			test_model(pd_devices[i], branching_model());
			test_model(pd_devices[i], residual_model());
			test_model(pd_devices[i], sequence_model());
			test_model(pd_devices[i], recurrent_model());
			test_model(pd_devices[i], transformer_model());
		}
	return done_testing();
}
