/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of layers that work along an axis, or by positions along one. */
#include "run/device/cuda/host_device.cuh"

#include "run/device/cuda/grid.cuh"
#include "run/device/cuda/kernels.h"
#include "run/device/cuda/typed.cuh"

#define THREADS 128             /* of a row's mean; a power of two */
#define ROPE_BLOCKS 1024        /* about as many, where there are so many heads */

/* A thread writes the next element to the one that its neighbour writes. */
template <typename T>
__global__ static void swap(struct pd_kernel_swap s, T *dst, const T *__restrict__ src, size_t count)
{
	size_t inner = s.inner, first = s.first, between = s.between, second = s.second;

	PD_FOR_EACH(i, count) {
		size_t k = pd_rest(i, inner), rest = pd_quotient(i, inner);
		size_t f = pd_rest(rest, first), b, c;

		rest = pd_quotient(rest, first);
		b = pd_rest(rest, between);
		rest = pd_quotient(rest, between);
		c = pd_rest(rest, second);
		rest = pd_quotient(rest, second);
		dst[i] = src[(((rest * first + f) * between + b) * second + c) * inner + k];
	}
}

cudaError_t pd_kernel_swap(cudaStream_t stream, enum pd_dtype dtype,
			   const struct pd_kernel_swap *s, void *dst, const void *src)
{
	size_t count = (size_t)(s->outer * s->first * s->between * s->second * s->inner);

	PD_BY_TYPE(dtype, T, (swap<T><<<pd_grid_blocks(count), PD_THREADS, 0, stream>>>(
		*s, (T *)dst, (const T *)src, count)));
	return cudaGetLastError();
}

/* A thread per sum; its neighbours' elements lie next to its own. */
template <typename T>
__global__ static void mean_of_places(T *y, const T *__restrict__ x, size_t count, size_t extent,
				      size_t inner)
{
	PD_FOR_EACH(i, count) {
		size_t begin = pd_quotient(i, inner) * extent * inner + pd_rest(i, inner);
		float sum = 0;

		for (size_t e = 0; e < extent; e++)
			sum += (float)x[begin + e * inner];
		y[i] = (T)(sum / (float)extent);
	}
}

/* A block per row. */
template <typename T>
__global__ static void mean_of_row(T *y, const T *__restrict__ x, int64_t rows, int64_t extent)
{
	__shared__ float sum[THREADS];
	int t = threadIdx.x;

	for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
		float mine = 0;

		for (int64_t i = t; i < extent; i += THREADS)
			mine += (float)x[r * extent + i];
		sum[t] = mine;
		for (int half = THREADS / 2; half > 0; half /= 2) {
			__syncthreads();
			if (t < half)
				sum[t] += sum[t + half];
		}
		if (t == 0)
			y[r] = (T)(sum[0] / (float)extent);
		__syncthreads();
	}
}

cudaError_t pd_kernel_mean(cudaStream_t stream, enum pd_dtype dtype, void *y, const void *x,
			   int64_t outer, int64_t extent, int64_t inner)
{
	size_t count = (size_t)(outer * inner);
	unsigned blocks = (unsigned)(outer < PD_BLOCKS_MOST ? outer : PD_BLOCKS_MOST);

	if (inner == 1)
		PD_BY_TYPE(dtype, T, (mean_of_row<T><<<blocks, THREADS, 0, stream>>>(
			(T *)y, (const T *)x, outer, extent)));
	else
		PD_BY_TYPE(dtype, T, (mean_of_places<T><<<pd_grid_blocks(count), PD_THREADS, 0, stream>>>(
			(T *)y, (const T *)x, count, (size_t)extent, (size_t)inner)));
	return cudaGetLastError();
}

template <typename T>
__global__ static void mean_back(T *dx, const T *__restrict__ dy, size_t count, size_t extent,
				 size_t inner)
{
	PD_FOR_EACH(i, count) {
		size_t from = pd_quotient(pd_quotient(i, inner), extent) * inner + pd_rest(i, inner);

		dx[i] = (T)((float)dy[from] / (float)extent);
	}
}

cudaError_t pd_kernel_mean_back(cudaStream_t stream, enum pd_dtype dtype, void *dx,
				const void *dy, int64_t outer, int64_t extent, int64_t inner)
{
	size_t count = (size_t)(outer * extent * inner);

	PD_BY_TYPE(dtype, T, (mean_back<T><<<pd_grid_blocks(count), PD_THREADS, 0, stream>>>(
		(T *)dx, (const T *)dy, count, (size_t)extent, (size_t)inner)));
	return cudaGetLastError();
}

/* A thread has one angle, for samples and heads at the stride of the grid's second axis. */
template <typename T>
__global__ static void rope(struct pd_kernel_rope r, T *dst, const T *__restrict__ src)
{
	const int64_t pairs = r.pairs, turned = r.rotary.pairs;

	PD_FOR_EACH(i, (size_t)(r.positions * pairs)) {
		int64_t t = (int64_t)i / pairs, pair = (int64_t)i % pairs;
		bool is_turned = pair < turned, beside = r.interleaved || !is_turned;
		float angle = is_turned ? pd_rotary_angle(&r.rotary, t, pair) : 0;
		float c = cosf(angle), s = r.back ? -sinf(angle) : sinf(angle);

		for (int64_t k = blockIdx.y; k < r.samples * r.rows; k += gridDim.y) {
			int64_t sample = k / r.rows, row = k % r.rows;
			int64_t head = ((sample * r.positions + t) * r.rows + row) * 2 * pairs;
			int64_t one = head + (beside ? 2 * pair : pair);
			int64_t other = beside ? one + 1 : one + turned;
			float a = (float)src[one], b = (float)src[other];

			/* an infinite feature beside would make a NaN of a sine of 0 */
			if (!is_turned) {
				dst[one] = src[one];
				dst[other] = src[other];
				continue;
			}
			dst[one] = (T)(a * c - s * b);
			dst[other] = (T)(b * c + s * a);
		}
	}
}

cudaError_t pd_kernel_rope(cudaStream_t stream, enum pd_dtype dtype,
			   const struct pd_kernel_rope *r, void *dst, const void *src)
{
	size_t count = (size_t)(r->positions * r->pairs);
	int64_t heads = r->samples * r->rows, blocks = pd_grid_blocks(count);
	int64_t across = (ROPE_BLOCKS + blocks - 1) / blocks;
	const dim3 grid((unsigned)blocks, (unsigned)(across < heads ? across : heads));

	PD_BY_TYPE(dtype, T, (rope<T><<<grid, PD_THREADS, 0, stream>>>(
		*r, (T *)dst, (const T *)src)));
	return cudaGetLastError();
}
