/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of an epoch and the contents of a synthetic sample are functions of the seed alone, so
 * that every rank and every partition agrees.
 */
#pragma once

#include <stdint.h>

/* Fills order with an epoch's random permutation of 0 to samples - 1 (below 2^32). */
void pd_order_shuffle(uint64_t seed, int64_t epoch, int64_t samples, uint32_t *order);

/*
 * The sample at a place, from 0, where a network carries the state of lanes from sample to sample:
 * each lane goes through as many samples that follow one another, and begins again behind them.
 * Place n belongs to lane n % lanes.  What is left over is at no place.
 */
int64_t pd_order_lane(int64_t lanes, int64_t samples, int64_t place);

/*
 * Elements of one sample of a model input: uniform in [-1, 1), or, for whole numbers,
 * uniform in least to limit - 1.  Element e is number e % 4 of
 * pd_random(seed, PD_RNG_DATA + input, sample, e / 4).
 */
void pd_synthetic_f32(uint64_t seed, int input, int64_t sample, int64_t elements, float *out);
void pd_synthetic_i32(uint64_t seed, int input, int64_t sample, int64_t elements, int64_t least,
		      int64_t limit, int32_t *out);
