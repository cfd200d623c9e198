/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of small matrices and functions of their rows, of f32, for layers that work in tiles
 * which stay in the cache.  A tile's rows are padded to a multiple of PD_TILE_PAD elements, and
 * begin at any multiple of four bytes.  Every kind of processor has its own table; on one kind of
 * processor the bits do not depend on how a matrix is cut into tiles along m or n.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PD_TILE_PAD 16

static inline int64_t pd_tile_padded(int64_t count)
{
	return (count + PD_TILE_PAD - 1) / PD_TILE_PAD * PD_TILE_PAD;
}

/*
 * C = A B, or C += A B.  Element (i, l) of A, m x k, is a[i * a_row + l * a_column]; B, k x n, and
 * C, m x n, have rows of ldb and ldc elements.  n: a multiple of PD_TILE_PAD.
 */
struct pd_tile_product {
	int64_t m, n, k;
	const float *a, *b;
	float *c;
	int64_t a_row, a_column, ldb, ldc;
	bool adds;
};

/* One pair of rows of additive attention, a and b; t = tanh(a + b), element by element. */
struct pd_tile_tanh {
	const float *a, *b, *u;
	float factor;
	float *da, *db, *du;            /* added to: factor u (1 - t^2), the same, factor t */
};

/* n: everywhere a multiple of PD_TILE_PAD. */
struct pd_tile_ops {
	const char *name;
	bool packs;                     /* product.c is quicker than oneDNN's products */
	void (*multiply)(const struct pd_tile_product *p);
	/* Returns the greatest of x, not counting NaN. */
	float (*greatest)(const float *x, int64_t n);
	/* x = 2^(x - shift), 0 where that is below 2^-126; returns the sum. */
	float (*exp2_sum)(float *x, float shift, int64_t n);
	/* y = p * (y - delta) */
	void (*softmax_back)(float *y, const float *p, float delta, int64_t n);
	/* Returns the sum of the products. */
	float (*dot)(const float *x, const float *y, int64_t n);
	/* Returns the sum of u tanh(a + b). */
	float (*tanh_dot)(const float *u, const float *a, const float *b, int64_t n);
	void (*tanh_back)(const struct pd_tile_tanh *pair, int64_t n);
	/* y *= factor */
	void (*scale)(float *y, float factor, int64_t n);
	/* y *= x */
	void (*times)(float *y, const float *x, int64_t n);
	/* dst, columns x rows, rows padded with what they hold, is src transposed; both sizes are
	 * multiples of PD_TILE_PAD. */
	void (*transpose)(float *dst, int64_t dst_row, const float *src, int64_t src_row, int64_t rows,
		     int64_t columns);
};

/*
 * Returns the table that PD_CPU_TILES names in the environment, or else the best one for this processor; NULL
 * if this processor cannot run that one, or it is none.  What it returns first holds for the process.
 */
const struct pd_tile_ops *pd_tile_ops(void);
/* Returns number n, from 0, of the tables that this processor can run, best first; or NULL. */
const struct pd_tile_ops *pd_tile_ops_of(int n);
