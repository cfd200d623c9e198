/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time during which this process ran, for limits on how long others may be silent.  While it is
 * stopped (Ctrl-Z, SIGSTOP), suspended with its machine, or kept in a write that nobody takes, it
 * hears nothing; that time says nothing about the others, who may have been stopped too, and does
 * not count.
 */
#pragma once

#include "base/clock.h"

#define PD_AWAKE_GAP_NS INT64_C(1500000000)     /* A longer time between two calls means that the
						   process stood still. */

struct pd_awake {                       /* begins as zeroes */
	int64_t ns, seen_ns;
};

/* Returns the nanoseconds since the first call.  It must be called at least once a second. */
static inline int64_t pd_awake_ns(struct pd_awake *awake)
{
	int64_t now = pd_now_ns(), passed = awake->seen_ns ? now - awake->seen_ns : 0;

	awake->ns += passed < PD_AWAKE_GAP_NS ? passed : 0;
	awake->seen_ns = now;
	return awake->ns;
}
