/* SPDX-License-Identifier: Apache-2.0 */
/* A vectorised loop for each row of engine/device/optimizer.def. */
#include "run/device/cpu/cpu.h"

/* `next` may be `weights`, since elements do not depend on each other. */
#define LOOP(name, ...) \
PD_VECTOR static void name(float *next, float *restrict velocity, float *restrict second, const float *weights, \
			   const float *restrict gradients, size_t count, const struct pd_factors f) \
{ \
	_Pragma("omp simd") \
	for (size_t i = 0; i < count; i++) \
		next[i] = pd_move_##name(weights[i], gradients[i], __VA_ARGS__); \
}
#define LOOP_0(name) LOOP(name, &f)
#define LOOP_1(name) LOOP(name, &velocity[i], &f)
#define LOOP_2(name) LOOP(name, &velocity[i], &second[i], &f)

LOOP_0(plain)
#define OPTIMIZER(symbol, name, moments, ...) LOOP_##moments(name)
#include "engine/device/optimizer.def"
#undef OPTIMIZER

void pd_cpu_move(const struct pd_update *u, const struct pd_factors *factors, const float *gradients, size_t at,
		 size_t count)
{
	static void (*const table[])(float *, float *restrict, float *restrict, const float *,
				     const float *restrict, size_t, struct pd_factors) = {
#define OPTIMIZER(symbol, name, ...) name,
#include "engine/device/optimizer.def"
#undef OPTIMIZER
	};

	(u->velocity ? table[u->kind] : plain)((float *)u->next + at, u->velocity ? (float *)u->velocity + at : NULL,
					       u->second ? (float *)u->second + at : NULL,
					       (const float *)u->weights + at, gradients, count, *factors);
}
