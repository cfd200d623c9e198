/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks are enough to fill any GPU; each thread then takes elements at that stride. */
#pragma once

#define PD_THREADS 256
#define PD_BLOCKS_MOST 16384

static inline unsigned pd_grid_blocks(size_t count)
{
	size_t blocks = (count + PD_THREADS - 1) / PD_THREADS;

	return blocks > PD_BLOCKS_MOST ? PD_BLOCKS_MOST : (unsigned)blocks;
}

/*
 * These compute n % d and n / d for d of 32 bits, since 64-bit divisions take many times as long.
 */
__device__ static inline size_t pd_rest(size_t n, size_t d)
{
	return n >> 32 ? n % d : (unsigned)n % (unsigned)d;
}

__device__ static inline size_t pd_quotient(size_t n, size_t d)
{
	return n >> 32 ? n / d : (unsigned)n / (unsigned)d;
}

#define PD_FOR_EACH(i, count) \
	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < (count); \
	     i += (size_t)gridDim.x * blockDim.x)
