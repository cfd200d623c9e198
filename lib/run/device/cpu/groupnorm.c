/* SPDX-License-Identifier: Apache-2.0 */
/*
 * groupnorm is PyTorch's: each sample's groups of channels have their own mean and (biased) variance, which
 * the slot keeps, the second as inverse standard deviation.  Backward first sums the gradient, and the
 * gradient times the normal number, of each channel of each sample: those of the input and of the parameters
 * are made of these.  Sums are taken in lanes (floats.h), then by channel, then by sample.
 */
#include "base/mem.h"
#include "base/minmax.h"
#include "run/device/cpu/cpu.h"
#include "run/device/cpu/floats.h"

#include <math.h>
#include <string.h>

#define PIECE 1024                      /* a multiple of PD_FLOAT_LANES */

struct groupnorm {
	int64_t rows;                   /* groups of all samples */
	int64_t channels, area, each;   /* each: channels of a group */
	size_t half;                    /* floats from the means to the inverse deviations */
	size_t sums;                    /* floats from the first sums to the second */
	size_t kept[2];                 /* offsets of the parameters' gradients that the slot keeps */
};

static int prepare(struct pd_compiled_layer *l, struct pd_error *err)
{
	const struct pd_axis a = pd_compiled_around(l, 0);
	struct groupnorm *n;

	l->out = pd_cpu_plain(l->net, &l->layer->output);
	for (int p = 0; p < l->layer->parameter_count; p++)
		l->parameter[p] = pd_layout_plain(l->net->engine, 1, &a.extent);
	if (!l->inside)
		return 0;
	l->own = n = pd_zalloc(sizeof(*n));
	*n = (struct groupnorm){ .rows = a.outer * l->layer->num_groups, .channels = a.extent,
				 .area = a.inner, .each = a.extent / l->layer->num_groups };
	n->half = pd_align(sizeof(float) * (size_t)n->rows) / sizeof(float);
	n->sums = pd_align(sizeof(float) * (size_t)(a.outer * a.extent)) / sizeof(float);
	l->extra_bytes = 2 * sizeof(float) * n->half;
	l->backward_bytes = 2 * sizeof(float) * n->sums;
	for (int p = 0; p < l->layer->parameter_count; p++) {
		n->kept[p] = l->split_bytes;
		l->split_bytes += pd_compiled_reserved(l->net, sizeof(float) * (size_t)n->channels);
	}
	return 0;
}

/* Returns element c of a parameter, or another number if the layer has none. */
static float scalar(const struct pd_compiled_layer *l, int p, int64_t c, float otherwise)
{
	float room;

	return p < l->layer->parameter_count ? *pd_cpu_wide(l->net->dtype, l->parameters[p], c, 1, &room)
					     : otherwise;
}

/* ---- forward ---- */

PD_VECTOR static void add_squares(float *restrict lanes, const float *restrict x, float mean, int64_t count)
{
	int64_t i = 0;

	for (; i + PD_FLOAT_LANES <= count; i += PD_FLOAT_LANES)
		for (int k = 0; k < PD_FLOAT_LANES; k++)
			lanes[k] += (x[i + k] - mean) * (x[i + k] - mean);
	for (int k = 0; i + k < count; k++)
		lanes[k] += (x[i + k] - mean) * (x[i + k] - mean);
}

PD_VECTOR static void normalise(float *restrict y, const float *restrict x, float mean, float scale,
				float weight, float bias, int64_t count)
{
	for (int64_t i = 0; i < count; i++)
		y[i] = (x[i] - mean) * scale * weight + bias;
}

static void find_statistics(const struct pd_compiled_layer *l, int64_t row, float *mean_p, float *scale_p)
{
	const struct groupnorm *n = l->own;
	float sum[PD_FLOAT_LANES] = { 0 }, squares[PD_FLOAT_LANES] = { 0 }, room[PIECE];
	int64_t width = n->each * n->area;

	for (int64_t at = 0; at < width; at += PIECE) {
		int64_t count = pd_min(width - at, PIECE);

		pd_lanes_add(sum, pd_cpu_wide(l->net->dtype, l->src[0], row * width + at, count, room), count);
	}
	*mean_p = pd_lanes_total(sum) / (float)width;
	for (int64_t at = 0; at < width; at += PIECE) {
		int64_t count = pd_min(width - at, PIECE);

		add_squares(squares, pd_cpu_wide(l->net->dtype, l->src[0], row * width + at, count, room),
			    *mean_p, count);
	}
	*scale_p = 1 / sqrtf(pd_lanes_total(squares) / (float)width + (float)l->layer->eps);
}

/* A channel of a sample; c counts those of all samples. */
static void forward_channel(const struct pd_compiled_layer *l, int64_t c, float mean, float scale)
{
	const struct groupnorm *n = l->own;
	float weight = scalar(l, 0, c % n->channels, 1), bias = scalar(l, 1, c % n->channels, 0);
	float room[PIECE], part[PIECE];

	for (int64_t at = 0; at < n->area; at += PIECE) {
		int64_t count = pd_min(n->area - at, PIECE), begin = c * n->area + at;

		normalise(part, pd_cpu_wide(l->net->dtype, l->src[0], begin, count, room), mean, scale,
			  weight, bias, count);
		pd_cpu_put(l->net->dtype, l->dst, begin, part, count);
	}
}

static int forward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	const struct groupnorm *n = l->own;
	float *means = l->extra, *scales = means + n->half;

#pragma omp parallel for schedule(static)
	for (int64_t row = 0; row < n->rows; row++) {
		find_statistics(l, row, &means[row], &scales[row]);
		for (int64_t k = 0; k < n->each; k++)
			forward_channel(l, row * n->each + k, means[row], scales[row]);
	}
	return 0;
}

/* ---- backward ---- */

PD_VECTOR static void add_sums(float *restrict first, float *restrict second, const float *restrict x,
			       const float *restrict dy, float mean, float scale, int64_t count)
{
	int64_t i = 0;

	for (; i + PD_FLOAT_LANES <= count; i += PD_FLOAT_LANES)
		for (int k = 0; k < PD_FLOAT_LANES; k++) {
			first[k] += dy[i + k];
			second[k] += dy[i + k] * ((x[i + k] - mean) * scale);
		}
	for (int k = 0; i + k < count; k++) {
		first[k] += dy[i + k];
		second[k] += dy[i + k] * ((x[i + k] - mean) * scale);
	}
}

/* first, second: the means over the group of the gradient and of it times the normal number. */
PD_VECTOR static void gradient(float *restrict dx, const float *restrict x, const float *restrict dy,
			       float mean, float scale, float weight, float first, float second,
			       int64_t count)
{
	for (int64_t i = 0; i < count; i++)
		dx[i] = scale * (dy[i] * weight - first - (x[i] - mean) * scale * second);
}

static void sum_channel(const struct pd_compiled_layer *l, int64_t c)
{
	const struct groupnorm *n = l->own;
	float first[PD_FLOAT_LANES] = { 0 }, second[PD_FLOAT_LANES] = { 0 }, room[PIECE], other[PIECE];
	float *sums = l->temporary;
	const float *means = l->extra, *scales = means + n->half;

	for (int64_t at = 0; at < n->area; at += PIECE) {
		int64_t count = pd_min(n->area - at, PIECE), begin = c * n->area + at;

		add_sums(first, second, pd_cpu_wide(l->net->dtype, l->src[0], begin, count, room),
			 pd_cpu_wide(l->net->dtype, l->diff_dst, begin, count, other),
			 means[c / n->each], scales[c / n->each], count);
	}
	sums[c] = pd_lanes_total(first);
	sums[n->sums + (size_t)c] = pd_lanes_total(second);
}

static void backward_channel(const struct pd_compiled_layer *l, int64_t c, float first, float second)
{
	const struct groupnorm *n = l->own;
	const float *means = l->extra, *scales = means + n->half;
	float weight = scalar(l, 0, c % n->channels, 1), room[PIECE], other[PIECE], part[PIECE];

	for (int64_t at = 0; at < n->area; at += PIECE) {
		int64_t count = pd_min(n->area - at, PIECE), begin = c * n->area + at;

		gradient(part, pd_cpu_wide(l->net->dtype, l->src[0], begin, count, room),
			 pd_cpu_wide(l->net->dtype, l->diff_dst, begin, count, other),
			 means[c / n->each], scales[c / n->each], weight, first, second, count);
		pd_cpu_put(l->net->dtype, l->diff_src[0], begin, part, count);
	}
}

static void backward_row(const struct pd_compiled_layer *l, int64_t row)
{
	const struct groupnorm *n = l->own;
	const float *sums = l->temporary;
	float first = 0, second = 0, width = (float)(n->each * n->area);

	for (int64_t c = row * n->each; c < (row + 1) * n->each; c++) {
		first += scalar(l, 0, c % n->channels, 1) * sums[c];
		second += scalar(l, 0, c % n->channels, 1) * sums[n->sums + (size_t)c];
	}
	for (int64_t c = row * n->each; c < (row + 1) * n->each; c++)
		backward_channel(l, c, first / width, second / width);
}

/* The gradient of the scale (0) is the sum over samples of the second sums, that of the shift of the first. */
static void parameter_back(const struct pd_compiled_layer *l, const struct pd_pass *pass, int p)
{
	const struct groupnorm *n = l->own;
	const float *sums = (const float *)l->temporary + (p == 0 ? n->sums : 0);
	size_t bytes = sizeof(float) * (size_t)n->channels;
	float *all = pass->part == PD_BACKWARD_INPUT ? (float *)((char *)l->split + n->kept[p])
						     : l->diff_parameters[p];

	memcpy(all, sums, bytes);
	for (int64_t sample = 1; sample < l->net->batch; sample++)
		pd_floats_add(all, sums + sample * n->channels, n->channels);
}

static int backward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	const struct groupnorm *n = l->own;

	if (pass->part == PD_BACKWARD_WEIGHT) {
		for (int p = 0; p < l->layer->parameter_count; p++)
			memcpy(l->diff_parameters[p], (char *)l->split + n->kept[p],
			       sizeof(float) * (size_t)n->channels);
		return 0;
	}
#pragma omp parallel for schedule(static)
	for (int64_t c = 0; c < n->rows * n->each; c++)
		sum_channel(l, c);
	for (int p = 0; p < l->layer->parameter_count; p++)
		parameter_back(l, pass, p);
	if (!l->diff_src[0])
		return 0;
#pragma omp parallel for schedule(static)
	for (int64_t row = 0; row < n->rows; row++)
		backward_row(l, row);
	return 0;
}

const struct pd_compiled_kind pd_cpu_groupnorm = {
	.plain = true,
	.prepare = prepare,
	.forward = forward,
	.backward = backward,
};
