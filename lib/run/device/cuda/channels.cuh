/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over each channel of each sample, plain or with channels last, in an order that follows from the shape. */
#pragma once

#include "run/device/cuda/block_sum.cuh"
#include "run/device/cuda/grid.cuh"
#include "run/device/cuda/kernels.h"

#define PD_CHANNELS_ACROSS 32           /* channels of a block where they lie side by side */

/* Returns the element of place a of channel c of sample n. */
__device__ static inline int64_t pd_channel_place(const struct pd_kernel_channels &s, int64_t n, int64_t c,
						  int64_t a)
{
	return s.last ? (n * s.area + a) * s.channels + c : (n * s.channels + c) * s.area + a;
}

/* Returns how many blocks take the channels of a sample. */
__host__ __device__ static inline int64_t pd_channel_columns(const struct pd_kernel_channels &s)
{
	return s.last ? (s.channels + PD_CHANNELS_ACROSS - 1) / PD_CHANNELS_ACROSS : s.channels;
}

/* The blocks of PD_THREADS threads that take sums. */
static inline unsigned pd_channel_blocks(const struct pd_kernel_channels *s)
{
	int64_t blocks = s->area > 1 ? s->samples * pd_channel_columns(*s)
				     : (s->samples * s->channels + PD_THREADS - 1) / PD_THREADS;

	return blocks < PD_BLOCKS_MOST ? (unsigned)blocks : PD_BLOCKS_MOST;
}

/* The same where each sum is of one number. */
template <typename Add>
__device__ static void pd_channel_numbers(const struct pd_kernel_channels &s, float *room, Add add)
{
	size_t count = (size_t)(s.samples * s.channels);

	PD_FOR_EACH(i, count) {
		size_t n = pd_quotient(i, (size_t)s.channels);
		float one = 0, two = 0;

		add((int64_t)n, (int64_t)(i - n * (size_t)s.channels), (int64_t)i, &one, &two);
		room[i] = one;
		room[count + i] = two;
	}
}

/*
 * Sums what add(n, c, element, &first, &second) adds, over each channel c of each sample n, and puts both sums
 * into room: the first of all, then the second.
 */
template <typename Add>
__device__ static void pd_channel_sums(const struct pd_kernel_channels &s, float *room, Add add)
{
	__shared__ float first[PD_THREADS], second[PD_THREADS];
	int across = s.last ? PD_CHANNELS_ACROSS : 1, t = threadIdx.x;
	int64_t columns = pd_channel_columns(s);

	if (s.area == 1) {
		pd_channel_numbers(s, room, add);
		return;
	}
	for (int64_t b = blockIdx.x; b < s.samples * columns; b += gridDim.x) {
		int64_t n = b / columns, c = b % columns * across + t % across;
		float one = 0, two = 0;

		for (int64_t a = t / across; a < s.area && c < s.channels; a += PD_THREADS / across)
			add(n, c, pd_channel_place(s, n, c, a), &one, &two);
		first[t] = one;
		second[t] = two;
		for (int half = PD_THREADS / 2; half >= across; half /= 2) {
			__syncthreads();
			if (t < half) {
				first[t] += first[t + half];
				second[t] += second[t + half];
			}
		}
		if (t < across && c < s.channels) {
			room[n * s.channels + c] = first[t];
			room[(s.samples + n) * s.channels + c] = second[t];
		}
		__syncthreads();        /* only now may the next begin */
	}
}

/* Adds the sums of all samples: a block takes a channel.  to: NULL, or where those of that number go. */
__global__ static void pd_channel_totals(struct pd_kernel_channels s, float *to_first, float *to_second,
					 const float *room)
{
	for (int64_t c = blockIdx.x; c < s.channels; c += gridDim.x) {
		double first = 0, second = 0;

		for (int64_t n = threadIdx.x; n < s.samples; n += PD_THREADS) {
			first += room[n * s.channels + c];
			second += room[(s.samples + n) * s.channels + c];
		}
		first = pd_block_sum<PD_THREADS>(first);
		second = pd_block_sum<PD_THREADS>(second);
		if (threadIdx.x == 0 && to_first)
			to_first[c] = (float)first;
		if (threadIdx.x == 0 && to_second)
			to_second[c] = (float)second;
	}
}
