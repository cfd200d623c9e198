/* SPDX-License-Identifier: Apache-2.0 */
/* Tests conversions of every number of 16 bits to f32 and back, and of numbers between two of them. */
#include "base/half.h"

#include "tap.h"

#include <math.h>

struct kind {
	const char *name;
	uint16_t (*to)(float x);
	float (*from)(uint16_t x);
	uint16_t infinity, most;
	uint16_t quiet;                 /* the bit of a quiet NaN */
	float least;                    /* the least number above 0 */
};

static const struct kind kinds[] = {
	{ "bf16", pd_to_bf16, pd_from_bf16, 0x7f80, 0x7f7f, 0x40, 0x1p-133f },
	{ "f16", pd_to_f16, pd_from_f16, 0x7c00, 0x7bff, 0x200, 0x1p-24f },
};

static void there_and_back(const struct kind *k)
{
	int wrong = 0, ascending = 1, nans = 0;

	for (uint32_t x = 0; x < 0x10000; x++) {
		float value = k->from((uint16_t)x);

		if (isnan(value))
			nans += k->to(value) == (x | k->quiet);
		else
			wrong += k->to(value) != x;
		if (x > 0 && x <= k->infinity)
			ascending &= value > k->from((uint16_t)(x - 1));
	}
	is_int(wrong, 0, "%s: every number is itself after a way to f32 and back", k->name);
	is_int(nans, 2 * (0x7fff - k->infinity), "%s: what is no number stays that, with its sign "
	       "and payload", k->name);
	ok(ascending, "%s: in order, from 0 to infinity", k->name);
	ok(k->from(1) == k->least && k->from(0) == 0 && isinf(k->from(k->infinity)),
	   "%s: the least, zero and infinity", k->name);
}

/* Tests that the middle of two numbers, exact in f32, is rounded to the even one, others to the nearer. */
static void between(const struct kind *k)
{
	int wrong = 0;

	for (uint32_t x = 0; x < k->most; x++) {
		float low = k->from((uint16_t)x), high = k->from((uint16_t)(x + 1));
		float middle = low / 2 + high / 2;

		wrong += k->to(middle) != (x & 1 ? x + 1 : x);
		wrong += k->to(nextafterf(middle, 0)) != x;
		wrong += k->to(nextafterf(middle, INFINITY)) != x + 1;
		wrong += k->to(-middle) != (0x8000 | (x & 1 ? x + 1 : x));
	}
	is_int(wrong, 0, "%s: to nearest, ties to even, of either sign", k->name);
}

static void too_large(const struct kind *k)
{
	float most = k->from(k->most), step = most - k->from((uint16_t)(k->most - 1));
	float edge = most + step / 2;

	ok(k->to(nextafterf(edge, 0)) == k->most, "%s: just below the edge is the largest", k->name);
	ok(k->to(edge) == k->infinity && k->to(INFINITY) == k->infinity &&
	   k->to(-INFINITY) == (k->infinity | 0x8000), "%s: from there on it is infinite", k->name);
	ok(isnan(k->from(k->to(NAN))) && isnan(k->from(k->to(pd_bits_float(0x7f800001)))),
	   "%s: whatever the payload of what is no number", k->name);
}

/* Tests that signalling NaNs become quiet, as with the processors' own instructions. */
static void f16_is_quiet(void)
{
	ok(pd_float_bits(pd_from_f16(0x7c01)) == 0x7fc02000 &&
	   pd_float_bits(pd_from_f16(0xfd55)) == 0xffeaa000, "f16: no number signals in f32");
}

int main(void)
{
	for (int i = 0; i < 2; i++) {
		there_and_back(&kinds[i]);
		between(&kinds[i]);
		too_large(&kinds[i]);
	}
	f16_is_quiet();
	return done_testing();
}
