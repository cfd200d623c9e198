/* SPDX-License-Identifier: Apache-2.0 */
/*
 * These functions are what one thread of a kernel computes.  They compile for the processor, too:
 * test/unit/cuda-arith.c runs them there, against the CPU device and plain loops.
 */
#pragma once

#include "base/inline.h"
#include "base/rng.h"
#include "engine/device/update.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>

/*
 * PD_TYPED functions take elements of any type on a GPU, and f32 on the processor.  PD_LANED
 * functions take a pack of adjacent elements at a time on a GPU, and one on the processor.
 */
#ifdef __cplusplus
#define PD_TYPED template <typename pd_value> PD_INLINE
#define PD_LANED template <int pd_lanes, typename pd_value> PD_INLINE
template <typename T, int N>
struct alignas(N * sizeof(T)) pd_pack {
	T v[N];
};
#define PD_PACK(type) pd_pack<type, pd_lanes>
#else
#define PD_TYPED PD_INLINE
#define PD_LANED PD_INLINE
#define pd_lanes 1
#define PD_PACK(type) struct { type v[1]; }
typedef float pd_value;
#endif

/* ---- pooling: windows of an output, outputs of an input; axis 0 is the height ---- */

struct pd_pool_shape {
	int in[2], out[2];
	int kernel[2], stride[2], padding[2];
	int adaptive;                   /* adaptive_avgpool2d, which does not read the three above */
	int include_padding;            /* the divisor of a mean counts the padding */
	int step;                       /* from one element of a plane to the next */
};

struct pd_axis_range {
	int begin, end;
};

/* Returns the inputs of output number `at` of the axis, without the padding. */
PD_INLINE struct pd_axis_range pd_pool_window(const struct pd_pool_shape *s, int axis, int at)
{
	struct pd_axis_range range;

	if (s->adaptive) {
		range.begin = (int)((int64_t)at * s->in[axis] / s->out[axis]);
		range.end = (int)(((int64_t)(at + 1) * s->in[axis] + s->out[axis] - 1) /
				  s->out[axis]);
		return range;
	}
	range.begin = at * s->stride[axis] - s->padding[axis];
	range.end = range.begin + s->kernel[axis];
	if (range.begin < 0)
		range.begin = 0;
	if (range.end > s->in[axis])
		range.end = s->in[axis];
	return range;
}

/*
 * Returns the outputs that read input number `at` of the axis.  Adaptive: floor(o I / O) <= at <
 * ceil((o + 1) I / O) holds for floor(at O / I) <= o < ceil((at + 1) O / I).
 */
PD_INLINE struct pd_axis_range pd_pool_outputs(const struct pd_pool_shape *s, int axis, int at)
{
	struct pd_axis_range range;
	int last;

	if (s->adaptive) {
		range.begin = (int)((int64_t)at * s->out[axis] / s->in[axis]);
		range.end = (int)(((int64_t)(at + 1) * s->out[axis] + s->in[axis] - 1) /
				  s->in[axis]);
		return range;
	}
	last = at + s->padding[axis];
	range.begin = last < s->kernel[axis] ? 0 : (last - s->kernel[axis]) / s->stride[axis] + 1;
	range.end = last / s->stride[axis] + 1;
	if (range.end > s->out[axis])
		range.end = s->out[axis];
	return range;
}

/*
 * Finds the largest input of a window, the first of several, and its place in the plane.  A NaN is larger
 * than every number, and the last of several is found, as in PyTorch.
 */
PD_LANED void pd_pool_largest(const struct pd_pool_shape *s, const pd_value *plane, int row,
			      int column, float *most, int32_t *best)
{
	typedef PD_PACK(pd_value) pack;
	struct pd_axis_range y = pd_pool_window(s, 0, row), x = pd_pool_window(s, 1, column);
	int first = y.begin * s->in[1] + x.begin;
	pack p = *(const pack *)&plane[(int64_t)first * s->step];

	for (int k = 0; k < pd_lanes; k++) {
		most[k] = (float)p.v[k];
		best[k] = first;
	}
	for (int i = y.begin; i < y.end; i++)
		for (int j = x.begin; j < x.end; j++) {
			int at = i * s->in[1] + j;

			p = *(const pack *)&plane[(int64_t)at * s->step];
			for (int k = 0; k < pd_lanes; k++)
				if ((float)p.v[k] > most[k] || isnan((float)p.v[k])) {
					most[k] = (float)p.v[k];
					best[k] = at;
				}
		}
}

/* Sums the gradient of an input of a plane over the outputs that chose it. */
PD_LANED void pd_pool_chosen(const struct pd_pool_shape *s, const pd_value *gradient,
			     const int32_t *chosen, int row, int column, float *sum)
{
	typedef PD_PACK(pd_value) pack;
	typedef PD_PACK(int32_t) places;
	struct pd_axis_range y = pd_pool_outputs(s, 0, row), x = pd_pool_outputs(s, 1, column);
	int me = row * s->in[1] + column;

	for (int k = 0; k < pd_lanes; k++)
		sum[k] = 0;
	for (int i = y.begin; i < y.end; i++)
		for (int j = x.begin; j < x.end; j++) {
			int64_t at = (int64_t)(i * s->out[1] + j) * s->step;
			places by = *(const places *)&chosen[at];
			pack p = *(const pack *)&gradient[at];

			for (int k = 0; k < pd_lanes; k++)
				if (by.v[k] == me)
					sum[k] += (float)p.v[k];
		}
}

PD_INLINE float pd_pool_divisor(const struct pd_pool_shape *s, int row, int column)
{
	struct pd_axis_range y = pd_pool_window(s, 0, row), x = pd_pool_window(s, 1, column);

	if (s->include_padding && !s->adaptive)
		return (float)(s->kernel[0] * s->kernel[1]);
	return (float)((y.end - y.begin) * (x.end - x.begin));
}

PD_TYPED float pd_pool_mean(const struct pd_pool_shape *s, const pd_value *plane, int row,
			    int column)
{
	struct pd_axis_range y = pd_pool_window(s, 0, row), x = pd_pool_window(s, 1, column);
	float sum = 0;

	for (int i = y.begin; i < y.end; i++)
		for (int j = x.begin; j < x.end; j++)
			sum += (float)plane[(int64_t)(i * s->in[1] + j) * s->step];
	return sum / pd_pool_divisor(s, row, column);
}

PD_TYPED float pd_pool_share(const struct pd_pool_shape *s, const pd_value *gradient, int row,
			     int column)
{
	struct pd_axis_range y = pd_pool_outputs(s, 0, row), x = pd_pool_outputs(s, 1, column);
	float sum = 0;

	for (int i = y.begin; i < y.end; i++)
		for (int j = x.begin; j < x.end; j++)
			sum += (float)gradient[(int64_t)(i * s->out[1] + j) * s->step] /
			       pd_pool_divisor(s, i, j);
	return sum;
}

/*
 * ---- dropout: what it makes of x; of what is not kept 0, or a NaN if it is not finite, as a product with
 * 0 does ----
 */

PD_INLINE float pd_dropped(float x, bool kept, float scale)
{
	return kept ? x * scale : x - x;
}

/* ---- dropout: a bit for each of eight elements of a sample, from number 8 * byte on ---- */

PD_INLINE unsigned char pd_dropout_byte(uint64_t seed, uint64_t stream, uint32_t sample,
					int64_t byte, int64_t elements, float p)
{
	unsigned char keep = 0;

	for (int half = 0; half < 2; half++) {
		struct pd_random4 r = pd_random(seed, stream, sample, (uint32_t)(2 * byte + half));

		for (int k = 0; k < 4 && 8 * byte + 4 * half + k < elements; k++)
			if (pd_unit(r.v[k]) >= p)
				keep = (unsigned char)(keep | 1 << (4 * half + k));
	}
	return keep;
}

/*
 * ---- softmax cross-entropy of one row: the part of one of `step` threads ----
 *
 * A thread takes elements `from`, from + step, ...  pd_softmax_larger and sums combine the results.
 */

struct pd_softmax_best {
	float value;
	int64_t at;                     /* the first element that large; classes: none */
};

PD_TYPED struct pd_softmax_best pd_softmax_largest(const pd_value *x, int64_t classes,
						   int64_t from, int64_t step)
{
	struct pd_softmax_best best = { 0, classes };

	for (int64_t i = from; i < classes; i += step)
		if (best.at == classes || (float)x[i] > best.value) {
			best.value = (float)x[i];
			best.at = i;
		}
	return best;
}

PD_INLINE struct pd_softmax_best pd_softmax_larger(struct pd_softmax_best a,
						   struct pd_softmax_best b, int64_t classes)
{
	if (b.at == classes)
		return a;
	if (a.at == classes || b.value > a.value || (b.value == a.value && b.at < a.at))
		return b;
	return a;
}

PD_TYPED float pd_softmax_sum(const pd_value *x, int64_t classes, int64_t from, int64_t step,
			      float max)
{
	float sum = 0;

	for (int64_t i = from; i < classes; i += step)
		sum += expf((float)x[i] - max);
	return sum;
}

/* Sums how far the logits are below the largest. */
PD_TYPED float pd_softmax_below(const pd_value *x, int64_t classes, int64_t from, int64_t step,
				float max)
{
	float sum = 0;

	for (int64_t i = from; i < classes; i += step)
		sum += max - (float)x[i];
	return sum;
}

/* smooth: label smoothing; below: not read where that is 0. */
PD_TYPED float pd_softmax_loss(const pd_value *x, int64_t classes, int64_t label, float max,
			       float sum, float smooth, float below)
{
	if (smooth > 0)
		return logf(sum) + (1 - smooth) * (max - (float)x[label]) +
		       smooth * (below / (float)classes);
	return logf(sum) - ((float)x[label] - max);
}

/* mean: 1 / batch size */
PD_TYPED void pd_softmax_gradient(pd_value *dx, const pd_value *x, int64_t classes, int64_t from,
				  int64_t step, int64_t label, float max, float sum, float smooth,
				  float mean)
{
	float less = smooth / (float)classes * mean, share = mean / sum;

	for (int64_t i = from; i < classes; i += step) {
		float g = expf((float)x[i] - max) * share - less;

		dx[i] = (pd_value)(i == label ? g - (1 - smooth) * mean : g);
	}
}

/* ---- updates ---- */

/*
 * Multiplies a gradient by the agreed factor, in double: 1 over a large scale is below normal
 * floats.
 */
PD_INLINE float pd_scaled(float gradient, double factor)
{
	return factor == 1 ? gradient : (float)(factor * (double)gradient);
}

/* Corrects a weight after an update from `old` to `next`: backward reads the result instead. */
PD_INLINE float pd_corrected(float *delta, float old, float next, size_t i, float keep, float rest,
			     float delay)
{
	delta[i] = keep * delta[i] + rest * (next - old);
	return next - delay * delta[i];
}
