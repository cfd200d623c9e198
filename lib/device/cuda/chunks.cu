/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Executes a step of sparse sums (struct pd_chunks).  A block passes over a chunk, each thread at
 * its stride, and adds up its absolute values in an order that depends on their count alone.
 */
#include "device/cuda/host_device.cuh"

#include "device/cuda/block_sum.cuh"
#include "device/cuda/grid.cuh"
#include "device/cuda/kernels.h"

/* Tells whether chunk a comes before b: floats without sign ascend with their bits, NaN last. */
__device__ static bool before(const float *norms, int64_t a, int64_t b)
{
	const uint32_t *bits = (const uint32_t *)norms;

	return bits[a] != bits[b] ? bits[a] > bits[b] : a < b;
}

__global__ static void rank_chunks(struct pd_chunks w)
{
	PD_FOR_EACH(k, (size_t)w.count) {
		int64_t c = w.first + (int64_t)k, rank = 0;

		for (int64_t other = w.first; other < w.first + w.count; other++)
			rank += before(w.norms, other, c);
		w.places[c] = rank < w.sent ? 0 : -1;
	}
}

__global__ static void number_chunks(struct pd_chunks w)
{
	int32_t place = 0;

	for (int64_t c = w.first; c < w.first + w.count; c++)
		if (w.places[c] >= 0)
			w.places[c] = place++;
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
		rank_chunks<<<pd_blocks((size_t)w->count), PD_THREADS, 0, stream>>>(*w);
		number_chunks<<<1, 1, 0, stream>>>(*w);
	} else {
		pass_chunks<<<(unsigned)w->count, PD_THREADS, 0, stream>>>(*w);
	}
	return cudaGetLastError();
}
