/* SPDX-License-Identifier: Apache-2.0 */
/* Orders: comparison functions for qsort and bsearch, and what else compares numbers. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Ends a comparison function unless both are equal; the smaller one comes first. */
#define PD_ORDER(x, y) do { if ((x) != (y)) return (x) < (y) ? -1 : 1; } while (0)

/* Orders int64_t, ascending. */
static inline int pd_by_value(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

static inline int64_t pd_clamp(int64_t value, int64_t low, int64_t high)
{
	return value < low ? low : value > high ? high : value;
}

/* Returns how many of the elements, ascending, are below the key (or equal to it: compare() <= most). */
static inline size_t pd_count_below(const void *key, const void *base, size_t count, size_t bytes,
				    int (*compare)(const void *element, const void *key), int most)
{
	size_t low = 0, high = count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (compare((const char *)base + middle * bytes, key) <= most)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}
