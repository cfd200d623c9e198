/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of which some numbers are of 16 bits: gradients on their way between replicas. */
#include "run/device/cuda/grid.cuh"
#include "run/device/cuda/kernels.h"
#include "run/device/cuda/typed.cuh"

#include <float.h>

template <typename T>
__device__ static float source(const struct pd_mixed_sum &what, int k, size_t i, float unscale)
{
	return what.narrow_sources >> k & 1 ? (float)((const T *)what.src[k])[i] * unscale
					    : ((const float *)what.src[k])[i];
}

template <typename T>
__device__ static T rounded(const struct pd_rounding &rounding, float x)
{
	float y = x * rounding.scale, size = fabsf(y);

	return (T)(rounding.saturates && size > PD_F16_MAX && size <= FLT_MAX
		   ? copysignf(PD_F16_MAX, y) : y);
}

/* dst may be a source of its width, since elements are read from all before they are written. */
template <typename T>
__global__ static void mixed_sum(struct pd_mixed_sum what)
{
	float unscale = 1 / what.rounding.scale;

	PD_FOR_EACH(i, what.count) {
		float total = source<T>(what, 0, i, unscale);

		for (int k = 1; k < what.n; k++)
			total += source<T>(what, k, i, unscale);
		if (what.narrow)
			((T *)what.dst)[i] = rounded<T>(what.rounding, total);
		else
			((float *)what.dst)[i] = total;
	}
}

cudaError_t pd_kernel_mixed_sum(cudaStream_t stream, const struct pd_mixed_sum *what)
{
	if (what->count > 0)
		PD_BY_TYPE(what->rounding.dtype, T, (
			mixed_sum<T><<<pd_grid_blocks(what->count), PD_THREADS, 0, stream>>>(*what)));
	return cudaGetLastError();
}
