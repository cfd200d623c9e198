/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversion of 16-bit floating-point numbers to and from f32.  Values are rounded to nearest, ties
 * to even; too large values become infinite; a NaN stays a NaN, with as much of its payload as
 * fits.  The arithmetic is on integers, so every machine gives the same bits, however its processor
 * treats denormal numbers, and the same as its f16 instructions (F16C).
 */
#pragma once

#include <stdint.h>
#include <string.h>

static inline uint32_t pd_float_bits(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof(bits));
	return bits;
}

static inline float pd_bits_float(uint32_t bits)
{
	float x;

	memcpy(&x, &bits, sizeof(x));
	return x;
}

static inline uint16_t pd_to_bf16(float x)
{
	uint32_t bits = pd_float_bits(x);
	uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1);

	/* The payload of a NaN may lie entirely in the lower half. */
	return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? bits >> 16 | 0x40 : rounded >> 16);
}

static inline float pd_from_bf16(uint16_t x)
{
	return pd_bits_float((uint32_t)x << 16);
}

static inline uint16_t pd_to_f16(float x)
{
	uint32_t bits = pd_float_bits(x), sign = bits >> 16 & 0x8000, most = bits & 0x7fffffff;
	uint32_t value, rest, half, shift = 13;

	if (most > 0x7f800000)
		return (uint16_t)(sign | 0x7e00 | (most >> 13 & 0x1ff));
	if (most >= 0x47800000)                 /* the value is 65536 or more */
		return (uint16_t)(sign | 0x7c00);
	if (most < 0x33000000)                  /* the value is below half of the smallest number */
		return (uint16_t)sign;
	value = most - 0x38000000;              /* the exponent's bias goes from 127 to 15 */
	if (most < 0x38800000) {                /* the result is denormal */
		shift = 126 - (most >> 23);
		value = (most & 0x7fffff) | 0x800000;
	}
	rest = value & ((UINT32_C(1) << shift) - 1);
	half = UINT32_C(1) << (shift - 1);
	value >>= shift;
	value += rest > half || (rest == half && (value & 1));
	return (uint16_t)(sign | value);
}

static inline float pd_from_f16(uint16_t x)
{
	uint32_t sign = (uint32_t)(x & 0x8000) << 16, exponent = x >> 10 & 0x1f;
	uint32_t fraction = x & 0x3ff;

	if (exponent == 0x1f)
		return pd_bits_float(sign | 0x7f800000 | fraction << 13 |
				     (fraction ? 0x400000 : 0));
	if (exponent > 0)
		return pd_bits_float(sign | (exponent + 112) << 23 | fraction << 13);
	while (fraction && !(fraction & 0x400)) {
		fraction <<= 1;
		exponent--;
	}
	/* exponent: 0 less the shifts, modulo 2^32 */
	return pd_bits_float(fraction ? sign | (exponent + 113) << 23 | (fraction & 0x3ff) << 13
				      : sign);
}
