/* SPDX-License-Identifier: Apache-2.0 */
/* Comparison functions for qsort and bsearch. */
#ifndef PD_BASE_SORT_H
#define PD_BASE_SORT_H

#include <stdint.h>

/* Ends a comparison function unless both are equal; the smaller one comes first. */
#define PD_ORDER(x, y) do { if ((x) != (y)) return (x) < (y) ? -1 : 1; } while (0)

/* Orders int64_t, ascending. */
static inline int pd_by_value(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

#endif
