/* SPDX-License-Identifier: Apache-2.0 */
#include "estimate/cost.h"

static const struct row {
	void (*products)(const struct pd_cost_layer *of, struct pd_cost *cost);
	int8_t x[PD_COST_PARTS], y[PD_COST_PARTS];
	int8_t keeps;
} rows[PD_LAYER_KINDS] = {
#define KIND_COST(kind, function, fx, fy, ix, iy, wx, wy, kept) \
	[PD_LAYER_##kind] = { pd_products_##function, { fx, ix, wx }, { fy, iy, wy }, kept },
#include "estimate/kind_cost.def"
};

/* Returns the elements of all floating-point inputs of a sample. */
static double inputs_of(const struct pd_model *model, const struct pd_layer *layer)
{
	double elements = 0;

	for (int i = 0; i < layer->input_count; i++)
		if (pd_model_dtype(model, layer->inputs[i]) != PD_I32)
			elements += (double)pd_shape_elements(pd_model_shape(model, layer->inputs[i]));
	return elements;
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

static double parameter_bytes(const struct pd_layer *layer, enum pd_dtype dtype, enum pd_cost_part part)
{
	double elements = 0;

	if (layer->kind == PD_LAYER_embedding)          /* some rows, which the output counts */
		return 0;
	for (int p = 0; p < layer->parameter_count; p++)
		elements += (double)layer->parameters[p].elements;
	return elements * (part == PD_COST_WEIGHT ? 2 * sizeof(float) : (double)pd_dtype_bytes(dtype));
}

void pd_cost_of(const struct pd_model *model, int layer, int64_t batch, enum pd_dtype dtype,
		enum pd_cost_part part, struct pd_cost *out_p)
{
	const struct pd_layer *at = &model->layers[layer];
	const struct row *row = &rows[at->kind];
	const struct pd_cost_layer of = { model, at, batch, part };
	double moved;

	*out_p = (struct pd_cost){ .bytes = 0 };
	if (!has_part(model, at, part))
		return;
	row->products(&of, out_p);
	moved = row->x[part] * inputs_of(model, at) + row->y[part] * (double)pd_shape_elements(&at->output);
	out_p->bytes = (double)batch * moved * (double)pd_dtype_bytes(dtype);
	if (out_p->bytes > 0)
		out_p->bytes += parameter_bytes(at, dtype, part);
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

double pd_cost_kept_bytes(const struct pd_model *model, int layer, int64_t batch, enum pd_dtype dtype)
{
	const struct pd_layer *at = &model->layers[layer];
	const struct row *row = &rows[at->kind];
	bool moves = row->x[PD_COST_FORWARD] + row->y[PD_COST_FORWARD] > 0;
	double own = moves ? (double)pd_shape_elements(&at->output) * (double)pd_dtype_bytes(dtype) : 0;

	if (pd_layer_is(at, PD_KIND_KEEPS_GATES))
		own += 4 * (double)pd_shape_elements(&at->output) * (double)pd_dtype_bytes(dtype);
	return (double)batch * (own + row->keeps * inputs_of(model, at));
}
