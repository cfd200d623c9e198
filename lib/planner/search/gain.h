/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What devices are worth.  One more device is used if it makes a plan faster by a part g or more. 
 * With many devices one more brings less than that, even if it does as much as the others; then
 * half as much is enough.  So a plan of n devices and period T is preferred to another by
 *
 * T w(n),   w(n) = (1 + g)^n,   from n = 1 / (2 ln(1 + g)) on growing as the square root of n
 */
#pragma once

#include "predict/cost.h"

#include <math.h>

static inline double pd_gain_weight(double min_gain, int devices)
{
	double each = log1p(min_gain), edge;

	if (min_gain <= 0)
		return 1;
	edge = 0.5 / each;
	return devices <= edge ? exp(each * devices)
			       : exp(0.5) * sqrt((double)devices / edge);
}

/* Returns a period times the weight of its devices; less is better. */
static inline double pd_gain_of(double min_gain, int64_t period_ns, int devices)
{
	return (double)period_ns * pd_gain_weight(min_gain, devices);
}

/* Returns the same for a sample, by which plans of different microbatches are compared. */
static inline double pd_gain_value(double min_gain, int64_t period_ns, int devices,
				   int64_t batch_size)
{
	return pd_gain_of(min_gain, period_ns, devices) / (double)batch_size;
}

/* Returns the longest period with which a plan of fewer devices is preferred to another. */
static inline int64_t pd_gain_limit_ns(double min_gain, int64_t period_ns, int devices, int fewer)
{
	double limit = pd_gain_of(min_gain, period_ns, devices) / pd_gain_weight(min_gain, fewer);

	return limit < (double)PD_COST_MAX ? (int64_t)ceil(limit) - 1 : PD_COST_MAX;
}
