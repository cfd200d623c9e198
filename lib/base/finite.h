/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Are numbers finite?  By their bits, so that loops are quick: an exponent of ones, which a NaN and infinity
 * have, becomes the bit of the sign when its last bit is added.
 */
#pragma once

#include "base/half.h"

#include <stdbool.h>
#include <stddef.h>

static inline bool pd_all_finite(const float *x, size_t count)
{
	uint32_t found = 0;

	for (size_t i = 0; i < count; i++)
		found |= (pd_float_bits(x[i]) & 0x7fffffff) + 0x800000;
	return found < 0x80000000;
}

/* The same of 16 bits; last_bit: that of the exponent. */
#define PD_BF16_LAST_BIT 0x80
#define PD_F16_LAST_BIT 0x400
static inline bool pd_all_finite_narrow(const uint16_t *x, uint16_t last_bit, size_t count)
{
	uint16_t found = 0;

	for (size_t i = 0; i < count; i++)
		found = (uint16_t)(found | ((x[i] & 0x7fff) + last_bit));
	return found < 0x8000;
}
