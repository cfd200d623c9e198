/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exponential function for our own loops: without a branch, so that they are vectorised, and the
 * same bits on every processor.  To within 2 units in the last place (Cody and Waite's reduction, the
 * polynomial of Moshier's Cephes library).
 */
#pragma once

#include "base/half.h"

#include <math.h>

/* (exp(r) - 1 - r) / r^2, for r of at most half a logarithm of 2. */
static inline float pd_exp_rest(float r)
{
	float y = 1.9875691500e-4f;

	y = y * r + 1.3981999507e-3f;
	y = y * r + 8.3334519073e-3f;
	y = y * r + 4.1665795894e-2f;
	y = y * r + 1.6666665459e-1f;
	return y * r + 5.0000001201e-1f;
}

/* x: at most 88; what would not be a normal number becomes 0.  A NaN stays one. */
static inline float pd_exp(float x)
{
	const float round = 12582912;           /* 1.5 * 2^23: its last bit is 1 */
	float bounded = x < -87.3f ? -87.3f : x;
	float shifted = bounded * 1.44269504f + round, n = shifted - round;
	float r = bounded - n * 0.693359375f + n * 2.12194440e-4f;
	float y = pd_exp_rest(r) * (r * r) + r + 1;
	float scale = pd_bits_float((pd_float_bits(shifted) - 0x4b400000 + 127) << 23);

	return x < -87.3f ? 0 : y * scale;
}

/* exp(x) of any x; infinity where that is too large for a float. */
static inline float pd_exp_any(float x)
{
	float y = pd_exp(x > 89 ? 88 : x > 88 ? x - 1 : x);

	return x > 88 ? y * 2.71828183f : y;
}

/* exp(x) - 1, where x is not positive; near 0 it is as exact as a float can be. */
static inline float pd_expm1(float x)
{
	float small = x > -0.34f ? x : -0.34f;

	return x > -0.34f ? pd_exp_rest(small) * (small * small) + small : pd_exp(x) - 1;
}

/* To within 3 units in the last place. */
static inline float pd_tanh(float x)
{
	float e = pd_expm1(-2 * fabsf(x));

	return copysignf(e / (2 + e), x);
}
