/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A block takes a group of a sample; sums are combined in an order that follows from the shape alone.  Backward
 * makes the gradients of the input and of the parameters of sums over each channel of each sample.
 */
#include "run/device/cuda/host_device.cuh"

#include "run/device/cuda/block_sum.cuh"
#include "run/device/cuda/channels.cuh"
#include "run/device/cuda/typed.cuh"

/* Returns element i of a group: in the order in which they lie. */
__device__ static int64_t element_of(const struct pd_kernel_groupnorm &g, int64_t row, int64_t i)
{
	const struct pd_kernel_channels &s = g.channels;
	size_t each = (size_t)(s.channels / g.groups), groups = (size_t)g.groups, r = (size_t)row, at = (size_t)i;
	size_t pixel;

	if (!s.last)
		return row * (int64_t)each * s.area + i;
	pixel = pd_quotient(at, each);
	return (int64_t)((pd_quotient(r, groups) * (size_t)s.area + pixel) * (size_t)s.channels +
			 pd_rest(r, groups) * each + (at - pixel * each));
}

__device__ static int64_t channel_of(const struct pd_kernel_groupnorm &g, int64_t row, int64_t i)
{
	size_t each = (size_t)(g.channels.channels / g.groups), area = (size_t)g.channels.area;

	return (int64_t)(pd_rest((size_t)row, (size_t)g.groups) * each +
			 (g.channels.last ? pd_rest((size_t)i, each) : pd_quotient((size_t)i, area)));
}

template <typename T>
__global__ static void normalise(struct pd_kernel_groupnorm g, T *y, const T *__restrict__ x,
				 const T *__restrict__ weight, const T *__restrict__ bias, float *kept)
{
	int64_t rows = g.channels.samples * g.groups;
	int64_t width = g.channels.channels / g.groups * g.channels.area;

	for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
		float sum = 0, squares = 0, mean, scale;

		for (int64_t i = threadIdx.x; i < width; i += PD_THREADS)
			sum += (float)x[element_of(g, r, i)];
		mean = pd_block_sum<PD_THREADS>(sum) / (float)width;
		for (int64_t i = threadIdx.x; i < width; i += PD_THREADS) {
			float d = (float)x[element_of(g, r, i)] - mean;

			squares += d * d;
		}
		scale = 1 / sqrtf(pd_block_sum<PD_THREADS>(squares) / (float)width + g.eps);
		for (int64_t i = threadIdx.x; i < width; i += PD_THREADS) {
			int64_t at = element_of(g, r, i), c = channel_of(g, r, i);
			float v = ((float)x[at] - mean) * scale;

			y[at] = (T)(weight ? v * (float)weight[c] + (float)bias[c] : v);
		}
		if (threadIdx.x == 0) {
			kept[r] = mean;
			kept[rows + r] = scale;
		}
	}
}

static unsigned blocks_of(const struct pd_kernel_groupnorm *g)
{
	int64_t rows = g->channels.samples * g->groups;

	return rows < PD_BLOCKS_MOST ? (unsigned)rows : PD_BLOCKS_MOST;
}

cudaError_t pd_kernel_groupnorm(cudaStream_t stream, enum pd_dtype dtype, const struct pd_kernel_groupnorm *g,
				void *y, const void *x, const void *weight, const void *bias, float *kept)
{
	PD_BY_TYPE(dtype, T, (normalise<T><<<blocks_of(g), PD_THREADS, 0, stream>>>(
		*g, (T *)y, (const T *)x, (const T *)weight, (const T *)bias, kept)));
	return cudaGetLastError();
}

/* The sums over a channel of the gradient, and of the gradient times the normal number. */
template <typename T>
__global__ static void sums(struct pd_kernel_groupnorm g, float *room, const T *__restrict__ x,
			    const T *__restrict__ dy, const float *kept)
{
	int64_t rows = g.channels.samples * g.groups, each = g.channels.channels / g.groups;

	pd_channel_sums(g.channels, room, [&](int64_t n, int64_t c, int64_t at, float *first, float *second) {
		int64_t r = n * g.groups + c / each;

		*first += (float)dy[at];
		*second += (float)dy[at] * (((float)x[at] - kept[r]) * kept[rows + r]);
	});
}

template <typename T>
__global__ static void input_back(struct pd_kernel_groupnorm g, T *dx, const T *__restrict__ x,
				  const T *__restrict__ dy, const T *__restrict__ weight, const float *kept,
				  const float *room)
{
	const struct pd_kernel_channels &s = g.channels;
	int64_t rows = s.samples * g.groups, each = s.channels / g.groups, width = each * s.area;

	for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
		float mean = kept[r], scale = kept[rows + r], first = 0, second = 0;

		for (int64_t k = threadIdx.x; k < each; k += PD_THREADS) {
			float w = weight ? (float)weight[r % g.groups * each + k] : 1;

			first += w * room[r * each + k];
			second += w * room[s.samples * s.channels + r * each + k];
		}
		first = pd_block_sum<PD_THREADS>(first) / (float)width;
		second = pd_block_sum<PD_THREADS>(second) / (float)width;
		for (int64_t i = threadIdx.x; i < width; i += PD_THREADS) {
			int64_t at = element_of(g, r, i);
			float d = (float)dy[at] * (weight ? (float)weight[channel_of(g, r, i)] : 1);

			dx[at] = (T)(scale * (d - first - ((float)x[at] - mean) * scale * second));
		}
	}
}

cudaError_t pd_kernel_groupnorm_sums(cudaStream_t stream, enum pd_dtype dtype,
				     const struct pd_kernel_groupnorm *g, float *room, const void *x,
				     const void *dy, const float *kept)
{
	PD_BY_TYPE(dtype, T, (sums<T><<<pd_channel_blocks(&g->channels), PD_THREADS, 0, stream>>>(
		*g, room, (const T *)x, (const T *)dy, kept)));
	return cudaGetLastError();
}

cudaError_t pd_kernel_groupnorm_parameters(cudaStream_t stream, const struct pd_kernel_groupnorm *g,
					   float *d_weight, float *d_bias, const float *room)
{
	unsigned blocks = g->channels.channels < PD_BLOCKS_MOST ? (unsigned)g->channels.channels
								: PD_BLOCKS_MOST;

	pd_channel_totals<<<blocks, PD_THREADS, 0, stream>>>(g->channels, d_bias, d_weight, room);
	return cudaGetLastError();
}

cudaError_t pd_kernel_groupnorm_back(cudaStream_t stream, enum pd_dtype dtype,
				     const struct pd_kernel_groupnorm *g, void *dx, const void *x,
				     const void *dy, const void *weight, const float *kept,
				     const float *room)
{
	PD_BY_TYPE(dtype, T, (input_back<T><<<blocks_of(g), PD_THREADS, 0, stream>>>(
		*g, (T *)dx, (const T *)x, (const T *)dy, (const T *)weight, kept, room)));
	return cudaGetLastError();
}
