/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stands for lib/run/device/cuda/mma.cuh: the threads of a warp put what they have where all see it, meet,
 * and each computes its part, as PTX says who has what.
 */
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>
#include <string.h>

#define EMULATED_THREADS 1024

/* Number `half` of the two in a register. */
template <typename T>
static float emulated_number(uint32_t two, int half)
{
	uint16_t bits = (uint16_t)(two >> 16 * half);
	T number;

	memcpy(&number, &bits, sizeof(number));
	return (float)number;
}

template <typename T>
static void pd_mma(float *d, const uint32_t *a, const uint32_t *b)
{
	static thread_local uint32_t left[EMULATED_THREADS][4], right[EMULATED_THREADS][2];
	int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x - lane;

	memcpy(left[threadIdx.x], a, sizeof(left[0]));
	memcpy(right[threadIdx.x], b, sizeof(right[0]));
	__syncwarp();
	for (int i = 0; i < 4; i++) {
		int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;

		for (int k = 0; k < 16; k++)
			d[i] += emulated_number<T>(left[warp + row % 8 * 4 + k % 8 / 2]
						       [row / 8 + k / 8 * 2], k % 2) *
				emulated_number<T>(right[warp + column * 4 + k % 8 / 2][k / 8],
						   k % 2);
	}
	__syncwarp();
}

static inline void emulated_matrices(uint32_t *to, const void *row, bool turned)
{
	static thread_local const uint16_t *rows[EMULATED_THREADS];
	int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x - lane;

	rows[threadIdx.x] = (const uint16_t *)row;
	__syncwarp();
	for (int i = 0; i < 4; i++) {
		const uint16_t *const *matrix = &rows[warp + 8 * i];
		int one = lane / 4, two = lane % 4 * 2;

		to[i] = turned ? matrix[two][one] | (uint32_t)matrix[two + 1][one] << 16
			       : matrix[one][two] | (uint32_t)matrix[one][two + 1] << 16;
	}
	__syncwarp();
}

static inline void pd_load_matrices(uint32_t *to, const void *row)
{
	emulated_matrices(to, row, false);
}

static inline void pd_load_turned(uint32_t *to, const void *row)
{
	emulated_matrices(to, row, true);
}

/* Gives each of the four lanes what all of them have. */
static inline void emulated_quad(float *all, float mine)
{
	static thread_local float numbers[EMULATED_THREADS];

	numbers[threadIdx.x] = mine;
	__syncwarp();
	memcpy(all, &numbers[threadIdx.x / 4 * 4], 4 * sizeof(*all));
	__syncwarp();
}

static inline float pd_quad_most(float mine)
{
	float all[4];

	emulated_quad(all, mine);
	return fmaxf(fmaxf(all[0], all[1]), fmaxf(all[2], all[3]));
}

static inline float pd_quad_sum(float mine)
{
	float all[4];

	emulated_quad(all, mine);
	return all[0] + all[1] + (all[2] + all[3]);
}
