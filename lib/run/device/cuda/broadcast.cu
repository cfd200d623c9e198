/* SPDX-License-Identifier: Apache-2.0 */
#include "run/device/cuda/host_device.cuh"

#include "run/device/cuda/block_sum.cuh"
#include "run/device/cuda/grid.cuh"
#include "run/device/cuda/kernels.h"
#include "run/device/cuda/typed.cuh"

/* Returns what an input is at element i of the output. */
template <typename T>
__device__ static float spread(const struct pd_kernel_repeated &r, size_t i)
{
	size_t inner = (size_t)r.inner;
	size_t from = r.extent == 1 ? i
		: pd_quotient(pd_quotient(i, inner), (size_t)r.extent) * inner + pd_rest(i, inner);

	return (float)((const T *)r.values)[from];
}

template <typename T>
__global__ static void broadcast(bool product, T *dst, struct pd_kernel_repeated a,
				 struct pd_kernel_repeated b, size_t count)
{
	PD_FOR_EACH(i, count) {
		float one = spread<T>(a, i), other = spread<T>(b, i);

		dst[i] = (T)(product ? one * other : one + other);
	}
}

cudaError_t pd_kernel_broadcast(cudaStream_t stream, enum pd_dtype dtype, bool product, void *dst,
				struct pd_kernel_repeated a, struct pd_kernel_repeated b, size_t count)
{
	PD_BY_TYPE(dtype, T, (broadcast<T><<<pd_grid_blocks(count), PD_THREADS, 0, stream>>>(
		product, (T *)dst, a, b, count)));
	return cudaGetLastError();
}

template <typename T>
__device__ static float term(const T *dy, const struct pd_kernel_repeated &other, size_t i)
{
	return (float)dy[i] * (other.values ? spread<T>(other, i) : 1);
}

/* A thread sums a place; neighbours read adjacent memory. */
template <typename T>
__global__ static void places_back(T *dx, const T *__restrict__ dy, struct pd_kernel_repeated other,
				   size_t count, size_t extent, size_t inner)
{
	PD_FOR_EACH(i, count) {
		size_t from = pd_quotient(i, inner) * extent * inner + pd_rest(i, inner);
		float sum = 0;

		for (size_t k = 0; k < extent; k++)
			sum += term(dy, other, from + k * inner);
		dx[i] = (T)sum;
	}
}

/* A block sums a row. */
template <typename T>
__global__ static void rows_back(T *dx, const T *__restrict__ dy, struct pd_kernel_repeated other,
				 int64_t rows, int64_t extent)
{
	for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
		float mine = 0;

		for (int64_t i = threadIdx.x; i < extent; i += PD_THREADS)
			mine += term(dy, other, (size_t)(r * extent + i));
		mine = pd_block_sum<PD_THREADS>(mine);
		if (threadIdx.x == 0)
			dx[r] = (T)mine;
	}
}

cudaError_t pd_kernel_broadcast_back(cudaStream_t stream, enum pd_dtype dtype, void *dx,
				     const void *dy, struct pd_kernel_repeated other, int64_t outer,
				     int64_t extent, int64_t inner)
{
	size_t count = (size_t)(outer * inner);
	unsigned blocks = (unsigned)(outer < PD_BLOCKS_MOST ? outer : PD_BLOCKS_MOST);

	if (inner == 1 && extent > 1)
		PD_BY_TYPE(dtype, T, (rows_back<T><<<blocks, PD_THREADS, 0, stream>>>(
			(T *)dx, (const T *)dy, other, outer, extent)));
	else
		PD_BY_TYPE(dtype, T, (places_back<T><<<pd_grid_blocks(count), PD_THREADS, 0, stream>>>(
			(T *)dx, (const T *)dy, other, count, (size_t)extent, (size_t)inner)));
	return cudaGetLastError();
}
