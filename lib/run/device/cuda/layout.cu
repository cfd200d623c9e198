/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions between layouts. */
#include "run/device/cuda/host_device.cuh"

#include "run/device/cuda/grid.cuh"
#include "run/device/cuda/kernels.h"
#include "run/device/cuda/typed.cuh"

/* Neighbouring threads write adjacent elements. */
template <typename T>
__global__ static void turn(T *dst, const T *src, size_t count, int64_t channels, int64_t area,
			    bool to_last)
{
	size_t inner = to_last ? channels : area, outer = to_last ? area : channels;

	PD_FOR_EACH(i, count) {
		size_t k = pd_rest(i, inner), rest = pd_quotient(i, inner);
		size_t m = pd_rest(rest, outer), sample = pd_quotient(rest, outer);

		dst[i] = src[(sample * inner + k) * outer + m];
	}
}

cudaError_t pd_kernel_turn(cudaStream_t stream, enum pd_dtype dtype, void *dst, const void *src,
			   int64_t samples, int64_t channels, int64_t area, bool to_last)
{
	size_t count = (size_t)(samples * channels * area);

	if (count > 0)
		PD_BY_TYPE(dtype, T, (turn<T><<<pd_grid_blocks(count), PD_THREADS, 0, stream>>>(
			(T *)dst, (const T *)src, count, channels, area, to_last)));
	return cudaGetLastError();
}
