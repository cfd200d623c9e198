/* SPDX-License-Identifier: Apache-2.0 */
/* Elementwise loops over whole arenas: SGD and sums. */
#include "device/cpu/cpu.h"

#include <string.h>

PD_VECTOR static void plain(float *next, const float *weights, const float *gradients,
			    size_t count, float rate, float decay)
{
	for (size_t i = 0; i < count; i++)
		next[i] = weights[i] - rate * (gradients[i] + decay * weights[i]);
}

PD_VECTOR static void momentum(float *next, float *restrict velocity, const float *weights,
			       const float *restrict gradients, size_t count, float rate,
			       float keep, float decay)
{
	for (size_t i = 0; i < count; i++) {
		velocity[i] = keep * velocity[i] + (gradients[i] + decay * weights[i]);
		next[i] = weights[i] - rate * velocity[i];
	}
}

/* Elementwise: how the pieces fall to threads does not change a bit. */
#define PIECE 16384

static void step(const struct pd_update *u, size_t at, size_t floats)
{
	const float *weights = (const float *)u->weights + at;
	const float *gradients = (const float *)u->gradients + at;
	float *next = (float *)u->next + at;

	if (u->velocity)
		momentum(next, (float *)u->velocity + at, weights, gradients, floats, u->rate,
			 u->momentum, u->weight_decay);
	else
		plain(next, weights, gradients, floats, u->rate, u->weight_decay);
}

void pd_cpu_sgd(const struct pd_cpu_net *net, const struct pd_update *u, int from, int count)
{
	/* later layers lie before earlier ones; those without parameters are nowhere */
	size_t begin = net->step_offset[from + count - 1] / sizeof(float);
	size_t end = (net->step_offset[from] + net->step_bytes[from]) / sizeof(float);

#pragma omp parallel for schedule(static)
	for (size_t at = begin; at < end; at += PIECE)
		step(u, at, end - at < PIECE ? end - at : PIECE);
}

PD_VECTOR static void add(float *restrict dst, const float *restrict src, size_t count)
{
	for (size_t i = 0; i < count; i++)
		dst[i] += src[i];
}

static void sum_piece(float *dst, const float *const *src, int n, size_t at, size_t floats)
{
	float piece[2048];      /* apart, since dst may be any of the sources */

	if (n == 0)
		memset(piece, 0, floats * sizeof(float));
	else
		memcpy(piece, src[0] + at, floats * sizeof(float));
	for (int k = 1; k < n; k++)
		add(piece, src[k] + at, floats);
	memcpy(dst + at, piece, floats * sizeof(float));
}

void pd_cpu_sum(float *dst, const float *const *src, int n, size_t count)
{
#pragma omp parallel for schedule(static)
	for (size_t at = 0; at < count; at += 2048)
		sum_piece(dst, src, n, at, count - at < 2048 ? count - at : 2048);
}
