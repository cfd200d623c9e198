/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host memory.  If there is none left, these functions do not return: they call the function that
 * the program has set (base/program.h, run/launch/task.c), which reports it and ends the process.  Nothing
 * in the library has to be undone then: files get their names when they are complete, and workers
 * end with their supervisor.  Memory of a device is handled in device.h.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Called when `bytes` more (0: unknown) could not be had.  It neither allocates nor returns. */
typedef void pd_mem_end(size_t bytes);
void pd_mem_on_end(pd_mem_end *end);
/* Called when another library could not allocate memory. */
void pd_mem_exhausted(size_t bytes) __attribute__((noreturn));
/*
 * Returns only if `bytes` more can be had.  Called before a library function that would crash or
 * exit without memory, with what that may need.
 */
void pd_mem_expect(size_t bytes);
/*
 * Sets what memory is asked for from now on, such as "the plan", a constant, and returns what was
 * set before.  Only the error message uses it.
 */
const char *pd_mem_for(const char *what);
/* Writes "out of memory: 12.3 MB more for the plan", without allocating. */
#define PD_MEM_TEXT 160
const char *pd_mem_sentence(size_t bytes, char text[PD_MEM_TEXT]);

/* These call open_memstream(3), and close the stream; all that was written is then in *text_p. */
FILE *pd_mem_stream(char **text_p, size_t *size_p);
void pd_mem_stream_close(FILE *stream);

void *pd_zalloc(size_t bytes);                     /* zeroed; free() it */
void *pd_calloc(size_t count, size_t bytes);       /* zeroed, product checked */
/* Makes room for at least `need` elements of `bytes` each; new ones are zero. */
void *pd_grow(void *array, size_t *capacity, size_t need, size_t bytes);
/* Changes the number of elements; the contents of new ones are undefined. */
void *pd_regrow(void *array, size_t count, size_t bytes);
/* Copies `bytes` bytes.  The result is to be freed even if there are none. */
void *pd_memdup(const void *from, size_t bytes);
char *pd_strdup(const char *text);
char *pd_format(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#define PD_COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define PD_ALIGN 64                                /* alignment of every buffer in an arena */

static inline size_t pd_align(size_t bytes)
{
	return (bytes + PD_ALIGN - 1) & ~(size_t)(PD_ALIGN - 1);
}

/* These calculate with non-negative numbers, and return false if the result does not fit. */
static inline bool pd_mul(int64_t a, int64_t b, int64_t *out_p)
{
	return !__builtin_mul_overflow(a, b, out_p);
}

static inline bool pd_add(int64_t a, int64_t b, int64_t *out_p)
{
	return !__builtin_add_overflow(a, b, out_p);
}

/* These return the largest number, more than any device holds, if the result does not fit. */
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

/* Returns the least common multiple, or 0 if it is more than `most` or a is 0, which was too much already. */
static inline int64_t pd_lcm(int64_t a, int64_t b, int64_t most)
{
	int64_t product;

	return a > 0 && pd_mul(a / pd_gcd(a, b), b, &product) && product <= most ? product : 0;
}
