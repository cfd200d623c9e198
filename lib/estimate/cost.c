/* SPDX-License-Identifier: Apache-2.0 */
#include "estimate/cost.h"

#include <string.h>

enum { X = 1, Y = 2 };          /* what backward reads */

static const struct row {
	void (*products)(const struct pd_cost_layer *of, enum pd_cost_part part, struct pd_cost *cost);
	int8_t x[PD_COST_PARTS], y[PD_COST_PARTS];
	int8_t keeps, reads, mask;
	bool features;
} rows[PD_LAYER_KINDS] = {
#define KIND_COST(kind, function, fx, fy, ix, iy, wx, wy, keeps, reads, mask, features)                 \
	[PD_LAYER_##kind] = { pd_products_##function, { fx, ix, wx }, { fy, iy, wy }, keeps, reads, mask,  \
			      features },
#include "estimate/kind_cost.def"
};

/* Returns the elements of all floating-point inputs of a sample. */
static double inputs_of(const struct pd_cost_layer *of)
{
	double elements = 0;

	for (int i = 0; i < of->layer->input_count; i++)
		if (pd_model_dtype(of->model, of->layer->inputs[i]) != PD_I32)
			elements += (double)pd_shape_elements(pd_model_shape(of->model, of->layer->inputs[i]));
	return elements / (double)of->share.inputs / (double)of->share.rows;
}

static double output_of(const struct pd_cost_layer *of)
{
	return (double)pd_shape_elements(&of->layer->output) / (double)of->share.output / (double)of->share.rows;
}

/* Tells whether the part is computed at all. */
static bool has_part(const struct pd_model *model, const struct pd_layer *layer, enum pd_cost_part part)
{
	bool wants = false;

	if (part == PD_COST_FORWARD)
		return true;
	if (part == PD_COST_WEIGHT)
		return layer->parameter_count > 0 && !layer->frozen;
	for (int i = 0; i < layer->input_count; i++)
		wants |= pd_model_needs_gradient(model, layer->inputs[i]);
	return wants;
}

/* Tells whether the gradients of inputs depend on a parameter: not on what is only added. */
static bool leads_back(const struct pd_layer *layer, const struct pd_layer_tensor *parameter)
{
	return layer->kind == PD_LAYER_additive_attention || strncmp(parameter->name, "bias", 4) != 0;
}

static double parameter_bytes(const struct pd_cost_layer *of, enum pd_cost_part part)
{
	const struct pd_layer *layer = of->layer;
	double elements = 0;

	if (layer->kind == PD_LAYER_embedding)          /* some rows, which the output counts */
		return 0;
	for (int p = 0; p < layer->parameter_count; p++)
		if (part != PD_COST_INPUT || leads_back(layer, &layer->parameters[p]))
			elements += (double)layer->parameters[p].elements;
	return elements * of->share.beside / (double)of->share.parameters *
	       (part == PD_COST_WEIGHT ? 2 * sizeof(float) : (double)pd_dtype_bytes(of->dtype));
}

/* Tells whether another layer, which backward reaches before, makes a part of the tensor's gradient, too. */
static bool is_added(const struct pd_cost_layer *of, int tensor)
{
	const struct pd_uses *uses = &of->model->uses;
	int last = uses->users[uses->first[tensor + 1] - 1];
	const struct pd_layer *user = &of->model->layers[last];

	/* layers beside it are one product with it, which makes the sum */
	return user != of->layer && !(of->share.beside > 1 && user->kind == of->layer->kind);
}

/* Adds what it takes to add the gradients of inputs to those that other layers have made. */
static void add_sums(const struct pd_cost_layer *of, struct pd_cost *cost)
{
	for (int i = 0; i < of->layer->input_count; i++) {
		int tensor = of->layer->inputs[i];
		double elements = (double)pd_shape_elements(pd_model_shape(of->model, tensor));

		if (!pd_model_needs_gradient(of->model, tensor) || !is_added(of, tensor))
			continue;
		cost->apart_kernels++;
		cost->apart_bytes += 3 * (double)of->batch * elements / (double)of->share.inputs /
				     (double)of->share.rows * (double)pd_dtype_bytes(of->dtype);
	}
}

void pd_cost_count(const struct pd_cost_layer *of, enum pd_cost_part part, struct pd_cost *out_p)
{
	const struct row *row = &rows[of->layer->kind];
	double moved;

	*out_p = (struct pd_cost){ .bytes = 0 };
	if (!has_part(of->model, of->layer, part))
		return;
	if (of->layer->kind == PD_LAYER_dropout && of->drops_behind && part == PD_COST_FORWARD) {
		out_p->apart_bytes = (double)of->batch * row->mask * output_of(of);
		return;
	}
	row->products(of, part, out_p);
	moved = row->x[part] * inputs_of(of) + row->y[part] * output_of(of) * of->share.beside;
	out_p->bytes += (double)of->batch * moved * (double)pd_dtype_bytes(of->dtype);
	if (out_p->bytes > 0)
		out_p->bytes += parameter_bytes(of, part);
	if (part == PD_COST_INPUT)
		add_sums(of, out_p);
}

double pd_cost_operations(const struct pd_cost *cost)
{
	double sum = 0;

	for (int i = 0; i < cost->product_count; i++) {
		const struct pd_product *p = &cost->products[i];

		sum += 2.0 * (double)p->rows * (double)p->columns * (double)p->depth * (double)p->times *
		       (double)p->in_turn;
	}
	return sum;
}

static bool is_kernel(const struct pd_layer *layer)
{
	return rows[layer->kind].x[PD_COST_FORWARD] + rows[layer->kind].y[PD_COST_FORWARD] > 0;
}

double pd_cost_kept_bytes(const struct pd_cost_layer *of)
{
	double output = output_of(of) * (double)pd_dtype_bytes(of->dtype), own = is_kernel(of->layer) ? output : 0;

	if (pd_layer_is(of->layer, PD_KIND_KEEPS_GATES))
		own += 4 * output;
	return (double)of->batch * (own + rows[of->layer->kind].keeps * inputs_of(of));
}

/* Tells whether backward reads a layer's output: its own, or that of a layer which uses it. */
static bool is_read(const struct pd_model *model, int layer)
{
	int tensor = model->input_count + layer;
	const struct pd_uses *uses = &model->uses;

	if (rows[model->layers[layer].kind].reads & Y)
		return true;
	for (size_t u = uses->first[tensor]; u < uses->first[tensor + 1]; u++) {
		const struct pd_layer *user = &model->layers[uses->users[u]];

		if (rows[user->kind].reads & X || (!is_kernel(user) && is_read(model, uses->users[u])))
			return true;
	}
	return false;
}

double pd_cost_read_bytes(const struct pd_cost_layer *of)
{
	const struct row *row = &rows[of->layer->kind];
	double output = output_of(of), bytes = row->mask * output + row->keeps * inputs_of(of);
	int layer = (int)(of->layer - of->model->layers);

	if (is_kernel(of->layer) && is_read(of->model, layer))
		bytes += output * (double)pd_dtype_bytes(of->dtype);
	if (pd_layer_is(of->layer, PD_KIND_KEEPS_GATES))
		bytes += 4 * output * (double)pd_dtype_bytes(of->dtype);
	return (double)of->batch * bytes + (of->unfused ? pd_products_scores_bytes(of) : 0);
}

bool pd_cost_by_features(const struct pd_layer *layer)
{
	return rows[layer->kind].features;
}
