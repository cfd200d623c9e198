/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A block takes a row, and its threads take elements at their stride; sums are combined in an order
 * that follows from the width alone.  For the gradients of the parameters, a thread takes a column
 * and part of the rows; then parts are added in order.
 */
#include "run/device/cuda/host_device.cuh"

#include "run/device/cuda/block_sum.cuh"
#include "run/device/cuda/grid.cuh"
#include "run/device/cuda/kernels.h"
#include "run/device/cuda/typed.cuh"

#define THREADS 128             /* for a row; a power of two */
#define ROWS_OF_A_PART 64       /* at least, if there are so many */
#define PARTS_MOST 64

template <typename T>
__global__ static void normalise(struct pd_kernel_layernorm n, T *y, const T *__restrict__ x,
				 const T *__restrict__ weight, const T *__restrict__ bias,
				 float *kept)
{
	for (int64_t r = blockIdx.x; r < n.rows; r += gridDim.x) {
		const T *row = x + r * n.width;
		float sum = 0, squares = 0, mean, scale;

		for (int64_t i = threadIdx.x; i < n.width && n.centred; i += THREADS)
			sum += (float)row[i];
		mean = n.centred ? pd_block_sum<THREADS>(sum) / (float)n.width : 0;
		for (int64_t i = threadIdx.x; i < n.width; i += THREADS)
			squares += ((float)row[i] - mean) * ((float)row[i] - mean);
		scale = 1 / sqrtf(pd_block_sum<THREADS>(squares) / (float)n.width + n.eps);
		for (int64_t i = threadIdx.x; i < n.width; i += THREADS) {
			float v = ((float)row[i] - mean) * scale;

			if (weight)
				v *= (float)weight[i];
			y[r * n.width + i] = (T)(bias ? v + (float)bias[i] : v);
		}
		if (threadIdx.x == 0) {
			kept[r] = mean;
			kept[n.half + r] = scale;
		}
	}
}

static unsigned blocks_of(int64_t rows)
{
	return rows < PD_BLOCKS_MOST ? (unsigned)rows : PD_BLOCKS_MOST;
}

cudaError_t pd_kernel_layernorm(cudaStream_t stream, enum pd_dtype dtype,
				const struct pd_kernel_layernorm *n, void *y, const void *x,
				const void *weight, const void *bias, float *kept)
{
	PD_BY_TYPE(dtype, T, (normalise<T><<<blocks_of(n->rows), THREADS, 0, stream>>>(
		*n, (T *)y, (const T *)x, (const T *)weight, (const T *)bias, kept)));
	return cudaGetLastError();
}

template <typename T>
__global__ static void input_back(struct pd_kernel_layernorm n, T *dx, const T *__restrict__ x,
				  const T *__restrict__ dy, const T *__restrict__ weight,
				  const float *kept)
{
	for (int64_t r = blockIdx.x; r < n.rows; r += gridDim.x) {
		float mean = kept[r], scale = kept[n.half + r], sum = 0, sum_x = 0;
		int64_t begin = r * n.width;

		for (int64_t i = threadIdx.x; i < n.width; i += THREADS) {
			float g = (float)dy[begin + i] * (weight ? (float)weight[i] : 1);

			sum += g;
			sum_x += g * (((float)x[begin + i] - mean) * scale);
		}
		sum = n.centred ? pd_block_sum<THREADS>(sum) / (float)n.width : 0;
		sum_x = pd_block_sum<THREADS>(sum_x) / (float)n.width;
		for (int64_t i = threadIdx.x; i < n.width; i += THREADS) {
			float g = (float)dy[begin + i] * (weight ? (float)weight[i] : 1);
			float normal = ((float)x[begin + i] - mean) * scale;

			dx[begin + i] = (T)(scale * (g - sum - normal * sum_x));
		}
	}
}

static unsigned parts_of(int64_t rows)
{
	int64_t parts = rows / ROWS_OF_A_PART;

	return parts < 1 ? 1 : parts > PARTS_MOST ? PARTS_MOST : (unsigned)parts;
}

size_t pd_kernel_layernorm_room(int64_t rows, int64_t width)
{
	return 2 * (size_t)parts_of(rows) * (size_t)width;
}

/* The sums of part p, column c are at (2 p) * width + c and (2 p + 1) * width + c. */
template <typename T>
__global__ static void parameters_back(struct pd_kernel_layernorm n, float *room,
				       const T *__restrict__ x, const T *__restrict__ dy,
				       const float *kept)
{
	int64_t part = blockIdx.y, parts = gridDim.y;
	int64_t begin = n.rows * part / parts, end = n.rows * (part + 1) / parts;
	int64_t c = blockIdx.x * (int64_t)THREADS + threadIdx.x;
	float weight = 0, bias = 0;

	if (c >= n.width)
		return;
	for (int64_t r = begin; r < end; r++) {
		float g = (float)dy[r * n.width + c];

		weight += g * (((float)x[r * n.width + c] - kept[r]) * kept[n.half + r]);
		bias += g;
	}
	room[2 * part * n.width + c] = weight;
	room[(2 * part + 1) * n.width + c] = bias;
}

__global__ static void parameters_total(float *d_weight, float *d_bias, const float *room,
					int64_t width, int parts)
{
	PD_FOR_EACH(c, (size_t)width) {
		double weight = 0, bias = 0;

		for (int p = 0; p < parts; p++) {
			weight += room[2 * p * width + c];
			bias += room[(2 * p + 1) * width + c];
		}
		d_weight[c] = (float)weight;
		if (d_bias)
			d_bias[c] = (float)bias;
	}
}

cudaError_t pd_kernel_layernorm_back(cudaStream_t stream, enum pd_dtype dtype,
				     const struct pd_kernel_layernorm *n, void *dx, const void *x,
				     const void *dy, const void *weight, const float *kept)
{
	PD_BY_TYPE(dtype, T, (input_back<T><<<blocks_of(n->rows), THREADS, 0, stream>>>(
		*n, (T *)dx, (const T *)x, (const T *)dy, (const T *)weight, kept)));
	return cudaGetLastError();
}

cudaError_t pd_kernel_layernorm_parameters(cudaStream_t stream, enum pd_dtype dtype,
					   const struct pd_kernel_layernorm *n, float *d_weight,
					   float *d_bias, const void *x, const void *dy,
					   const float *kept, float *room)
{
	dim3 grid((unsigned)((n->width + THREADS - 1) / THREADS), parts_of(n->rows));
	cudaError_t status;

	PD_BY_TYPE(dtype, T, (parameters_back<T><<<grid, THREADS, 0, stream>>>(
		*n, room, (const T *)x, (const T *)dy, kept)));
	status = cudaGetLastError();
	if (status != cudaSuccess)
		return status;
	parameters_total<<<pd_grid_blocks((size_t)n->width), PD_THREADS, 0, stream>>>(
		d_weight, d_bias, room, n->width, (int)parts_of(n->rows));
	return cudaGetLastError();
}
