/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exponential function for our own loops: without a branch, so that they are vectorised, and the
 * same bits on every processor.  To within 2 units in the last place (Cody and Waite's reduction, the
 * polynomial of Moshier's Cephes library).
 */
#pragma once

#include "base/half.h"

/* x: at most 88; what would not be a normal number becomes 0.  A NaN stays one. */
static inline float pd_exp(float x)
{
	const float round = 12582912;           /* 1.5 * 2^23: its last bit is 1 */
	float bounded = x < -87.3f ? -87.3f : x;
	float shifted = bounded * 1.44269504f + round, n = shifted - round;
	float r = bounded - n * 0.693359375f + n * 2.12194440e-4f;
	float y = 1.9875691500e-4f, scale;

	y = y * r + 1.3981999507e-3f;
	y = y * r + 8.3334519073e-3f;
	y = y * r + 4.1665795894e-2f;
	y = y * r + 1.6666665459e-1f;
	y = y * r + 5.0000001201e-1f;
	y = y * (r * r) + r + 1;
	scale = pd_bits_float((pd_float_bits(shifted) - 0x4b400000 + 127) << 23);
	return x < -87.3f ? 0 : y * scale;
}
