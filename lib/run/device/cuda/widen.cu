/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One kernel converts many arrays of 16 bits to f32.  Each array has as many blocks as it needs,
 * side by side, so that all threads of a block find their array in the same few steps.
 */
#include "run/device/cuda/host_device.cuh"

#include "run/device/cuda/grid.cuh"
#include "run/device/cuda/kernels.h"
#include "run/device/cuda/typed.cuh"

#define PACKS 4                         /* a thread reads so many, and then writes them */

struct segments {
	int n;
	unsigned end[PD_KERNEL_WIDENED];        /* the block behind an array's last */
	struct pd_kernel_widened arrays[PD_KERNEL_WIDENED];
};

/* Returns the array that this block works on. */
__device__ static int find(const struct segments &s, unsigned block)
{
	int low = 0, high = s.n - 1;

	while (low < high) {
		int middle = (low + high) / 2;

		if (block < s.end[middle])
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

template <typename T, int N>
__device__ static void put(float *dst, const struct pd_pack<T, N> &from)
{
#pragma unroll
	for (int at = 0; at < N; at += PD_FLOATS(N)) {
		struct pd_pack<float, PD_FLOATS(N)> to;

#pragma unroll
		for (int i = 0; i < PD_FLOATS(N); i++)
			to.v[i] = (float)from.v[at + i];
		*(struct pd_pack<float, PD_FLOATS(N)> *)&dst[at] = to;
	}
}

/* Takes N elements at a time; one thread takes the last few, less than N. */
template <typename T, int N>
__global__ static void widen(struct segments s)
{
	int k = find(s, blockIdx.x);
	unsigned before = k > 0 ? s.end[k - 1] : 0;
	size_t count = s.arrays[k].count, packs = count / N;
	size_t first = (blockIdx.x - before) * (size_t)(PACKS * PD_THREADS) + threadIdx.x;
	const T *src = (const T *)s.arrays[k].src;
	float *dst = s.arrays[k].dst;
	struct pd_pack<T, N> from[PACKS];

#pragma unroll
	for (int i = 0; i < PACKS; i++)
		if (first + i * PD_THREADS < packs)
			from[i] = *(const struct pd_pack<T, N> *)
				&src[(first + i * PD_THREADS) * N];
#pragma unroll
	for (int i = 0; i < PACKS; i++)
		if (first + i * PD_THREADS < packs)
			put<T, N>(&dst[(first + i * PD_THREADS) * N], from[i]);
	if (first == 0)
		for (size_t i = packs * N; i < count; i++)
			dst[i] = (float)src[i];
}

cudaError_t pd_kernel_widen(cudaStream_t stream, enum pd_dtype dtype,
			    const struct pd_kernel_widen *w)
{
	struct segments s = { 0 };
	bool packed = true;

	if (w->n < 1 || w->n > PD_KERNEL_WIDENED)
		return cudaErrorInvalidValue;
	s.n = w->n;
	for (int k = 0; k < w->n; k++) {
		s.arrays[k] = w->arrays[k];
		packed = packed && pd_packs(w->arrays[k].dst) && pd_packs(w->arrays[k].src);
	}
	PD_BY_TYPE(dtype, T, PD_BY_PACK(T, packed, N, {
		unsigned blocks = 0;

		for (int k = 0; k < s.n; k++) {
			size_t packs = (s.arrays[k].count + N - 1) / N, each = PACKS * PD_THREADS;

			blocks += (unsigned)((packs + each - 1) / each);
			s.end[k] = blocks;
		}
		if (blocks > 0)
			widen<T, N><<<blocks, PD_THREADS, 0, stream>>>(s);
	}));
	return cudaGetLastError();
}
