/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Passes over a tensor by channel, and sums per channel.  An element is identified by its channel
 * and its row, which is everything but the channel.
 *
 * A thread takes one unit at a time: N adjacent elements, 16 bytes of them where the shape allows
 * that, else one.  With channels last a unit is N channels of one row, else N rows of one channel.
 * A column is the channels that a thread keeps to (N or one), so that numbers of a channel are read
 * once, into registers.
 *
 * Sums over rows have an order that follows from the shape alone.  Units are divided into parts.  A
 * block has PD_THREADS threads, `across` of them side by side over columns, and the others over the
 * units of its part.  Each thread sums its own units, and then halves of the block are added to
 * halves.  A second kernel adds the parts, in double, in the same way.
 */
#pragma once

#include "run/device/cuda/grid.cuh"
#include "run/device/cuda/kernels.h"
#include "run/device/cuda/typed.cuh"

#define PD_ACROSS_MOST 32
#define PD_UNROLLED 4           /* units of all arrays that a thread loads at a time */
#define PD_ROWS_OF_A_PART 128   /* at least, if there are so many */
#define PD_UNITS_OF_A_THREAD (2 * PD_UNROLLED)  /* at least, likewise */
#define PD_SUM_BLOCKS 1024      /* about as many sum over all rows */
#define PD_PASS_BLOCKS 4096     /* about as many pass over all elements */
#define PD_TOTAL_ACROSS 8       /* channels of a block that adds parts */
#define PD_TOTAL_ROWS (PD_THREADS / PD_TOTAL_ACROSS)

/* Two sums of a channel over a part. */
struct alignas(8) pd_two {
	float first, second;
};

/* ---- on the host ---- */

/* Returns an upper bound of parts for every type and layout, so that room can be reserved early. */
static inline int pd_parts_most(int64_t rows, int64_t channels)
{
	int64_t parts = rows / PD_ROWS_OF_A_PART;
	int64_t most = PD_SUM_BLOCKS / ((channels + PD_THREADS - 1) / PD_THREADS);

	if (parts > most)
		parts = most;
	return parts < 1 ? 1 : (int)parts;
}

/* Returns the elements of a unit. aligned: all arrays begin at multiples of 16 bytes. */
static inline int pd_norm_unit(enum pd_dtype dtype, const struct pd_kernel_norm *norm, bool aligned)
{
	int most = dtype == PD_F32 ? 4 : 8;

	return aligned && (norm->area == 1 ? norm->channels : norm->area) % most == 0 ? most : 1;
}

static inline int64_t pd_columns(const struct pd_kernel_norm *norm, int n)
{
	return norm->area == 1 ? norm->channels / n : norm->channels;
}

static inline int64_t pd_units(const struct pd_kernel_norm *norm, int n)
{
	return norm->area == 1 ? norm->rows : norm->rows / n;
}

/*
 * Returns a block whose width is a power of two and covers at least 64 adjacent bytes, if there
 * are.
 */
static inline dim3 pd_column_block(const struct pd_kernel_norm *norm, int n)
{
	int64_t columns = pd_columns(norm, n);
	unsigned least = n == 1 ? PD_ACROSS_MOST : 4, across = PD_ACROSS_MOST;

	if (norm->area != 1)
		return dim3(1, PD_THREADS);
	while (across > least && columns % across != 0)
		across /= 2;
	while (across > 1 && across / 2 >= columns)
		across /= 2;
	return dim3(across, PD_THREADS / across);
}

static inline unsigned pd_column_blocks(const struct pd_kernel_norm *norm, int n)
{
	unsigned across = pd_column_block(norm, n).x;

	return (unsigned)((pd_columns(norm, n) + across - 1) / across);
}

static inline int64_t pd_units_of_a_block(const struct pd_kernel_norm *norm, int n)
{
	return PD_UNITS_OF_A_THREAD * (int64_t)pd_column_block(norm, n).y;
}

static inline int pd_parts(const struct pd_kernel_norm *norm, int n)
{
	int64_t parts = pd_parts_most(norm->rows, norm->channels);
	int64_t most = pd_units(norm, n) / pd_units_of_a_block(norm, n);

	if (norm->area != 1 && most > PD_SUM_BLOCKS / norm->channels)
		most = PD_SUM_BLOCKS / norm->channels;
	if (parts > most)
		parts = most;
	return parts < 1 ? 1 : (int)parts;
}

static inline dim3 pd_sum_grid(const struct pd_kernel_norm *norm, int n)
{
	return dim3(pd_column_blocks(norm, n), (unsigned)pd_parts(norm, n));
}

static inline dim3 pd_pass_grid(const struct pd_kernel_norm *norm, int n)
{
	int64_t of_a_block = pd_units_of_a_block(norm, n);
	int64_t rows = (pd_units(norm, n) + of_a_block - 1) / of_a_block;
	unsigned columns = pd_column_blocks(norm, n);
	int64_t most = columns < PD_PASS_BLOCKS ? PD_PASS_BLOCKS / columns : 1;

	return dim3(columns, (unsigned)(rows < most ? rows : most));
}

static inline dim3 pd_total_grid(int64_t channels)
{
	return dim3((unsigned)((channels + PD_TOTAL_ACROSS - 1) / PD_TOTAL_ACROSS));
}

static inline dim3 pd_total_block(void)
{
	return dim3(PD_TOTAL_ACROSS, PD_TOTAL_ROWS);
}

/* Runs the statement with N, the elements of a unit, and LAST, whether channels are last. */
#define PD_BY_UNIT(T, norm, unit, N, LAST, ...) do { \
		if ((norm)->area == 1) { \
			constexpr bool LAST = true; \
			PD_BY_PACK(T, (unit) == N, N, __VA_ARGS__); \
		} else { \
			constexpr bool LAST = false; \
			PD_BY_PACK(T, (unit) == N, N, __VA_ARGS__); \
		} \
	} while (0)

/* ---- on the GPU ---- */

/* A thread's column, and the places of its units. */
template <int N, bool LAST>
struct pd_column {
	static constexpr int channels_here = LAST ? N : 1;
	int64_t column, channels, area;

	__device__ explicit pd_column(const struct pd_kernel_norm &n)
		: column(blockIdx.x * (int64_t)blockDim.x + threadIdx.x), channels(n.channels),
		  area(n.area)
	{
	}

	__device__ bool exists() const
	{
		return column * channels_here < channels;
	}

	__device__ int64_t channel() const
	{
		return column * channels_here;
	}

	/* divisions cost more than memory accesses: none where channels are last */
	__device__ size_t place(int64_t unit) const
	{
		size_t of_a_plane;

		if (LAST)
			return (size_t)(unit * channels + column * N);
		of_a_plane = (size_t)area / N;
		return (pd_quotient((size_t)unit, of_a_plane) * (size_t)channels + (size_t)column) *
		       (size_t)area + pd_rest((size_t)unit, of_a_plane) * N;
	}
};

/* Returns which of the thread's channels element k belongs to. */
template <int N, bool LAST>
__device__ static constexpr int pd_column_of_lane(int k)
{
	return LAST ? k : 0;
}

/* Reads n floats into registers; from: a multiple of 16 bytes if n is one of 4. */
template <int n>
__device__ static void pd_read_floats(float *to, const float *from)
{
#pragma unroll
	for (int at = 0; at < n; at += PD_FLOATS(n)) {
		const struct pd_pack<float, PD_FLOATS(n)> p =
			*(const struct pd_pack<float, PD_FLOATS(n)> *)&from[at];

#pragma unroll
		for (int k = 0; k < PD_FLOATS(n); k++)
			to[at + k] = p.v[k];
	}
}

/* Reads n adjacent numbers of another type as floats. */
template <int n, typename T>
__device__ static void pd_read_lanes(float *to, const T *from)
{
	const struct pd_pack<T, n> p = *(const struct pd_pack<T, n> *)from;

#pragma unroll
	for (int k = 0; k < n; k++)
		to[k] = (float)p.v[k];
}

/*
 * Calls use(unit, load(unit)) for every step-th unit from `first` on, in order; AHEAD units are
 * loaded before the first of them is used.
 */
template <int AHEAD, typename Load, typename Use>
__device__ static void pd_for_units(int64_t first, int64_t end, int64_t step, Load load, Use use)
{
	int64_t unit = first;

	for (; unit + (AHEAD - 1) * step < end; unit += AHEAD * step) {
		decltype(load(unit)) held[AHEAD];

#pragma unroll
		for (int k = 0; k < AHEAD; k++)
			held[k] = load(unit + k * step);
#pragma unroll
		for (int k = 0; k < AHEAD; k++)
			use(unit + k * step, held[k]);
	}
	for (; unit < end; unit += step)
		use(unit, load(unit));
}

/* Visits the units of this block's part, each of ARRAYS arrays. */
template <int ARRAYS, typename Load, typename Use>
__device__ static void pd_for_part(int64_t units, Load load, Use use)
{
	int64_t begin = units * blockIdx.y / gridDim.y, end = units * (blockIdx.y + 1) / gridDim.y;

	pd_for_units<PD_UNROLLED / ARRAYS>(begin + threadIdx.y, end, blockDim.y, load, use);
}

/* Visits every unit, each of ARRAYS arrays, by one of the blocks of its column. */
template <int ARRAYS, typename Load, typename Use>
__device__ static void pd_for_all(int64_t units, Load load, Use use)
{
	pd_for_units<PD_UNROLLED / ARRAYS>(blockIdx.y * (int64_t)blockDim.y + threadIdx.y, units,
					   (int64_t)gridDim.y * blockDim.y, load, use);
}

/*
 * Combines the two sums of each channel over the block's threads, and puts them into room (parts,
 * channels).  All threads of a block call this.
 */
template <int n>
__device__ static void pd_put_part(struct pd_two *room, int64_t channels, int64_t channel,
				   const float *first, const float *second)
{
	__shared__ float sum[2 * n][PD_THREADS];
	int across = blockDim.x, t = threadIdx.y * across + threadIdx.x;

#pragma unroll
	for (int k = 0; k < n; k++) {
		sum[k][t] = first[k];
		sum[n + k][t] = second[k];
	}
	for (int half = blockDim.y / 2; half > 0; half /= 2) {
		__syncthreads();
		if ((int)threadIdx.y < half)
#pragma unroll
			for (int k = 0; k < 2 * n; k++)
				sum[k][t] += sum[k][t + half * across];
	}
	if (threadIdx.y == 0 && channel < channels)
#pragma unroll
		for (int k = 0; k < n; k++) {
			const struct pd_two both = { sum[k][t], sum[n + k][t] };

			room[blockIdx.y * channels + channel + k] = both;
		}
}

/* Returns the channel whose parts this thread adds, in a block of pd_total_block(). */
__device__ static int64_t pd_total_channel(void)
{
	return blockIdx.x * (int64_t)PD_TOTAL_ACROSS + threadIdx.x;
}

/*
 * Adds the parts.  Returns true in the thread that has the two sums of its channel.  All threads of
 * a block call this.
 */
__device__ static bool pd_total(const struct pd_two *room, int parts, int64_t channels,
				double *first_p, double *second_p)
{
	__shared__ double sum[2][PD_THREADS];
	int64_t c = pd_total_channel();
	int t = threadIdx.y * PD_TOTAL_ACROSS + threadIdx.x;
	double first = 0, second = 0;

	if (c < channels)
		pd_for_units<8>(threadIdx.y, parts, PD_TOTAL_ROWS, [&](int64_t part) {
			return room[part * channels + c];
		}, [&](int64_t, const struct pd_two &both) {
			first += both.first;
			second += both.second;
		});
	sum[0][t] = first;
	sum[1][t] = second;
	for (int half = PD_TOTAL_ROWS / 2; half > 0; half /= 2) {
		__syncthreads();
		if ((int)threadIdx.y < half)
			for (int k = 0; k < 2; k++)
				sum[k][t] += sum[k][t + half * PD_TOTAL_ACROSS];
	}
	*first_p = sum[0][t];
	*second_p = sum[1][t];
	return threadIdx.y == 0 && c < channels;
}
