/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/data/order.h"

#include "base/rng.h"

/* Draws a number uniform in 0 to n - 1 for place i of an epoch. */
static uint32_t below(uint64_t seed, uint64_t stream, uint32_t i, uint32_t n)
{
	uint32_t skip = -n % n;	/* 2^32 mod n numbers are rejected: the others are a multiple of n */

	for (uint32_t attempt = 0;; attempt++) {
		uint32_t v = pd_random(seed, stream, attempt, i).v[0];

		if (v >= skip)
			return v % n;
	}
}

/* Shuffles as Fisher and Yates do. */
void pd_order_shuffle(uint64_t seed, int64_t epoch, int64_t samples, uint32_t *order)
{
	uint64_t stream = PD_RNG_SHUFFLE + (uint64_t)epoch;

	for (int64_t i = 0; i < samples; i++)
		order[i] = (uint32_t)i;
	for (int64_t i = samples - 1; i > 0; i--) {
		uint32_t j = below(seed, stream, (uint32_t)i, (uint32_t)i + 1);
		uint32_t other = order[j];

		order[j] = order[i];
		order[i] = other;
	}
}

int64_t pd_order_lane(int64_t lanes, int64_t samples, int64_t place)
{
	int64_t each = samples / lanes;

	return place % lanes * each + place / lanes % each;
}

void pd_synthetic_f32(uint64_t seed, int input, int64_t sample, int64_t elements, float *out)
{
	uint64_t stream = PD_RNG_DATA + (uint64_t)input;
	int64_t e = 0;

	for (; e + 4 <= elements; e += 4) {
		struct pd_random4 r = pd_random(seed, stream, (uint32_t)sample, (uint32_t)(e / 4));

		for (int i = 0; i < 4; i++)
			out[e + i] = 2 * pd_unit(r.v[i]) - 1;
	}
	for (; e < elements; e++) {
		struct pd_random4 r = pd_random(seed, stream, (uint32_t)sample, (uint32_t)(e / 4));

		out[e] = 2 * pd_unit(r.v[e % 4]) - 1;
	}
}

void pd_synthetic_i32(uint64_t seed, int input, int64_t sample, int64_t elements, int64_t least,
		      int64_t limit, int32_t *out)
{
	uint64_t stream = PD_RNG_DATA + (uint64_t)input;

	for (int64_t e = 0; e < elements; e++) {
		struct pd_random4 r = pd_random(seed, stream, (uint32_t)sample, (uint32_t)(e / 4));

		out[e] = (int32_t)(least + (int64_t)((r.v[e % 4] * (uint64_t)(limit - least)) >> 32));
	}
}
