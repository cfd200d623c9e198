/* SPDX-License-Identifier: Apache-2.0 */
/*
 * embedding: a row of the weight for each number of the input.  The gradient of a row is the sum of
 * those of the places that have its number, in their order, in f32: threads take columns of the
 * weight, so that they change no bits.  The row of padding_idx gets none.  weight_dropout takes rows
 * away from a whole microbatch, as in AWD-LM; who shares the weight has all of them.
 *
 * position_embedding: row start + t of the weight is added to position t; bias: to every row. 
 * The gradient is
 * the sum over what it was added to, in the order of that.  parameter: a copy for each sample.
 */
#include "base/mem.h"
#include "base/minmax.h"
#include "run/device/cpu/cpu.h"
#include "run/device/cpu/floats.h"

#include <inttypes.h>
#include <string.h>

#define COLUMNS 64                      /* that a thread takes at a time */
#define ROWS 1024                       /* a multiple of 4 */

static const struct pd_layout *plain_weight(const struct pd_compiled_layer *l)
{
	const struct pd_layer_tensor *weight = &l->layer->parameters[0];

	return pd_layout_plain(l->net->engine, weight->dims, weight->size);
}

/* ---- embedding ---- */

static int64_t places_of(const struct pd_compiled_layer *l)
{
	return l->net->batch * pd_shape_elements(l->in_shape[0]);
}

/*
 * The rows of all places: the numbers, or, in scratch, their positions among those that are no
 * padding.
 */
static const int32_t *rows_of(const struct pd_compiled_layer *l)
{
	int64_t positions = pd_shape_elements(l->in_shape[0]), places = places_of(l);
	const int32_t *number = l->src[0], padding = (int32_t)l->layer->padding_idx;
	int32_t *row = l->temporary, last = padding;

	if (!l->layer->numbered)
		return number;
	for (int64_t i = 0; i < places; i++) {
		last = i % positions == 0 ? padding : last;
		last += number[i] != padding;
		row[i] = number[i] != padding ? last : padding;
	}
	return row;
}

static int prepare(struct pd_compiled_layer *l, struct pd_error *err)
{
	l->out = pd_cpu_plain(l->net, &l->layer->output);
	l->parameter[0] = plain_weight(l);
	l->split_bytes = pd_layout_bytes(l->out);
	if (l->layer->numbered)
		l->forward_bytes = l->backward_bytes = sizeof(int32_t) * (size_t)places_of(l);
	if (l->layer->weight_dropout > 0)
		l->forward_bytes = l->backward_bytes =
			sizeof(float) * (size_t)l->layer->num_embeddings;
	return 0;
}

/* Returns the factor of each row, in scratch; NULL if all are 1. */
static const float *factors_of(const struct pd_compiled_layer *l, const struct pd_pass *pass)
{
	int64_t rows = l->layer->num_embeddings;
	float *factors = l->temporary;

	if (l->layer->weight_dropout == 0 || pass->evaluate)
		return NULL;
#pragma omp parallel for schedule(static)
	for (int64_t from = 0; from < rows; from += ROWS) {
		int64_t n = rows - from < ROWS ? rows - from : ROWS;

		for (int64_t i = 0; i < n; i++)
			factors[from + i] = 1;
		pd_cpu_drop_weights(l, pass, factors + from, from, n);
	}
	return factors;
}

/* A place's row, times its factor. */
static void look_up(const struct pd_compiled_layer *l, int64_t place, int64_t row, float factor)
{
	int64_t width = l->layer->embedding_dim;
	enum pd_dtype dtype = l->net->dtype;
	float in[COLUMNS], out[COLUMNS];

	for (int64_t from = 0; from < width; from += COLUMNS) {
		int64_t n = pd_min(width - from, COLUMNS);

		pd_floats_scale(out, pd_cpu_wide(dtype, l->parameters[0], row * width + from, n, in),
				factor, n);
		pd_cpu_put(dtype, l->dst, place * width + from, out, n);
	}
}

static int forward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	size_t bytes = pd_dtype_bytes(l->net->dtype) * (size_t)l->layer->embedding_dim;
	int64_t places = places_of(l), rows = l->layer->num_embeddings;
	const int32_t *id = rows_of(l);
	const float *factors;

	for (int64_t i = 0; i < places; i++)
		if (id[i] < 0 || id[i] >= rows)
			return pd_error_failed(err, "layer \"%s\": sample %" PRId64 " of the "
					       "minibatch has the number %" PRId32 ", expected 0 to "
					       "%" PRId64, l->layer->name,
					       i / pd_shape_elements(l->in_shape[0]), id[i],
					       rows - 1);
	factors = factors_of(l, pass);
#pragma omp parallel for schedule(static)
	for (int64_t i = 0; i < places; i++)
		if (factors)
			look_up(l, i, id[i], factors[id[i]]);
		else
			memcpy((char *)l->dst + (size_t)i * bytes,
			       (const char *)l->parameters[0] + (size_t)id[i] * bytes, bytes);
	return 0;
}

static void columns_back(const struct pd_compiled_layer *l, const int32_t *id, int64_t from,
			 const float *factors)
{
	int64_t width = l->layer->embedding_dim, n = pd_min(width - from, COLUMNS);
	float *all = l->diff_parameters[0], room[COLUMNS];
	int64_t places = places_of(l);

	for (int64_t row = 0; row < l->layer->num_embeddings; row++)
		memset(all + row * width + from, 0, sizeof(*all) * (size_t)n);
	for (int64_t i = 0; i < places; i++)
		if (id[i] != l->layer->padding_idx)
			pd_floats_add(all + id[i] * width + from,
				      pd_cpu_wide(l->net->dtype, l->diff_dst, i * width + from, n,
						  room), n);
	for (int64_t row = 0; row < l->layer->num_embeddings && factors; row++)
		pd_floats_scale(all + row * width + from, all + row * width + from, factors[row], n);
}

static int backward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	int64_t width = l->layer->embedding_dim;
	const float *factors;
	const int32_t *id;

	if (pass->part == PD_BACKWARD_INPUT)
		return 0;
	id = rows_of(l);
	factors = factors_of(l, pass);
#pragma omp parallel for schedule(static)
	for (int64_t from = 0; from < width; from += COLUMNS)
		columns_back(l, id, from, factors);
	return 0;
}

const struct pd_compiled_kind pd_cpu_embedding = {
	.plain = true,
	.plain_parameters = true,
	.prepare = prepare,
	.forward = forward,
	.backward = backward,
};

/* ---- position_embedding, bias and parameter ---- */

static int prepare_positions(struct pd_compiled_layer *l, struct pd_error *err)
{
	l->out = pd_cpu_plain(l->net, &l->layer->output);
	l->parameter[0] = plain_weight(l);
	l->passes = pd_layout_same(l->net->tensors[l->layer->inputs[0]].layout, l->out);
	l->split_bytes = pd_compiled_reserved(l->net, sizeof(float) *
					      (size_t)l->layer->parameter_elements);
	return 0;
}

static int forward_positions(struct pd_compiled_layer *l, const struct pd_pass *pass,
			     struct pd_error *err)
{
	size_t used = (size_t)pd_compiled_used(l), parts = (size_t)pd_compiled_parts(l);
	size_t each = pd_dtype_bytes(l->net->dtype), bytes = each * used;
	const char *rows = (const char *)l->parameters[0] + each * (size_t)pd_compiled_skipped(l);

	for (size_t n = 0; n < parts; n++)
		pd_cpu_sum_relu(l->net->dtype, (char *)l->dst + n * bytes,
				(const char *)l->src[0] + n * bytes, rows, NULL, used);
	return 0;
}

/* The gradient of some elements of the parameter. */
static void positions_back(const struct pd_compiled_layer *l, float *all, int64_t from)
{
	int64_t used = pd_compiled_used(l), parts = pd_compiled_parts(l), n = pd_min(used - from, COLUMNS);
	float room[COLUMNS];

	memset(all + from, 0, sizeof(*all) * (size_t)n);
	for (int64_t part = 0; part < parts; part++)
		pd_floats_add(all + from, pd_cpu_wide(l->net->dtype, l->diff_dst, part * used + from, n,
						      room), n);
}

/* The gradient of the parameter, in either part of backward. */
static void parameter_back(const struct pd_compiled_layer *l, const struct pd_pass *pass)
{
	int64_t used = pd_compiled_used(l), skipped = pd_compiled_skipped(l);
	int64_t rest = l->layer->parameter_elements - skipped - used;
	size_t bytes = sizeof(float) * (size_t)l->layer->parameter_elements;
	float *all = pass->part == PD_BACKWARD_INPUT ? l->split : l->diff_parameters[0];

	if (pass->part == PD_BACKWARD_WEIGHT) {
		memcpy(all, l->split, bytes);
		return;
	}
#pragma omp parallel for schedule(static)
	for (int64_t from = 0; from < used; from += COLUMNS)
		positions_back(l, all + skipped, from);
	memset(all, 0, sizeof(*all) * (size_t)skipped);
	memset(all + skipped + used, 0, sizeof(*all) * (size_t)rest);
}

static int backward_positions(struct pd_compiled_layer *l, const struct pd_pass *pass,
			      struct pd_error *err)
{
	parameter_back(l, pass);
	if (pass->part != PD_BACKWARD_WEIGHT && l->diff_src[0] && l->diff_src[0] != l->diff_dst)
		memcpy(l->diff_src[0], l->diff_dst, pd_layout_bytes(l->out));
	return 0;
}

const struct pd_compiled_kind pd_cpu_position_embedding = {
	.plain = true,
	.plain_parameters = true,
	.prepare = prepare_positions,
	.forward = forward_positions,
	.backward = backward_positions,
};

const struct pd_compiled_kind pd_cpu_bias = {
	.plain = true,
	.plain_parameters = true,
	.prepare = prepare_positions,
	.forward = forward_positions,
	.backward = backward_positions,
};

static int prepare_parameter(struct pd_compiled_layer *l, struct pd_error *err)
{
	l->out = pd_cpu_plain(l->net, &l->layer->output);
	l->parameter[0] = plain_weight(l);
	l->split_bytes = pd_compiled_reserved(l->net, sizeof(float) *
					      (size_t)l->layer->parameter_elements);
	return 0;
}

static int forward_parameter(struct pd_compiled_layer *l, const struct pd_pass *pass,
			     struct pd_error *err)
{
	size_t bytes = pd_layout_bytes(l->out) / (size_t)l->net->batch;

	for (int64_t n = 0; n < l->net->batch; n++)
		memcpy((char *)l->dst + (size_t)n * bytes, l->parameters[0], bytes);
	return 0;
}

static int backward_parameter(struct pd_compiled_layer *l, const struct pd_pass *pass,
			      struct pd_error *err)
{
	parameter_back(l, pass);
	if (pass->part != PD_BACKWARD_WEIGHT && l->diff_src[0])
		memset(l->diff_src[0], 0, l->net->tensors[l->layer->inputs[0]].bytes);
	return 0;
}

const struct pd_compiled_kind pd_cpu_parameter = {
	.plain_parameters = true,
	.prepare = prepare_parameter,
	.forward = forward_parameter,
	.backward = backward_parameter,
};
