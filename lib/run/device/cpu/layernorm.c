/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layernorm and rmsnorm are PyTorch's; rmsnorm is layernorm with a mean of 0.  Each row has its own
 * mean and (biased) variance; the slot keeps the mean and the inverse standard deviation for backward.
 * Sums are taken in lanes (floats.h).
 * Rows are divided into groups, whose number depends on that of the rows alone, and each group sums
 * its own part of the parameters' gradients, so that the number of threads changes no bits.  In 16
 * bits a row is widened in the group's scratch.
 */
#include "base/mem.h"
#include "run/device/cpu/cpu.h"
#include "run/device/cpu/floats.h"

#include <math.h>
#include <string.h>

#define GROUPS 64               /* the most groups */

struct layernorm {
	bool centred;           /* layernorm; else rmsnorm */
	int64_t rows, width, groups;
	size_t half;            /* bytes from the means to the inverse deviations */
	size_t kept[2];         /* offsets of the parameters' gradients that the slot keeps */
	size_t row;             /* bytes of one row of f32 */
	size_t forward, backward;       /* scratch of one group */
};

/* Behind the groups, the scratch of a net of 16 bits has the parameters in f32. */
static size_t parameters_at(const struct layernorm *n, bool back)
{
	return (size_t)n->groups * (back ? n->backward : n->forward);
}

static int prepare(struct pd_compiled_layer *l, struct pd_error *err)
{
	int64_t width = pd_shape_elements(&l->layer->normalized_shape);
	size_t rows_held = l->net->dtype == PD_F32 ? 0 : 2;     /* the input and the output row */
	struct layernorm *n;

	l->out = pd_cpu_plain(l->net, &l->layer->output);
	for (int p = 0; p < l->layer->parameter_count; p++)
		l->parameter[p] = pd_layout_plain(l->net->engine, l->layer->normalized_shape.dims,
						  l->layer->normalized_shape.size);
	if (!l->inside)
		return 0;
	l->own = n = pd_zalloc(sizeof(*n));
	n->centred = l->kind == &pd_cpu_layernorm;
	n->width = width;
	n->rows = l->net->batch * pd_shape_elements(l->in_shape[0]) / width;
	n->groups = n->rows < GROUPS ? n->rows : GROUPS;
	n->half = pd_align(sizeof(float) * (size_t)n->rows);
	n->row = pd_align(sizeof(float) * (size_t)width);
	n->forward = rows_held * n->row;
	n->backward = (rows_held + (size_t)l->layer->parameter_count) * n->row;
	l->extra_bytes = 2 * n->half;
	for (int p = 0; p < l->layer->parameter_count; p++) {
		n->kept[p] = l->split_bytes;
		l->split_bytes += pd_compiled_reserved(l->net, sizeof(float) * (size_t)width);
	}
	l->forward_bytes = parameters_at(n, false);
	l->backward_bytes = parameters_at(n, true);
	if (l->net->dtype != PD_F32) {
		l->forward_bytes += (size_t)l->layer->parameter_count * n->row;
		l->backward_bytes += (size_t)l->layer->parameter_count * n->row;
	}
	return 0;
}

/* ---- one row ---- */

static float sum(const float *x, int64_t count)
{
	float lanes[PD_FLOAT_LANES] = { 0 };

	pd_lanes_add(lanes, x, count);
	return pd_lanes_total(lanes);
}

PD_VECTOR static float sum_squares(const float *restrict x, float mean, int64_t count)
{
	float lanes[PD_FLOAT_LANES] = { 0 };
	int64_t i = 0;

	for (; i + PD_FLOAT_LANES <= count; i += PD_FLOAT_LANES)
		for (int k = 0; k < PD_FLOAT_LANES; k++)
			lanes[k] += (x[i + k] - mean) * (x[i + k] - mean);
	for (int k = 0; i + k < count; k++)
		lanes[k] += (x[i + k] - mean) * (x[i + k] - mean);
	return pd_lanes_total(lanes);
}

/* weight, bias: NULL if the layer has none. */
PD_VECTOR static void normalise(float *restrict y, const float *restrict x, float mean, float scale,
				const float *restrict weight, const float *restrict bias,
				int64_t count)
{
	for (int64_t i = 0; i < count; i++)
		y[i] = (x[i] - mean) * scale;
	for (int64_t i = 0; i < count && weight; i++)
		y[i] *= weight[i];
	for (int64_t i = 0; i < count && bias; i++)
		y[i] += bias[i];
}

/* dx may be dy. */
PD_VECTOR static void gradient(float *dx, const float *restrict x, const float *dy, float mean,
			       float scale, const float *restrict weight, bool centred,
			       int64_t count)
{
	float lanes[PD_FLOAT_LANES] = { 0 }, normal_lanes[PD_FLOAT_LANES] = { 0 }, first, second;
	int64_t i = 0;

	for (; i + PD_FLOAT_LANES <= count; i += PD_FLOAT_LANES)
		for (int k = 0; k < PD_FLOAT_LANES; k++) {
			float g = weight ? dy[i + k] * weight[i + k] : dy[i + k];

			lanes[k] += g;
			normal_lanes[k] += g * ((x[i + k] - mean) * scale);
		}
	for (int k = 0; i + k < count; k++) {
		float g = weight ? dy[i + k] * weight[i + k] : dy[i + k];

		lanes[k] += g;
		normal_lanes[k] += g * ((x[i + k] - mean) * scale);
	}
	first = centred ? pd_lanes_total(lanes) / (float)count : 0;
	second = pd_lanes_total(normal_lanes) / (float)count;
	for (i = 0; i < count; i++) {
		float g = weight ? dy[i] * weight[i] : dy[i];

		dx[i] = scale * (g - first - (x[i] - mean) * scale * second);
	}
}

/* Adds a row's part to the gradients of the parameters; NULL if the layer has none. */
PD_VECTOR static void add_parameters(float *restrict d_weight, float *restrict d_bias,
				     const float *restrict x, const float *restrict dy, float mean,
				     float scale, int64_t count)
{
	for (int64_t i = 0; i < count && d_weight; i++)
		d_weight[i] += dy[i] * ((x[i] - mean) * scale);
	for (int64_t i = 0; i < count && d_bias; i++)
		d_bias[i] += dy[i];
}

/* ---- a group of rows ---- */

/*
 * Returns f32 row `number` of a group's scratch: in 16 bits input and output, then, in backward,
 * the group's part of the parameters' gradients.
 */
static float *held(const struct pd_compiled_layer *l, int64_t group, bool back, int number)
{
	const struct layernorm *n = l->own;
	size_t bytes = back ? n->backward : n->forward;

	return (float *)((char *)l->temporary + (size_t)group * bytes + (size_t)number * n->row);
}

/* Returns row r of a batch in f32: itself, or a copy at `copy`. */
static const float *row_of(const struct pd_compiled_layer *l, const void *batch, int64_t r, float *copy)
{
	const struct layernorm *n = l->own;

	return pd_cpu_wide(l->net->dtype, batch, r * n->width, n->width, copy);
}

/* The first returns where an output row is computed; the second writes it to the batch. */
static float *room_of(const struct pd_compiled_layer *l, void *batch, int64_t r, float *copy)
{
	const struct layernorm *n = l->own;

	return l->net->dtype == PD_F32 ? (float *)batch + r * n->width : copy;
}

static void put_row(const struct pd_compiled_layer *l, void *batch, int64_t r, const float *row)
{
	const struct layernorm *n = l->own;
	size_t width = (size_t)n->width;

	if (l->net->dtype != PD_F32)
		pd_cpu_narrow(l->net->dtype, (uint16_t *)batch + (size_t)r * width, row, width);
}

/* Returns parameter p in f32, or NULL if the layer has none. */
static const float *parameter(const struct pd_compiled_layer *l, int p, bool back)
{
	const struct layernorm *n = l->own;
	float *wide;

	if (p >= l->layer->parameter_count)
		return NULL;
	if (l->net->dtype == PD_F32)
		return l->parameters[p];
	wide = (float *)((char *)l->temporary + parameters_at(n, back) + (size_t)p * n->row);
	pd_cpu_widen(l->net->dtype, wide, l->parameters[p], (size_t)n->width);
	return wide;
}

static void forward_group(const struct pd_compiled_layer *l, int64_t group, const float *weight,
			  const float *bias)
{
	const struct layernorm *n = l->own;
	float *means = l->extra, *scales = (float *)((char *)l->extra + n->half);
	float eps = (float)l->layer->eps, width = (float)n->width;
	int64_t end = n->rows * (group + 1) / n->groups;

	for (int64_t r = n->rows * group / n->groups; r < end; r++) {
		const float *x = row_of(l, l->src[0], r, held(l, group, false, 0));
		float *y = room_of(l, l->dst, r, held(l, group, false, 1));

		means[r] = n->centred ? sum(x, n->width) / width : 0;
		scales[r] = 1 / sqrtf(sum_squares(x, means[r], n->width) / width + eps);
		normalise(y, x, means[r], scales[r], weight, bias, n->width);
		put_row(l, l->dst, r, y);
	}
}

static int forward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	const float *weight = parameter(l, 0, false), *bias = parameter(l, 1, false);
	const struct layernorm *n = l->own;

#pragma omp parallel for schedule(static)
	for (int64_t group = 0; group < n->groups; group++)
		forward_group(l, group, weight, bias);
	return 0;
}

/* Returns the group's part of the gradient of parameter p, or NULL if the layer has none. */
static float *part_of(const struct pd_compiled_layer *l, int64_t group, int p)
{
	int before = l->net->dtype == PD_F32 ? 0 : 2;

	return p < l->layer->parameter_count ? held(l, group, true, before + p) : NULL;
}

static void backward_group(const struct pd_compiled_layer *l, int64_t group, const float *weight)
{
	const struct layernorm *n = l->own;
	const float *means = l->extra, *scales = (const float *)((char *)l->extra + n->half);
	float *d_weight = part_of(l, group, 0), *d_bias = part_of(l, group, 1);
	int64_t end = n->rows * (group + 1) / n->groups;

	for (int p = 0; p < l->layer->parameter_count; p++)
		memset(part_of(l, group, p), 0, sizeof(float) * (size_t)n->width);
	for (int64_t r = n->rows * group / n->groups; r < end; r++) {
		const float *x = row_of(l, l->src[0], r, held(l, group, true, 0));
		const float *dy = row_of(l, l->diff_dst, r, held(l, group, true, 1));
		float *dx;

		add_parameters(d_weight, d_bias, x, dy, means[r], scales[r], n->width);
		if (!l->diff_src[0])
			continue;
		dx = room_of(l, l->diff_src[0], r, held(l, group, true, 1));
		gradient(dx, x, dy, means[r], scales[r], weight, n->centred, n->width);
		put_row(l, l->diff_src[0], r, dx);
	}
}

/* Returns where this part of backward puts the gradient of parameter p. */
static float *gradient_of(const struct pd_compiled_layer *l, const struct pd_pass *pass, int p)
{
	const struct layernorm *n = l->own;

	return pass->part == PD_BACKWARD_INPUT ? (float *)((char *)l->split + n->kept[p])
					       : l->diff_parameters[p];
}

static int backward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	const struct layernorm *n = l->own;
	size_t bytes = sizeof(float) * (size_t)n->width;
	const float *weight;

	if (pass->part == PD_BACKWARD_WEIGHT) {
		for (int p = 0; p < l->layer->parameter_count; p++)
			memcpy(l->diff_parameters[p], (char *)l->split + n->kept[p], bytes);
		return 0;
	}
	weight = parameter(l, 0, true);
#pragma omp parallel for schedule(static)
	for (int64_t group = 0; group < n->groups; group++)
		backward_group(l, group, weight);
	for (int p = 0; p < l->layer->parameter_count; p++) {
		float *all = gradient_of(l, pass, p);

		memcpy(all, part_of(l, 0, p), bytes);
		for (int64_t group = 1; group < n->groups; group++)
			pd_floats_add(all, part_of(l, group, p), n->width);
	}
	return 0;
}

const struct pd_compiled_kind pd_cpu_layernorm = {
	.plain = true,
	.prepare = prepare,
	.forward = forward,
	.backward = backward,
};

const struct pd_compiled_kind pd_cpu_rmsnorm = {
	.plain = true,
	.prepare = prepare,
	.forward = forward,
	.backward = backward,
};
