/* SPDX-License-Identifier: Apache-2.0 */
/*
 * softmax along an axis of a sample.  A batch is plain, and its samples are one more of the axes before.
 * Sums are taken in f32, ascending, or, along the last axis, in lanes (floats.h); threads take whole sums.
 */
#include "base/mem.h"
#include "base/minmax.h"
#include "run/device/cpu/cpu.h"
#include "run/device/cpu/exp.h"
#include "run/device/cpu/floats.h"

#include <math.h>

#define PIECE 1024                      /* a multiple of PD_FLOAT_LANES */

static int prepare(struct pd_compiled_layer *l, struct pd_error *err)
{
	l->out = pd_cpu_plain(l->net, &l->layer->output);
	return 0;
}

PD_VECTOR static void take_larger(float *restrict most, const float *restrict x, int64_t count)
{
	for (int64_t i = 0; i < count; i++)
		most[i] = x[i] > most[i] ? x[i] : most[i];
}

/* A step of 0 subtracts one number from all. */
PD_VECTOR static void exponentials(float *restrict to, const float *restrict x, const float *restrict most,
				   int64_t step, int64_t count)
{
	for (int64_t i = 0; i < count; i++)
		to[i] = pd_exp(x[i] - most[i * step]);
}

PD_VECTOR static void multiply(float *restrict to, const float *restrict other, int64_t step, int64_t count)
{
	for (int64_t i = 0; i < count; i++)
		to[i] *= other[i * step];
}

PD_VECTOR static void gradient(float *restrict dx, const float *restrict y, const float *restrict dy,
			       const float *restrict sum, int64_t step, int64_t count)
{
	for (int64_t i = 0; i < count; i++)
		dx[i] = y[i] * (dy[i] - sum[i * step]);
}

/* ---- a row of the last axis ---- */

static float largest(const struct pd_compiled_layer *l, int64_t begin, int64_t extent)
{
	float lanes[PD_FLOAT_LANES], room[PIECE];

	for (int k = 0; k < PD_FLOAT_LANES; k++)
		lanes[k] = -INFINITY;
	for (int64_t at = 0; at < extent; at += PIECE) {
		int64_t n = pd_min(extent - at, PIECE);
		const float *x = pd_cpu_wide(l->net->dtype, l->src[0], begin + at, n, room);

		for (int64_t i = 0; i < n; i += PD_FLOAT_LANES)
			take_larger(lanes, x + i, pd_min(n - i, PD_FLOAT_LANES));
	}
	for (int k = 1; k < PD_FLOAT_LANES; k++)
		lanes[0] = lanes[k] > lanes[0] ? lanes[k] : lanes[0];
	return lanes[0];
}

static void row(const struct pd_compiled_layer *l, int64_t begin, int64_t extent)
{
	float most = largest(l, begin, extent), lanes[PD_FLOAT_LANES] = { 0 }, room[PIECE], part[PIECE], share;
	enum pd_dtype dtype = l->net->dtype;

	for (int64_t at = 0; at < extent; at += PIECE) {
		int64_t n = pd_min(extent - at, PIECE);

		exponentials(part, pd_cpu_wide(dtype, l->src[0], begin + at, n, room), &most, 0, n);
		pd_lanes_add(lanes, part, n);
	}
	share = 1 / pd_lanes_total(lanes);
	for (int64_t at = 0; at < extent; at += PIECE) {
		int64_t n = pd_min(extent - at, PIECE);

		exponentials(part, pd_cpu_wide(dtype, l->src[0], begin + at, n, room), &most, 0, n);
		multiply(part, &share, 0, n);
		pd_cpu_put(dtype, l->dst, begin + at, part, n);
	}
}

static void row_back(const struct pd_compiled_layer *l, int64_t begin, int64_t extent)
{
	float lanes[PD_FLOAT_LANES] = { 0 }, room[PIECE], other[PIECE], part[PIECE], sum;
	const float zero = 0;
	enum pd_dtype dtype = l->net->dtype;

	for (int64_t at = 0; at < extent; at += PIECE) {
		int64_t n = pd_min(extent - at, PIECE);

		gradient(part, pd_cpu_wide(dtype, l->dst, begin + at, n, room),
			 pd_cpu_wide(dtype, l->diff_dst, begin + at, n, other), &zero, 0, n);
		pd_lanes_add(lanes, part, n);
	}
	sum = pd_lanes_total(lanes);
	for (int64_t at = 0; at < extent; at += PIECE) {
		int64_t n = pd_min(extent - at, PIECE);

		gradient(part, pd_cpu_wide(dtype, l->dst, begin + at, n, room),
			 pd_cpu_wide(dtype, l->diff_dst, begin + at, n, other), &sum, 0, n);
		pd_cpu_put(dtype, l->diff_src[0], begin + at, part, n);
	}
}

/* ---- n places that lie side by side behind the axis; the first is element `begin` ---- */

static void places(const struct pd_compiled_layer *l, const struct pd_axis *a, int64_t begin, int64_t n)
{
	float most[PIECE], sum[PIECE] = { 0 }, room[PIECE], part[PIECE];
	enum pd_dtype dtype = l->net->dtype;

	for (int64_t i = 0; i < n; i++)
		most[i] = -INFINITY;
	for (int64_t k = 0; k < a->extent; k++)
		take_larger(most, pd_cpu_wide(dtype, l->src[0], begin + k * a->inner, n, room), n);
	for (int64_t k = 0; k < a->extent; k++) {
		exponentials(part, pd_cpu_wide(dtype, l->src[0], begin + k * a->inner, n, room), most, 1, n);
		pd_floats_add(sum, part, n);
	}
	for (int64_t i = 0; i < n; i++)
		sum[i] = 1 / sum[i];
	for (int64_t k = 0; k < a->extent; k++) {
		exponentials(part, pd_cpu_wide(dtype, l->src[0], begin + k * a->inner, n, room), most, 1, n);
		multiply(part, sum, 1, n);
		pd_cpu_put(dtype, l->dst, begin + k * a->inner, part, n);
	}
}

static void places_back(const struct pd_compiled_layer *l, const struct pd_axis *a, int64_t begin, int64_t n)
{
	float sum[PIECE] = { 0 }, room[PIECE], other[PIECE], part[PIECE];
	const float zero = 0;
	enum pd_dtype dtype = l->net->dtype;

	for (int64_t k = 0; k < a->extent; k++) {
		gradient(part, pd_cpu_wide(dtype, l->dst, begin + k * a->inner, n, room),
			 pd_cpu_wide(dtype, l->diff_dst, begin + k * a->inner, n, other), &zero, 0, n);
		pd_floats_add(sum, part, n);
	}
	for (int64_t k = 0; k < a->extent; k++) {
		gradient(part, pd_cpu_wide(dtype, l->dst, begin + k * a->inner, n, room),
			 pd_cpu_wide(dtype, l->diff_dst, begin + k * a->inner, n, other), sum, 1, n);
		pd_cpu_put(dtype, l->diff_src[0], begin + k * a->inner, part, n);
	}
}

static int forward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	const struct pd_axis a = pd_compiled_around(l, l->layer->dim);

#pragma omp parallel for schedule(static)
	for (int64_t o = 0; o < a.outer; o++) {
		if (a.inner == 1)
			row(l, o * a.extent, a.extent);
		for (int64_t at = 0; at < a.inner && a.inner > 1; at += PIECE)
			places(l, &a, o * a.extent * a.inner + at, pd_min(a.inner - at, PIECE));
	}
	return 0;
}

static int backward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	const struct pd_axis a = pd_compiled_around(l, l->layer->dim);

	if (!l->diff_src[0])
		return 0;
#pragma omp parallel for schedule(static)
	for (int64_t o = 0; o < a.outer; o++) {
		if (a.inner == 1)
			row_back(l, o * a.extent, a.extent);
		for (int64_t at = 0; at < a.inner && a.inner > 1; at += PIECE)
			places_back(l, &a, o * a.extent * a.inner + at, pd_min(a.inner - at, PIECE));
	}
	return 0;
}

const struct pd_compiled_kind pd_cpu_softmax = {
	.plain = true,
	.keeps_output = true,
	.prepare = prepare,
	.forward = forward,
	.backward = backward,
};
