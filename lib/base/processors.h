/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <sched.h>

/* Returns how many processors this process may use. */
static inline int pd_processors(void)
{
	cpu_set_t cpus;

	return sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
}
