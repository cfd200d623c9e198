/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums and products of two inputs of which one repeats along axes where it has one place
 * (pd_shape_repeats).  The gradient of what is repeated is the sum over its places, in f32: ascending, or,
 * along the last axis, in lanes (floats.h); threads take whole sums.  Batches are plain; in 16 bits each
 * result is rounded once.
 */
#include "base/mem.h"
#include "base/minmax.h"
#include "run/device/cpu/cpu.h"
#include "run/device/cpu/floats.h"

#include <string.h>

#define PIECE 1024                      /* a multiple of PD_FLOAT_LANES */

static int prepare(struct pd_compiled_layer *l, struct pd_error *err)
{
	l->out = pd_cpu_plain(l->net, &l->layer->output);
	return 0;
}

/* Writes what an input is at elements of the output from `at` on. */
static void spread(const struct pd_compiled_layer *l, int input, int64_t at, int64_t count, float *to)
{
	const struct pd_axis a = pd_compiled_repeats(l, input);

	for (int64_t done = 0, run; done < count; done += run) {
		int64_t e = at + done, column = e % a.inner, k = e / a.inner;
		int64_t from = k / a.extent * a.inner + column;
		const float *values;

		run = a.extent == 1 ? count - done
			: a.inner > 1 ? pd_min(count - done, a.inner - column)
			: pd_min(count - done, a.extent - k % a.extent);
		values = pd_cpu_wide(l->net->dtype, l->src[input], from,
				     a.extent > 1 && a.inner == 1 ? 1 : run, to + done);
		for (int64_t i = 0; a.extent > 1 && a.inner == 1 && i < run; i++)
			to[done + i] = values[0];
		if (values != to + done && !(a.extent > 1 && a.inner == 1))
			memcpy(to + done, values, sizeof(*to) * (size_t)run);
	}
}

PD_VECTOR static void combine(float *restrict to, const float *restrict other, bool product, int64_t count)
{
	if (product)
		for (int64_t i = 0; i < count; i++)
			to[i] *= other[i];
	else
		for (int64_t i = 0; i < count; i++)
			to[i] += other[i];
}

static bool multiplies(const struct pd_compiled_layer *l)
{
	return l->layer->kind == PD_LAYER_mul;
}

static int forward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	int64_t count = l->net->batch * pd_shape_elements(&l->layer->output);

#pragma omp parallel for schedule(static)
	for (int64_t at = 0; at < count; at += PIECE) {
		int64_t n = pd_min(count - at, PIECE);
		float one[PIECE], other[PIECE];

		spread(l, 0, at, n, one);
		spread(l, 1, at, n, other);
		combine(one, other, multiplies(l), n);
		pd_cpu_put(l->net->dtype, l->dst, at, one, n);
	}
	return 0;
}

/* Writes what elements of the output from `at` on give to the gradient of an input. */
static void terms(const struct pd_compiled_layer *l, int input, int64_t at, int64_t count, float *to)
{
	const float *dy = pd_cpu_wide(l->net->dtype, l->diff_dst, at, count, to);
	float other[PIECE];

	if (dy != to)
		memcpy(to, dy, sizeof(*to) * (size_t)count);
	if (!multiplies(l))
		return;
	spread(l, 1 - input, at, count, other);
	combine(to, other, true, count);
}

/* One place, which is repeated along a row. */
static void row_back(const struct pd_compiled_layer *l, int input, int64_t row, int64_t extent)
{
	float lanes[PD_FLOAT_LANES] = { 0 }, part[PIECE], sum;

	for (int64_t at = 0; at < extent; at += PIECE) {
		int64_t n = pd_min(extent - at, PIECE);

		terms(l, input, row * extent + at, n, part);
		pd_lanes_add(lanes, part, n);
	}
	sum = pd_lanes_total(lanes);
	pd_cpu_put(l->net->dtype, l->diff_src[input], row, &sum, 1);
}

/* Places that lie side by side behind the axis, n of them from `at` on. */
static void places_back(const struct pd_compiled_layer *l, int input, const struct pd_axis *a, int64_t o,
			int64_t at, int64_t n)
{
	float sum[PIECE] = { 0 }, part[PIECE];

	for (int64_t k = 0; k < a->extent; k++) {
		terms(l, input, (o * a->extent + k) * a->inner + at, n, part);
		pd_floats_add(sum, part, n);
	}
	pd_cpu_put(l->net->dtype, l->diff_src[input], o * a->inner + at, sum, n);
}

static void input_back(const struct pd_compiled_layer *l, int input)
{
	const struct pd_axis a = pd_compiled_repeats(l, input);

#pragma omp parallel for schedule(static)
	for (int64_t o = 0; o < a.outer; o++) {
		if (a.inner == 1)
			row_back(l, input, o, a.extent);
		for (int64_t at = 0; at < a.inner && a.inner > 1; at += PIECE)
			places_back(l, input, &a, o, at, pd_min(a.inner - at, PIECE));
	}
}

static int backward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	for (int i = 0; i < 2; i++)
		if (l->diff_src[i])
			input_back(l, i);
	return 0;
}

const struct pd_compiled_kind pd_cpu_broadcast = {
	.plain = true,
	.prepare = prepare,
	.forward = forward,
	.backward = backward,
};
