/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gradient of an embedding without atomics, in one order.  The places are sorted by their number
 * and, where that is the same, as they come: each finds how many are before it by looking at all of
 * them, which for the places of a microbatch is less work than a sort in several passes.  Then a
 * block takes those of one number, in that order, and its threads columns of the weight.
 */
#include "run/device/cuda/host_device.cuh"

#include "run/device/cuda/grid.cuh"
#include "run/device/cuda/kernels.h"
#include "run/device/cuda/typed.cuh"

#define COLUMNS 128             /* that a block takes */
#define AHEAD 16                /* places of a number that are read before the first is added */

/* Returns the factor of dropout by which a row is multiplied. */
__device__ static float factor_of(const struct pd_kernel_drop &drop,
				  const struct pd_pass_numbers *numbers, int64_t row)
{
	struct pd_random4 r;

	if (drop.p == 0)
		return 1;
	r = pd_random(drop.seed, drop.stream, (uint32_t)numbers->first_sample, (uint32_t)(row / 4));
	return pd_unit(r.v[row % 4]) >= drop.p ? drop.scale : 0;
}

/* Each place counts those before it, which a block reads together. */
__global__ static void count_places(int32_t *row, const int32_t *__restrict__ number, size_t count,
				    int64_t positions, int32_t padding)
{
	PD_FOR_EACH(i, count) {
		size_t first = i - pd_rest(i, (size_t)positions);
		int32_t before = padding;

		for (size_t k = first; k <= i; k++)
			before += number[k] != padding;
		row[i] = number[i] != padding ? before : padding;
	}
}

cudaError_t pd_kernel_numbered(cudaStream_t stream, int32_t *row, const int32_t *number,
			       int64_t samples,
			       int64_t positions, int32_t padding)
{
	size_t count = (size_t)(samples * positions);

	count_places<<<pd_grid_blocks(count), PD_THREADS, 0, stream>>>(row, number, count,
		positions, padding);
	return cudaGetLastError();
}

template <typename T>
__global__ static void look_up(struct pd_kernel_drop drop, const struct pd_pass_numbers *numbers,
			       T *y, const T *__restrict__ weight, const int32_t *__restrict__ id,
			       size_t count, int64_t rows, int64_t width)
{
	PD_FOR_EACH(i, count) {
		int64_t row = id[pd_quotient(i, (size_t)width)];
		size_t column = pd_rest(i, (size_t)width);

		y[i] = row >= 0 && row < rows
			? (T)((float)weight[(size_t)(row * width) + column] *
			      factor_of(drop, numbers, row)) : (T)0.0f;
	}
}

cudaError_t pd_kernel_embedding(cudaStream_t stream, enum pd_dtype dtype,
				const struct pd_kernel_drop *drop,
				const struct pd_pass_numbers *numbers, void *y,
				const void *weight, const int32_t *id, int64_t places,
				int64_t rows, int64_t width)
{
	size_t count = (size_t)(places * width);

	PD_BY_TYPE(dtype, T, (look_up<T><<<pd_grid_blocks(count), PD_THREADS, 0, stream>>>(
		*drop, numbers, (T *)y, (const T *)weight, id, count, rows, width)));
	return cudaGetLastError();
}

/* order: the places; sorted: their numbers */
__global__ static void sort(int32_t *order, int32_t *sorted, const int32_t *__restrict__ id,
			    int64_t places)
{
	__shared__ int32_t others[PD_THREADS];
	int64_t i = blockIdx.x * (int64_t)PD_THREADS + threadIdx.x, before = 0;
	int32_t mine = i < places ? id[i] : 0;

	for (int64_t from = 0; from < places; from += PD_THREADS) {
		int n = places - from < PD_THREADS ? (int)(places - from) : PD_THREADS;

		if ((int)threadIdx.x < n)
			others[threadIdx.x] = id[from + threadIdx.x];
		__syncthreads();
		for (int k = 0; k < n; k++)
			before += others[k] < mine || (others[k] == mine && from + k < i);
		__syncthreads();
	}
	if (i >= places)
		return;
	order[before] = (int32_t)i;
	sorted[before] = mine;
}

/*
 * The sum of a column over the places of a number, from `at` on.  The commonest number of a text has
 * thousands of places, so no read waits for the one before.
 */
template <typename T>
__device__ static float add_places(const T *__restrict__ column, const int32_t *__restrict__ order,
				   const int32_t *__restrict__ sorted, int64_t at, int64_t places,
				   int64_t width)
{
	int32_t number = sorted[at];
	float sum = 0;

	for (bool more = true; more; at += AHEAD) {
		float read[AHEAD];

#pragma unroll
		for (int k = 0; k < AHEAD; k++) {
			more = at + k < places && sorted[at + k] == number;
			read[k] = more ? (float)column[order[at + k] * width] : 0;
		}
#pragma unroll
		for (int k = 0; k < AHEAD; k++)
			sum += read[k];
	}
	return sum;
}

/* The block of the first place of a number takes all that follow with it. */
template <typename T>
__global__ static void add_rows(struct pd_kernel_drop drop, const struct pd_pass_numbers *numbers,
				float *d_weight, const int32_t *__restrict__ order,
				const int32_t *__restrict__ sorted, const T *__restrict__ dy,
				int64_t places, int64_t rows, int64_t width, int64_t padding)
{
	int64_t column = blockIdx.y * (int64_t)COLUMNS + threadIdx.x;

	for (int64_t at = blockIdx.x; at < places; at += gridDim.x) {
		int32_t row = sorted[at];

		if ((at > 0 && sorted[at - 1] == row) || row < 0 || row >= rows ||
		    row == padding || column >= width)
			continue;
		d_weight[row * width + column] =
			add_places(dy + column, order, sorted, at, places, width) *
			factor_of(drop, numbers, row);
	}
}

cudaError_t pd_kernel_embedding_back(cudaStream_t stream, enum pd_dtype dtype,
				     const struct pd_kernel_drop *drop,
				     const struct pd_pass_numbers *numbers, float *d_weight,
				     int32_t *order, const void *dy, const int32_t *id,
				     int64_t places, int64_t rows, int64_t width, int64_t padding)
{
	unsigned blocks = (unsigned)((places + PD_THREADS - 1) / PD_THREADS);
	dim3 grid((unsigned)(places < PD_BLOCKS_MOST ? places : PD_BLOCKS_MOST),
		  (unsigned)((width + COLUMNS - 1) / COLUMNS));
	int32_t *sorted = order + places;
	cudaError_t status;

	sort<<<blocks, PD_THREADS, 0, stream>>>(order, sorted, id, places);
	status = cudaGetLastError();
	if (status != cudaSuccess)
		return status;
	PD_BY_TYPE(dtype, T, (add_rows<T><<<grid, COLUMNS, 0, stream>>>(
		*drop, numbers, d_weight, order, sorted, (const T *)dy, places, rows, width,
		padding)));
	return cudaGetLastError();
}

template <typename T>
__global__ static void add_positions(T *y, const T *__restrict__ x, const T *__restrict__ weight,
				     size_t all, size_t count)
{
	PD_FOR_EACH(i, all)
		y[i] = (T)((float)x[i] + (float)weight[pd_rest(i, count)]);
}

cudaError_t pd_kernel_positions(cudaStream_t stream, enum pd_dtype dtype, void *y, const void *x,
				const void *weight, int64_t samples, int64_t count)
{
	size_t all = (size_t)(samples * count);

	PD_BY_TYPE(dtype, T, (add_positions<T><<<pd_grid_blocks(all), PD_THREADS, 0, stream>>>(
		(T *)y, (const T *)x, (const T *)weight, all, (size_t)count)));
	return cudaGetLastError();
}

template <typename T>
__global__ static void copies(T *y, const T *__restrict__ weight, size_t all, size_t count,
			      size_t area)
{
	PD_FOR_EACH(i, all)
		y[i] = weight[pd_rest(pd_quotient(i, area), count)];
}

cudaError_t pd_kernel_copies(cudaStream_t stream, enum pd_dtype dtype, void *y, const void *weight,
			     int64_t samples, int64_t count, int64_t area)
{
	size_t all = (size_t)(samples * count * area);

	PD_BY_TYPE(dtype, T, (copies<T><<<pd_grid_blocks(all), PD_THREADS, 0, stream>>>(
		(T *)y, (const T *)weight, all, (size_t)count, (size_t)area)));
	return cudaGetLastError();
}

template <typename T>
__global__ static void add_samples(float *d_weight, const T *__restrict__ dy, int64_t samples,
				   size_t count)
{
	PD_FOR_EACH(i, count) {
		float sum = 0;

		for (int64_t n = 0; n < samples; n++)
			sum += (float)dy[(size_t)n * count + i];
		d_weight[i] = sum;
	}
}

cudaError_t pd_kernel_positions_back(cudaStream_t stream, enum pd_dtype dtype, float *d_weight,
				     const void *dy, int64_t samples, int64_t count)
{
	PD_BY_TYPE(dtype, T, (add_samples<T><<<pd_grid_blocks((size_t)count), PD_THREADS, 0, stream>>>(
		d_weight, (const T *)dy, samples, (size_t)count)));
	return cudaGetLastError();
}
