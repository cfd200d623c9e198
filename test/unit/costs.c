/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes that each kind's row of costs has (estimate/kind_cost.def) are those of the tensors that the plain-C
 * kernel of the kind reads and writes.  What it reads is found by changing a tensor: where no result changes, it did
 * not read it.
 */
#include "conform/kind_cases.h"
#include "conform/ref.h"
#include "estimate/cost.h"
#include "tap.h"

#include "base/mem.h"
#include "base/rng.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 3

/* What a kind moves by its row and what its plain kernel moves are not alike, and why; of a part, or of all. */
static const struct unlike {
	enum pd_layer_kind kind;
	int parts;                      /* 1: forward, 2: gradients of inputs, 4: of parameters */
	const char *why;
} unlike[] = {
	{ PD_LAYER_maxpool2d, 3, "it writes which element was the largest, and reads that in place of its input" },
	{ PD_LAYER_batchnorm2d, 7, "two kernels, one behind the other, and the second makes both gradients" },
	{ PD_LAYER_groupnorm, 1, "two kernels, one behind the other" },
	{ PD_LAYER_clamp, 2, "without bounds, as here, the gradient does not depend on its input" },
	{ PD_LAYER_slice, 1, "it reads no more than it writes" },
	{ PD_LAYER_embedding, 5, "it reads the rows that are asked for, and adds to those" },
	{ PD_LAYER_attention, 2, "backward reads its output in place of sums over scores" },
	{ PD_LAYER_lstm, 6, "its gates, and their gradients, go through memory" },
	{ PD_LAYER_softmax_cross_entropy, 7, "it keeps the probabilities, and reads its input again for their sum" },
};

static double *values;
static uint32_t drawn;

/* Fills numbers with others than before; whole ones for indices. */
static void draw(double *numbers, size_t count, bool whole)
{
	for (size_t i = 0; i < count; i++) {
		struct pd_random4 r = pd_random(7, 1, drawn++, 0);

		numbers[i] = whole ? (double)(r.v[0] % 3) : 8 * pd_unit(r.v[0]) - 4;
	}
}

/* The results of a part of a layer, one behind the other. */
static size_t results(struct ref *r, int l, enum pd_cost_part part, double *out)
{
	const struct pd_layer *layer = &r->model->layers[l];
	size_t n = 0, inputs = (size_t)layer->input_count;

	if (part == PD_COST_FORWARD) {
		n = (size_t)(BATCH * pd_shape_elements(&layer->output));
		memcpy(out, r->x[r->model->input_count + l], n * sizeof(*out));
		return n;
	}
	for (size_t i = 0; i < (part == PD_COST_INPUT ? inputs : (size_t)layer->parameter_count); i++) {
		size_t count = part == PD_COST_INPUT
			? (size_t)(BATCH * pd_shape_elements(pd_model_shape(r->model, layer->inputs[i])))
			: (size_t)layer->parameters[i].elements;

		memcpy(out + n, part == PD_COST_INPUT ? r->dx[layer->inputs[i]] : r->dw[l][i], count * sizeof(*out));
		n += count;
	}
	return n;
}

/* Runs a part of a layer, from nothing, and returns how many results there are, in `out`. */
static size_t run(struct ref *r, int l, enum pd_cost_part part, double *out)
{
	const struct pd_layer *layer = &r->model->layers[l];
	int y = r->model->input_count + l;
	size_t n = (size_t)(BATCH * pd_shape_elements(&layer->output));
	double *before = pd_memdup(r->x[y], n * sizeof(*before));

	if (part == PD_COST_FORWARD)
		memset(r->x[y], 0, n * sizeof(*before));
	for (int i = 0; i < layer->input_count; i++)
		memset(r->dx[layer->inputs[i]], 0, sizeof(*before) *
		       (size_t)(BATCH * pd_shape_elements(pd_model_shape(r->model, layer->inputs[i]))));
	for (int p = 0; p < layer->parameter_count; p++)
		memset(r->dw[l][p], 0, sizeof(*before) * (size_t)layer->parameters[p].elements);
	ref_run(r, l, part != PD_COST_FORWARD);
	n = results(r, l, part, out);
	memcpy(r->x[y], before, (size_t)(BATCH * pd_shape_elements(&layer->output)) * sizeof(*before));
	free(before);
	return n;
}

/* Tells whether other numbers in a tensor change the results. */
static bool reads(struct ref *r, int l, enum pd_cost_part part, double *tensor, size_t count, bool whole)
{
	double *before = pd_memdup(tensor, count * sizeof(*before)), *other = values + (1 << 16);
	size_t n = run(r, l, part, values);
	bool differs;

	draw(tensor, count, whole);
	run(r, l, part, other);
	differs = memcmp(values, other, n * sizeof(*other)) != 0;
	memcpy(tensor, before, count * sizeof(*before));
	free(before);
	return differs;
}

/* Returns the bytes that a part reads and writes, each tensor once; sums of gradients are read and written. */
static double counted(struct ref *r, int l, enum pd_cost_part part)
{
	const struct pd_model *model = r->model;
	const struct pd_layer *layer = &model->layers[l];
	int y = model->input_count + l;
	size_t outputs = (size_t)(BATCH * pd_shape_elements(&layer->output));
	double floats = part == PD_COST_FORWARD ? (double)outputs : 0;

	for (int i = 0; i < layer->input_count; i++) {
		int x = layer->inputs[i];
		size_t count = (size_t)(BATCH * pd_shape_elements(pd_model_shape(model, x)));
		bool index = pd_model_dtype(model, x) == PD_I32;

		if (index)
			continue;
		floats += (double)count * (part == PD_COST_INPUT);
		floats += (double)count * reads(r, l, part, r->x[x], count, index);
	}
	if (part != PD_COST_FORWARD) {
		floats += (double)outputs * reads(r, l, part, r->dx[y], outputs, false);
		floats += (double)outputs * reads(r, l, part, r->x[y], outputs, false);
	}
	for (int p = 0; p < layer->parameter_count; p++) {
		size_t count = (size_t)layer->parameters[p].elements;

		floats += part == PD_COST_WEIGHT ? 2 * (double)count
			: (double)count * reads(r, l, part, r->w[l][p], count, false);
	}
	return floats * sizeof(float);
}

/* Returns what the forward of an LSTM moves besides: its gates, and the hidden weights again in each further step. */
static double besides(const struct ref *r, const struct pd_layer *layer, enum pd_cost_part part)
{
	int64_t steps = pd_model_shape(r->model, layer->inputs[0])->size[0];
	double floats = 4 * BATCH * (double)pd_shape_elements(&layer->output);

	if (layer->kind != PD_LAYER_lstm || part != PD_COST_FORWARD)
		return 0;
	for (int p = 0; p < layer->parameter_count; p++)
		if (strncmp(layer->parameters[p].name, "weight_hh", 9) == 0)
			floats += (double)(steps - 1) * (double)layer->parameters[p].elements;
	return floats * sizeof(float);
}

static bool is_unlike(enum pd_layer_kind kind, enum pd_cost_part part)
{
	for (size_t i = 0; i < PD_COUNT(unlike); i++)
		if (unlike[i].kind == kind && unlike[i].parts >> part & 1)
			return true;
	return false;
}

static bool seen[PD_LAYER_KINDS];

static void check_layer(struct ref *r, int l)
{
	const struct pd_layer *layer = &r->model->layers[l];
	const struct pd_cost_layer of = { r->model, layer, BATCH, PD_F32, false, false, PD_SHARE_ALL };

	for (int part = 0; part < PD_COST_PARTS; part++) {
		struct pd_cost cost;

		pd_cost_count(&of, (enum pd_cost_part)part, &cost);
		if (cost.bytes == 0)
			continue;
		if (!is_unlike(layer->kind, (enum pd_cost_part)part))
			is_int((int64_t)cost.bytes, (int64_t)(counted(r, l, (enum pd_cost_part)part) +
							      besides(r, layer, (enum pd_cost_part)part)),
			       "%s, part %d", pd_layer_kind_name[layer->kind], part);
	}
	seen[layer->kind] = true;
}

static void check_case(const struct pd_device_ops *ops, const struct kind_case *k)
{
	struct pd_model *model = kind_case_model(k);
	struct ref *r = ref_new(model, BATCH, 1);

	(void)ops;
	for (int t = 0; t < model->input_count; t++)
		draw(r->x[t], (size_t)(BATCH * pd_shape_elements(&model->inputs[t].shape)), model->inputs[t].dtype == PD_I32);
	for (int l = 0; l < model->layer_count; l++)
		for (int p = 0; p < model->layers[l].parameter_count; p++)
			draw(r->w[l][p], (size_t)model->layers[l].parameters[p].elements, false);
	ref_forward(r);
	for (int l = 0; l < model->layer_count; l++) {
		draw(r->dx[model->input_count + l], (size_t)(BATCH * pd_shape_elements(&model->layers[l].output)), false);
		if (!seen[model->layers[l].kind])
			check_layer(r, l);
	}
	ref_free(r);
	pd_model_free(model);
}

/* A classifier, of the numbers that are indices. */
static const struct kind_case classes = { "softmax_cross_entropy", "7, 6", "7, 6", "{'name': 's', 'kind': "
	"'softmax_cross_entropy', 'inputs': ['p', 'y']}, {'name': 'it', 'kind': 'tanh', 'inputs': ['p']}", false, false };

int main(void)
{
	const char *without = "none";

	values = pd_calloc(1 << 17, sizeof(*values));
	each_kind_case(check_case, NULL);
	check_case(NULL, &classes);
	for (int k = 0; k < PD_LAYER_KINDS; k++)
		if (!seen[k])
			without = pd_layer_kind_name[k];
	is_str(without, "none", "every kind has a case");
	free(values);
	return done_testing();
}
