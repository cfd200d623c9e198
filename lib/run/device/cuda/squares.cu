/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums of squares are taken in double, in an order that depends on the count alone.  The number of
 * pieces is fixed; a block sums a piece, each thread at its stride, and then halves are added to
 * halves; then pieces are added in order.
 */
#include "run/device/cuda/host_device.cuh"

#include "run/device/cuda/block_sum.cuh"
#include "run/device/cuda/grid.cuh"
#include "run/device/cuda/kernels.h"

__global__ static void pieces(double *room, const float *g, size_t count)
{
	size_t begin = count * blockIdx.x / PD_KERNEL_PIECES;
	size_t end = count * (blockIdx.x + 1) / PD_KERNEL_PIECES;
	int t = threadIdx.x;
	double mine = 0;

	for (size_t i = begin + t; i < end; i += PD_THREADS)
		mine += (double)g[i] * (double)g[i];
	mine = pd_block_sum<PD_THREADS>(mine);
	if (t == 0)
		room[blockIdx.x] = mine;
}

__global__ static void total(double *sum_p, const double *room)
{
	double sum = 0;

	for (int i = 0; i < PD_KERNEL_PIECES; i++)
		sum += room[i];
	*sum_p = sum;
}

cudaError_t pd_kernel_squares(cudaStream_t stream, double *sum_p, double *room, const float *g,
			      size_t count)
{
	cudaError_t status;

	pieces<<<PD_KERNEL_PIECES, PD_THREADS, 0, stream>>>(room, g, count);
	status = cudaGetLastError();
	if (status != cudaSuccess)
		return status;
	total<<<1, 1, 0, stream>>>(sum_p, room);
	return cudaGetLastError();
}

__global__ static void fill(double *vector, double value, size_t count)
{
	PD_FOR_EACH(i, count)
		vector[i] = value;
}

cudaError_t pd_kernel_fill(cudaStream_t stream, double *vector, double value, size_t count)
{
	if (count > 0)
		fill<<<pd_grid_blocks(count), PD_THREADS, 0, stream>>>(vector, value, count);
	return cudaGetLastError();
}

__global__ static void unite(double *vector, const double *other, size_t count)
{
	PD_FOR_EACH(i, count)
		if (vector[i] == PD_ABSENT)
			vector[i] = other[i];
}

cudaError_t pd_kernel_unite(cudaStream_t stream, double *vector, const double *other,
			    size_t count)
{
	if (count > 0)
		unite<<<pd_grid_blocks(count), PD_THREADS, 0, stream>>>(vector, other, count);
	return cudaGetLastError();
}
