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

/* Returns the sum over the threads of the block before this one; T is an integer. */
template <int THREADS, typename T>
__device__ static T pd_block_before(T mine)
{
	__shared__ T sum[THREADS];
	int t = threadIdx.x;
	T more;

	sum[t] = mine;
	for (int step = 1; step < THREADS; step *= 2) {
		__syncthreads();
		more = t >= step ? sum[t - step] : 0;
		__syncthreads();
		sum[t] += more;
	}
	more = sum[t] - mine;
	__syncthreads();        /* only now may the next sum begin */
	return more;
}
