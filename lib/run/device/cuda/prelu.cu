/* SPDX-License-Identifier: Apache-2.0 */
#include "run/device/cuda/host_device.cuh"

#include "run/device/cuda/block_sum.cuh"
#include "run/device/cuda/channels.cuh"
#include "run/device/cuda/typed.cuh"

/* Returns the channel of element i of a batch. */
__device__ static size_t channel_of(const struct pd_kernel_channels &s, size_t i)
{
	return pd_rest(s.last ? i : pd_quotient(i, (size_t)s.area), (size_t)s.channels);
}

static size_t count_of(const struct pd_kernel_channels *s)
{
	return (size_t)(s->samples * s->channels * s->area);
}

template <typename T>
__global__ static void bend(struct pd_kernel_channels s, T *y, const T *__restrict__ x,
			    const T *__restrict__ weight, size_t count)
{
	PD_FOR_EACH(i, count) {
		float v = (float)x[i];

		y[i] = v > 0 ? x[i] : (T)((float)weight[channel_of(s, i)] * v);
	}
}

cudaError_t pd_kernel_prelu(cudaStream_t stream, enum pd_dtype dtype, const struct pd_kernel_channels *s,
			    void *y, const void *x, const void *weight)
{
	size_t count = count_of(s);

	PD_BY_TYPE(dtype, T, (bend<T><<<pd_grid_blocks(count), PD_THREADS, 0, stream>>>(
		*s, (T *)y, (const T *)x, (const T *)weight, count)));
	return cudaGetLastError();
}

template <typename T>
__global__ static void bend_back(struct pd_kernel_channels s, T *dx, const T *__restrict__ x,
				 const T *__restrict__ dy, const T *__restrict__ weight, size_t count)
{
	PD_FOR_EACH(i, count)
		dx[i] = (float)x[i] > 0 ? dy[i] : (T)((float)weight[channel_of(s, i)] * (float)dy[i]);
}

cudaError_t pd_kernel_prelu_back(cudaStream_t stream, enum pd_dtype dtype,
				 const struct pd_kernel_channels *s, void *dx, const void *x,
				 const void *dy, const void *weight)
{
	size_t count = count_of(s);

	PD_BY_TYPE(dtype, T, (bend_back<T><<<pd_grid_blocks(count), PD_THREADS, 0, stream>>>(
		*s, (T *)dx, (const T *)x, (const T *)dy, (const T *)weight, count)));
	return cudaGetLastError();
}

template <typename T>
__global__ static void weight_back(struct pd_kernel_channels s, float *room, const T *__restrict__ x,
				   const T *__restrict__ dy)
{
	pd_channel_sums(s, room, [&](int64_t, int64_t, int64_t at, float *first, float *) {
		float v = (float)x[at];

		*first += v > 0 ? 0 : v * (float)dy[at];
	});
}

cudaError_t pd_kernel_prelu_weight(cudaStream_t stream, enum pd_dtype dtype,
				   const struct pd_kernel_channels *s, float *d_weight, float *room,
				   const void *x, const void *dy)
{
	unsigned blocks = s->channels < PD_BLOCKS_MOST ? (unsigned)s->channels : PD_BLOCKS_MOST;

	PD_BY_TYPE(dtype, T, (weight_back<T><<<pd_channel_blocks(s), PD_THREADS, 0, stream>>>(
		*s, room, (const T *)x, (const T *)dy)));
	pd_channel_totals<<<blocks, PD_THREADS, 0, stream>>>(*s, d_weight, (float *)NULL, room);
	return cudaGetLastError();
}
