/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is done for the chunks of sparse sums (plan/sparse.h), count of them from `first` on, of an arena of
 * `floats` gradients.  Of each chunk, norms has a number, and places where it is in `packed`, counted in
 * chunks, or -1.  In the words of Algorithm 1 (arXiv 1902.06855):
 *
 *     CHOOSE  gives the `sent` chunks of the largest norms, of equals the first, places in their
 *             order; the others -1
 *     PACK    g += hg;  of a chunk with a place, packed = g and hg = 0;  of another, hg = keep g and
 *             norm = the sum of |g|
 *     UNPACK  of a chunk with a place, g = packed and norm = the sum of |g| / members
 *
 * The sum of a chunk's absolute values is taken in double and rounded once.
 */
#pragma once

#include <stdint.h>

enum pd_chunk_step { PD_CHUNKS_CHOOSE, PD_CHUNKS_PACK, PD_CHUNKS_UNPACK };

struct pd_chunks {
	enum pd_chunk_step step;
	float *gradients, *residual, *packed, *norms;   /* gradients, residual: of the stage */
	int32_t *places;
	int64_t floats, chunk, first, count, sent;
	float keep;
	int members;
};
