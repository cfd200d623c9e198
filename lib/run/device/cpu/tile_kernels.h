/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tile.c compiles once for each kind of processor.  LANES: floats of a vector; VECTORS: how
 * many, side by side, a block of a product has at most; TILE(name): the name for this processor;
 * PACKS: see tile.h.
 * A block of ROWS rows keeps its sums in registers while it goes along k.
 */
#define ROWS 6

typedef float TILE(vec) __attribute__((vector_size(4 * LANES)));
typedef float TILE(loose) __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t TILE(ints) __attribute__((vector_size(4 * LANES)));
#define VEC TILE(vec)
#define INTS TILE(ints)

static const INTS TILE(lane) = {
	0, 1, 2, 3,
#if LANES >= 8
	4, 5, 6, 7,
#endif
#if LANES >= 16
	8, 9, 10, 11, 12, 13, 14, 15,
#endif
};

INLINE VEC TILE(load)(const float *x)
{
	return *(const TILE(loose) *)x;
}

INLINE void TILE(store)(float *x, VEC v)
{
	*(TILE(loose) *)x = v;
}

/* Lane by lane, a where the condition is -1, b where it is 0. */
INLINE VEC TILE(choose)(INTS condition, VEC a, VEC b)
{
	return (VEC)((condition & (INTS)a) | (~condition & (INTS)b));
}

/* rows and vectors are constants where this is inlined. */
INLINE void TILE(block)(const struct pd_tile_product *p, int rows, int vectors, int64_t i, int64_t j)
{
	const float *a = p->a + i * p->a_row, *b = p->b + j;
	float *c = p->c + i * p->ldc + j;
	int64_t a_row = p->a_row, a_column = p->a_column, ldb = p->ldb, ldc = p->ldc;
	VEC sum[ROWS][VECTORS];

#pragma GCC unroll 8
	for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
		for (int v = 0; v < vectors; v++)
			sum[r][v] = p->adds ? TILE(load)(c + r * ldc + v * LANES) : (VEC){ 0 };
	for (int64_t l = p->k; l > 0; l--) {
		VEC across[VECTORS];

#pragma GCC unroll 8
		for (int v = 0; v < vectors; v++)
			across[v] = TILE(load)(b + v * LANES);
#pragma GCC unroll 8
		for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
			for (int v = 0; v < vectors; v++)
				sum[r][v] += a[r * a_row] * across[v];
		a += a_column;
		b += ldb;
	}
#pragma GCC unroll 8
	for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
		for (int v = 0; v < vectors; v++)
			TILE(store)(c + r * ldc + v * LANES, sum[r][v]);
}

/* All rows of so many vectors side by side. */
INLINE void TILE(strip)(const struct pd_tile_product *p, int vectors, int64_t j)
{
	int64_t i = 0;

	for (; i + ROWS <= p->m; i += ROWS)
		TILE(block)(p, ROWS, vectors, i, j);
	switch (p->m - i) {
	case 5:
		TILE(block)(p, 5, vectors, i, j);
		break;
	case 4:
		TILE(block)(p, 4, vectors, i, j);
		break;
	case 3:
		TILE(block)(p, 3, vectors, i, j);
		break;
	case 2:
		TILE(block)(p, 2, vectors, i, j);
		break;
	case 1:
		TILE(block)(p, 1, vectors, i, j);
		break;
	}
}

static void TILE(multiply)(const struct pd_tile_product *p)
{
	int64_t j = 0;

	for (; j + VECTORS * LANES <= p->n; j += VECTORS * LANES)
		TILE(strip)(p, VECTORS, j);
#if VECTORS == 4
	if (p->n - j == 3 * LANES)
		TILE(strip)(p, 3, j);
	else if (p->n - j == 2 * LANES)
		TILE(strip)(p, 2, j);
	else if (p->n - j == LANES)
		TILE(strip)(p, 1, j);
#endif
}

/* Lane k has lane index[k] of a or, from LANES on, of b. */
INLINE VEC TILE(pick)(VEC a, VEC b, INTS index)
{
#ifdef __clang__
	VEC picked;

	for (int k = 0; k < LANES; k++)
		picked[k] = index[k] < LANES ? a[index[k]] : b[index[k] - LANES];
	return picked;
#else
	return __builtin_shuffle(a, b, index);
#endif
}

/* Lane k has what lane k ^ half had. */
INLINE VEC TILE(halves)(VEC v, int half)
{
	return TILE(pick)(v, v, TILE(lane) ^ half);
}

INLINE float TILE(total)(VEC sum)
{
#if LANES >= 16
	sum += TILE(halves)(sum, 8);
#endif
#if LANES >= 8
	sum += TILE(halves)(sum, 4);
#endif
	sum += TILE(halves)(sum, 2);
	sum += TILE(halves)(sum, 1);
	return sum[0];
}

INLINE VEC TILE(greater)(VEC a, VEC b)
{
	return TILE(choose)(a > b, a, b);
}

static float TILE(greatest)(const float *x, int64_t n)
{
	VEC most = TILE(load)(x);

	for (int64_t i = LANES; i < n; i += LANES)
		most = TILE(greater)(TILE(load)(x + i), most);
#if LANES >= 16
	most = TILE(greater)(TILE(halves)(most, 8), most);
#endif
#if LANES >= 8
	most = TILE(greater)(TILE(halves)(most, 4), most);
#endif
	most = TILE(greater)(TILE(halves)(most, 2), most);
	most = TILE(greater)(TILE(halves)(most, 1), most);
	return most[0];
}

/*
 * 2^x = 2^n 2^r, with n the nearest whole number: adding ROUND leaves it in the last bits.  2^r is a
 * polynomial in r, from -1/2 to 1/2, whose relative error is 2.6e-9 (found with Remez' algorithm).
 * x: below 127.5.  A NaN stays one.
 */
#define ROUND 0x1.8p23f

INLINE VEC TILE(exp2)(VEC x)
{
	VEC shifted = x + ROUND, r = x - (shifted - ROUND), y;
	VEC power = (VEC)(((INTS)shifted << 23) + 0x3f800000);  /* 2^n */

	y = 1.55946770e-4f * r + 1.34066438e-3f;
	y = y * r + 9.61769298e-3f;
	y = y * r + 5.55031055e-2f;
	y = y * r + 2.40226528e-1f;
	y = y * r + 6.93147215e-1f;
	y = y * r + 1.0f;
	return TILE(choose)(x < -126.0f, (VEC){ 0 }, y * power);
}

static float TILE(exp2_sum)(float *x, float shift, int64_t n)
{
	VEC sum = { 0 };

	for (int64_t i = 0; i < n; i += LANES) {
		VEC y = TILE(exp2)(TILE(load)(x + i) - shift);

		TILE(store)(x + i, y);
		sum += y;
	}
	return TILE(total)(sum);
}

static void TILE(softmax_back)(float *y, const float *p, float delta, int64_t n)
{
	for (int64_t i = 0; i < n; i += LANES)
		TILE(store)(y + i, TILE(load)(p + i) * (TILE(load)(y + i) - delta));
}

static float TILE(dot)(const float *x, const float *y, int64_t n)
{
	VEC sum = { 0 };

	for (int64_t i = 0; i < n; i += LANES)
		sum += TILE(load)(x + i) * TILE(load)(y + i);
	return TILE(total)(sum);
}

/* Beyond LARGE it is 1 in f32; the absolute error is about 1e-7. */
#define LARGE 10.0f

INLINE VEC TILE(tanh)(VEC x)
{
	x = TILE(choose)(x > LARGE, (VEC){ 0 } + LARGE, x);
	x = TILE(choose)(x < -LARGE, (VEC){ 0 } - LARGE, x);
	return 1.0f - 2.0f / (1.0f + TILE(exp2)(x * 2.88539008f));
}

static float TILE(tanh_dot)(const float *u, const float *a, const float *b, int64_t n)
{
	VEC sum = { 0 };

	for (int64_t i = 0; i < n; i += LANES)
		sum += TILE(load)(u + i) * TILE(tanh)(TILE(load)(a + i) + TILE(load)(b + i));
	return TILE(total)(sum);
}

static void TILE(tanh_back)(const struct pd_tile_tanh *pair, int64_t n)
{
	for (int64_t i = 0; i < n; i += LANES) {
		VEC t = TILE(tanh)(TILE(load)(pair->a + i) + TILE(load)(pair->b + i));
		VEC slope = (1.0f - t * t) * (TILE(load)(pair->u + i) * pair->factor);

		TILE(store)(pair->da + i, TILE(load)(pair->da + i) + slope);
		TILE(store)(pair->db + i, TILE(load)(pair->db + i) + slope);
		TILE(store)(pair->du + i, TILE(load)(pair->du + i) + t * pair->factor);
	}
}

static void TILE(scale)(float *y, float factor, int64_t n)
{
	for (int64_t i = 0; i < n; i += LANES)
		TILE(store)(y + i, TILE(load)(y + i) * factor);
}

static void TILE(times)(float *y, const float *x, int64_t n)
{
	for (int64_t i = 0; i < n; i += LANES)
		TILE(store)(y + i, TILE(load)(y + i) * TILE(load)(x + i));
}

/*
 * One step of turning a square of as many rows as a vector has lanes: between rows that are `half`
 * apart, halves of so many lanes are exchanged.
 */
INLINE void TILE(exchange)(VEC *row, int half)
{
	INTS second = (TILE(lane) & half) != 0;         /* -1 in every second half */
	INTS low = TILE(lane) + (second & (LANES - half));
	INTS high = TILE(lane) + half + (second & (LANES - half));

#pragma GCC unroll 16
	for (int r = 0; r < LANES; r++)
		if (!(r & half)) {
			VEC a = row[r], b = row[r + half];

			row[r] = TILE(pick)(a, b, low);
			row[r + half] = TILE(pick)(a, b, high);
		}
}

INLINE void TILE(turn_square)(float *dst, int64_t dst_row, const float *src, int64_t src_row)
{
	VEC row[LANES];

#pragma GCC unroll 16
	for (int r = 0; r < LANES; r++)
		row[r] = TILE(load)(src + r * src_row);
#if LANES >= 16
	TILE(exchange)(row, 8);
#endif
#if LANES >= 8
	TILE(exchange)(row, 4);
#endif
	TILE(exchange)(row, 2);
	TILE(exchange)(row, 1);
#pragma GCC unroll 16
	for (int r = 0; r < LANES; r++)
		TILE(store)(dst + r * dst_row, row[r]);
}

static void TILE(transpose)(float *dst, int64_t dst_row, const float *src, int64_t src_row, int64_t rows,
		       int64_t columns)
{
	for (int64_t r = 0; r < rows; r += LANES)
		for (int64_t c = 0; c < columns; c += LANES)
			TILE(turn_square)(dst + c * dst_row + r, dst_row, src + r * src_row + c,
					  src_row);
}

static const struct pd_tile_ops TILE(ops) = {
	.name = NAME,
	.packs = PACKS,
	.multiply = TILE(multiply),
	.greatest = TILE(greatest),
	.exp2_sum = TILE(exp2_sum),
	.softmax_back = TILE(softmax_back),
	.dot = TILE(dot),
	.tanh_dot = TILE(tanh_dot),
	.tanh_back = TILE(tanh_back),
	.scale = TILE(scale),
	.times = TILE(times),
	.transpose = TILE(transpose),
};

#undef ROWS
#undef ROUND
#undef LARGE
#undef VEC
#undef INTS
#undef LANES
#undef VECTORS
#undef TILE
#undef NAME
#undef PACKS
