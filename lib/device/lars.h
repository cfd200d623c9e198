/* SPDX-License-Identifier: Apache-2.0 */
/* LARS's own rate of a parameter tensor; device.h has the formula. */
#pragma once

#include "base/inline.h"

#include <math.h>

/*
 * Returns it from the sums of squares of the weights and of the gradient as it is in the arena, which
 * the update multiplies by `factor`.
 */
PD_INLINE double pd_lars_local(double trust, double decay, double weights, double gradient, double factor)
{
	double w = sqrt(weights), divisor = sqrt(gradient) * factor + decay * w;

	return w > 0 && divisor > 0 ? trust * w / divisor : 1;
}
