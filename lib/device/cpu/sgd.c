/* SPDX-License-Identifier: Apache-2.0 */
#include "device/cpu/cpu.h"

/* `next` may be `weights`, since elements do not depend on each other. */
PD_VECTOR static void plain(float *next, const float *weights, const float *gradients,
			    size_t count, float rate, float decay)
{
#pragma omp simd
	for (size_t i = 0; i < count; i++)
		next[i] = weights[i] - rate * (gradients[i] + decay * weights[i]);
}

PD_VECTOR static void momentum(float *next, float *restrict velocity, const float *weights,
			       const float *restrict gradients, size_t count, float rate,
			       float keep, float decay)
{
#pragma omp simd
	for (size_t i = 0; i < count; i++) {
		velocity[i] = keep * velocity[i] + (gradients[i] + decay * weights[i]);
		next[i] = weights[i] - rate * velocity[i];
	}
}

PD_VECTOR static void momentum_of_moves(float *next, float *restrict velocity, const float *weights,
					const float *restrict gradients, size_t count, float rate,
					float keep, float decay)
{
#pragma omp simd
	for (size_t i = 0; i < count; i++) {
		velocity[i] = keep * velocity[i] + rate * (gradients[i] + decay * weights[i]);
		next[i] = weights[i] - velocity[i];
	}
}

void pd_cpu_sgd(const struct pd_update *u, const float *gradients, size_t at, size_t floats)
{
	const float *weights = (const float *)u->weights + at;
	float *next = (float *)u->next + at;

	if (u->velocity && u->kind == PD_LARS)
		momentum_of_moves(next, (float *)u->velocity + at, weights, gradients, floats,
				  (float)u->rate, (float)u->momentum, (float)u->weight_decay);
	else if (u->velocity)
		momentum(next, (float *)u->velocity + at, weights, gradients, floats,
			 (float)u->rate, (float)u->momentum, (float)u->weight_decay);
	else
		plain(next, weights, gradients, floats, (float)u->rate, (float)u->weight_decay);
}
