/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests products of matrices (lib/run/device/cpu/product.h), by tiles of our own where this
 * processor can run those that pack.
 */
#include "tap.h"

#include "base/mem.h"
#include "base/rng.h"
#include "run/device/cpu/product.h"
#include "run/device/cpu/tile.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#define GAP 3                           /* elements behind a row of a matrix */

static float *matrix_new(int64_t rows, int64_t columns, uint32_t stream)
{
	size_t count = (size_t)(rows * (columns + GAP));
	float *x = pd_calloc(count, sizeof(*x));

	for (size_t i = 0; i < count; i++)
		x[i] = 2 * pd_unit(pd_random(1, stream, 0, (uint32_t)i).v[0]) - 1;
	return x;
}

static double element_of(const float *x, int64_t row, bool transposed, int64_t i, int64_t j)
{
	return (double)x[transposed ? j * row + i : i * row + j];
}

/* The greatest difference of a product, and of what lies behind its rows, from plain loops. */
static double packed_error(const struct pd_matrix_product *g, const float *was)
{
	double worst = 0;

	for (int64_t i = 0; i < g->m; i++)
		for (int64_t j = 0; j < g->ldc; j++) {
			double sum = g->adds || j >= g->n ? (double)was[i * g->ldc + j] : 0;

			for (int64_t l = 0; l < g->k && j < g->n; l++)
				sum += element_of(g->a, g->lda, g->transposed_a, i, l) *
				       element_of(g->b, g->ldb, g->transposed_b, l, j);
			worst = fmax(worst, fabs(sum - (double)g->c[i * g->ldc + j]));
		}
	return worst;
}

static void test_packed(int64_t m, int64_t n, int64_t k)
{
	double worst = 0;
	bool same = true, done = true;

	for (int way = 0; way < 8; way++) {
		bool ta = way & 1, tb = way & 2;
		float *a = matrix_new(ta ? k : m, ta ? m : k, 1);
		float *b = matrix_new(tb ? n : k, tb ? k : n, 2);
		float *was = matrix_new(m, n, 3), *c = matrix_new(m, n, 3);
		float *other = matrix_new(m, n, 3);
		struct pd_matrix_product g = {
			.m = m, .n = n, .k = k, .a = a, .b = b, .c = c,
			.lda = (ta ? m : k) + GAP, .ldb = (tb ? k : n) + GAP, .ldc = n + GAP,
			.transposed_a = ta, .transposed_b = tb, .adds = way & 4,
		};
		struct pd_error err;

		omp_set_num_threads(1);
		done = done && pd_matrix_multiply(&g, &err) == 0;
		worst = fmax(worst, packed_error(&g, was));
		g.c = other;
		omp_set_num_threads(3);
		done = done && pd_matrix_multiply(&g, &err) == 0;
		same = same && memcmp(c, other, (size_t)(m * (n + GAP)) * sizeof(*c)) == 0;
		free(a);
		free(b);
		free(c);
		free(was);
		free(other);
	}
	if (!ok(done && worst < 2e-4, "%d x %d x %d: products of packed matrices", (int)m, (int)n,
		(int)k))
		diag("off by %g", worst);
	ok(same || !pd_matrix_product_is_ours(m), "with the same bits by three threads");
}

int main(void)
{
	const struct pd_tile_ops *ops;
	int n = 0;

	while ((ops = pd_tile_ops_of(n)) && !ops->packs)
		n++;
	setenv("PD_CPU_TILES", ops ? ops->name : "", 1);
	ok(pd_matrix_product_is_ours(1000) == !!ops, "products are ours where tiles pack");
	test_packed(64, 16, 16);
	test_packed(67, 1, 5);
	test_packed(200, 35, 300);
	test_packed(199, 300, 257);
	test_packed(450, 17, 33);
	test_packed(70, 520, 7);
	test_packed(5, 40, 30);
	return done_testing();
}
