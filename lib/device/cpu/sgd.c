/* SPDX-License-Identifier: Apache-2.0 */
/* Elementwise loops over whole arenas: SGD and sums. */
#include "base/mem.h"
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

void pd_cpu_sgd(const struct pd_cpu_net *net, const struct pd_update *u, int from, int count)
{
	for (int l = from; l < from + count; l++) {
		size_t at = net->step_offset[l] / sizeof(float);
		size_t floats = net->step_bytes[l] / sizeof(float);

		if (u->velocity)
			momentum((float *)u->next + at, (float *)u->velocity + at,
				 (const float *)u->weights + at, (const float *)u->gradients + at,
				 floats, u->rate, u->momentum, u->weight_decay);
		else
			plain((float *)u->next + at, (const float *)u->weights + at,
			      (const float *)u->gradients + at, floats, u->rate, u->weight_decay);
	}
}

PD_VECTOR static void add(float *restrict dst, const float *restrict src, size_t count)
{
	for (size_t i = 0; i < count; i++)
		dst[i] += src[i];
}

void pd_cpu_sum(float *dst, const float *const *src, int n, size_t count)
{
	float piece[2048];      /* apart, since dst may be any of the sources */

	for (size_t i = 0; i < count; i += PD_COUNT(piece)) {
		size_t floats = count - i < PD_COUNT(piece) ? count - i : PD_COUNT(piece);

		if (n == 0)
			memset(piece, 0, floats * sizeof(float));
		else
			memcpy(piece, src[0] + i, floats * sizeof(float));
		for (int k = 1; k < n; k++)
			add(piece, src[k] + i, floats);
		memcpy(dst + i, piece, floats * sizeof(float));
	}
}
