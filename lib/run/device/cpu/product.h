/* SPDX-License-Identifier: Apache-2.0 */
/* Products of plain matrices of f32. */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * C = A B, or C += A B, of f32, row-major; A is m x k, B is k x n, each perhaps stored the other
 * way round.  From one row to the next are lda, ldb, ldc elements.
 */
struct pd_matrix_product {
	int64_t m, n, k;
	const float *a, *b;
	float *c;
	int64_t lda, ldb, ldc;
	bool transposed_a, transposed_b, adds;
};

/*
 * Tells whether products with so many rows are made of our own tiles (tile.h), since oneDNN's are
 * slower on this kind of processor.
 */
bool pd_matrix_product_is_ours(int64_t m);
/* On one kind of processor the bits do not depend on the number of threads.  -1 with *err. */
int pd_matrix_multiply(const struct pd_matrix_product *product, struct pd_error *err);
