/* SPDX-License-Identifier: Apache-2.0 */
/* One pass over the arenas, in the CPU's order of operations. */
#include "device/cuda/both.cuh"

#include "device/cuda/grid.cuh"
#include "device/cuda/kernels.h"

__global__ static void sgd(struct pd_kernel_sgd u, size_t begin, size_t count)
{
	PD_FOR_EACH(k, count) {
		size_t i = begin + k;

		if (u.velocity)
			pd_sgd_momentum(u.next, u.velocity, u.weights, u.gradients, i, u.rate,
					u.keep, u.decay);
		else
			pd_sgd_plain(u.next, u.weights, u.gradients, i, u.rate, u.decay);
	}
}

cudaError_t pd_kernel_sgd(cudaStream_t stream, const struct pd_kernel_sgd *u, size_t begin,
			  size_t end)
{
	if (end > begin)
		sgd<<<pd_blocks(end - begin), PD_THREADS, 0, stream>>>(*u, begin, end - begin);
	return cudaGetLastError();
}

__global__ static void adam(struct pd_kernel_adam u, size_t begin, size_t count)
{
	PD_FOR_EACH(k, count)
		pd_adam_element(u.next, u.first, u.second, u.weights, u.gradients, begin + k,
				u.keep, u.decay, u.beta1, u.rest1, u.beta2, u.rest2, u.root, u.eps,
				u.step);
}

cudaError_t pd_kernel_adam(cudaStream_t stream, const struct pd_kernel_adam *u, size_t begin,
			   size_t end)
{
	if (end > begin)
		adam<<<pd_blocks(end - begin), PD_THREADS, 0, stream>>>(*u, begin, end - begin);
	return cudaGetLastError();
}
