/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Executes a step of sparse sums (struct pd_chunks).  A block passes over a chunk, each thread at
 * its stride, and adds up its absolute values in an order that depends on their count alone.
 */
#include "run/device/cuda/host_device.cuh"

#include "run/device/cuda/block_sum.cuh"
#include "run/device/cuda/grid.cuh"
#include "run/device/cuda/kernels.h"

/* Counts the norms whose bits are at least `least`: floats without sign ascend with their bits. */
__device__ static int64_t count_from(const uint32_t *bits, int64_t count, uint32_t least)
{
	int64_t mine = 0;

	for (int64_t i = threadIdx.x; i < count; i += PD_THREADS)
		mine += bits[i] >= least;
	return pd_block_sum<PD_THREADS>(mine);
}

/*
 * Numbers the chunks whose norm is above the least, and the first `equal` of those that have it.  Each
 * thread numbers a range of them, from how many the threads before it have.
 */
__device__ static void number_chunks(const uint32_t *bits, int64_t count, uint32_t least, int64_t equal,
				     int32_t *places)
{
	int64_t each = (count + PD_THREADS - 1) / PD_THREADS, from = threadIdx.x * each;
	int64_t to = from + each < count ? from + each : count, above = 0, same = 0;

	for (int64_t i = from; i < to; i++) {
		above += bits[i] > least;
		same += bits[i] == least;
	}
	above = pd_block_before<PD_THREADS>(above);
	same = pd_block_before<PD_THREADS>(same);
	for (int64_t i = from; i < to; i++) {
		bool sent = bits[i] > least || (bits[i] == least && same < equal);

		places[i] = sent ? (int32_t)(above + (same < equal ? same : equal)) : -1;
		above += bits[i] > least;
		same += bits[i] == least;
	}
}

/*
 * One block finds the smallest norm that is sent, a bit in each pass, and then numbers the chunks of
 * that norm and above.  Of equal norms the first are sent, as many as there is room for.
 */
__global__ static void choose_chunks(struct pd_chunks w)
{
	const uint32_t *bits = (const uint32_t *)w.norms + w.first;
	uint32_t least = 0;
	int64_t equal;

	for (uint32_t bit = UINT32_C(1) << 31; bit > 0; bit >>= 1)
		if (count_from(bits, w.count, least | bit) >= w.sent)
			least |= bit;
	equal = w.sent - (least < UINT32_MAX ? count_from(bits, w.count, least + 1) : 0);
	number_chunks(bits, w.count, least, equal, w.places + w.first);
}

__global__ static void pass_chunks(struct pd_chunks w)
{
	int64_t c = w.first + blockIdx.x, begin = c * w.chunk, end = begin + w.chunk;
	int32_t place = w.places[c];
	float *packed = w.packed + (place > 0 ? place * w.chunk : 0) - begin;
	int t = threadIdx.x;
	double mine = 0;

	if (w.step == PD_CHUNKS_UNPACK && place < 0)
		return;
	end = end < w.floats ? end : w.floats;
	for (int64_t i = begin + t; i < end; i += PD_THREADS) {
		float g = w.step == PD_CHUNKS_UNPACK ? packed[i] : w.gradients[i] + w.residual[i];

		w.gradients[i] = g;
		if (w.step == PD_CHUNKS_PACK && place >= 0)
			packed[i] = g;
		if (w.step == PD_CHUNKS_PACK)
			w.residual[i] = place >= 0 ? 0 : w.keep * g;
		mine += g < 0 ? -(double)g : (double)g;
	}
	mine = pd_block_sum<PD_THREADS>(mine);
	if (t == 0)
		w.norms[c] = (float)(w.step == PD_CHUNKS_UNPACK ? mine / w.members : mine);
}

cudaError_t pd_kernel_chunks(cudaStream_t stream, const struct pd_chunks *w)
{
	if (w->count == 0)
		return cudaSuccess;
	if (w->step == PD_CHUNKS_CHOOSE) {
		choose_chunks<<<1, PD_THREADS, 0, stream>>>(*w);
	} else {
		pass_chunks<<<(unsigned)w->count, PD_THREADS, 0, stream>>>(*w);
	}
	return cudaGetLastError();
}
