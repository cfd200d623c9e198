/* SPDX-License-Identifier: Apache-2.0 */
/* The angles by which rope rotates pairs of features. */
#pragma once

#include "base/inline.h"

#include <math.h>
#include <stdint.h>

struct pd_rotary {
	int64_t pairs;                  /* of a head that are rotated */
	double base;
	/* Slow pairs are slower by the factor; 1: none.  See pd-model(5). */
	double factor, low, high, length;
};

/* Returns the angle of a pair at position 1. */
PD_INLINE double pd_rotary_step(const struct pd_rotary *r, int64_t pair)
{
	const double turn = 6.283185307179586;
	double step = pow(r->base, -(double)pair / (double)r->pairs), whole;

	if (r->factor == 1)
		return step;
	/* how much of the step stays: all where it makes `high` turns and more in the length */
	whole = r->length > 0 ? (r->length * step / turn - r->low) / (r->high - r->low) : 0;
	whole = whole < 0 ? 0 : whole > 1 ? 1 : whole;
	return step * (whole + (1 - whole) / r->factor);
}

/* Returns the angle of a pair at a position, between 0 and a turn. */
PD_INLINE float pd_rotary_angle(const struct pd_rotary *r, int64_t position, int64_t pair)
{
	const double turn = 6.283185307179586;
	double angle = (double)position * pd_rotary_step(r, pair);

	return (float)(angle - turn * floor(angle / turn));
}
