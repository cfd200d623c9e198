/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cuts a buffer of floats into n pieces for an all-reduce (lib/sums/allreduce), as evenly as
 * whole cache lines allow.
 */
#pragma once

#include <stddef.h>

#define PD_PIECE_ALIGN 16               /* floats in a cache line, at which pieces begin */

/* Returns where piece i begins; piece n begins at the end. */
static inline size_t pd_piece_begin(size_t floats, int n, int i)
{
	size_t lines = (floats + PD_PIECE_ALIGN - 1) / PD_PIECE_ALIGN;
	size_t begin = (lines / (size_t)n * (size_t)i +
			lines % (size_t)n * (size_t)i / (size_t)n) * PD_PIECE_ALIGN;

	return begin < floats ? begin : floats;
}

/*
 * Returns the length of the longest piece.  Some have one line more than others; the last may end
 * early.
 */
static inline size_t pd_piece_most(size_t floats, int n)
{
	size_t lines = (floats + PD_PIECE_ALIGN - 1) / PD_PIECE_ALIGN, rest = lines % (size_t)n;
	size_t least = lines / (size_t)n * PD_PIECE_ALIGN, last = floats - (size_t)(n - 1) * least;

	if (rest > 1)
		return least + PD_PIECE_ALIGN;
	return last > least || n == 1 ? last : least;
}

#define PD_PIECE_LEAST_PART (64 << 10)          /* floats */
#define PD_PIECE_MOST_PARTS 8

/* Returns in how many parts each of n pieces goes round a ring: none of them is short. */
static inline int pd_piece_parts(size_t floats, int n)
{
	size_t parts = pd_piece_most(floats, n) / PD_PIECE_LEAST_PART;

	return parts < 1 ? 1 : parts > PD_PIECE_MOST_PARTS ? PD_PIECE_MOST_PARTS : (int)parts;
}
