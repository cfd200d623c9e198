/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to this folder: constants of an ONNX graph, row-major arrays of up to eight axes.  Whole numbers are
 * int64_t and reals double.  Masks are the largest of them, so truth values take a byte.
 */
#pragma once

#include "base/arena.h"
#include "doors/onnx/proto/onnx.h"

struct array {
	bool whole;                     /* integers or truth values; else the numbers are reals */
	bool truth;                     /* 0 or 1 */
	int dims;
	int64_t size[PD_ONNX_DIMS];
	int64_t elements;
	struct array *next;
	union {
		int64_t *integers;
		double *reals;
		uint8_t *truths;
		void *data;
	};
};

/* What constants are made in: an arena, numbers beside it, and how much these may take at a time. */
struct constants {
	struct pd_arena arena;
	struct array *first;            /* of all that have numbers */
	int64_t bytes, most;
	bool full;                      /* something was too large */
};

#define MOST_CONSTANT_BYTES (INT64_C(1) << 30)
#define MOST_ARRAY_ELEMENTS (INT64_C(1) << 25)

static inline int array_width(const struct array *array)
{
	return array->truth ? 1 : 8;
}

/* Gives back the numbers of an array, which has none then. */
void array_drop(struct constants *constants, struct array *array);
void constants_release(struct constants *constants);
/* Returns an array of zeros, or NULL: it would be too large.  Of `like` it takes whole and truth. */
struct array *array_new(struct constants *constants, const struct array *like, int dims,
			const int64_t *size);
struct array *array_integers(struct constants *constants, int dims, const int64_t *size);
/* Are the numbers integers, to be read as such? */
static inline bool array_counts(const struct array *array)
{
	return array && array->whole && !array->truth;
}

/* A real number cut to an integer; one that is too large, or none, becomes the nearest, or 0. */
int64_t array_cut(double real);
double array_real(const struct array *array, int64_t i);
int64_t array_integer(const struct array *array, int64_t i);
/* Copies element i of `from`, which is alike, to element n. */
void array_copy(struct array *array, int64_t n, const struct array *from, int64_t i);
/* Sets an element, of either type. */
void array_set(struct array *array, int64_t n, double real, int64_t integer);
/* Counts elements of the axes from `from` up to, but without, `to`. */
int64_t array_part(const struct array *array, int from, int to);
/* Is it one number?  It may have axes of size 1. */
bool array_scalar(const struct array *array, double *number_p);
/* Are all elements this number? */
bool array_all(const struct array *array, double number);
/* Takes the number of an axis, perhaps counted from the end, below dims; or returns -1. */
int array_axis(int64_t axis, int dims);
/* Finds the shape that two broadcast to, as NumPy has it; false: there is none. */
bool array_broadcast(int dims_a, const int64_t *a, int dims_b, const int64_t *b, int *dims_p,
		     int64_t *size);
/* Returns the number of the element that element n of a broadcast shape is of. */
int64_t array_broadcast_index(const struct array *array, int dims, const int64_t *size, int64_t n);
