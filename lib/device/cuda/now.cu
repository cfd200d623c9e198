/* SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/both.cuh"

#include "device/cuda/kernels.h"

__global__ static void set_now(struct pd_kernel_now *now, struct pd_kernel_now value)
{
	*now = value;
}

cudaError_t pd_kernel_set_now(cudaStream_t stream, struct pd_kernel_now *now,
			      const struct pd_kernel_now *value)
{
	set_now<<<1, 1, 0, stream>>>(now, *value);
	return cudaGetLastError();
}
