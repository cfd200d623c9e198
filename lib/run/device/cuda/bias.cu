/* SPDX-License-Identifier: Apache-2.0 */
#include "run/device/cuda/host_device.cuh"

#include "run/device/cuda/block_sum.cuh"
#include "run/device/cuda/grid.cuh"
#include "run/device/cuda/kernels.h"
#include "run/device/cuda/typed.cuh"

#define PARTS_MOST 32           /* the most parts of a batch; a block sums each */

/* Threads go over all elements where a channel has one; else a block takes a plane at a time. */
template <typename T>
__global__ static void bias_flat(T *y, const T *bias, bool relu, size_t count, int64_t channels)
{
	PD_FOR_EACH(i, count) {
		float v = (float)y[i] + (bias ? (float)bias[pd_rest(i, (size_t)channels)] : 0);

		y[i] = (T)(relu && v < 0 ? 0 : v);
	}
}

template <typename T>
__global__ static void bias_planes(T *y, const T *bias, bool relu, int64_t planes,
				   int64_t channels, int64_t area)
{
	for (int64_t plane = blockIdx.x; plane < planes; plane += gridDim.x) {
		float b = bias ? (float)bias[plane % channels] : 0;

		for (int64_t i = threadIdx.x; i < area; i += blockDim.x) {
			float v = (float)y[plane * area + i] + b;

			y[plane * area + i] = (T)(relu && v < 0 ? 0 : v);
		}
	}
}

cudaError_t pd_kernel_bias(cudaStream_t stream, enum pd_dtype dtype, void *y, const void *bias,
			   bool relu, int64_t batch, int64_t channels, int64_t area)
{
	int64_t planes = batch * channels;
	unsigned blocks = (unsigned)(planes < PD_BLOCKS_MOST ? planes : PD_BLOCKS_MOST);

	if (area == 1)
		PD_BY_TYPE(dtype, T, (
			bias_flat<T><<<pd_grid_blocks((size_t)planes), PD_THREADS, 0, stream>>>(
				(T *)y, (const T *)bias, relu, (size_t)planes, channels)));
	else
		PD_BY_TYPE(dtype, T, (bias_planes<T><<<blocks, PD_THREADS, 0, stream>>>(
			(T *)y, (const T *)bias, relu, planes, channels, area)));
	return cudaGetLastError();
}

static int parts_of(int64_t batch)
{
	return batch < PARTS_MOST ? (int)batch : PARTS_MOST;
}

size_t pd_kernel_bias_scratch(int64_t batch, int64_t channels)
{
	return (size_t)channels * (size_t)parts_of(batch);
}

/*
 * Block (c, p) sums channel c over the samples of part p: each thread at its stride, then halves
 * are added to halves.
 */
template <typename T>
__global__ static void bias_parts(float *room, const T *dy, int64_t batch, int64_t channels,
				  int64_t area)
{
	int64_t c = blockIdx.x, part = blockIdx.y, parts = gridDim.y;
	int64_t begin = batch * part / parts, end = batch * (part + 1) / parts;
	int t = threadIdx.x;
	float mine = 0;

	for (int64_t n = begin; n < end; n++) {
		const T *plane = dy + (n * channels + c) * area;

		for (int64_t i = t; i < area; i += PD_THREADS)
			mine += (float)plane[i];
	}
	mine = pd_block_sum<PD_THREADS>(mine);
	if (t == 0)
		room[c * parts + part] = mine;
}

__global__ static void bias_total(float *db, const float *room, int64_t channels, int parts)
{
	PD_FOR_EACH(c, (size_t)channels) {
		float sum = room[c * parts];

		for (int p = 1; p < parts; p++)
			sum += room[c * parts + p];
		db[c] = sum;
	}
}

/* A thread sums one channel; neighbours read adjacent memory. */
template <typename T>
__global__ static void bias_columns(float *db, const T *dy, int64_t batch, int64_t channels)
{
	PD_FOR_EACH(c, (size_t)channels) {
		float sum = 0;

		for (int64_t n = 0; n < batch; n++)
			sum += (float)dy[(size_t)n * channels + c];
		db[c] = sum;
	}
}

cudaError_t pd_kernel_bias_back(cudaStream_t stream, enum pd_dtype dtype, float *db, float *room,
				const void *dy, int64_t batch, int64_t channels, int64_t area)
{
	dim3 grid((unsigned)channels, (unsigned)parts_of(batch));
	cudaError_t status;

	if (area == 1) {
		PD_BY_TYPE(dtype, T, (
			bias_columns<T><<<pd_grid_blocks((size_t)channels), PD_THREADS, 0, stream>>>(
				db, (const T *)dy, batch, channels)));
		return cudaGetLastError();
	}
	PD_BY_TYPE(dtype, T, (bias_parts<T><<<grid, PD_THREADS, 0, stream>>>(
		room, (const T *)dy, batch, channels, area)));
	status = cudaGetLastError();
	if (status != cudaSuccess)
		return status;
	bias_total<<<pd_grid_blocks((size_t)channels), PD_THREADS, 0, stream>>>(db, room, channels,
										parts_of(batch));
	return cudaGetLastError();
}
