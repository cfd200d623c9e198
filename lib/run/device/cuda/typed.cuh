/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels over elements of several types read and compute in f32, and round once. */
#pragma once

#include "model/dtype.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

/* Runs the statement with T as the type that dtype names. */
#define PD_BY_TYPE(dtype, T, ...) do { \
		if ((dtype) == PD_BF16) { \
			typedef __nv_bfloat16 T; \
			__VA_ARGS__; \
		} else if ((dtype) == PD_F16) { \
			typedef __half T; \
			__VA_ARGS__; \
		} else { \
			typedef float T; \
			__VA_ARGS__; \
		} \
	} while (0)

/*
 * Runs the statement with N as the elements taken at a time: 16 bytes of T where the condition
 * `can` holds (it may use N), else one.
 */
#define PD_BY_PACK(T, can, N, ...) do { \
		constexpr int pd_most = 16 / (int)sizeof(T); \
		bool pd_can; \
		{ \
			constexpr int N = pd_most; \
			(void)N; \
			pd_can = (can); \
		} \
		if (pd_can) { \
			constexpr int N = pd_most; \
			__VA_ARGS__; \
		} else { \
			constexpr int N = 1; \
			__VA_ARGS__; \
		} \
	} while (0)

/* Returns whether 16 bytes can be read at once where the array begins. */
static inline bool pd_packs(const void *array)
{
	return ((uintptr_t)array & 15) == 0;
}

/* Says how many of n adjacent floats are read at once. */
#define PD_FLOATS(n) ((n) % 4 == 0 ? 4 : 1)
