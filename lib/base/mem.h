/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host memory.  Where there is no more these do not return: they call what the program has said is
 * to be done then (base/program.h, run/rank.h), which says so in a sentence and ends the process.
 * Nothing in the library has to be undone for that: files have their names when they are whole, and
 * workers go with their supervisor.  Memory of a device is the exception, see device.h.
 */
#ifndef PD_BASE_MEM_H
#define PD_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* To do when `bytes` more (0: that is not known) could not be had; does not allocate, nor return. */
typedef void pd_mem_end(size_t bytes);
void pd_mem_on_end(pd_mem_end *end);
/* What those say who have asked another library for memory, in vain. */
void pd_mem_exhausted(size_t bytes) __attribute__((noreturn));
/*
 * Goes on only if so much more could be had.  Before a call of a library that fails by a signal or an
 * exit() of its own where memory is short, with what it may need.
 */
void pd_mem_expect(size_t bytes);
/*
 * Says what the memory that is asked for from now on is for, such as "the plan", and returns what it
 * was for until now; a constant.  For the sentence alone.
 */
const char *pd_mem_for(const char *what);
/* "out of memory: 12.3 MB more for the plan", without allocating. */
#define PD_MEM_TEXT 160
const char *pd_mem_sentence(size_t bytes, char text[PD_MEM_TEXT]);

/* open_memstream(3), and its end, when all that was written is there. */
FILE *pd_mem_stream(char **text_p, size_t *size_p);
void pd_mem_stream_close(FILE *stream);

void *pd_zalloc(size_t bytes);                     /* zeroed; free() it */
void *pd_calloc(size_t count, size_t bytes);       /* zeroed, product checked */
/* Room for at least `need` elements of so many bytes; new ones are zero. */
void *pd_grow(void *array, size_t *capacity, size_t need, size_t bytes);
/* The array with another number of elements; new ones hold anything. */
void *pd_regrow(void *array, size_t count, size_t bytes);
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
