/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adam (Kingma and Ba, ICLR 2015, algorithm 1) and AdamW (Loshchilov and Hutter, ICLR 2019,
 * algorithm 2), in the form that PyTorch gives them: epsilon is added after the second
 * moment's bias correction.  What is the same for all elements is worked out once, in double.
 */
#include "device/cpu/cpu.h"

#include <math.h>

struct factors {
	float keep;                     /* of the weight itself: AdamW's decay */
	float decay;                    /* added to the gradient: Adam's */
	float beta1, rest1, beta2, rest2;       /* rest: 1 - beta */
	float root;                     /* sqrt(1 - beta2^t) */
	float eps, step;                /* step: rate / (1 - beta1^t) */
};

/* next may be weights: nothing is carried from one element to another. */
PD_VECTOR static void adam(float *next, float *restrict first, float *restrict second,
			   const float *weights, const float *restrict gradients, size_t count,
			   struct factors f)
{
#pragma omp simd
	for (size_t i = 0; i < count; i++) {
		float w = weights[i], g = gradients[i] + f.decay * w;

		first[i] = f.beta1 * first[i] + f.rest1 * g;
		second[i] = f.beta2 * second[i] + f.rest2 * (g * g);
		next[i] = f.keep * w - f.step * (first[i] / (sqrtf(second[i]) / f.root + f.eps));
	}
}

void pd_cpu_adam(const struct pd_update *u, size_t at, size_t floats)
{
	bool decoupled = u->kind == PD_ADAMW;
	struct factors f = {
		.keep = decoupled ? (float)(1 - u->rate * u->weight_decay) : 1,
		.decay = decoupled ? 0 : (float)u->weight_decay,
		.beta1 = (float)u->beta1, .rest1 = (float)(1 - u->beta1),
		.beta2 = (float)u->beta2, .rest2 = (float)(1 - u->beta2),
		.root = (float)sqrt(1 - pow(u->beta2, (double)u->count)),
		.eps = (float)u->eps,
		.step = (float)(u->rate / (1 - pow(u->beta1, (double)u->count))),
	};

	adam((float *)u->next + at, (float *)u->velocity + at, (float *)u->second + at,
	     (const float *)u->weights + at, (const float *)u->gradients + at, floats, f);
}
