/* SPDX-License-Identifier: Apache-2.0 */
/* Times that a model predicts: whole nanoseconds; what takes longer than PD_COST_MAX counts as that. */
#pragma once

#include "base/minmax.h"

#include <stdint.h>

#define PD_COST_MAX (INT64_MAX / 4)
#define PD_NEVER INT64_MAX              /* the time of a plan that is impossible or unknown */

static inline int64_t pd_saturate(__int128 value)
{
	return value < PD_COST_MAX ? (int64_t)value : PD_COST_MAX;
}

/* Returns a time in whole nanoseconds, rounded down. */
static inline int64_t pd_cost_of(double ns)
{
	return ns < (double)PD_COST_MAX ? (int64_t)ns : PD_COST_MAX;
}

static inline int64_t pd_ceil_div(int64_t a, int64_t b)
{
	return a / b + (a % b != 0);
}

/*
 * Returns the time of bytes over a link without latency; PD_COST_MAX if the bandwidth is 0 and the
 * bytes are not.
 */
static inline int64_t pd_bytes_ns(int64_t bytes, int64_t bandwidth_bytes_per_s)
{
	if (!bytes)
		return 0;
	if (!bandwidth_bytes_per_s)
		return PD_COST_MAX;
	if (bytes <= INT64_MAX / 2 / 1000000000)        /* 64-bit division is much faster */
		return pd_ceil_div(bytes * 1000000000, bandwidth_bytes_per_s);
	return pd_saturate(((__int128)bytes * 1000000000 + bandwidth_bytes_per_s - 1) /
			   bandwidth_bytes_per_s);
}

#define PD_PAIR_PARTS 1000000
/*
 * Returns the time of two operations that run at once and would take so long apart: `parts` of PD_PAIR_PARTS of
 * their sum, but no less than the longer.
 */
static inline int64_t pd_pair_ns(int64_t a_ns, int64_t b_ns, int64_t parts)
{
	int64_t ns = (int64_t)((((__int128)a_ns + b_ns) * parts + PD_PAIR_PARTS / 2) / PD_PAIR_PARTS);

	return pd_max(ns, pd_max(a_ns, b_ns));
}
