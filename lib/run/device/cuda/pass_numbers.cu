/* SPDX-License-Identifier: Apache-2.0 */
#include "run/device/cuda/host_device.cuh"

#include "run/device/cuda/kernels.h"

__global__ static void set_numbers(struct pd_pass_numbers *numbers, struct pd_pass_numbers value)
{
	*numbers = value;
}

cudaError_t pd_kernel_set_numbers(cudaStream_t stream, struct pd_pass_numbers *numbers,
				  const struct pd_pass_numbers *value)
{
	set_numbers<<<1, 1, 0, stream>>>(numbers, *value);
	return cudaGetLastError();
}
