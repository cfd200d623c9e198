/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counter-based random numbers (Philox 4x32-10; Salmon et al., SC 2011): the
 * numbers are a function of a key and a counter and of nothing else, so that every
 * device, rank, replica and partition draws the same ones.
 *
 * Counters in use (key = the run's seed):
 *   parameters  stream pd_rng_parameter(layer number, parameter's index in the layer),
 *               counter = element / 4 (64 bits), elements in plain order
 *   dropout     stream PD_RNG_DROPOUT + layer number,
 *               counter = (global sample number, element within the sample / 4)
 *   attention   its dropout: the same stream, counter = (global sample number, n modulo 2^32), where
 *               n = (head * queries + query) * ((keys + 3) / 4) + key / 4; stream more by
 *               2^24 * (n / 2^32)
 *   data order  stream PD_RNG_SHUFFLE + epoch
 *   augment     stream PD_RNG_AUGMENT + epoch, counter = (sample's number in its set, 0)
 *   synthetic   stream PD_RNG_DATA + input index, counter as dropout
 * A layer's number is its place in the model, however a plan orders the layers.
 */
#pragma once

#include "base/inline.h"

#include <stdint.h>

#define PD_RNG_PARAMETER (UINT64_C(1) << 32)
#define PD_RNG_DROPOUT   (UINT64_C(2) << 32)
#define PD_RNG_SHUFFLE   (UINT64_C(3) << 32)
#define PD_RNG_DATA      (UINT64_C(4) << 32)
#define PD_RNG_AUGMENT   (UINT64_C(5) << 32)

/* Two streams next to one another for each layer, and those of further pairs of parameters far
 * behind; numbers of layers are below 2^23. */
PD_INLINE uint64_t pd_rng_parameter(uint64_t layer, unsigned index)
{
	return PD_RNG_PARAMETER + ((uint64_t)(index / 2) << 24) + 2 * layer + index % 2;
}

struct pd_random4 {
	uint32_t v[4];
};

PD_INLINE struct pd_random4 pd_random(uint64_t seed, uint64_t stream, uint32_t high, uint32_t low)
{
	uint32_t c0 = low, c1 = high, c2 = (uint32_t)stream, c3 = (uint32_t)(stream >> 32);
	uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
	struct pd_random4 numbers;

	for (int round = 0; round < 10; round++) {
		uint64_t p0 = (uint64_t)0xD2511F53 * c0, p1 = (uint64_t)0xCD9E8D57 * c2;

		c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
		c1 = (uint32_t)p1;
		c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
		c3 = (uint32_t)p0;
		k0 += 0x9E3779B9;
		k1 += 0xBB67AE85;
	}
	numbers.v[0] = c0;
	numbers.v[1] = c1;
	numbers.v[2] = c2;
	numbers.v[3] = c3;
	return numbers;
}

/* Returns a number in [0, 1) with 24 bits. */
PD_INLINE float pd_unit(uint32_t v)
{
	return (float)(v >> 8) * 0x1p-24f;
}
