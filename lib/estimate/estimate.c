/* SPDX-License-Identifier: Apache-2.0 */
#include "estimate/estimate.h"

#include "base/json.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

/* Bytes that an update of SGD with momentum moves: of the parameter, its gradient and its moment, in f32. */
#define UPDATE_BYTES 20

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

static double product_ns(const struct pd_estimate *how, const struct pd_product *p)
{
	const struct pd_sheet *sheet = how->sheet;
	double per_s = how->tf32 && how->dtype == PD_F32 && sheet->tf32_per_s > 0
		? sheet->tf32_per_s : sheet->products_per_s[how->dtype];
	double operations = 2.0 * (double)p->rows * (double)p->columns * (double)p->depth * (double)p->times;

	if (p->attention)
		return 1e9 * operations / (per_s * sheet->efficiency.attention);
	return 1e9 * operations * stretch(sheet, p) / (per_s * sheet->efficiency.products);
}

static double bytes_ns(const struct pd_sheet *sheet, double bytes)
{
	return 1e9 * bytes / (sheet->bandwidth_bytes_per_s * sheet->efficiency.memory);
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
	return ns + fmax(products_ns, moved_ns);
}

static double part_ns(const struct pd_estimate *how, const struct pd_model *model, int layer,
		      enum pd_cost_part part)
{
	struct pd_cost cost;

	pd_cost_of(model, layer, how->batch_size, how->dtype, part, &cost);
	return pd_estimate_ns(how, &cost);
}

static double update_ns(const struct pd_estimate *how, double parameters)
{
	double bytes = parameters * (UPDATE_BYTES + (how->dtype == PD_F32 ? 0 : (double)pd_dtype_bytes(how->dtype)));

	return parameters > 0 ? (double)how->sheet->kernel_ns + bytes_ns(how->sheet, bytes) : 0;
}

/* Returns the layer of the document. */
static json_t *layer_json(const struct pd_estimate *how, const struct pd_model *model, int l)
{
	const struct pd_layer *layer = &model->layers[l];
	double input = part_ns(how, model, l, PD_COST_INPUT), weight = part_ns(how, model, l, PD_COST_WEIGHT);
	double bytes = (double)how->batch_size * (double)pd_dtype_bytes(how->dtype);
	double own = layer->shares < 0 ? (double)layer->parameter_elements : 0, states = 0;
	json_t *inputs = json_array();

	for (int s = 0; s < layer->state_count; s++)
		states += (double)layer->states[s].elements;
	for (int i = 0; i < layer->input_count; i++)
		pd_json_add(inputs, json_string(pd_model_tensor_name(model, layer->inputs[i])));
	return json_pack("{ss so sI sI sI sI sI sI sI sI sI sf}", "name", layer->name, "inputs", inputs, "forward_ns",
			 (json_int_t)part_ns(how, model, l, PD_COST_FORWARD), "backward_ns",
			 (json_int_t)input + (json_int_t)weight, "backward_input_ns", (json_int_t)input,
			 "backward_weight_ns", (json_int_t)weight, "update_ns",
			 (json_int_t)(layer->frozen ? 0 : update_ns(how, own)), "activation_bytes",
			 (json_int_t)(bytes * (double)pd_shape_elements(&layer->output)), "parameter_bytes",
			 (json_int_t)(layer->frozen ? 0 : own * sizeof(float)), "stash_bytes",
			 (json_int_t)pd_cost_kept_bytes(model, l, how->batch_size, how->dtype), "state_bytes",
			 (json_int_t)(states * sizeof(float) +
				      (layer->frozen ? own * (double)pd_dtype_bytes(how->dtype) : 0)), "spread",
			 how->sheet->spread);
}

struct pd_profile *pd_estimate_profile(const struct pd_estimate *how, const struct pd_model *model,
				       struct pd_error *err)
{
	const struct pd_sheet *sheet = how->sheet;
	json_t *layers = json_array(), *document;
	struct pd_profile *profile;
	struct pd_place root;

	if (sheet->products_per_s[how->dtype] == 0) {
		json_decref(layers);
		pd_error_input(err, "device \"%.60s\": products_per_s has no \"%s\": expected --dtype of another type",
			       sheet->name, pd_dtype_name[how->dtype]);
		return NULL;
	}
	for (int l = 0; l < model->layer_count; l++)
		pd_json_add(layers, layer_json(how, model, l));
	document = json_pack("{ss si ss sO sI ss s{ss ss sI s{ss sf}} so}", "format", "pd-profile", "version", 1,
			     "name", model->name, "model", model->json, "batch_size", how->batch_size, "dtype",
			     pd_dtype_name[how->dtype], "device", "kind", sheet->kind, "name", sheet->name,
			     "memory_bytes", sheet->memory_bytes, "estimated", "from", sheet->name, "spread",
			     sheet->spread, "layers", layers);
	root = pd_place_root(sheet->name, document);
	profile = pd_profile_parse_at(&root, err);
	json_decref(document);
	return profile;
}
