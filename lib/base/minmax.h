/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

static inline int64_t pd_min(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static inline int64_t pd_max(int64_t a, int64_t b)
{
	return a > b ? a : b;
}
