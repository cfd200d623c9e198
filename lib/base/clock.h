/* SPDX-License-Identifier: Apache-2.0 */
/* Nanoseconds on a clock common to all processes of a machine (CLOCK_MONOTONIC). */
#pragma once

#include <stdint.h>
#include <time.h>

static inline int64_t pd_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}
