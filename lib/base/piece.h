/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A buffer of floats cut into n pieces, as an all-reduce does (lib/topology/allreduce): as even
 * as whole cache lines allow.
 */
#ifndef PD_BASE_PIECE_H
#define PD_BASE_PIECE_H

#include <stddef.h>

#define PD_PIECE_ALIGN 16               /* floats: pieces begin at cache lines */

/* Where piece i begins; piece n begins at the end. */
static inline size_t pd_piece_begin(size_t floats, int n, int i)
{
	size_t lines = (floats + PD_PIECE_ALIGN - 1) / PD_PIECE_ALIGN;
	size_t begin = (lines / (size_t)n * (size_t)i +
			lines % (size_t)n * (size_t)i / (size_t)n) * PD_PIECE_ALIGN;

	return begin < floats ? begin : floats;
}

/* Of the longest.  Some have a line more than others, the last among them, which may end early. */
static inline size_t pd_piece_most(size_t floats, int n)
{
	size_t lines = (floats + PD_PIECE_ALIGN - 1) / PD_PIECE_ALIGN, rest = lines % (size_t)n;
	size_t least = lines / (size_t)n * PD_PIECE_ALIGN, last = floats - (size_t)(n - 1) * least;

	if (rest > 1)
		return least + PD_PIECE_ALIGN;
	return last > least || n == 1 ? last : least;
}

#endif
