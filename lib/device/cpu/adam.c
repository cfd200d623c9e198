/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adam (Kingma and Ba, ICLR 2015, algorithm 1) and AdamW (Loshchilov and Hutter, ICLR 2019,
 * algorithm 2) in PyTorch's form: epsilon is added after the second moment's bias correction.
 * Factors that are the same for all elements are computed once, in double.
 */
#include "device/adam.h"
#include "device/cpu/cpu.h"

/* `next` may be `weights`, since elements do not depend on each other. */
PD_VECTOR static void adam(float *next, float *restrict first, float *restrict second,
			   const float *weights, const float *restrict gradients, size_t count,
			   struct pd_adam_factors f)
{
#pragma omp simd
	for (size_t i = 0; i < count; i++) {
		float w = weights[i], g = gradients[i] + f.decay * w;

		first[i] = f.beta1 * first[i] + f.rest1 * g;
		second[i] = f.beta2 * second[i] + f.rest2 * (g * g);
		next[i] = f.keep * w - f.step * (first[i] / (sqrtf(second[i]) / f.root + f.eps));
	}
}

void pd_cpu_adam(const struct pd_update *u, const float *gradients, size_t at, size_t floats)
{
	const struct pd_adam a = {
		.decoupled = u->kind == PD_ADAMW, .rate = u->rate,
		.weight_decay = u->weight_decay, .beta1 = u->beta1, .beta2 = u->beta2,
		.eps = u->eps, .count = u->count,
	};

	adam((float *)u->next + at, (float *)u->velocity + at, (float *)u->second + at,
	     (const float *)u->weights + at, gradients, floats, pd_adam_factors(&a));
}
