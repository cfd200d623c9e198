/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host memory.  Running out of it is not handled: these say so and abort, except
 * where sizes come from a document, which is checked when it is read.
 */
#ifndef PD_BASE_MEM_H
#define PD_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void *pd_zalloc(size_t bytes);                     /* zeroed; free() it */
void *pd_calloc(size_t count, size_t bytes);       /* zeroed, product checked */
/* Room for at least `need` elements of so many bytes; new ones are zero. */
void *pd_grow(void *array, size_t *capacity, size_t need, size_t bytes);
/* A copy of so many bytes; of none, something to free() all the same. */
void *pd_memdup(const void *from, size_t bytes);
char *pd_strdup(const char *text);
char *pd_format(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#define PD_COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define PD_ALIGN 64                                /* every buffer in an arena */

static inline size_t pd_align(size_t bytes)
{
	return (bytes + PD_ALIGN - 1) & ~(size_t)(PD_ALIGN - 1);
}

/* Overflow-safe non-negative arithmetic: false when the result does not fit. */
static inline bool pd_mul(int64_t a, int64_t b, int64_t *out_p)
{
	return !__builtin_mul_overflow(a, b, out_p);
}

static inline bool pd_add(int64_t a, int64_t b, int64_t *out_p)
{
	return !__builtin_add_overflow(a, b, out_p);
}

/* The same where what does not fit is as large as can be said, which no device holds. */
static inline int64_t pd_times(int64_t a, int64_t b)
{
	int64_t product;

	return pd_mul(a, b, &product) ? product : INT64_MAX;
}

static inline int64_t pd_plus(int64_t a, int64_t b)
{
	int64_t sum;

	return pd_add(a, b, &sum) ? sum : INT64_MAX;
}

static inline int64_t pd_gcd(int64_t a, int64_t b)
{
	while (b) {
		int64_t rest = a % b;

		a = b;
		b = rest;
	}
	return a;
}

#endif
