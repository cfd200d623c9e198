/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums of squares are taken in double, in an order that depends on the count alone.  An array is cut into
 * pieces, as many as its count asks for.  A block sums a piece: a thread takes four floats at its stride, each
 * into a sum of its own, and then halves are added to halves.  One block adds up the pieces of an array, alike.
 * Many arrays share a launch, side by side as in widen.cu.
 */
#include "run/device/cuda/host_device.cuh"

#include "run/device/cuda/block_sum.cuh"
#include "run/device/cuda/grid.cuh"
#include "run/device/cuda/kernels.h"
#include "run/device/cuda/typed.cuh"

#define PIECE ((size_t)16 << 10)        /* floats of a piece, or more where there are too many pieces */
#define PIECES_MOST 1024                /* of an array */
#define LANES 4

struct segments {
	int n;
	unsigned end[PD_KERNEL_SQUARED];        /* the piece behind an array's last */
	struct pd_kernel_squared arrays[PD_KERNEL_SQUARED];
};

static unsigned pieces_of(size_t count)
{
	size_t n = (count + PIECE - 1) / PIECE;

	return n < 1 ? 1 : n > PIECES_MOST ? PIECES_MOST : (unsigned)n;
}

/* Returns the first pack of a piece of an array that is cut into n. */
__device__ static size_t pack_of(size_t count, unsigned piece, unsigned n)
{
	return (count + LANES - 1) / LANES * piece / n;
}

__device__ static struct pd_pack<float, LANES> pack_at(const float *g, size_t count, size_t pack, bool packed)
{
	struct pd_pack<float, LANES> x;

	if (packed && (pack + 1) * LANES <= count)
		return *(const struct pd_pack<float, LANES> *)&g[pack * LANES];
#pragma unroll
	for (int i = 0; i < LANES; i++)
		x.v[i] = pack * LANES + i < count ? g[pack * LANES + i] : 0;
	return x;
}

__global__ static void pieces(double *room, struct segments s)
{
	int k = 0;

	while (blockIdx.x >= s.end[k])
		k++;
	const float *g = s.arrays[k].from;
	size_t count = s.arrays[k].count;
	unsigned first = k > 0 ? s.end[k - 1] : 0, n = s.end[k] - first, piece = blockIdx.x - first;
	size_t end = pack_of(count, piece + 1, n);
	bool packed = ((size_t)g & 15) == 0;
	double mine[LANES] = { 0 }, sum;

	for (size_t i = pack_of(count, piece, n) + threadIdx.x; i < end; i += PD_THREADS) {
		struct pd_pack<float, LANES> x = pack_at(g, count, i, packed);

#pragma unroll
		for (int j = 0; j < LANES; j++)
			mine[j] += (double)x.v[j] * (double)x.v[j];
	}
	sum = pd_block_sum<PD_THREADS>((mine[0] + mine[1]) + (mine[2] + mine[3]));
	if (threadIdx.x == 0)
		room[blockIdx.x] = sum;
}

__global__ static void totals(const double *room, struct segments s)
{
	int k = blockIdx.x;
	double mine = 0;

	for (unsigned i = (k > 0 ? s.end[k - 1] : 0) + threadIdx.x; i < s.end[k]; i += PD_THREADS)
		mine += room[i];
	mine = pd_block_sum<PD_THREADS>(mine);
	if (threadIdx.x == 0)
		*s.arrays[k].sum_p = mine;
}

cudaError_t pd_kernel_squares(cudaStream_t stream, double *room, const struct pd_kernel_squared *arrays, int n)
{
	struct segments s = { 0 };
	unsigned blocks = 0;
	cudaError_t status;

	if (n < 1 || n > PD_KERNEL_SQUARED)
		return cudaErrorInvalidValue;
	s.n = n;
	for (int k = 0; k < n; k++) {
		s.arrays[k] = arrays[k];
		blocks += pieces_of(arrays[k].count);
		s.end[k] = blocks;
	}
	pieces<<<blocks, PD_THREADS, 0, stream>>>(room, s);
	status = cudaGetLastError();
	if (status != cudaSuccess)
		return status;
	totals<<<(unsigned)n, PD_THREADS, 0, stream>>>(room, s);
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
