/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scaled dot-product attention; lib/run/device/cpu/attention.h has the formulas.  attention_mma.cu does it in
 * 16 bits where it can, this file all else.  A block owns TILE
 * queries of a head and goes along the keys.  In backward one kernel's blocks own TILE keys of a
 * key-value head and go along the queries of all heads that use them, in ascending order; another's
 * own queries again, for their gradients.  So every sum is one thread's, in an order that follows
 * from the shapes alone.
 *
 * A thread has 4 x 4 elements of a tile of P: rows next to one another, columns SIDE apart.  What
 * goes into a product comes through shared memory in chunks of CHUNK, so that heads may have any
 * width.  A block makes at most TILE * N columns of what comes out; wider heads have several blocks.
 */
#include "run/device/cuda/attention.cuh"

#include "run/device/cuda/grid.cuh"

#define SIDE 16
#define THREADS (SIDE * SIDE)
#define CHUNK 32
#define STEP (CHUNK + 1)        /* from row to row of a chunk, so that banks differ */
#define P_STEP (TILE + 1)
#define PARTS (THREADS / TILE)  /* threads that share a row of P */
#define PART (TILE / PARTS)     /* columns that each of them has, a multiple of 4 */

struct room {
	float a[TILE * STEP], b[TILE * STEP];
	float p[TILE * P_STEP];
	float parts[THREADS];
	float most[TILE], sum[TILE], factor[TILE];
};

/* ---- products: all threads of a block come to each, and meet before they return ---- */

/* CHUNK columns from `first` on of all rows; what is not there is 0. */
template <typename T>
__device__ static void load_chunk(float *to, const struct rows<T> &from, int64_t first)
{
	int64_t c = threadIdx.x % CHUNK;

	for (int r = threadIdx.x / CHUNK; r < TILE; r += THREADS / CHUNK)
		to[r * STEP + c] = r < from.count && first + c < from.width
					   ? (float)from.at[r * from.step + first + c] : 0;
}

/* out = A B^T: the products of the rows of a with those of b. */
template <typename T>
__device__ static void multiply_rows(float (*out)[4], struct room *s, const struct rows<T> &a,
				     const struct rows<T> &b)
{
	int row = threadIdx.x / SIDE * 4, column = threadIdx.x % SIDE;

	for (int i = 0; i < 4; i++)
		for (int j = 0; j < 4; j++)
			out[i][j] = 0;
	for (int64_t first = 0; first < a.width; first += CHUNK) {
		load_chunk(s->a, a, first);
		load_chunk(s->b, b, first);
		__syncthreads();
		for (int l = 0; l < CHUNK; l++) {
			float left[4], right[4];

			for (int i = 0; i < 4; i++)
				left[i] = s->a[(row + i) * STEP + l];
			for (int j = 0; j < 4; j++)
				right[j] = s->b[(column + j * SIDE) * STEP + l];
			for (int i = 0; i < 4; i++)
				for (int j = 0; j < 4; j++)
					out[i][j] = fmaf(left[i], right[j], out[i][j]);
		}
		__syncthreads();
	}
}

/* CHUNK rows from `first` on, TILE columns from `column` on. */
template <typename T>
__device__ static void load_rows(float *to, const struct rows<T> &from, int first, int64_t column)
{
	int c = threadIdx.x % TILE;

	for (int r = threadIdx.x / TILE; r < CHUNK; r += THREADS / TILE)
		to[r * P_STEP + c] = first + r < from.count && column + c < from.width
			? (float)from.at[(first + r) * from.step + column + c] : 0;
}

/* out += P B, or with TURNED P^T B, of columns of B from `column` on: N times TILE of them.  P is in
 * the room; nobody has still to write there. */
template <bool TURNED, int N, typename T>
__device__ static void add_product(float (*out)[4][4], struct room *s, const struct rows<T> &b,
				   int64_t column)
{
	int row = threadIdx.x / SIDE * 4, across = threadIdx.x % SIDE;

	for (int first = 0; first < TILE; first += CHUNK)
		for (int n = 0; n < N; n++) {
			load_rows(s->a, b, first, column + n * TILE);
			__syncthreads();
			for (int l = 0; l < CHUNK; l++) {
				float left[4], right[4];

				for (int i = 0; i < 4; i++)
					left[i] = TURNED ? s->p[(first + l) * P_STEP + row + i]
							 : s->p[(row + i) * P_STEP + first + l];
				for (int j = 0; j < 4; j++)
					right[j] = s->a[l * P_STEP + across + j * SIDE];
				for (int i = 0; i < 4; i++)
					for (int j = 0; j < 4; j++)
						out[n][i][j] = fmaf(left[i], right[j],
								    out[n][i][j]);
			}
			__syncthreads();
		}
}

template <int N>
__device__ static void clear(float (*out)[4][4])
{
	for (int n = 0; n < N; n++)
		for (int i = 0; i < 4; i++)
			for (int j = 0; j < 4; j++)
				out[n][i][j] = 0;
}

/* Writes N times TILE columns from `column` on; factor: by row of the tile, or NULL. */
template <int N, typename T>
__device__ static void write_rows(const struct rows<T> &to, int64_t column, float (*out)[4][4],
				  float scale, const float *factor)
{
	int row = threadIdx.x / SIDE * 4, across = threadIdx.x % SIDE;

	for (int n = 0; n < N; n++)
		for (int i = 0; i < 4; i++)
			for (int j = 0; j < 4; j++) {
				int64_t c = column + n * TILE + j * SIDE + across;

				if (row + i < to.count && c < to.width)
					to.at[(row + i) * to.step + c] = (T)(out[n][i][j] *
						(factor ? factor[row + i] : scale));
			}
}

/* Returns a score in units of log 2, of the product of a query and a key. */
__device__ static inline float score_of(const struct pd_kernel_attention &a, float product, int64_t head,
					int64_t query, int64_t key)
{
	float score = product * (a.scale * LOG2_E);

	return a.bias ? score + bias_of(a, head, query)[key] : score;
}

/* ---- forward ---- */

/*
 * Of S, in the room and in units of log 2, makes P before it is divided by the sum of its row; the
 * row's maximum, sum and by how much the earlier ones shrink are in the room, too.
 */
__device__ static void soften(struct room *s, const struct pd_kernel_attention &a,
			      const struct place &at, int64_t key)
{
	int row = threadIdx.x / PARTS, part = threadIdx.x % PARTS;
	float *p = &s->p[row * P_STEP + part * PART], most = s->most[row], sum = 0;
	float was = most;

	for (int c = 0; c < PART; c++)
		most = fmaxf(most, p[c]);
	s->parts[threadIdx.x] = most;
	__syncthreads();
	for (int k = 0; k < PARTS; k++)
		most = fmaxf(most, s->parts[row * PARTS + k]);
	__syncthreads();
	for (int c = 0; c < PART; c++) {
		p[c] = p[c] == -INFINITY ? 0 : exp2f(p[c] - most);
		sum += p[c];
	}
	for (int c = 0; c < PART && a.drops; c += 4) {
		float factor[4];

		draw(factor, a, at.sample, at.head, at.first + row, key + part * PART + c);
		for (int k = 0; k < 4; k++)
			p[c + k] *= factor[k];
	}
	s->parts[threadIdx.x] = sum;
	__syncthreads();
	if (part == 0) {
		float factor = was == -INFINITY ? 0 : exp2f(was - most);

		sum = s->sum[row] * factor;
		for (int k = 0; k < PARTS; k++)
			sum += s->parts[threadIdx.x + k];
		s->most[row] = most;
		s->sum[row] = sum;
		s->factor[row] = factor;
	}
	__syncthreads();
}

/* The rows' factors, and what backward makes P again from. */
__device__ static void finish(struct room *s, const struct pd_kernel_attention &a,
			      const struct place &at)
{
	int64_t row = threadIdx.x;

	if (row < TILE && at.first + row < a.queries) {
		bool none = sees_none(a, at, at.first + row);
		float sum = s->sum[row];

		s->factor[row] = none ? 0 : 1 / sum;
		if (at.slice == 0)
			a.logs[(at.sample * a.heads + at.head) * a.queries + at.first + row] =
				none ? INFINITY : s->most[row] + log2f(sum);
	}
	__syncthreads();
}

template <typename T, int N>
__global__ static void forward(struct pd_kernel_attention a)
{
	__shared__ struct room s;
	const struct place at = place_of(a, a.heads, a.queries,
					 (a.value_width + TILE * N - 1) / (TILE * N));
	int64_t kv_head = at.head / (a.heads / a.kv_heads);
	int row = threadIdx.x / SIDE * 4, across = threadIdx.x % SIDE;
	const struct rows<const T> q = query_rows<const T>(a, a.q, at.sample, at.head, at.first,
							    a.width);
	int64_t last = a.causal ? least(at.length, at.first + q.count) : at.length;
	float o[N][4][4], p[4][4];

	clear<N>(o);
	if (threadIdx.x < TILE) {
		s.most[threadIdx.x] = -INFINITY;
		s.sum[threadIdx.x] = 0;
	}
	for (int64_t key = first_tile(a, at.first); key < last; key += TILE) {
		multiply_rows(p, &s, q, key_rows<const T>(a, a.k, at.sample, kv_head, key, a.width));
		for (int i = 0; i < 4; i++)
			for (int j = 0; j < 4; j++) {
				int c = across + j * SIDE;

				s.p[(row + i) * P_STEP + c] =
					sees(a, at, at.first + row + i, key + c)
					? score_of(a, p[i][j], at.head, at.first + row + i, key + c)
					: -INFINITY;
			}
		__syncthreads();
		soften(&s, a, at, key);
		for (int n = 0; n < N; n++)
			for (int i = 0; i < 4; i++)
				for (int j = 0; j < 4; j++)
					o[n][i][j] *= s.factor[row + i];
		add_product<false, N>(o, &s, key_rows<const T>(a, a.v, at.sample, kv_head, key,
							       a.value_width), at.slice * TILE * N);
	}
	__syncthreads();
	finish(&s, a, at);
	write_rows<N>(query_rows<T>(a, a.o, at.sample, at.head, at.first, a.value_width),
		      at.slice * TILE * N, o, 1, s.factor);
}

/* Returns how many times TILE columns one block computes. */
static int blocks_across(int64_t columns)
{
	return columns > TILE ? 2 : 1;
}

static dim3 grid_of(const struct pd_kernel_attention *a, int64_t heads, int64_t rows,
		    int64_t columns)
{
	return dim3((unsigned)(a->batch * heads * tiles_of(rows) *
			       slices_of(columns, blocks_across(columns))));
}

cudaError_t pd_kernel_attention(cudaStream_t stream, enum pd_dtype dtype,
				const struct pd_kernel_attention *a)
{
	const dim3 grid = grid_of(a, a->heads, a->queries, a->value_width);

	if (a->tensor_cores)
		return pd_kernel_attention_mma(stream, dtype, a);
	if (blocks_across(a->value_width) == 1)
		PD_BY_TYPE(dtype, T, (forward<T, 1><<<grid, THREADS, 0, stream>>>(*a)));
	else
		PD_BY_TYPE(dtype, T, (forward<T, 2><<<grid, THREADS, 0, stream>>>(*a)));
	return cudaGetLastError();
}

/* ---- backward ---- */

#define TEAM 8                  /* threads side by side that take a row of O together */

/* delta: for each query and head the sum over its columns of O dO. */
template <typename T>
__global__ static void deltas(struct pd_kernel_attention a)
{
	__shared__ float room[PD_THREADS];
	int64_t rows = a.batch * a.queries * a.heads;
	int64_t step = gridDim.x * (int64_t)(PD_THREADS / TEAM);
	int t = threadIdx.x, lane = t % TEAM;

	for (int64_t n = blockIdx.x * (int64_t)(PD_THREADS / TEAM) + t / TEAM; n - t / TEAM < rows;
	     n += step) {
		const T *o = (const T *)a.o + n * a.value_width;
		const T *d_o = (const T *)a.d_o + n * a.value_width;
		int64_t head = n % a.heads, query = n / a.heads % a.queries;
		int64_t sample = n / a.heads / a.queries;
		float sum = 0;

		for (int64_t c = lane; c < a.value_width && n < rows; c += TEAM)
			sum = fmaf((float)o[c], (float)d_o[c], sum);
		room[t] = sum;
		for (int half = TEAM / 2; half > 0; half /= 2) {
			__syncwarp();
			if (lane < half)
				room[t] += room[t + half];
		}
		if (lane == 0 && n < rows)
			a.delta[(sample * a.heads + head) * a.queries + query] = room[t];
		__syncwarp();   /* only now may the next begin */
	}
}

/*
 * Makes P and dS / scale of a tile, p and ds: this thread's elements.  factor: those of dropout, by
 * which P is still to be multiplied.
 */
template <typename T>
__device__ static void tile_back(float (*p)[4], float (*ds)[4], float (*factor)[4], struct room *s,
				 const struct pd_kernel_attention &a, const struct place &at,
				 int64_t head, int64_t query, int64_t kv_head, int64_t key)
{
	int row = threadIdx.x / SIDE * 4, across = threadIdx.x % SIDE;
	int64_t from = (at.sample * a.heads + head) * a.queries + query + row;
	int of_row = threadIdx.x / PARTS, column = threadIdx.x % PARTS * PART;

	multiply_rows(ds, s, query_rows<const T>(a, a.d_o, at.sample, head, query, a.value_width),
		      key_rows<const T>(a, a.v, at.sample, kv_head, key, a.value_width));
	multiply_rows(p, s, query_rows<const T>(a, a.q, at.sample, head, query, a.width),
		      key_rows<const T>(a, a.k, at.sample, kv_head, key, a.width));
	for (int c = 0; c < PART && a.drops; c += 4)
		draw(&s->p[of_row * P_STEP + column + c], a, at.sample, head, query + of_row,
		     key + column + c);
	__syncthreads();
	for (int i = 0; i < 4; i++)
		for (int j = 0; j < 4; j++) {
			int c = across + j * SIDE;
			bool seen = sees(a, at, query + row + i, key + c);

			factor[i][j] = a.drops ? s->p[(row + i) * P_STEP + c] : 1;
			p[i][j] = seen ? exp2f(score_of(a, p[i][j], head, query + row + i, key + c) -
					       a.logs[from + i]) : 0;
			ds[i][j] = seen ? p[i][j] * (ds[i][j] * factor[i][j] - a.delta[from + i]) : 0;
		}
	__syncthreads();
}

/* Puts a tile into the room, each element times its factor. */
__device__ static void put_tile(struct room *s, const float (*p)[4], const float (*factor)[4])
{
	int row = threadIdx.x / SIDE * 4, across = threadIdx.x % SIDE;

	for (int i = 0; i < 4; i++)
		for (int j = 0; j < 4; j++)
			s->p[(row + i) * P_STEP + across + j * SIDE] =
				factor ? p[i][j] * factor[i][j] : p[i][j];
	__syncthreads();
}

template <typename T, int N>
__global__ static void keys_back(struct pd_kernel_attention a)
{
	__shared__ struct room s;
	int64_t columns = a.width > a.value_width ? a.width : a.value_width;
	const struct place at = place_of(a, a.kv_heads, a.keys,
					 (columns + TILE * N - 1) / (TILE * N));
	int64_t group = a.heads / a.kv_heads, column = at.slice * TILE * N;
	float dk[N][4][4], dv[N][4][4], p[4][4], ds[4][4], factor[4][4];

	clear<N>(dk);
	clear<N>(dv);
	for (int64_t head = at.head * group; head < (at.head + 1) * group && at.first < at.length;
	     head++)
		for (int64_t query = a.causal ? at.first : 0; query < end_of_queries(a, at.first);
		     query += TILE) {
			tile_back<T>(p, ds, factor, &s, a, at, head, query, at.head, at.first);
			put_tile(&s, p, factor);
			add_product<true, N>(dv, &s, query_rows<const T>(a, a.d_o, at.sample, head,
									 query, a.value_width),
					     column);
			put_tile(&s, ds, NULL);
			add_product<true, N>(dk, &s, query_rows<const T>(a, a.q, at.sample, head,
									 query, a.width), column);
		}
	if (a.dk)
		write_rows<N>(key_rows<T>(a, a.dk, at.sample, at.head, at.first, a.width), column,
			      dk, a.scale, NULL);
	if (a.dv)
		write_rows<N>(key_rows<T>(a, a.dv, at.sample, at.head, at.first, a.value_width),
			      column, dv, 1, NULL);
}

/* Adds dS of a tile, which is in the room, to the block's part of the gradient of the bias. */
__device__ static void add_bias(struct room *s, const struct pd_kernel_attention &a, const struct place &at,
				int64_t key)
{
	int d = threadIdx.x;

	if (d < 2 * TILE - 1) {
		float sum = 0;

		for (int row = 0; row < TILE; row++) {
			int column = row + d - (TILE - 1);

			sum += column >= 0 && column < TILE ? s->p[row * P_STEP + column] : 0;
		}
		s->parts[d] = sum;
	}
	__syncthreads();
	add_to_buckets(a, at, s->parts, 2 * TILE - 1, key - at.first - (TILE - 1));
}

template <typename T, int N>
__global__ static void queries_back(struct pd_kernel_attention a)
{
	__shared__ struct room s;
	const struct place at = place_of(a, a.heads, a.queries,
					 (a.width + TILE * N - 1) / (TILE * N));
	int64_t kv_head = at.head / (a.heads / a.kv_heads), column = at.slice * TILE * N;
	int64_t last = a.causal ? least(at.length, at.first + TILE) : at.length;
	float dq[N][4][4], p[4][4], ds[4][4], factor[4][4];

	clear<N>(dq);
	if (a.bias && at.slice == 0)
		clear_buckets(a, at);
	for (int64_t key = first_tile(a, at.first); key < last; key += TILE) {
		tile_back<T>(p, ds, factor, &s, a, at, at.head, at.first, kv_head, key);
		put_tile(&s, ds, NULL);
		if (a.bias && at.slice == 0)
			add_bias(&s, a, at, key);
		add_product<false, N>(dq, &s, key_rows<const T>(a, a.k, at.sample, kv_head, key,
								a.width), column);
	}
	if (a.dq)
		write_rows<N>(query_rows<T>(a, a.dq, at.sample, at.head, at.first, a.width), column, dq,
			      a.scale, NULL);
}

cudaError_t pd_kernel_attention_back(cudaStream_t stream, enum pd_dtype dtype,
				     const struct pd_kernel_attention *a)
{
	int64_t columns = a->width > a->value_width ? a->width : a->value_width;
	const dim3 of_keys = grid_of(a, a->kv_heads, a->keys, columns);
	const dim3 of_queries = grid_of(a, a->heads, a->queries, a->width);
	size_t rows = (size_t)(a->batch * a->queries * a->heads);
	cudaError_t status;

	PD_BY_TYPE(dtype, T, (deltas<T>
		<<<pd_grid_blocks(rows * TEAM), PD_THREADS, 0, stream>>>(*a)));
	status = cudaGetLastError();
	if (status == cudaSuccess && a->tensor_cores)
		return pd_kernel_attention_mma_back(stream, dtype, a);
	if (status == cudaSuccess && (a->dk || a->dv)) {
		if (blocks_across(columns) == 1)
			PD_BY_TYPE(dtype, T, (keys_back<T, 1><<<of_keys, THREADS, 0, stream>>>(*a)));
		else
			PD_BY_TYPE(dtype, T, (keys_back<T, 2><<<of_keys, THREADS, 0, stream>>>(*a)));
		status = cudaGetLastError();
	}
	if (status == cudaSuccess && (a->dq || a->bias)) {
		if (blocks_across(a->width) == 1)
			PD_BY_TYPE(dtype, T, (queries_back<T, 1>
				<<<of_queries, THREADS, 0, stream>>>(*a)));
		else
			PD_BY_TYPE(dtype, T, (queries_back<T, 2>
				<<<of_queries, THREADS, 0, stream>>>(*a)));
		status = cudaGetLastError();
	}
	return status;
}
