/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batch normalisation, for the types and layouts that cuDNN's plain calls do not have.  An
 * element is known by its row (all but the channel) and its channel.
 *
 * Sums over rows are taken in parts: a block of COLUMNS channels and ROWS rows goes over the
 * rows of its part, then over its own ROWS sums in order; a second kernel adds the parts, in
 * order and in double.  What is squared is the difference to the channel's first element, so
 * that a large mean costs no digits.
 */
#include "device/cuda/both.cuh"

#include "device/cuda/grid.cuh"
#include "device/cuda/kernels.h"
#include "device/cuda/typed.cuh"

#define COLUMNS 32
#define ROWS 8
#define ROWS_OF_A_PART 64       /* at least, where there are so many */
#define PARTS_MOST 256
#define APPLY_MOST 4096         /* blocks over the rows of a channel */

static int parts_of(int64_t rows)
{
	int64_t parts = rows / ROWS_OF_A_PART;

	return parts < 1 ? 1 : parts > PARTS_MOST ? PARTS_MOST : (int)parts;
}

size_t pd_kernel_norm_room(int64_t rows, int64_t channels)
{
	return 2 * (size_t)channels * (size_t)(parts_of(rows) + 1);
}

/* Divisions cost more than memory does: none where the channels are last. */
__device__ static size_t place_of(const struct pd_kernel_norm &n, int64_t row, int64_t c)
{
	if (n.area == 1)
		return (size_t)(row * n.channels + c);
	return (size_t)((row / n.area * n.channels + c) * n.area + row % n.area);
}

/* This thread's channel, which may be none. */
__device__ static int64_t channel_here(void)
{
	return blockIdx.x * (int64_t)COLUMNS + threadIdx.x;
}

/* The sums of a block's ROWS threads of a channel, in the first. */
__device__ static void add_rows(float (*sum)[COLUMNS], float mine)
{
	__syncthreads();        /* of a sum before */
	sum[threadIdx.y][threadIdx.x] = mine;
	__syncthreads();
	if (threadIdx.y == 0)
		for (int r = 1; r < ROWS; r++)
			sum[0][threadIdx.x] += sum[r][threadIdx.x];
}

/* first, second: the two sums of part blockIdx.y, (parts, channels) each. */
__device__ static void put_parts(const struct pd_kernel_norm &n, float first, float second,
				 float *room)
{
	__shared__ float sum[ROWS][COLUMNS];
	int64_t c = channel_here();
	float *at = room + 2 * (blockIdx.y * n.channels + c);

	add_rows(sum, first);
	if (threadIdx.y == 0 && c < n.channels)
		at[0] = sum[0][threadIdx.x];
	add_rows(sum, second);
	if (threadIdx.y == 0 && c < n.channels)
		at[1] = sum[0][threadIdx.x];
}

template <typename T>
__global__ static void norm_parts(struct pd_kernel_norm n, const T *x, float *room)
{
	int64_t c = channel_here();
	int64_t begin = n.rows * blockIdx.y / gridDim.y;
	int64_t end = n.rows * (blockIdx.y + 1) / gridDim.y;
	float first = 0, second = 0;

	if (c < n.channels) {
		float origin = (float)x[place_of(n, 0, c)];

		for (int64_t row = begin + threadIdx.y; row < end; row += ROWS) {
			float d = (float)x[place_of(n, row, c)] - origin;

			first += d;
			second += d * d;
		}
	}
	put_parts(n, first, second, room);
}

__device__ static void total(const struct pd_kernel_norm &n, const float *room, int parts,
			     int64_t c, double *first, double *second)
{
	*first = *second = 0;
	for (int p = 0; p < parts; p++) {
		*first += room[2 * (p * n.channels + c)];
		*second += room[2 * (p * n.channels + c) + 1];
	}
}

template <typename T>
__global__ static void norm_total(struct pd_kernel_norm n, const T *x, const float *room,
				  int parts, float *mean, float *inverse, float *running_mean,
				  float *running_variance)
{
	PD_FOR_EACH(c, (size_t)n.channels) {
		double first, second, shift, variance, count = (double)n.rows;

		total(n, room, parts, (int64_t)c, &first, &second);
		shift = first / count;
		variance = second / count - shift * shift;
		if (variance < 0)
			variance = 0;
		shift += (float)x[place_of(n, 0, (int64_t)c)];
		mean[c] = (float)shift;
		inverse[c] = (float)(1 / sqrt(variance + n.eps));
		if (!running_mean)
			continue;
		if (n.rows > 1)
			variance *= count / (count - 1);
		running_mean[c] = (float)((1 - n.momentum) * running_mean[c] + n.momentum * shift);
		running_variance[c] = (float)((1 - n.momentum) * running_variance[c] +
					      n.momentum * variance);
	}
}

/* each(place) for this thread's rows of the channel. */
template <typename Each>
__device__ static void for_rows(const struct pd_kernel_norm &n, int64_t c, Each each)
{
	int64_t row = blockIdx.y * (int64_t)ROWS + threadIdx.y;

	for (; row < n.rows; row += gridDim.y * (int64_t)ROWS)
		each(place_of(n, row, c));
}

/*
 * A thread keeps to its channel: what that is multiplied with, and added to, is worked out once.
 * inverse: NULL in evaluation, which has no room to keep anything.
 */
template <typename T>
__global__ static void norm_apply(struct pd_kernel_norm n, T *y, const T *x, const T *scale,
				  const T *bias, const float *mean, const float *inverse,
				  const float *variance)
{
	int64_t c = channel_here();
	float middle, times, plus;

	if (c >= n.channels)
		return;
	middle = mean[c];
	times = inverse ? inverse[c] : 1 / sqrtf(variance[c] + n.eps);
	plus = (float)bias[c];
	for_rows(n, c, [&](size_t at) {
		float v = ((float)x[at] - middle) * times * (float)scale[c] + plus;

		y[at] = (T)(n.relu && v < 0 ? 0 : v);
	});
}

static dim3 grid_of(const struct pd_kernel_norm *n)
{
	return dim3((unsigned)((n->channels + COLUMNS - 1) / COLUMNS), (unsigned)parts_of(n->rows));
}

/* Of a pass over all elements: more rows in the air than their sums take. */
static dim3 apply_grid(const struct pd_kernel_norm *n)
{
	int64_t rows = (n->rows + ROWS - 1) / ROWS;

	return dim3((unsigned)((n->channels + COLUMNS - 1) / COLUMNS),
		    (unsigned)(rows < APPLY_MOST ? rows : APPLY_MOST));
}

cudaError_t pd_kernel_norm(cudaStream_t stream, enum pd_dtype dtype, const struct pd_kernel_norm *n,
			   void *y, const void *x, const void *scale, const void *bias, float *kept,
			   float *running, float *room)
{
	dim3 grid = grid_of(n), block(COLUMNS, ROWS);
	float *inverse = kept + n->half, *variance = running ? running + n->half : NULL;
	int parts = parts_of(n->rows);
	const float *none = NULL;

	PD_BY_TYPE(dtype, T, (norm_parts<T><<<grid, block, 0, stream>>>(*n, (const T *)x, room)));
	PD_BY_TYPE(dtype, T, (
		norm_total<T><<<pd_blocks((size_t)n->channels), PD_THREADS, 0, stream>>>(
			*n, (const T *)x, room, parts, kept, inverse, running, variance)));
	PD_BY_TYPE(dtype, T, (norm_apply<T><<<apply_grid(n), block, 0, stream>>>(
		*n, (T *)y, (const T *)x, (const T *)scale, (const T *)bias, kept, inverse,
		none)));
	return cudaGetLastError();
}

cudaError_t pd_kernel_norm_evaluate(cudaStream_t stream, enum pd_dtype dtype,
				    const struct pd_kernel_norm *n, void *y, const void *x,
				    const void *scale, const void *bias, const float *running)
{
	dim3 block(COLUMNS, ROWS);
	const float *none = NULL;

	PD_BY_TYPE(dtype, T, (norm_apply<T><<<apply_grid(n), block, 0, stream>>>(
		*n, (T *)y, (const T *)x, (const T *)scale, (const T *)bias, running, none,
		running + n->half)));
	return cudaGetLastError();
}

template <typename T>
__global__ static void norm_back_parts(struct pd_kernel_norm n, const T *x, const T *dy,
				       const float *mean, const float *inverse, float *room)
{
	int64_t c = channel_here();
	int64_t begin = n.rows * blockIdx.y / gridDim.y;
	int64_t end = n.rows * (blockIdx.y + 1) / gridDim.y;
	float first = 0, second = 0;

	if (c < n.channels)
		for (int64_t row = begin + threadIdx.y; row < end; row += ROWS) {
			size_t at = place_of(n, row, c);
			float g = (float)dy[at];

			first += g;
			second += g * (((float)x[at] - mean[c]) * inverse[c]);
		}
	put_parts(n, first, second, room);
}

/* means: of both sums, over the rows; behind the parts. */
__global__ static void norm_back_total(struct pd_kernel_norm n, const float *room, int parts,
				       float *means, float *d_scale, float *d_bias)
{
	PD_FOR_EACH(c, (size_t)n.channels) {
		double first, second;

		total(n, room, parts, (int64_t)c, &first, &second);
		d_bias[c] = (float)first;
		d_scale[c] = (float)second;
		means[2 * c] = (float)(first / (double)n.rows);
		means[2 * c + 1] = (float)(second / (double)n.rows);
	}
}

template <typename T>
__global__ static void norm_back_apply(struct pd_kernel_norm n, T *dx, const T *x, const T *dy,
				       const T *scale, const float *mean, const float *inverse,
				       const float *means)
{
	int64_t c = channel_here();
	float middle, times, factor, first, second;

	if (c >= n.channels)
		return;
	middle = mean[c];
	times = inverse[c];
	factor = (float)scale[c] * times;
	first = means[2 * c];
	second = means[2 * c + 1];
	for_rows(n, c, [&](size_t at) {
		float hat = ((float)x[at] - middle) * times;

		dx[at] = (T)(factor * ((float)dy[at] - first - hat * second));
	});
}

cudaError_t pd_kernel_norm_back(cudaStream_t stream, enum pd_dtype dtype,
				const struct pd_kernel_norm *n, void *dx, const void *x,
				const void *dy, const void *scale, const float *kept,
				float *d_scale, float *d_bias, float *room)
{
	dim3 grid = grid_of(n), block(COLUMNS, ROWS);
	const float *inverse = kept + n->half;
	int parts = parts_of(n->rows);
	float *means = room + 2 * (size_t)parts * (size_t)n->channels;

	PD_BY_TYPE(dtype, T, (norm_back_parts<T><<<grid, block, 0, stream>>>(
		*n, (const T *)x, (const T *)dy, kept, inverse, room)));
	norm_back_total<<<pd_blocks((size_t)n->channels), PD_THREADS, 0, stream>>>(
		*n, room, parts, means, d_scale, d_bias);
	if (dx)
		PD_BY_TYPE(dtype, T, (
			norm_back_apply<T><<<apply_grid(n), block, 0, stream>>>(
				*n, (T *)dx, (const T *)x, (const T *)dy, (const T *)scale,
				kept, inverse, means)));
	return cudaGetLastError();
}

/* The gradient of a bias: the sum over rows that lie one after the other. */
template <typename T>
__global__ static void column_parts(struct pd_kernel_norm n, const T *dy, float *room)
{
	int64_t c = channel_here();
	int64_t begin = n.rows * blockIdx.y / gridDim.y;
	int64_t end = n.rows * (blockIdx.y + 1) / gridDim.y;
	float first = 0;

	if (c < n.channels)
		for (int64_t row = begin + threadIdx.y; row < end; row += ROWS)
			first += (float)dy[row * n.channels + c];
	put_parts(n, first, 0, room);
}

__global__ static void column_total(struct pd_kernel_norm n, const float *room, int parts,
				    float *sums)
{
	PD_FOR_EACH(c, (size_t)n.channels) {
		double first, second;

		total(n, room, parts, (int64_t)c, &first, &second);
		sums[c] = (float)first;
	}
}

cudaError_t pd_kernel_columns(cudaStream_t stream, enum pd_dtype dtype, float *sums, float *room,
			      const void *dy, int64_t rows, int64_t channels)
{
	struct pd_kernel_norm n = { rows, channels, 1 };
	dim3 grid = grid_of(&n), block(COLUMNS, ROWS);

	PD_BY_TYPE(dtype, T, (column_parts<T><<<grid, block, 0, stream>>>(n, (const T *)dy, room)));
	column_total<<<pd_blocks((size_t)channels), PD_THREADS, 0, stream>>>(
		n, room, parts_of(rows), sums);
	return cudaGetLastError();
}
