/* SPDX-License-Identifier: Apache-2.0 */
#include "estimate/estimate.h"

#include "base/json.h"
#include "base/mem.h"
#include "estimate/exchange.h"
#include "estimate/split.h"
#include "topology/contract.h"

#include <math.h>
#include <stdlib.h>

static double whole(double value, double side)
{
	return ceil(value / side);
}

/*
 * Returns how many times as long a product takes as its operations: the last wave of tiles is not full, tiles reach
 * beyond the output, and each has a beginning and an end.
 */
static double stretch(const struct pd_sheet *sheet, const struct pd_product *p)
{
	double best = INFINITY;

	for (int t = 0; t < sheet->tile_count; t++) {
		double rows = sheet->tiles[t][0], columns = sheet->tiles[t][1], units = (double)sheet->units;
		double tiles = whole((double)p->rows, rows) * whole((double)p->columns, columns) * (double)p->times;
		double waves = whole(tiles, units);

		best = fmin(best, waves * units * rows * columns /
				  ((double)p->rows * (double)p->columns * (double)p->times));
	}
	return (isfinite(best) ? best : 1) * (1 + sheet->fill / (double)p->depth);
}

static double bytes_ns(const struct pd_sheet *sheet, double bytes)
{
	return 1e9 * bytes / (sheet->bandwidth_bytes_per_s * sheet->efficiency.memory);
}

static double product_ns(const struct pd_estimate *how, const struct pd_product *p)
{
	const struct pd_sheet *sheet = how->sheet;
	double per_s = how->tf32 && how->dtype == PD_F32 && sheet->tf32_per_s > 0
		? sheet->tf32_per_s : sheet->products_per_s[how->dtype];
	double operations = 2.0 * (double)p->rows * (double)p->columns * (double)p->depth * (double)p->times;

	if (p->winograd > 0 && sheet->efficiency.winograd > 0 && !how->tf32)
		return 1e9 * operations * p->winograd / (per_s * sheet->efficiency.winograd) +
		       bytes_ns(sheet, p->winograd_bytes);
	if (p->attention)
		return 1e9 * operations / (per_s * sheet->efficiency.attention);
	return 1e9 * operations * stretch(sheet, p) / (per_s * sheet->efficiency.products);
}

double pd_estimate_ns(const struct pd_estimate *how, const struct pd_cost *cost)
{
	double kernel_ns = (double)how->sheet->kernel_ns, moved_ns = bytes_ns(how->sheet, cost->bytes);
	double ns = 0, products_ns = 0;
	bool attends = false;

	for (int i = 0; i < cost->product_count; i++) {
		const struct pd_product *p = &cost->products[i];

		products_ns += product_ns(how, p) * (double)p->in_turn;
		ns += p->attention && attends ? 0 : kernel_ns * (double)p->in_turn;
		attends |= p->attention;
	}
	if (cost->product_count == 0 && cost->bytes > 0)
		ns = kernel_ns;
	ns += kernel_ns * cost->apart_kernels + bytes_ns(how->sheet, cost->apart_bytes);
	return ns + fmax(products_ns, moved_ns);
}

struct pd_cost_layer pd_estimate_layer(const struct pd_estimate *how, const struct pd_model *model, int layer)
{
	return (struct pd_cost_layer){ model, &model->layers[layer], how->batch_size, how->dtype,
				       how->sheet->unfused, !how->sheet->drops_apart, PD_SHARE_ALL };
}

/* Returns the layer as each device of the group runs it. */
static struct pd_cost_layer shared(const struct pd_estimate *how, const struct pd_split *split,
				   const struct pd_model *model, int l)
{
	struct pd_cost_layer of = pd_estimate_layer(how, model, l);

	of.share = pd_split_share(split, model, l);
	return of;
}

static double update_ns(const struct pd_estimate *how, double parameters)
{
	double bytes = how->sheet->update_bytes +
		       (how->dtype == PD_F32 ? 0 : (double)pd_dtype_bytes(how->dtype));

	return parameters > 0 ? (double)how->sheet->kernel_ns + bytes_ns(how->sheet, parameters * bytes) : 0;
}

/* Returns the parameters that are a layer's own. */
static double own_parameters(const struct pd_model *model, int l)
{
	const struct pd_layer *layer = &model->layers[l];

	return layer->shares < 0 ? (double)layer->parameter_elements : 0;
}

static void time_layers(const struct pd_estimate *how, const struct pd_split *split, const struct pd_model *model,
			struct pd_layer_ns *times)
{
	for (int l = 0; l < model->layer_count; l++) {
		struct pd_cost_layer of = shared(how, split, model, l);
		double own = own_parameters(model, l) / (double)of.share.parameters;
		struct pd_cost cost;

		for (int part = 0; part < PD_COST_PARTS; part++) {
			pd_cost_count(&of, (enum pd_cost_part)part, &cost);
			times[l].part[part] = pd_estimate_ns(how, &cost) / of.share.beside;
		}
		times[l].update = of.layer->frozen ? 0 : update_ns(how, own / (double)how->group.sharded);
	}
}

/* Returns the layer of the document. */
static json_t *layer_json(const struct pd_estimate *how, const struct pd_split *split, const struct pd_model *model,
			  int l, const struct pd_layer_ns *times)
{
	const struct pd_layer *layer = &model->layers[l];
	struct pd_cost_layer of = shared(how, split, model, l);
	int64_t sharded = how->group.sharded, devices = pd_degrees_devices(&how->group);
	double bytes = (double)(how->batch_size * sharded) * (double)pd_dtype_bytes(how->dtype), states = 0;
	double own = own_parameters(model, l) / (double)of.share.parameters * (double)split->devices;
	double stash = (double)devices * (how->elsewhere ? pd_cost_read_bytes(&of) : pd_cost_kept_bytes(&of));
	json_int_t input = (json_int_t)times->part[PD_COST_INPUT], weight = (json_int_t)times->part[PD_COST_WEIGHT];
	/* weights gathered of it and of the next, and its gradient, on each */
	double gathered = (double)layer->parameter_elements / (double)of.share.parameters *
			  (2 * (double)pd_dtype_bytes(how->dtype) + sizeof(float));
	json_t *inputs = json_array(), *work = how->group.sharded > 1
		? json_integer((json_int_t)(gathered * (double)devices)) : NULL;

	for (int s = 0; s < layer->state_count; s++)
		states += (double)layer->states[s].elements;
	for (int i = 0; i < layer->input_count; i++)
		pd_json_add(inputs, json_string(pd_model_tensor_name(model, layer->inputs[i])));
	return json_pack("{ss so so* sI sI sI sI sI sI sI sI sI sf}", "name", layer->name, "inputs", inputs,
			 "workspace_bytes", work, "forward_ns",
			 (json_int_t)times->part[PD_COST_FORWARD], "backward_ns", input + weight, "backward_input_ns",
			 input, "backward_weight_ns", weight, "update_ns", (json_int_t)times->update,
			 "activation_bytes", (json_int_t)(bytes * (double)pd_shape_elements(&layer->output)),
			 "parameter_bytes", (json_int_t)(layer->frozen ? 0 : own * sizeof(float)), "stash_bytes",
			 (json_int_t)stash, "state_bytes",
			 (json_int_t)(states * (double)devices * sizeof(float) +
				      (layer->frozen ? own * (double)pd_dtype_bytes(how->dtype) : 0)),
			 "spread", how->sheet->spread);
}

/* Returns the layers of the document; NULL if the devices cannot share the model out. */
static json_t *layers_json(const struct pd_estimate *how, const struct pd_model *model, struct pd_error *err)
{
	struct pd_layer_ns *times;
	struct pd_split split;
	json_t *layers;

	if (pd_split_find(model, how->group.tensor, how->group.sequence, &split, err) < 0)
		return NULL;
	times = pd_calloc((size_t)model->layer_count, sizeof(*times));
	time_layers(how, &split, model, times);
	pd_exchange_add(how, &split, model, times);
	if (how->group.sharded > 1)
		pd_exchange_shard(how, &split, model, times);
	layers = json_array();
	for (int l = 0; l < model->layer_count; l++)
		pd_json_add(layers, layer_json(how, &split, model, l, &times[l]));
	free(times);
	pd_split_release(&split);
	return layers;
}

/* Returns the document but for its layers and its group. */
static json_t *head_json(const struct pd_estimate *how, const struct pd_model *model)
{
	const struct pd_sheet *sheet = how->sheet;
	int64_t devices = pd_degrees_devices(&how->group);

	return json_pack("{ss si ss sO sI ss s{ss ss sI s{ss sf sO so*}}}", "format", "pd-profile", "version", 1,
			 "name", model->name, "model", model->json, "batch_size",
			 how->batch_size * how->group.sharded, "dtype", pd_dtype_name[how->dtype], "device", "kind",
			 sheet->kind, "name", sheet->name, "memory_bytes", sheet->memory_bytes * devices, "estimated",
			 "from", sheet->name, "spread", sheet->spread, "sheet", sheet->json, "tf32", how->tf32 ? json_true() : NULL);
}

/* Takes the sheet's link where none is known, and its latency where a topology has none. */
static void complete_link(struct pd_group_link *link, const struct pd_sheet *sheet)
{
	if (link->bandwidth_bytes_per_s == 0)
		link->bandwidth_bytes_per_s = sheet->link.bandwidth_bytes_per_s;
	if (link->latency_ns == 0)
		link->latency_ns = sheet->link.latency_ns;
}

/* Takes one device where nothing is said, and the sheet's link. */
static int complete(struct pd_estimate *how, struct pd_error *err)
{
	const struct pd_sheet *sheet = how->sheet;
	struct pd_degrees *group = &how->group;

	group->tensor = group->tensor > 0 ? group->tensor : 1;
	group->sharded = group->sharded > 0 ? group->sharded : 1;
	if (sheet->products_per_s[how->dtype] == 0)
		return pd_error_input(err, "device \"%.60s\": products_per_s has no \"%s\": expected --dtype of "
				      "another type", sheet->name, pd_dtype_name[how->dtype]);
	how->elsewhere |= pd_degrees_devices(group) > 1;
	if (pd_degrees_devices(group) == 1)
		return 0;
	complete_link(&group->tensor_link, sheet);
	complete_link(&group->sharded_link, sheet);
	if (group->tensor_link.bandwidth_bytes_per_s == 0)
		return pd_error_input(err, "device \"%.60s\": it has no \"link\", over which devices that share layers "
				      "out exchange them", sheet->name);
	return 0;
}

static struct pd_group_link ring_link(const struct pd_topology *topology, int64_t stride,
				      int64_t members)
{
	struct pd_level link = pd_topology_ring_link(topology, stride, members);

	return (struct pd_group_link){ link.bandwidth_bytes_per_s, link.latency_ns };
}

void pd_estimate_links(const struct pd_topology *topology, struct pd_degrees *group)
{
	int64_t tensor = group->tensor > 1 ? group->tensor : 1,
		sharded = group->sharded > 1 ? group->sharded : 1;

	group->sharded_link = ring_link(topology, tensor, sharded);
	group->tensor_link = tensor > 1 ? ring_link(topology, 1, tensor) : group->sharded_link;
}

struct pd_profile *pd_estimate_profile(const struct pd_estimate *asked, const struct pd_model *model,
				       struct pd_error *err)
{
	struct pd_estimate how = *asked;
	json_t *layers = complete(&how, err) < 0 ? NULL : layers_json(&how, model, err), *document;
	struct pd_profile *profile;
	struct pd_place root;

	if (!layers)
		return NULL;
	document = head_json(&how, model);
	if (pd_degrees_devices(&how.group) > 1)
		pd_json_set(document, "group", pd_degrees_json(&how.group));
	if (how.elsewhere)
		pd_json_set(document, "memory", json_pack("{ss sb sf}", "model", pd_memory_model_name[PD_MEMORY_MEGATRON],
							  "sharded", false, "margin", PD_MEMORY_MARGIN));
	pd_json_set(document, "layers", layers);
	root = pd_place_root(how.sheet->name, document);
	profile = pd_profile_parse_at(&root, err);
	json_decref(document);
	return profile;
}

struct pd_profile *pd_estimate_again(const struct pd_profile *profile, int64_t batch_size,
				     const struct pd_degrees *group, bool elsewhere,
				     struct pd_error *err)
{
	struct pd_estimate how = { .batch_size = batch_size, .dtype = profile->dtype,
				   .tf32 = profile->tf32, .elsewhere = elsewhere };
	struct pd_place place = pd_place_root(profile->name, profile->sheet);
	struct pd_sheet *sheet = pd_sheet_parse_at(&place, err);
	struct pd_profile *made;

	if (!sheet)
		return NULL;
	if (group)
		how.group = *group;
	how.sheet = sheet;
	made = pd_estimate_profile(&how, profile->model, err);
	pd_sheet_free(sheet);
	if (!made)
		return NULL;
	if (profile->memory.model != PD_MEMORY_OWN)
		made->memory = profile->memory;
	for (int l = 0; l < made->layer_count; l++)
		made->layers[l].joined = profile->layers[l].joined;
	return made;
}
