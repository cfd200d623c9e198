/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mse: of a sample the mean over its elements of (a - b)^2, or of a^2, times the weight w; its
 * gradient 2 w (a - b) / (N E), where N is the number of samples in a minibatch and E that of elements
 * in one.  Samples from pass->valid on are padding.  Of 16 bits a piece is widened at a time.
 */
#include "base/mem.h"
#include "run/device/cpu/cpu.h"
#include "run/device/cpu/floats.h"

#include <string.h>

#define PIECE 1024                      /* a multiple of PD_FLOAT_LANES */

static int prepare(struct pd_compiled_layer *l, struct pd_error *err)
{
	l->out = pd_cpu_plain(l->net, &l->layer->output);
	if (l->inside && l->net->dtype != PD_F32)
		l->forward_bytes = pd_align(sizeof(float) * (size_t)l->net->batch);
	return 0;
}

/* Elements from `at` on of an input in f32; zeros where there is no such input. */
static const float *piece_of(const struct pd_compiled_layer *l, int input, int64_t at, int64_t n,
			     float *room)
{
	static const float zeros[PIECE];

	if (input >= l->layer->input_count)
		return zeros;
	return pd_cpu_wide(l->net->dtype, l->src[input], at, n, room);
}

PD_VECTOR static void add_squares(float *restrict lanes, const float *a, const float *b,
				  int64_t count)
{
	int64_t i = 0;

	for (; i + PD_FLOAT_LANES <= count; i += PD_FLOAT_LANES)
		for (int k = 0; k < PD_FLOAT_LANES; k++)
			lanes[k] += (a[i + k] - b[i + k]) * (a[i + k] - b[i + k]);
	for (int k = 0; i + k < count; k++)
		lanes[k] += (a[i + k] - b[i + k]) * (a[i + k] - b[i + k]);
}

PD_VECTOR static void differences(float *restrict d, const float *a, const float *b, float factor,
				  int64_t count)
{
	for (int64_t i = 0; i < count; i++)
		d[i] = (a[i] - b[i]) * factor;
}

static float sample_loss(const struct pd_compiled_layer *l, int64_t sample, int64_t elements)
{
	float lanes[PD_FLOAT_LANES] = { 0 }, a[PIECE], b[PIECE];

	for (int64_t at = 0; at < elements; at += PIECE) {
		int64_t n = elements - at < PIECE ? elements - at : PIECE;
		int64_t from = sample * elements + at;

		add_squares(lanes, piece_of(l, 0, from, n, a), piece_of(l, 1, from, n, b), n);
	}
	return (float)l->layer->weight * (pd_lanes_total(lanes) / (float)elements);
}

static int forward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	int64_t elements = pd_shape_elements(l->in_shape[0]);
	struct pd_loss loss = { .samples = pass->valid, .rows = pass->valid };
	float *out = l->net->dtype == PD_F32 ? l->dst : l->temporary;

	memset(out, 0, sizeof(float) * (size_t)l->net->batch);
#pragma omp parallel for schedule(static)
	for (int64_t n = 0; n < pass->valid; n++)
		out[n] = sample_loss(l, n, elements);
	for (int64_t n = 0; n < pass->valid; n++)
		loss.sum += out[n];
	if (l->net->dtype != PD_F32)
		pd_cpu_narrow(l->net->dtype, l->dst, out, (size_t)l->net->batch);
	if (pass->losses)
		pass->losses[l->loss] = loss;
	return 0;
}

/* The gradient of an input; sign: 1 of the first, -1 of the second. */
static void input_back(const struct pd_compiled_layer *l, int input, int64_t count, float factor)
{
#pragma omp parallel for schedule(static)
	for (int64_t at = 0; at < count; at += PIECE) {
		int64_t n = count - at < PIECE ? count - at : PIECE;
		float a[PIECE], b[PIECE], d[PIECE];

		differences(d, piece_of(l, 0, at, n, a), piece_of(l, 1, at, n, b), factor, n);
		if (l->net->dtype == PD_F32)
			memcpy((float *)l->diff_src[input] + at, d, sizeof(float) * (size_t)n);
		else
			pd_cpu_narrow(l->net->dtype, (uint16_t *)l->diff_src[input] + at, d,
				      (size_t)n);
	}
}

static int backward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	int64_t elements = pd_shape_elements(l->in_shape[0]), valid = pass->valid * elements;
	size_t each = pd_dtype_bytes(l->net->dtype);
	float scale = pass->scale ? (float)pass->scale->loss_scale : 1;
	float factor = (float)l->layer->weight * (2 * scale / (float)(l->net->minibatch * elements));

	for (int i = 0; i < l->layer->input_count; i++) {
		if (!l->diff_src[i])
			continue;
		input_back(l, i, valid, i == 0 ? factor : -factor);
		memset((char *)l->diff_src[i] + (size_t)valid * each, 0,
		       (size_t)(l->net->batch * elements - valid) * each);
	}
	return 0;
}

const struct pd_compiled_kind pd_cpu_mse = {
	.plain = true,
	.prepare = prepare,
	.forward = forward,
	.backward = backward,
};
