/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Returns the sum over the block in each of its threads, which are THREADS, a power of two.  Halves
 * are added to halves: the order follows from THREADS alone.
 */
template <int THREADS, typename T>
__device__ static T pd_block_sum(T mine)
{
	__shared__ T sum[THREADS];
	int t = threadIdx.x;
	T all;

	sum[t] = mine;
	for (int half = THREADS / 2; half > 0; half /= 2) {
		__syncthreads();
		if (t < half)
			sum[t] += sum[t + half];
	}
	__syncthreads();
	all = sum[0];
	__syncthreads();        /* only now may the next sum begin */
	return all;
}
