/* SPDX-License-Identifier: Apache-2.0 */
/* One pass over the arenas, in the CPU's order of operations. */
#include "device/cuda/both.cuh"

#include "device/cuda/grid.cuh"
#include "device/cuda/kernels.h"

__global__ static void agree(struct pd_agreed agreed, struct pd_adam adam,
			     struct pd_kernel_choice *choice, struct pd_outcome *outcome)
{
	struct pd_outcome out;
	struct pd_scale next;

	adam.count -= agreed.before->skipped;
	choice->factor = pd_agreed_factor(&agreed, &next, &out);
	choice->skip = out.skip;
	choice->adam = pd_adam_factors(&adam);
	*agreed.next = next;
	*outcome = out;
}

cudaError_t pd_kernel_agree(cudaStream_t stream, const struct pd_agreed *agreed,
			    const struct pd_adam *adam, struct pd_kernel_choice *choice,
			    struct pd_outcome *outcome)
{
	agree<<<1, 1, 0, stream>>>(*agreed, *adam, choice, outcome);
	return cudaGetLastError();
}

/* Skipped: the next version is this one. */
__device__ static bool skipped(const struct pd_kernel_choice *choice, float *next,
			       const float *weights, size_t i)
{
	if (!choice || !choice->skip)
		return false;
	if (next != weights)
		next[i] = weights[i];
	return true;
}

__device__ static void correct(const struct pd_kernel_correction &c, float old, const float *next,
			       size_t i)
{
	if (c.delta)
		pd_correct_element(c.corrected, c.delta, old, next, i, c.keep, c.rest, c.delay);
}

__global__ static void sgd(struct pd_kernel_sgd u, size_t begin, size_t count)
{
	double factor = u.choice ? u.choice->factor : 1;

	PD_FOR_EACH(k, count) {
		size_t i = begin + k;
		float old = u.weights[i];

		if (skipped(u.choice, u.next, u.weights, i))
			continue;
		if (u.velocity)
			pd_sgd_momentum(u.next, u.velocity, u.weights, u.gradients, i, factor,
					u.rate, u.keep, u.decay);
		else
			pd_sgd_plain(u.next, u.weights, u.gradients, i, factor, u.rate, u.decay);
		correct(u.correction, old, u.next, i);
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
	const struct pd_adam_factors f = u.choice ? u.choice->adam : u.factors;
	double factor = u.choice ? u.choice->factor : 1;

	PD_FOR_EACH(k, count) {
		size_t i = begin + k;
		float old = u.weights[i];

		if (skipped(u.choice, u.next, u.weights, i))
			continue;
		pd_adam_element(u.next, u.first, u.second, u.weights, u.gradients, i, factor, &f);
		correct(u.correction, old, u.next, i);
	}
}

cudaError_t pd_kernel_adam(cudaStream_t stream, const struct pd_kernel_adam *u, size_t begin,
			   size_t end)
{
	if (end > begin)
		adam<<<pd_blocks(end - begin), PD_THREADS, 0, stream>>>(*u, begin, end - begin);
	return cudaGetLastError();
}
