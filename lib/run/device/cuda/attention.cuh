/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernels of attention have in common: which tile a block has, where its rows lie, which keys
 * a query sees, the bias of scores, and the numbers of dropout.
 */
#pragma once

#include "run/device/cuda/host_device.cuh"

#include "run/device/cuda/kernels.h"
#include "run/device/cuda/typed.cuh"

#define TILE 64                 /* rows of a block */
#define LOG2_E 1.44269504088896341f

/* The part of the result that a block makes. */
struct place {
	int64_t sample, head, first, slice;     /* first: the row at which its tile begins */
	int64_t length;                         /* keys that are seen */
};

static inline int64_t slices_of(int64_t columns, int n)
{
	return (columns + TILE * n - 1) / (TILE * n);
}

static inline int64_t tiles_of(int64_t rows)
{
	return (rows + TILE - 1) / TILE;
}

/* The last tile comes first: with a causal mask it has the most to do of those of queries. */
__device__ static inline struct place place_of(const struct pd_kernel_attention &a, int64_t heads,
					       int64_t rows, int64_t slices)
{
	int64_t tiles = (rows + TILE - 1) / TILE, n = blockIdx.x;
	struct place at;

	at.slice = n % slices;
	n /= slices;
	at.first = (tiles - 1 - n % tiles) * TILE;
	n /= tiles;
	at.head = n % heads;
	at.sample = n / heads;
	at.length = a.keys;
	if (a.lengths && a.lengths[at.sample] < at.length)
		at.length = a.lengths[at.sample] < 0 ? 0 : a.lengths[at.sample];
	return at;
}

/* Rows of one head of a tensor, from one on. */
template <typename T>
struct rows {
	T *at;
	int64_t step;                   /* from row to row */
	int count;                      /* TILE at most */
	int64_t width;
};

__device__ static inline int least(int64_t a, int64_t b)
{
	return (int)(a < b ? a : b);
}

template <typename T>
__device__ static inline struct rows<T> rows_of(const void *tensor, int64_t sample,
						int64_t of_a_sample, int64_t heads, int64_t head,
						int64_t first, int64_t width)
{
	struct rows<T> r;

	r.at = (T *)tensor + ((sample * of_a_sample + first) * heads + head) * width;
	r.step = heads * width;
	r.count = least(TILE, of_a_sample - first);
	r.width = width;
	return r;
}

template <typename T>
__device__ static inline struct rows<T> query_rows(const struct pd_kernel_attention &a,
						   const void *tensor, int64_t sample, int64_t head,
						   int64_t first, int64_t width)
{
	return rows_of<T>(tensor, sample, a.queries, a.heads, head, first, width);
}

template <typename T>
__device__ static inline struct rows<T> key_rows(const struct pd_kernel_attention &a,
						 const void *tensor, int64_t sample,
						 int64_t kv_head, int64_t first, int64_t width)
{
	return rows_of<T>(tensor, sample, a.keys, a.kv_heads, kv_head, first, width);
}

/* Returns the first key that a query sees. */
__device__ static inline int64_t first_seen(const struct pd_kernel_attention &a, int64_t query)
{
	return a.window > 0 && query >= a.window ? query - a.window + 1 : 0;
}

/* Returns the tile of keys with which a tile of queries from `query` on begins. */
__device__ static inline int64_t first_tile(const struct pd_kernel_attention &a, int64_t query)
{
	return first_seen(a, query) / TILE * TILE;
}

/* Returns the end of the queries that see keys of the TILE from `key` on. */
__device__ static inline int64_t end_of_queries(const struct pd_kernel_attention &a, int64_t key)
{
	int64_t end = key + TILE - 1 + a.window;

	return a.window > 0 && end < a.queries ? end : a.queries;
}

/* Tells whether a query sees a key. */
__device__ static inline bool sees(const struct pd_kernel_attention &a, const struct place &at,
				   int64_t query, int64_t key)
{
	return query < a.queries && key < at.length && (!a.causal || key <= query) &&
	       key >= first_seen(a, query);
}

/* Tells whether a query sees no key at all. */
__device__ static inline bool sees_none(const struct pd_kernel_attention &a, const struct place &at,
					int64_t query)
{
	return first_seen(a, query) >= at.length;
}

/* Returns where the bias of a query begins: key k's is at [k].  A tile may read behind the last query and key. */
__device__ static inline const float *bias_of(const struct pd_kernel_attention &a, int64_t head, int64_t query)
{
	return a.bias + head * a.diagonals + TILE + a.queries - 1 - query;
}

/* This block's part of the gradient of the bias; its tile is one of queries. */
__device__ static inline float *bias_part(const struct pd_kernel_attention &a, const struct place &at)
{
	int64_t tiles = (a.queries + TILE - 1) / TILE;

	return a.d_bias + ((at.sample * a.heads + at.head) * tiles + at.first / TILE) * a.buckets;
}

/* Adds sums of dS along diagonals, `count` of them from place `least_place` on, to the block's part. */
__device__ static inline void add_to_buckets(const struct pd_kernel_attention &a, const struct place &at,
					     const float *diagonals, int count, int64_t least_place)
{
	for (int64_t b = threadIdx.x; b < a.buckets; b += blockDim.x) {
		int64_t begin = a.ranges[b].begin - least_place, end = a.ranges[b].end - least_place;
		float sum = 0;

		for (int64_t d = begin < 0 ? 0 : begin; d < end && d < count; d++)
			sum += diagonals[d];
		bias_part(a, at)[b] += sum;
	}
}

__device__ static inline void clear_buckets(const struct pd_kernel_attention &a, const struct place &at)
{
	for (int64_t b = threadIdx.x; b < a.buckets; b += blockDim.x)
		bias_part(a, at)[b] = 0;
}

/* The factors of dropout of 4 keys from `key`, a multiple of 4, on. */
__device__ static inline void draw(float *factor, const struct pd_kernel_attention &a,
				   int64_t sample, int64_t head, int64_t query, int64_t key)
{
	uint64_t four = (uint64_t)(head * a.queries + query) * ((uint64_t)(a.keys + 3) / 4) +
			(uint64_t)key / 4;
	struct pd_random4 r = pd_random(a.seed, a.stream + (four >> 32 << 24),
					(uint32_t)(a.numbers->first_sample + sample),
					(uint32_t)four);

	for (int k = 0; k < 4; k++)
		factor[k] = pd_unit(r.v[k]) >= a.p ? 1 / (1 - a.p) : 0;
}
