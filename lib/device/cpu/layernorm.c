/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layernorm as PyTorch has it: each row has its own mean and (biased) variance, which the slot keeps
 * for backward, the latter as the inverse deviation.  Sums are taken in LANES parts, so that they
 * are vectorised and round alike on every processor and with any number of threads.  In 16 bits
 * scratch has what goes in and what comes out in f32.
 */
#include "base/mem.h"
#include "device/cpu/cpu.h"

#include <math.h>
#include <string.h>

#define LANES 32                /* a power of two */
#define COLUMNS 64              /* of the parameters' gradients, that a thread takes at a time */
#define ROWS 256                /* that are added up before they are added to those before */

struct layernorm {
	int64_t rows, width;
	size_t half;            /* bytes from the means to the inverse deviations */
	size_t kept[2];         /* of gradients kept for later: where they are */
	/* in scratch, of 16 bits: the input, the output or its gradient, parameters; the input's
	 * gradient lies over the output's */
	size_t out, parameters[2];
};

static int prepare(struct pd_compiled_layer *l, struct pd_error *err)
{
	int64_t width = pd_shape_elements(&l->layer->normalized_shape);
	struct layernorm *n;
	size_t bytes;

	l->out = pd_cpu_plain(l->net, &l->layer->output);
	for (int p = 0; p < l->layer->parameter_count; p++)
		l->parameter[p] = pd_layout_plain(l->net->engine, l->layer->normalized_shape.dims,
						  l->layer->normalized_shape.size);
	if (!l->inside)
		return 0;
	l->own = n = pd_zalloc(sizeof(*n));
	n->width = width;
	n->rows = l->net->batch * pd_shape_elements(l->in_shape[0]) / width;
	n->half = pd_align(sizeof(float) * (size_t)n->rows);
	l->extra_bytes = 2 * n->half;
	for (int p = 0; p < l->layer->parameter_count; p++) {
		n->kept[p] = l->split_bytes;
		l->split_bytes += pd_compiled_room(l->net, sizeof(float) * (size_t)width);
	}
	if (l->net->dtype == PD_F32)
		return 0;
	n->out = pd_align(sizeof(float) * (size_t)(n->rows * width));
	bytes = 2 * n->out;
	for (int p = 0; p < l->layer->parameter_count; p++) {
		n->parameters[p] = bytes;
		bytes += pd_align(sizeof(float) * (size_t)width);
	}
	l->forward_bytes = l->backward_bytes = bytes;
	return 0;
}

/* ---- one row ---- */

static float total(float *lanes)
{
	for (int half = LANES / 2; half > 0; half /= 2)
		for (int k = 0; k < half; k++)
			lanes[k] += lanes[k + half];
	return lanes[0];
}

PD_VECTOR static float sum(const float *restrict x, int64_t count)
{
	float lanes[LANES] = { 0 };
	int64_t i = 0;

	for (; i + LANES <= count; i += LANES)
		for (int k = 0; k < LANES; k++)
			lanes[k] += x[i + k];
	for (int k = 0; i + k < count; k++)
		lanes[k] += x[i + k];
	return total(lanes);
}

PD_VECTOR static float sum_squares(const float *restrict x, float mean, int64_t count)
{
	float lanes[LANES] = { 0 };
	int64_t i = 0;

	for (; i + LANES <= count; i += LANES)
		for (int k = 0; k < LANES; k++)
			lanes[k] += (x[i + k] - mean) * (x[i + k] - mean);
	for (int k = 0; i + k < count; k++)
		lanes[k] += (x[i + k] - mean) * (x[i + k] - mean);
	return total(lanes);
}

/* weight, bias: NULL where there is none. */
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
			       float scale, const float *restrict weight, int64_t count)
{
	float lanes[LANES] = { 0 }, normal_lanes[LANES] = { 0 }, first, second;
	int64_t i = 0;

	for (; i + LANES <= count; i += LANES)
		for (int k = 0; k < LANES; k++) {
			float g = weight ? dy[i + k] * weight[i + k] : dy[i + k];

			lanes[k] += g;
			normal_lanes[k] += g * ((x[i + k] - mean) * scale);
		}
	for (int k = 0; i + k < count; k++) {
		float g = weight ? dy[i + k] * weight[i + k] : dy[i + k];

		lanes[k] += g;
		normal_lanes[k] += g * ((x[i + k] - mean) * scale);
	}
	first = total(lanes) / (float)count;
	second = total(normal_lanes) / (float)count;
	for (i = 0; i < count; i++) {
		float g = weight ? dy[i] * weight[i] : dy[i];

		dx[i] = scale * (g - first - (x[i] - mean) * scale * second);
	}
}

/* ---- all rows ---- */

static float *at(const struct pd_compiled_layer *l, size_t offset)
{
	return (float *)((char *)l->temporary + offset);
}

/* Parameter p in f32; NULL where there is none. */
static const float *parameter(const struct pd_compiled_layer *l, int p)
{
	const struct layernorm *n = l->own;

	if (p >= l->layer->parameter_count || l->net->dtype == PD_F32)
		return l->parameters[p];
	pd_cpu_widen(l->net->dtype, at(l, n->parameters[p]), l->parameters[p], (size_t)n->width);
	return at(l, n->parameters[p]);
}

/* A batch in f32: itself, or a copy in scratch. */
static const float *wide(const struct pd_compiled_layer *l, const void *from, size_t offset)
{
	const struct layernorm *n = l->own;

	if (l->net->dtype == PD_F32)
		return from;
	pd_cpu_widen(l->net->dtype, at(l, offset), from, (size_t)(n->rows * n->width));
	return at(l, offset);
}

static int forward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	const struct layernorm *n = l->own;
	const float *x = wide(l, l->src[0], 0), *weight = parameter(l, 0), *bias = parameter(l, 1);
	float *y = l->net->dtype == PD_F32 ? l->dst : at(l, n->out);
	float *means = l->extra, *scales = (float *)((char *)l->extra + n->half);
	float eps = (float)l->layer->eps, width = (float)n->width;

#pragma omp parallel for schedule(static)
	for (int64_t r = 0; r < n->rows; r++) {
		const float *row = x + r * n->width;
		float mean = sum(row, n->width) / width;

		means[r] = mean;
		scales[r] = 1 / sqrtf(sum_squares(row, mean, n->width) / width + eps);
		normalise(y + r * n->width, row, mean, scales[r], weight, bias, n->width);
	}
	if (l->net->dtype != PD_F32)
		pd_cpu_narrow(l->net->dtype, l->dst, y, (size_t)(n->rows * n->width));
	return 0;
}

/* What backward reads. */
struct kept {
	const float *x, *dy, *means, *scales;
};

/* The gradients of some columns of the parameters; NULL where there is none. */
PD_VECTOR static void columns(const struct layernorm *n, const struct kept *kept, int64_t from,
			      int count, float *restrict d_weight, float *restrict d_bias)
{
	float weights[COLUMNS] = { 0 }, biases[COLUMNS] = { 0 };

	for (int64_t r = 0; r < n->rows; r += ROWS) {
		int64_t end = n->rows - r < ROWS ? n->rows : r + ROWS;
		float some_weights[COLUMNS] = { 0 }, some_biases[COLUMNS] = { 0 };

		for (int64_t k = r; k < end; k++) {
			const float *restrict x = kept->x + k * n->width + from;
			const float *restrict dy = kept->dy + k * n->width + from;
			float mean = kept->means[k], scale = kept->scales[k];

			for (int c = 0; c < count; c++) {
				some_weights[c] += dy[c] * ((x[c] - mean) * scale);
				some_biases[c] += dy[c];
			}
		}
		for (int c = 0; c < count; c++) {
			weights[c] += some_weights[c];
			biases[c] += some_biases[c];
		}
	}
	memcpy(d_weight + from, weights, sizeof(float) * (size_t)count);
	if (d_bias)
		memcpy(d_bias + from, biases, sizeof(float) * (size_t)count);
}

static void backward_parameters(const struct layernorm *n, const struct kept *kept,
				float *d_weight, float *d_bias)
{
#pragma omp parallel for schedule(static)
	for (int64_t from = 0; from < n->width; from += COLUMNS)
		columns(n, kept, from, (int)(n->width - from < COLUMNS ? n->width - from : COLUMNS),
			d_weight, d_bias);
}

static void backward_input(const struct layernorm *n, const struct kept *kept, const float *weight,
			   float *dx)
{
#pragma omp parallel for schedule(static)
	for (int64_t r = 0; r < n->rows; r++)
		gradient(dx + r * n->width, kept->x + r * n->width, kept->dy + r * n->width,
			 kept->means[r], kept->scales[r], weight, n->width);
}

/* Where the gradient of parameter p goes in this part of backward; NULL: it has none. */
static float *gradient_of(const struct pd_compiled_layer *l, const struct pd_pass *pass, int p)
{
	const struct layernorm *n = l->own;

	if (p >= l->layer->parameter_count)
		return NULL;
	return pass->part == PD_BACKWARD_INPUT ? (float *)((char *)l->split + n->kept[p])
					       : l->diff_parameters[p];
}

static int backward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	const struct layernorm *n = l->own;
	bool f32 = l->net->dtype == PD_F32;
	struct kept kept = { .means = l->extra, .scales = (float *)((char *)l->extra + n->half) };
	float *dx;

	if (pass->part == PD_BACKWARD_WEIGHT) {
		for (int p = 0; p < l->layer->parameter_count; p++)
			memcpy(l->diff_parameters[p], (char *)l->split + n->kept[p],
			       sizeof(float) * (size_t)n->width);
		return 0;
	}
	kept.x = wide(l, l->src[0], 0);
	kept.dy = wide(l, l->diff_dst, n->out);
	if (l->layer->parameter_count > 0)
		backward_parameters(n, &kept, gradient_of(l, pass, 0), gradient_of(l, pass, 1));
	if (!l->diff_src[0])
		return 0;
	dx = f32 ? l->diff_src[0] : at(l, n->out);
	backward_input(n, &kept, parameter(l, 0), dx);
	if (!f32)
		pd_cpu_narrow(l->net->dtype, l->diff_src[0], dx, (size_t)(n->rows * n->width));
	return 0;
}

const struct pd_compiled_kind pd_cpu_layernorm = {
	.plain = true,
	.prepare = prepare,
	.forward = forward,
	.backward = backward,
};
