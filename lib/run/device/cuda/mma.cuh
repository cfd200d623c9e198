/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products on tensor cores: what the threads of a warp do together (PTX ISA, "Matrix Fragments for
 * mma.m16n8k16").  With g = lane / 4 and c = lane % 4 * 2 a thread has
 *
 *     of A, 16 x 16    rows g and g + 8 of columns c and c + 1; then of columns c + 8 and c + 9
 *     of B, 16 x 8     rows c and c + 1 of column g; then rows c + 8 and c + 9
 *     of D, 16 x 8     columns c and c + 1 of row g; then of row g + 8
 *
 * two numbers of 16 bits in a register, the one that comes first in its lower half.  GPUs before
 * compute capability 8.0 lack these: nothing may call them there.
 */
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#define PD_MMA(...) __trap()
#else
#define PD_MMA(...) asm volatile(__VA_ARGS__)
#endif

#define PD_MMA_OF(type) \
	PD_MMA("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 " \
	       "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
	       : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) \
	       : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

/* D += A B, of numbers of type T. */
template <typename T>
__device__ static void pd_mma(float *d, const uint32_t *a, const uint32_t *b);

template <>
__device__ inline void pd_mma<__half>(float *d, const uint32_t *a, const uint32_t *b)
{
	PD_MMA_OF("f16");
}

template <>
__device__ inline void pd_mma<__nv_bfloat16>(float *d, const uint32_t *a, const uint32_t *b)
{
	PD_MMA_OF("bf16");
}

/*
 * Loads four matrices of 8 x 8 numbers of 16 bits from shared memory.  Lane i says where row i % 8 of
 * matrix i / 8 lies, at a multiple of 16 bytes, and receives of each the numbers of row lane / 4 in
 * columns lane % 4 * 2 and the next.
 */
__device__ static inline void pd_load_matrices(uint32_t *to, const void *row)
{
	PD_MMA("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
	       : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
	       : "r"((uint32_t)__cvta_generic_to_shared(row)) : "memory");
}

/* Loads them transposed: a lane receives those of column lane / 4, in two rows. */
__device__ static inline void pd_load_turned(uint32_t *to, const void *row)
{
	PD_MMA("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
	       : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
	       : "r"((uint32_t)__cvta_generic_to_shared(row)) : "memory");
}

/* Returns the greatest number, or the sum, of the four lanes that share lane / 4, in each of them. */
__device__ static inline float pd_quad_most(float mine)
{
	mine = fmaxf(mine, __shfl_xor_sync(0xffffffff, mine, 1));
	return fmaxf(mine, __shfl_xor_sync(0xffffffff, mine, 2));
}

__device__ static inline float pd_quad_sum(float mine)
{
	mine += __shfl_xor_sync(0xffffffff, mine, 1);
	return mine + __shfl_xor_sync(0xffffffff, mine, 2);
}
