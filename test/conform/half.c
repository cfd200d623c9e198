/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU's vectorised conversions between 16 bits and f32 give the bits of base/half.h. */
#include "base/half.h"
#include "base/mem.h"
#include "run/device/cpu/cpu.h"
#include "tap.h"

#include <stdlib.h>
#include <string.h>

#define ALL 0x10000

struct kind {
	enum pd_dtype dtype;
	uint16_t (*to)(float x);
	float (*from)(uint16_t x);
};

static const struct kind kinds[] = {
	{ PD_BF16, pd_to_bf16, pd_from_bf16 }, { PD_F16, pd_to_f16, pd_from_f16 },
};

static void widen(const struct kind *k)
{
	uint16_t *from = pd_calloc(ALL, sizeof(*from));
	float *to = pd_calloc(ALL, sizeof(*to));
	int wrong = 0;

	for (uint32_t x = 0; x < ALL; x++)
		from[x] = (uint16_t)x;
	pd_cpu_widen(k->dtype, to, from, ALL);
	for (uint32_t x = 0; x < ALL; x++)
		wrong += pd_float_bits(to[x]) != pd_float_bits(k->from((uint16_t)x));
	is_int(wrong, 0, "%s: every number, widened", pd_dtype_name[k->dtype]);
	free(from);
	free(to);
}

/* Checks every upper half with lower halves at and around rounding's middles, for all kinds of numbers. */
static void narrow(const struct kind *k)
{
	static const uint32_t lower[] = {
		0, 1, 0xfff, 0x1000, 0x1001, 0x1fff, 0x2000, 0x2fff, 0x3000, 0x3001, 0x7000,
		0x7fff, 0x8000, 0x8001, 0xf000, 0xffff,
	};
	float *from = pd_calloc(ALL, sizeof(*from));
	uint16_t *to = pd_calloc(ALL, sizeof(*to));
	int wrong = 0;

	for (size_t l = 0; l < PD_COUNT(lower); l++) {
		for (uint32_t x = 0; x < ALL; x++) {
			uint32_t bits = x << 16 | lower[l];

			memcpy(&from[x], &bits, sizeof(bits));
		}
		pd_cpu_narrow(k->dtype, to, from, ALL);
		for (uint32_t x = 0; x < ALL; x++)
			wrong += to[x] != k->to(from[x]);
	}
	is_int(wrong, 0, "%s: rounded", pd_dtype_name[k->dtype]);
	free(from);
	free(to);
}

/* Checks that conversions leave the elements before and behind the array as they are. */
static void ends(const struct kind *k)
{
	int wrong = 0;

	for (size_t count = 0; count < 40; count++) {
		float wide[42], there[42];
		uint16_t half[42];

		for (int i = 0; i < 42; i++) {
			wide[i] = (float)i / 3;
			there[i] = -1;
			half[i] = 7;
		}
		pd_cpu_narrow(k->dtype, half + 1, wide + 1, count);
		pd_cpu_widen(k->dtype, there + 1, half + 1, count);
		for (size_t i = 0; i < 42; i++) {
			bool inside = i >= 1 && i < count + 1;

			wrong += half[i] != (inside ? k->to(wide[i]) : 7);
			wrong += there[i] != (inside ? k->from(k->to(wide[i])) : -1);
		}
	}
	is_int(wrong, 0, "%s: as many as asked for, from anywhere", pd_dtype_name[k->dtype]);
}

int main(void)
{
	for (size_t i = 0; i < PD_COUNT(kinds); i++) {
		widen(&kinds[i]);
		narrow(&kinds[i]);
		ends(&kinds[i]);
	}
	return done_testing();
}
