/* SPDX-License-Identifier: Apache-2.0 */
#include "run/device/cuda/host_device.cuh"

#include "run/device/cuda/grid.cuh"
#include "run/device/cuda/kernels.h"
#include "run/device/cuda/typed.cuh"

/* A team of LANES threads, a warp or a whole block, takes a row of the last axis. */
#define WARP 32
#define SHORT_ROW 1024                  /* up to so many numbers a warp takes */

template <int LANES>
__device__ static void team_barrier(void)
{
	if (LANES == WARP)
		__syncwarp();
	else
		__syncthreads();
}

/* Joins the numbers of a team, halves with halves; each of its threads gets the result. */
template <int LANES, typename Join>
__device__ static float team_join(float mine, Join join)
{
	__shared__ float room[PD_THREADS];
	int t = threadIdx.x, lane = t % LANES;
	float all;

	room[t] = mine;
	for (int half = LANES / 2; half > 0; half /= 2) {
		team_barrier<LANES>();
		if (lane < half)
			room[t] = join(room[t], room[t + half]);
	}
	team_barrier<LANES>();
	all = room[t - lane];
	team_barrier<LANES>();  /* only now may the next begin */
	return all;
}

template <int LANES>
__device__ static float team_largest(float mine)
{
	return team_join<LANES>(mine, [](float a, float b) { return b > a ? b : a; });
}

template <int LANES>
__device__ static float team_sum(float mine)
{
	return team_join<LANES>(mine, [](float a, float b) { return a + b; });
}

/* The rows that teams take, each at its stride. */
#define FOR_ROWS(r, rows) \
	for (int64_t r = blockIdx.x * (int64_t)(PD_THREADS / LANES) + threadIdx.x / LANES; \
	     r < (rows); \
	     r += (int64_t)gridDim.x * (PD_THREADS / LANES))

static unsigned row_blocks(int64_t rows, int lanes)
{
	int64_t teams = PD_THREADS / lanes, blocks = (rows + teams - 1) / teams;

	return (unsigned)(blocks < PD_BLOCKS_MOST ? blocks : PD_BLOCKS_MOST);
}

template <typename T, int LANES>
__global__ static void softmax_rows(T *y, const T *__restrict__ x, int64_t rows, int64_t extent)
{
	int lane = threadIdx.x % LANES;

	FOR_ROWS(r, rows) {
		const T *from = x + r * extent;
		float most = -INFINITY, sum = 0;

		for (int64_t i = lane; i < extent; i += LANES)
			most = (float)from[i] > most ? (float)from[i] : most;
		most = team_largest<LANES>(most);
		for (int64_t i = lane; i < extent; i += LANES)
			sum += expf((float)from[i] - most);
		sum = team_sum<LANES>(sum);
		for (int64_t i = lane; i < extent; i += LANES)
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

	if (inner == 1 && extent <= SHORT_ROW)
		PD_BY_TYPE(dtype, T, (softmax_rows<T, WARP>
			<<<row_blocks(outer, WARP), PD_THREADS, 0, stream>>>(
			(T *)y, (const T *)x, outer, extent)));
	else if (inner == 1)
		PD_BY_TYPE(dtype, T, (softmax_rows<T, PD_THREADS>
			<<<row_blocks(outer, PD_THREADS), PD_THREADS, 0, stream>>>(
			(T *)y, (const T *)x, outer, extent)));
	else
		PD_BY_TYPE(dtype, T, (softmax_places<T><<<pd_grid_blocks(count), PD_THREADS, 0, stream>>>(
			(T *)y, (const T *)x, count, (size_t)extent, (size_t)inner)));
	return cudaGetLastError();
}

template <typename T, int LANES>
__global__ static void rows_back(T *dx, const T *__restrict__ y, const T *__restrict__ dy, int64_t rows,
				 int64_t extent)
{
	int lane = threadIdx.x % LANES;

	FOR_ROWS(r, rows) {
		float sum = 0;

		for (int64_t i = lane; i < extent; i += LANES)
			sum += (float)y[r * extent + i] * (float)dy[r * extent + i];
		sum = team_sum<LANES>(sum);
		for (int64_t i = lane; i < extent; i += LANES)
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

	if (inner == 1 && extent <= SHORT_ROW)
		PD_BY_TYPE(dtype, T, (rows_back<T, WARP>
			<<<row_blocks(outer, WARP), PD_THREADS, 0, stream>>>(
			(T *)dx, (const T *)y, (const T *)dy, outer, extent)));
	else if (inner == 1)
		PD_BY_TYPE(dtype, T, (rows_back<T, PD_THREADS>
			<<<row_blocks(outer, PD_THREADS), PD_THREADS, 0, stream>>>(
			(T *)dx, (const T *)y, (const T *)dy, outer, extent)));
	else
		PD_BY_TYPE(dtype, T, (places_back<T><<<pd_grid_blocks(count), PD_THREADS, 0, stream>>>(
			(T *)dx, (const T *)y, (const T *)dy, count, (size_t)extent, (size_t)inner)));
	return cudaGetLastError();
}
