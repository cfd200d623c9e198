/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scaled dot-product attention in 16 bits on tensor cores, for heads of up to 128 features, a multiple
 * of 8 (Dao 2023, "FlashAttention-2", but for gradients: nothing is added by atomics).  A block has TILE
 * rows of one head, a warp ROWS of them.  It goes along tiles of the rows on the other side: S and P
 * are never anywhere but in registers, where a product leaves them as the next one wants them.  P and
 * dS are rounded to the net's type before they are multiplied.
 *
 * In backward one kernel's blocks own keys and go along the queries of all heads that use them, in
 * ascending order; another's own queries.  So every sum is one thread's, in an order that follows from
 * the shapes alone.
 */
#include "run/device/cuda/attention.cuh"

#include "run/device/cuda/mma.cuh"

#include <string.h>

#define WARPS 4
#define THREADS (32 * WARPS)
#define ROWS (TILE / WARPS)     /* 16: those of one product */
#define NARROW 64               /* features that kernels have room for */
#define WIDE 128
#define PAD 8                   /* numbers behind each row of a tile, so that banks differ */
/* Registers are such that a multiprocessor has room for three blocks, of wide heads for two. */
#define BOUNDS(W) __launch_bounds__(THREADS, (W) == NARROW ? 3 : 2)

/* This thread has four of a product's 16 x 8 numbers: those in row and row + 8 of the block's TILE, in
 * column and column + 1. */
struct mine {
	int row, column;
};

__device__ static inline struct mine mine(void)
{
	int lane = threadIdx.x % 32;

	return { (int)threadIdx.x / 32 * ROWS + lane / 4, lane % 4 * 2 };
}

/* Loads R rows of a tile for W features; what is not there is 0. */
template <typename T, int W, int R>
__device__ static void load_tile(T *to, const struct rows<const T> &from)
{
	const uint4 none = { 0, 0, 0, 0 };

	for (int i = threadIdx.x; i < R * (W / 8); i += THREADS) {
		int r = i / (W / 8), c = i % (W / 8) * 8;

		*(uint4 *)(to + r * (W + PAD) + c) =
			r < from.count && c < from.width
			? *(const uint4 *)(from.at + r * from.step + c) : none;
	}
}

/* Loads 16 features of this warp's rows as the left side of a product. */
template <typename T, int W>
__device__ static void load_left(uint32_t *left, const T *tile, int feature)
{
	int lane = threadIdx.x % 32, row = (int)threadIdx.x / 32 * ROWS + lane % 16;

	pd_load_matrices(left, tile + row * (W + PAD) + feature + lane / 16 * 8);
}

/* out += L R^T of 16 features: this warp's rows of the left tile, and all R of the right one. */
template <typename T, int W, int R>
__device__ static void add_features(float (*out)[4], const uint32_t *left, const T *right,
				    int feature)
{
	int lane = threadIdx.x % 32, row = lane % 8 + lane / 16 * 8;

	for (int n = 0; n < R / 16; n++) {
		uint32_t two[4];        /* the right sides of two products */

		pd_load_matrices(two, right + (n * 16 + row) * (W + PAD) + feature +
				      lane / 8 % 2 * 8);
		pd_mma<T>(out[2 * n], left, two);
		pd_mma<T>(out[2 * n + 1], left, two + 2);
	}
}

/* out = L R^T */
template <typename T, int W, int R>
__device__ static void multiply_tiles(float (*out)[4], const T *left, const T *right, int64_t width)
{
	for (int n = 0; n < R / 8; n++)
		for (int i = 0; i < 4; i++)
			out[n][i] = 0;
#pragma unroll
	for (int feature = 0; feature < W; feature += 16)
		if (feature < width) {
			uint32_t part[4];

			load_left<T, W>(part, left, feature);
			add_features<T, W, R>(out, part, right, feature);
		}
}

__device__ static inline uint32_t round_two(float a, float b, __half)
{
	const __half2 two = __floats2half2_rn(a, b);
	uint32_t bits;

	memcpy(&bits, &two, sizeof(bits));
	return bits;
}

__device__ static inline uint32_t round_two(float a, float b, __nv_bfloat16)
{
	const __nv_bfloat162 two = __floats2bfloat162_rn(a, b);
	uint32_t bits;

	memcpy(&bits, &two, sizeof(bits));
	return bits;
}

/* out += P B: P has a column for each of the R rows of the tile B. */
template <typename T, int W, int R>
__device__ static void add_product(float (*out)[4], const float (*p)[4], const T *b, int64_t width)
{
	int lane = threadIdx.x % 32;

#pragma unroll
	for (int r = 0; r < R / 16; r++) {
		const float *low = p[2 * r], *high = p[2 * r + 1];
		const uint32_t left[4] = {
			round_two(low[0], low[1], T()), round_two(low[2], low[3], T()),
			round_two(high[0], high[1], T()), round_two(high[2], high[3], T()),
		};

#pragma unroll
		for (int n = 0; n < W / 16; n++)
			if (n * 16 < width) {
				uint32_t two[4];

				pd_load_turned(two, b + (r * 16 + lane % 16) * (W + PAD) + n * 16 +
						    lane / 16 * 8);
				pd_mma<T>(out[2 * n], left, two);
				pd_mma<T>(out[2 * n + 1], left, two + 2);
			}
	}
}

/* Writes W features of the block's rows, each times the factor of its row. */
template <typename T, int W>
__device__ static void write_rows(const struct rows<T> &to, const float (*out)[4],
				  const float *factor)
{
	const struct mine me = mine();

#pragma unroll
	for (int n = 0; n < W / 8; n++)
		for (int h = 0; h < 2; h++) {
			int row = me.row + 8 * h, c = 8 * n + me.column;

			if (row < to.count && c < to.width)
				*(uint32_t *)(to.at + row * to.step + c) =
					round_two(out[n][2 * h] * factor[h],
						  out[n][2 * h + 1] * factor[h], T());
		}
}

/*
 * The mask of a tile of queries and one of keys: key k is seen by query q, both counted from where
 * their tiles begin, if neither is behind the last one and k - q is more than `before` and at most
 * `diagonal`.
 */
struct seen {
	int queries, keys, before, diagonal;
	bool all;
};

__device__ static struct seen seen_of(const struct pd_kernel_attention &a, const struct place &at,
				      int64_t query, int queries, int64_t key, int keys)
{
	struct seen seen;

	seen.queries = least(a.queries - query, queries);
	seen.keys = least(at.length - key, keys);
	seen.diagonal = a.causal ? least(query - key, keys) : keys;
	seen.before = a.window > 0 && query - key - a.window > -TILE ? least(query - key - a.window, keys)
								      : -TILE;
	seen.all = seen.queries == queries && seen.keys == keys && seen.diagonal >= keys - 1 &&
		   seen.before <= -queries;
	return seen;
}

__device__ static inline bool is_seen(const struct seen &seen, int q, int k)
{
	return q < seen.queries && k < seen.keys && k - q <= seen.diagonal && k - q > seen.before;
}

/* ---- forward ---- */

/* A thread knows the greatest S of its two rows so far, in units of log 2, and its own part of the sum
 * of P. */
struct running {
	float most[2], sum[2];
};

/* Makes P of S before it is divided by the sum of its row; factor: by how much what was made before
 * shrinks. */
template <bool BIASED>
__device__ static void soften(float (*s)[4], struct running *so_far, float *factor,
			      const struct pd_kernel_attention &a, const struct place &at,
			      int64_t key)
{
	const struct seen seen = seen_of(a, at, at.first, TILE, key, TILE);
	const struct mine me = mine();

#pragma unroll
	for (int h = 0; h < 2; h++) {
		int64_t query = at.first + me.row + 8 * h;
		float was = so_far->most[h], most = was, sum = 0, from;

		for (int n = 0; n < TILE / 8; n++)
			for (int i = 0; i < 2; i++) {
				float *x = &s[n][2 * h + i];

				*x *= a.scale * LOG2_E;
				if (BIASED)
					*x += bias_of(a, at.head, query)[key + 8 * n + me.column + i];
				if (!seen.all && !is_seen(seen, me.row + 8 * h, 8 * n + me.column + i))
					*x = -INFINITY;
				most = fmaxf(most, *x);
			}
		most = pd_quad_most(most);
		from = most == -INFINITY ? 0 : most;    /* where no key is seen yet, P is 0 */
		for (int n = 0; n < TILE / 8; n++)
			for (int i = 0; i < 2; i++) {
				float *x = &s[n][2 * h + i];

				*x = exp2f(*x - from);
				sum += *x;
			}
		factor[h] = exp2f(was - from);
		so_far->most[h] = most;
		so_far->sum[h] = so_far->sum[h] * factor[h] + sum;
		for (int n = 0; n < TILE / 8 && a.drops; n++) {
			float four[4];

			draw(four, a, at.sample, at.head, query, key + 8 * n + (me.column & 4));
			s[n][2 * h] *= me.column & 2 ? four[2] : four[0];
			s[n][2 * h + 1] *= me.column & 2 ? four[3] : four[1];
		}
	}
}

/* Returns in factor what each row is divided by, and writes what backward makes P again from. */
__device__ static void finish(float *factor, const struct running *so_far,
			      const struct pd_kernel_attention &a, const struct place &at)
{
	const struct mine me = mine();

#pragma unroll
	for (int h = 0; h < 2; h++) {
		float sum = pd_quad_sum(so_far->sum[h]);
		int64_t query = at.first + me.row + 8 * h;
		bool none = sees_none(a, at, query);

		factor[h] = none ? 0 : 1 / sum;
		if (me.column == 0 && query < a.queries)
			a.logs[(at.sample * a.heads + at.head) * a.queries + query] =
				none ? INFINITY : so_far->most[h] + log2f(sum);
	}
}

template <typename T, int W, bool BIASED>
__global__ static void BOUNDS(W) forward(struct pd_kernel_attention a)
{
	__shared__ __align__(16) T keys[TILE * (W + PAD)];
	__shared__ __align__(16) T values[TILE * (W + PAD)];
	const struct place at = place_of(a, a.heads, a.queries, 1);
	int64_t kv_head = at.head / (a.heads / a.kv_heads);
	int64_t last = a.causal ? least(at.length, at.first + TILE) : at.length;
	struct running so_far = { { -INFINITY, -INFINITY }, { 0, 0 } };
	uint32_t q[W / 16][4];
	float o[W / 8][4] = {}, factor[2];

	load_tile<T, W, TILE>(keys, query_rows<const T>(a, a.q, at.sample, at.head, at.first,
							a.width));
	__syncthreads();
#pragma unroll
	for (int k = 0; k < W / 16; k++)
		load_left<T, W>(q[k], keys, 16 * k);
	__syncthreads();
	for (int64_t key = first_tile(a, at.first); key < last; key += TILE) {
		float s[TILE / 8][4] = {};

		load_tile<T, W, TILE>(keys, key_rows<const T>(a, a.k, at.sample, kv_head, key,
							      a.width));
		load_tile<T, W, TILE>(values, key_rows<const T>(a, a.v, at.sample, kv_head, key,
								a.value_width));
		__syncthreads();
#pragma unroll
		for (int k = 0; k < W / 16; k++)
			if (16 * k < a.width)
				add_features<T, W, TILE>(s, q[k], keys, 16 * k);
		soften<BIASED>(s, &so_far, factor, a, at, key);
#pragma unroll
		for (int n = 0; n < W / 8; n++)
			for (int i = 0; i < 4; i++)
				o[n][i] *= factor[i / 2];
		add_product<T, W, TILE>(o, s, values, a.value_width);
		__syncthreads();
	}
	finish(factor, &so_far, a, at);
	write_rows<T, W>(query_rows<T>(a, a.o, at.sample, at.head, at.first, a.value_width), o,
			 factor);
}

/* ---- backward ---- */

/* The block's own rows, K and V or Q and dO, and R of those it goes along, Q and dO or K and V; what is
 * known of the queries among them. */
template <typename T, int W, int R>
struct room {
	T x[TILE * (W + PAD)], y[TILE * (W + PAD)];
	T z[R * (W + PAD)], u[R * (W + PAD)];
	float logs[TILE], deltas[TILE];
};

/* Loads logs and deltas of R queries from `query` on. */
template <int R>
__device__ static void load_numbers(float *logs, float *deltas, const struct pd_kernel_attention &a,
				    const struct place &at, int64_t head, int64_t query)
{
	int64_t from = (at.sample * a.heads + head) * a.queries;

	if (threadIdx.x < R && query + threadIdx.x < a.queries) {
		logs[threadIdx.x] = a.logs[from + query + threadIdx.x];
		deltas[threadIdx.x] = a.delta[from + query + threadIdx.x];
	}
}

/* Returns the factor of dropout of one element of P. */
__device__ static float draw_one(const struct pd_kernel_attention &a, int64_t sample, int64_t head,
				 int64_t query, int64_t key)
{
	float four[4];

	draw(four, a, sample, head, query, key & ~(int64_t)3);
	return key & 2 ? (key & 1 ? four[3] : four[2]) : key & 1 ? four[1] : four[0];
}

/*
 * Makes P, times the factors of dropout, and dS / scale of the block's own rows and the R that lie from
 * `along` on.  KEYS: the own rows are keys, and p and ds are those matrices transposed.
 */
template <bool KEYS, bool BIASED, typename T, int W, int R>
__device__ static void tile_back(float (*p)[4], float (*ds)[4], const struct room<T, W, R> &s,
				 const struct pd_kernel_attention &a, const struct place &at,
				 int64_t head, int64_t along)
{
	const struct seen seen = KEYS ? seen_of(a, at, along, R, at.first, TILE)
				      : seen_of(a, at, at.first, TILE, along, R);
	const struct mine me = mine();

	multiply_tiles<T, W, R>(p, s.x, s.z, a.width);
	multiply_tiles<T, W, R>(ds, s.y, s.u, a.value_width);
#pragma unroll
	for (int n = 0; n < R / 8; n++)
		for (int i = 0; i < 4; i++) {
			int r = me.row + i / 2 * 8, c = 8 * n + me.column + i % 2;
			int64_t query = KEYS ? along + c : at.first + r;
			int64_t key = KEYS ? at.first + r : along + c;
			float factor = a.drops ? draw_one(a, at.sample, head, query, key) : 1;

			p[n][i] *= a.scale * LOG2_E;
			if (BIASED)
				p[n][i] += bias_of(a, head, query)[key];
			p[n][i] = exp2f(p[n][i] - s.logs[KEYS ? c : r]);
			ds[n][i] = p[n][i] * (ds[n][i] * factor - s.deltas[KEYS ? c : r]);
			p[n][i] *= factor;
			if (!seen.all && !is_seen(seen, KEYS ? c : r, KEYS ? r : c))
				p[n][i] = ds[n][i] = 0;
		}
}

template <typename T, int W, int R, bool BIASED>
__global__ static void BOUNDS(W) keys_back(struct pd_kernel_attention a)
{
	__shared__ __align__(16) struct room<T, W, R> s;
	const struct place at = place_of(a, a.kv_heads, a.keys, 1);
	int64_t group = a.heads / a.kv_heads;
	float dk[W / 8][4] = {}, dv[W / 8][4] = {}, p[R / 8][4], ds[R / 8][4];

	load_tile<T, W, TILE>(s.x, key_rows<const T>(a, a.k, at.sample, at.head, at.first, a.width));
	load_tile<T, W, TILE>(s.y, key_rows<const T>(a, a.v, at.sample, at.head, at.first,
						     a.value_width));
	for (int64_t head = at.head * group; head < (at.head + 1) * group && at.first < at.length;
	     head++)
		for (int64_t query = a.causal ? at.first : 0; query < end_of_queries(a, at.first);
		     query += R) {
			__syncthreads();        /* the tile before has been read */
			load_tile<T, W, R>(s.z, query_rows<const T>(a, a.q, at.sample, head, query,
								    a.width));
			load_tile<T, W, R>(s.u, query_rows<const T>(a, a.d_o, at.sample, head,
								    query, a.value_width));
			load_numbers<R>(s.logs, s.deltas, a, at, head, query);
			__syncthreads();
			tile_back<true, BIASED, T, W, R>(p, ds, s, a, at, head, query);
			add_product<T, W, R>(dv, p, s.u, a.value_width);
			add_product<T, W, R>(dk, ds, s.z, a.width);
		}
	const float scales[2] = { a.scale, a.scale }, ones[2] = { 1, 1 };

	if (a.dk)
		write_rows<T, W>(key_rows<T>(a, a.dk, at.sample, at.head, at.first, a.width), dk,
				 scales);
	if (a.dv)
		write_rows<T, W>(key_rows<T>(a, a.dv, at.sample, at.head, at.first, a.value_width),
				 dv, ones);
}

/* dS of a tile, and what its diagonals sum up to. */
template <int R>
struct bias_room {
	float ds[TILE * (R + 1)], diagonals[TILE + R - 1];
};

/* Adds dS of a tile of the block's queries and R keys to the block's part of the gradient of the bias. */
template <int R>
__device__ static void add_bias(struct bias_room<R> *room, const float (*ds)[4], const struct pd_kernel_attention &a,
				const struct place &at, int64_t key)
{
	const struct mine me = mine();
	int d = threadIdx.x;

	for (int n = 0; n < R / 8; n++)
		for (int i = 0; i < 4; i++)
			room->ds[(me.row + i / 2 * 8) * (R + 1) + 8 * n + me.column + i % 2] = ds[n][i];
	__syncthreads();
	if (d < TILE + R - 1) {
		float sum = 0;

		for (int row = 0; row < TILE; row++) {
			int column = row + d - (TILE - 1);

			sum += column >= 0 && column < R ? room->ds[row * (R + 1) + column] : 0;
		}
		room->diagonals[d] = sum;
	}
	__syncthreads();
	add_to_buckets(a, at, room->diagonals, TILE + R - 1, key - at.first - (TILE - 1));
}

template <typename T, int W, int R, bool BIASED>
__global__ static void BOUNDS(W) queries_back(struct pd_kernel_attention a)
{
	__shared__ __align__(16) struct room<T, W, R> s;
	const struct place at = place_of(a, a.heads, a.queries, 1);
	int64_t kv_head = at.head / (a.heads / a.kv_heads);
	int64_t last = a.causal ? least(at.length, at.first + TILE) : at.length;
	const float scales[2] = { a.scale, a.scale };
	float dq[W / 8][4] = {}, p[R / 8][4], ds[R / 8][4];

	load_tile<T, W, TILE>(s.x, query_rows<const T>(a, a.q, at.sample, at.head, at.first,
						       a.width));
	load_tile<T, W, TILE>(s.y, query_rows<const T>(a, a.d_o, at.sample, at.head, at.first,
						       a.value_width));
	load_numbers<TILE>(s.logs, s.deltas, a, at, at.head, at.first);
	if (BIASED)
		clear_buckets(a, at);
	for (int64_t key = first_tile(a, at.first); key < last; key += R) {
		__syncthreads();        /* the tile before has been read */
		load_tile<T, W, R>(s.z, key_rows<const T>(a, a.k, at.sample, kv_head, key, a.width));
		load_tile<T, W, R>(s.u, key_rows<const T>(a, a.v, at.sample, kv_head, key,
							  a.value_width));
		__syncthreads();
		tile_back<false, BIASED, T, W, R>(p, ds, s, a, at, at.head, key);
		if (BIASED) {
			__shared__ struct bias_room<BIASED ? R : 8> room;

			add_bias(&room, ds, a, at, key);
		}
		add_product<T, W, R>(dq, ds, s.z, a.width);
	}
	if (a.dq)
		write_rows<T, W>(query_rows<T>(a, a.dq, at.sample, at.head, at.first, a.width), dq, scales);
}

/* ---- the calls ---- */

bool pd_kernel_attention_mma_suits(enum pd_dtype dtype, const struct pd_kernel_attention *a)
{
	struct cudaFuncAttributes attributes;

	if (dtype == PD_F32 || a->width % 8 != 0 || a->value_width % 8 != 0 || a->width > WIDE ||
	    a->value_width > WIDE)
		return false;
	if (cudaFuncGetAttributes(&attributes, (const void *)forward<__half, NARROW, false>) !=
	    cudaSuccess) {
		cudaGetLastError();     /* clears the error: the other kernels say it if it stays */
		return false;
	}
	return attributes.ptxVersion >= 80;     /* what was compiled for older GPUs has none */
}

static unsigned blocks(const struct pd_kernel_attention *a, int64_t heads, int64_t rows)
{
	return (unsigned)(a->batch * heads * tiles_of(rows));
}

static bool is_narrow(const struct pd_kernel_attention *a)
{
	return a->width <= NARROW && a->value_width <= NARROW;
}

template <typename T, bool BIASED>
static cudaError_t launch(cudaStream_t stream, const struct pd_kernel_attention *a)
{
	unsigned grid = blocks(a, a->heads, a->queries);

	if (is_narrow(a))
		forward<T, NARROW, BIASED><<<grid, THREADS, 0, stream>>>(*a);
	else
		forward<T, WIDE, BIASED><<<grid, THREADS, 0, stream>>>(*a);
	return cudaGetLastError();
}

/* Tiles are such that a block needs no more than 48 KiB of shared memory. */
template <typename T, bool BIASED>
static cudaError_t launch_back(cudaStream_t stream, const struct pd_kernel_attention *a)
{
	unsigned of_keys = blocks(a, a->kv_heads, a->keys);
	unsigned of_queries = blocks(a, a->heads, a->queries);
	constexpr int MOST = BIASED ? 32 : 64;  /* keys of a tile */

	if (a->dk || a->dv) {
		if (is_narrow(a))
			keys_back<T, NARROW, 32, BIASED><<<of_keys, THREADS, 0, stream>>>(*a);
		else
			keys_back<T, WIDE, 16, BIASED><<<of_keys, THREADS, 0, stream>>>(*a);
	}
	if (a->dq || a->bias) {
		if (is_narrow(a))
			queries_back<T, NARROW, MOST, BIASED><<<of_queries, THREADS, 0, stream>>>(*a);
		else
			queries_back<T, WIDE, 16, BIASED><<<of_queries, THREADS, 0, stream>>>(*a);
	}
	return cudaGetLastError();
}

cudaError_t pd_kernel_attention_mma(cudaStream_t stream, enum pd_dtype dtype,
				    const struct pd_kernel_attention *a)
{
	if (a->bias)
		return dtype == PD_BF16 ? launch<__nv_bfloat16, true>(stream, a) : launch<__half, true>(stream, a);
	return dtype == PD_BF16 ? launch<__nv_bfloat16, false>(stream, a) : launch<__half, false>(stream, a);
}

cudaError_t pd_kernel_attention_mma_back(cudaStream_t stream, enum pd_dtype dtype,
					 const struct pd_kernel_attention *a)
{
	if (a->bias)
		return dtype == PD_BF16 ? launch_back<__nv_bfloat16, true>(stream, a)
					: launch_back<__half, true>(stream, a);
	return dtype == PD_BF16 ? launch_back<__nv_bfloat16, false>(stream, a)
				: launch_back<__half, false>(stream, a);
}
