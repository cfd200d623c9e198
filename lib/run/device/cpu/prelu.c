/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prelu is PyTorch's: what is above 0, or else that times the weight, one number or one for each channel.  The
 * gradient of the weight is summed in lanes (floats.h), then part by part, in order.
 */
#include "base/mem.h"
#include "base/minmax.h"
#include "run/device/cpu/cpu.h"
#include "run/device/cpu/floats.h"

#include <string.h>

#define PIECE 1024                      /* a multiple of PD_FLOAT_LANES */

static int prepare(struct pd_compiled_layer *l, struct pd_error *err)
{
	const struct pd_axis a = pd_compiled_slopes(l);

	l->out = pd_cpu_plain(l->net, &l->layer->output);
	l->parameter[0] = pd_layout_plain(l->net->engine, 1, &a.extent);
	l->split_bytes = pd_compiled_reserved(l->net, sizeof(float) * (size_t)a.extent);
	l->backward_bytes = sizeof(float) * (size_t)(a.outer * a.extent);
	return 0;
}

PD_VECTOR static void bend(float *restrict y, const float *restrict x, float slope, int64_t count)
{
	for (int64_t i = 0; i < count; i++)
		y[i] = x[i] > 0 ? x[i] : slope * x[i];
}

PD_VECTOR static void bend_back(float *restrict dx, const float *restrict x, const float *restrict dy,
				float slope, int64_t count)
{
	for (int64_t i = 0; i < count; i++)
		dx[i] = x[i] > 0 ? dy[i] : slope * dy[i];
}

PD_VECTOR static void slopes_back(float *restrict part, const float *restrict x, const float *restrict dy,
				  int64_t count)
{
	for (int64_t i = 0; i < count; i++)
		part[i] = x[i] > 0 ? 0 : x[i] * dy[i];
}

/* The slope of the elements of a part, which counts those of all samples. */
static float slope_of(const struct pd_compiled_layer *l, const struct pd_axis *a, int64_t part)
{
	float room;

	return *pd_cpu_wide(l->net->dtype, l->parameters[0], part % a->extent, 1, &room);
}

static int forward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	const struct pd_axis a = pd_compiled_slopes(l);

#pragma omp parallel for schedule(static)
	for (int64_t part = 0; part < a.outer * a.extent; part++) {
		float slope = slope_of(l, &a, part), room[PIECE], to[PIECE];

		for (int64_t at = 0; at < a.inner; at += PIECE) {
			int64_t n = pd_min(a.inner - at, PIECE), begin = part * a.inner + at;

			bend(to, pd_cpu_wide(l->net->dtype, l->src[0], begin, n, room), slope, n);
			pd_cpu_put(l->net->dtype, l->dst, begin, to, n);
		}
	}
	return 0;
}

static void input_back(const struct pd_compiled_layer *l, const struct pd_axis *a, int64_t part)
{
	float slope = slope_of(l, a, part), room[PIECE], other[PIECE], to[PIECE];

	for (int64_t at = 0; at < a->inner; at += PIECE) {
		int64_t n = pd_min(a->inner - at, PIECE), begin = part * a->inner + at;

		bend_back(to, pd_cpu_wide(l->net->dtype, l->src[0], begin, n, room),
			  pd_cpu_wide(l->net->dtype, l->diff_dst, begin, n, other), slope, n);
		pd_cpu_put(l->net->dtype, l->diff_src[0], begin, to, n);
	}
}

/* Returns the gradient of a part's slope. */
static float weight_back(const struct pd_compiled_layer *l, const struct pd_axis *a, int64_t part)
{
	float lanes[PD_FLOAT_LANES] = { 0 }, room[PIECE], other[PIECE], to[PIECE];

	for (int64_t at = 0; at < a->inner; at += PIECE) {
		int64_t n = pd_min(a->inner - at, PIECE), begin = part * a->inner + at;

		slopes_back(to, pd_cpu_wide(l->net->dtype, l->src[0], begin, n, room),
			    pd_cpu_wide(l->net->dtype, l->diff_dst, begin, n, other), n);
		pd_lanes_add(lanes, to, n);
	}
	return pd_lanes_total(lanes);
}

static int backward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	const struct pd_axis a = pd_compiled_slopes(l);
	size_t bytes = sizeof(float) * (size_t)a.extent;
	float *all = pass->part == PD_BACKWARD_INPUT ? l->split : l->diff_parameters[0], *sums = l->temporary;

	if (pass->part == PD_BACKWARD_WEIGHT) {
		memcpy(all, l->split, bytes);
		return 0;
	}
#pragma omp parallel for schedule(static)
	for (int64_t part = 0; part < a.outer * a.extent; part++) {
		sums[part] = weight_back(l, &a, part);
		if (l->diff_src[0])
			input_back(l, &a, part);
	}
	memcpy(all, sums, bytes);
	for (int64_t o = 1; o < a.outer; o++)
		pd_floats_add(all, sums + o * a.extent, a.extent);
	return 0;
}

const struct pd_compiled_kind pd_cpu_prelu = {
	.plain = true,
	.prepare = prepare,
	.forward = forward,
	.backward = backward,
};
