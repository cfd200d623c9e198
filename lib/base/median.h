/* SPDX-License-Identifier: Apache-2.0 */
/* One figure of many measurements. */
#pragma once

#include <stdint.h>

/* Both functions sort the values; n is 1 or more. */
int64_t pd_median(int64_t *values, int64_t n);
/*
 * Returns the mean without an eighth of the values at each end.  A run adds up the times of all its
 * steps, also disturbed ones, so the mean counts, and not the likeliest value.
 */
double pd_trimmed_mean(int64_t *values, int64_t n);
