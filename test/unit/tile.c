/* SPDX-License-Identifier: Apache-2.0 */
/* Tests functions of tiles (lib/run/device/cpu/tile.h) for every kind of processor that this one can run. */
#include "tap.h"

#include "base/mem.h"
#include "base/rng.h"
#include "run/device/cpu/tile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SIDE 80                         /* elements from row to row */
#define AREA ((SIDE + 16) * SIDE)

static void draw(float *x, uint32_t stream)
{
	for (uint32_t i = 0; i < AREA; i++)
		x[i] = 2 * pd_unit(pd_random(1, stream, 0, i).v[0]) - 1;
}

/* Returns the greatest difference of a product, and of the elements around it, from plain loops. */
static double product_error(const struct pd_tile_ops *ops, int64_t m, int64_t n, int64_t k,
			    bool turned, bool adds)
{
	static float a[AREA], b[AREA], c[AREA], was[AREA];
	const struct pd_tile_product p = {
		.m = m, .n = n, .k = k, .a = a + 1, .b = b + 1, .c = c + 1, .adds = adds,
		.a_row = turned ? 1 : SIDE, .a_column = turned ? SIDE : 1, .ldb = SIDE, .ldc = SIDE,
	};
	double worst = 0;

	draw(a, 1);
	draw(b, 2);
	draw(was, 3);
	memcpy(c, was, sizeof(c));
	ops->multiply(&p);
	for (int64_t i = 0; i < AREA / SIDE; i++)
		for (int64_t j = 0; j < SIDE - 1; j++) {
			bool inside = i < m && j < n;
			double sum = adds || !inside ? (double)was[1 + i * SIDE + j] : 0;

			for (int64_t l = 0; l < k && inside; l++)
				sum += (double)p.a[i * p.a_row + l * p.a_column] *
				       (double)p.b[l * SIDE + j];
			worst = fmax(worst, fabs(sum - (double)c[1 + i * SIDE + j]));
		}
	return worst;
}

static void test_products(const struct pd_tile_ops *ops)
{
	double worst = 0;

	for (int64_t m = 1; m <= 13; m++)
		for (int64_t n = 16; n <= 64; n += 16)
			for (int way = 0; way < 4; way++)
				worst = fmax(worst, product_error(ops, m, n, 1 + 7 * (m % 5),
								  way & 1, way & 2));
	worst = fmax(worst, product_error(ops, 64, 64, 64, false, true));
	if (!ok(worst < 1e-5, "%s: products", ops->name))
		diag("off by %g", worst);
}

static void test_exponentials(const struct pd_tile_ops *ops)
{
	float x[32] = { 0, -1, -0.5f, -126, -126.5f, -1000, -INFINITY, NAN, 3, 100.25f, 1e-9f };
	double worst = 0, sum = 0;
	float y[32], total;

	for (int i = 11; i < 32; i++)
		x[i] = -7.37f * (float)(i - 11);
	memcpy(y, x, sizeof(y));
	y[7] = 0;
	total = ops->exp2_sum(y, 0, 32);
	for (int i = 0; i < 32; i++) {
		double expected = i == 7 ? 1 : x[i] < -126 ? 0 : exp2((double)x[i]);

		sum += expected;
		worst = fmax(worst, fabs((double)y[i] - expected) / fmax(expected, 1e-38));
	}
	if (!ok(worst < 3e-7 && fabs((double)total / sum - 1) < 1e-6, "%s: powers of two", ops->name))
		diag("off by %g", worst);
	ok(isnan(ops->exp2_sum(x, 1, 32)) && isnan(x[7]) && x[0] == 0.5f,
	   "%s: of NaN, too, and shifted", ops->name);
}

static void test_rows(const struct pd_tile_ops *ops)
{
	static float x[AREA], y[AREA], z[AREA];
	double dot = 0, most = -2;
	bool back = true, scaled = true, times = true;

	draw(x, 4);
	draw(y, 5);
	for (int i = 0; i < 48; i++) {
		dot += (double)x[i] * (double)y[i];
		most = fmax(most, (double)x[i]);
	}
	ok(fabs((double)ops->dot(x, y, 48) - dot) < 1e-5, "%s: sums of products", ops->name);
	ok((double)ops->greatest(x, 48) == most, "%s: the greatest", ops->name);
	x[17] = 5;
	ok(ops->greatest(x, 48) == 5, "%s: wherever it is", ops->name);
	memcpy(z, y, sizeof(z));
	ops->softmax_back(z, x, 0.25f, 48);
	for (int i = 0; i < 48; i++)
		back = back && fabsf(z[i] - x[i] * (y[i] - 0.25f)) < 1e-6f;
	ok(back && z[48] == y[48], "%s: the gradient of softmax", ops->name);
	memcpy(z, y, sizeof(z));
	ops->scale(z, -3, 32);
	for (int i = 0; i < 48; i++)
		scaled = scaled && z[i] == (i < 32 ? -3 * y[i] : y[i]);
	ok(scaled, "%s: rows that are scaled", ops->name);
	memcpy(z, y, sizeof(z));
	ops->times(z, x, 32);
	for (int i = 0; i < 48; i++)
		times = times && z[i] == (i < 32 ? x[i] * y[i] : y[i]);
	ok(times, "%s: and multiplied", ops->name);
}

static void test_tanh(const struct pd_tile_ops *ops)
{
	static float a[AREA], b[AREA], u[AREA], da[AREA], db[AREA], du[AREA], was[AREA];
	const struct pd_tile_tanh pair = { .a = a, .b = b, .u = u, .factor = -0.7f,
					   .da = da, .db = db, .du = du };
	double sum = 0, worst = 0;
	float found;

	draw(a, 8);
	draw(b, 9);
	draw(u, 10);
	draw(was, 11);
	for (int i = 0; i < 48; i++)
		a[i] *= i < 16 ? 1 : i < 32 ? 20 : 1e-3f;
	memcpy(da, was, sizeof(da));
	memcpy(db, was, sizeof(db));
	memcpy(du, was, sizeof(du));
	found = ops->tanh_dot(u, a, b, 48);
	ops->tanh_back(&pair, 48);
	for (int i = 0; i < 48; i++) {
		double t = tanh((double)(a[i] + b[i])), slope = -0.7 * (double)u[i] * (1 - t * t);

		sum += (double)u[i] * t;
		worst = fmax(worst, fabs((double)da[i] - (double)was[i] - slope));
		worst = fmax(worst, fabs((double)db[i] - (double)was[i] - slope));
		worst = fmax(worst, fabs((double)du[i] - (double)was[i] + 0.7 * t));
	}
	if (!ok(fabs((double)found - sum) < 5e-6 && worst < 1e-6 && da[48] == was[48],
		"%s: sums of hyperbolic tangents, and their gradients", ops->name))
		diag("off by %g and %g", fabs((double)found - sum), worst);
	a[5] = NAN;
	b[6] = INFINITY;
	ok(isnan(ops->tanh_dot(u, a, b, 16)) && fabsf(ops->tanh_dot(u + 6, a + 6, b + 6, 16)) < 16,
	   "%s: of NaN and infinity, too", ops->name);
}

static void test_turning(const struct pd_tile_ops *ops)
{
	static float x[AREA], y[AREA];
	bool good = true;

	draw(x, 6);
	draw(y, 7);
	ops->transpose(y + 3, SIDE, x + 1, SIDE - 1, 32, 48);
	for (int i = 0; i < 32; i++)
		for (int j = 0; j < 48; j++)
			good = good && y[3 + j * SIDE + i] == x[1 + i * (SIDE - 1) + j];
	ok(good, "%s: matrices that are turned", ops->name);
}

int main(void)
{
	const struct pd_tile_ops *ops;

	unsetenv("PD_CPU_TILES");
	ok(pd_tile_ops() == pd_tile_ops_of(0), "the first is the best");
	for (int n = 0; (ops = pd_tile_ops_of(n)); n++) {
		test_products(ops);
		test_exponentials(ops);
		test_rows(ops);
		test_tanh(ops);
		test_turning(ops);
	}
	return done_testing();
}
