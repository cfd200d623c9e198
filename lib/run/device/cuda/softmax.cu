/* SPDX-License-Identifier: Apache-2.0 */
#include "run/device/cuda/host_device.cuh"

#include "run/device/cuda/block_sum.cuh"
#include "run/device/cuda/grid.cuh"
#include "run/device/cuda/kernels.h"
#include "run/device/cuda/typed.cuh"

/* Returns the largest number of the block's threads, in each of them. */
__device__ static float block_largest(float mine)
{
	__shared__ float most[PD_THREADS];
	int t = threadIdx.x;
	float all;

	most[t] = mine;
	for (int half = PD_THREADS / 2; half > 0; half /= 2) {
		__syncthreads();
		if (t < half && most[t + half] > most[t])
			most[t] = most[t + half];
	}
	__syncthreads();
	all = most[0];
	__syncthreads();        /* only now may the next begin */
	return all;
}

/* A block takes a row of the last axis. */
template <typename T>
__global__ static void softmax_rows(T *y, const T *__restrict__ x, int64_t rows, int64_t extent)
{
	for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
		const T *from = x + r * extent;
		float most = -INFINITY, sum = 0;

		for (int64_t i = threadIdx.x; i < extent; i += PD_THREADS)
			most = (float)from[i] > most ? (float)from[i] : most;
		most = block_largest(most);
		for (int64_t i = threadIdx.x; i < extent; i += PD_THREADS)
			sum += expf((float)from[i] - most);
		sum = pd_block_sum<PD_THREADS>(sum);
		for (int64_t i = threadIdx.x; i < extent; i += PD_THREADS)
			y[r * extent + i] = (T)(expf((float)from[i] - most) / sum);
	}
}

/* A thread takes a place; neighbours read adjacent memory. */
template <typename T>
__global__ static void softmax_places(T *y, const T *__restrict__ x, size_t count, size_t extent,
				      size_t inner)
{
	PD_FOR_EACH(i, count) {
		size_t begin = pd_quotient(i, inner) * extent * inner + pd_rest(i, inner);
		float most = -INFINITY, sum = 0;

		for (size_t k = 0; k < extent; k++)
			most = (float)x[begin + k * inner] > most ? (float)x[begin + k * inner] : most;
		for (size_t k = 0; k < extent; k++)
			sum += expf((float)x[begin + k * inner] - most);
		for (size_t k = 0; k < extent; k++)
			y[begin + k * inner] = (T)(expf((float)x[begin + k * inner] - most) / sum);
	}
}

cudaError_t pd_kernel_softmax(cudaStream_t stream, enum pd_dtype dtype, void *y, const void *x,
			      int64_t outer, int64_t extent, int64_t inner)
{
	size_t count = (size_t)(outer * inner);
	unsigned blocks = (unsigned)(outer < PD_BLOCKS_MOST ? outer : PD_BLOCKS_MOST);

	if (inner == 1)
		PD_BY_TYPE(dtype, T, (softmax_rows<T><<<blocks, PD_THREADS, 0, stream>>>(
			(T *)y, (const T *)x, outer, extent)));
	else
		PD_BY_TYPE(dtype, T, (softmax_places<T><<<pd_grid_blocks(count), PD_THREADS, 0, stream>>>(
			(T *)y, (const T *)x, count, (size_t)extent, (size_t)inner)));
	return cudaGetLastError();
}

template <typename T>
__global__ static void rows_back(T *dx, const T *__restrict__ y, const T *__restrict__ dy, int64_t rows,
				 int64_t extent)
{
	for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
		float sum = 0;

		for (int64_t i = threadIdx.x; i < extent; i += PD_THREADS)
			sum += (float)y[r * extent + i] * (float)dy[r * extent + i];
		sum = pd_block_sum<PD_THREADS>(sum);
		for (int64_t i = threadIdx.x; i < extent; i += PD_THREADS)
			dx[r * extent + i] = (T)((float)y[r * extent + i] *
						 ((float)dy[r * extent + i] - sum));
	}
}

template <typename T>
__global__ static void places_back(T *dx, const T *__restrict__ y, const T *__restrict__ dy, size_t count,
				   size_t extent, size_t inner)
{
	PD_FOR_EACH(i, count) {
		size_t begin = pd_quotient(i, inner) * extent * inner + pd_rest(i, inner);
		float sum = 0;

		for (size_t k = 0; k < extent; k++)
			sum += (float)y[begin + k * inner] * (float)dy[begin + k * inner];
		for (size_t k = 0; k < extent; k++)
			dx[begin + k * inner] = (T)((float)y[begin + k * inner] *
						    ((float)dy[begin + k * inner] - sum));
	}
}

cudaError_t pd_kernel_softmax_back(cudaStream_t stream, enum pd_dtype dtype, void *dx, const void *y,
				   const void *dy, int64_t outer, int64_t extent, int64_t inner)
{
	size_t count = (size_t)(outer * inner);
	unsigned blocks = (unsigned)(outer < PD_BLOCKS_MOST ? outer : PD_BLOCKS_MOST);

	if (inner == 1)
		PD_BY_TYPE(dtype, T, (rows_back<T><<<blocks, PD_THREADS, 0, stream>>>(
			(T *)dx, (const T *)y, (const T *)dy, outer, extent)));
	else
		PD_BY_TYPE(dtype, T, (places_back<T><<<pd_grid_blocks(count), PD_THREADS, 0, stream>>>(
			(T *)dx, (const T *)y, (const T *)dy, count, (size_t)extent, (size_t)inner)));
	return cudaGetLastError();
}
