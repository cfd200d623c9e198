/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Normalised additive attention, but for its products of matrices; lib/run/device/cpu/additive_attention.c
 * has the formulas.  Scores: a block owns a query, and LANES threads add up one of its products with
 * a key, in an order that follows from the width.  Gradients: a thread owns an element and goes along
 * the keys, or the queries.
 */
#include "run/device/cuda/host_device.cuh"

#include "run/device/cuda/block_sum.cuh"
#include "run/device/cuda/grid.cuh"
#include "run/device/cuda/kernels.h"
#include "run/device/cuda/typed.cuh"

#define THREADS 256
#define LANES 32
#define GROUPS (THREADS / LANES)

struct parts {
	float v[THREADS];
};

__device__ static float block_most(struct parts *s, float mine)
{
	int t = threadIdx.x;
	float all;

	s->v[t] = mine;
	for (int half = THREADS / 2; half > 0; half /= 2) {
		__syncthreads();
		if (t < half)
			s->v[t] = fmaxf(s->v[t], s->v[t + half]);
	}
	__syncthreads();
	all = s->v[0];
	__syncthreads();
	return all;
}

__device__ static int64_t seen(const struct pd_kernel_additive &a, int64_t sample)
{
	int64_t length = a.lengths ? a.lengths[sample] : a.keys;

	return length < 0 ? 0 : length < a.keys ? length : a.keys;
}

/* out[j] = the sum over columns of term(j, column), for keys j below `count`. */
template <typename Term>
__device__ static void for_keys(struct parts *s, float *out, int64_t count, int64_t width, Term term)
{
	int lane = threadIdx.x % LANES, group = threadIdx.x / LANES;

	for (int64_t first = 0; first < count; first += GROUPS) {
		float sum = 0;

		for (int64_t c = lane; c < width && first + group < count; c += LANES)
			sum += term(first + group, c);
		s->v[threadIdx.x] = sum;
		__syncthreads();
		if (threadIdx.x < GROUPS && first + threadIdx.x < count) {
			sum = 0;
			for (int k = 0; k < LANES; k++)
				sum += s->v[threadIdx.x * LANES + k];
			out[first + threadIdx.x] = sum;
		}
		__syncthreads();
	}
}

/* u, and behind it |w|. */
template <typename T>
__global__ static void direction(struct pd_kernel_additive a)
{
	const T *w = (const T *)a.weight;
	float squares = 0, length;

	for (int64_t c = threadIdx.x; c < a.width; c += THREADS)
		squares += (float)w[c] * (float)w[c];
	length = sqrtf(pd_block_sum<THREADS>(squares));
	for (int64_t c = threadIdx.x; c < a.width; c += THREADS)
		a.u[c] = (float)((const T *)a.scale)[0] * ((float)w[c] / length);
	if (threadIdx.x == 0)
		a.u[a.width] = length;
}

/* P and O of the queries. */
template <typename T>
__global__ static void attend(struct pd_kernel_additive a)
{
	__shared__ struct parts s;

	for (int64_t row = blockIdx.x; row < a.batch * a.queries; row += gridDim.x) {
		int64_t sample = row / a.queries, count = seen(a, sample);
		const float *left = a.a + row * a.width, *right = a.b + sample * a.keys * a.width;
		const T *bias = (const T *)a.bias;
		const T *k = (const T *)a.k + sample * a.keys * a.width;
		float *p = a.p + row * a.keys, most = -INFINITY, sum = 0;

		for_keys(&s, p, count, a.width, [&](int64_t j, int64_t c) {
			return a.u[c] * tanhf(left[c] + (float)bias[c] + right[j * a.width + c]);
		});
		for (int64_t j = threadIdx.x; j < count; j += THREADS)
			most = fmaxf(most, p[j]);
		most = block_most(&s, most);
		for (int64_t j = threadIdx.x; j < a.keys; j += THREADS) {
			p[j] = j < count ? expf(p[j] - most) : 0;
			sum += p[j];
		}
		sum = pd_block_sum<THREADS>(sum);
		for (int64_t j = threadIdx.x; j < count; j += THREADS)
			p[j] /= sum;
		__syncthreads();
		for (int64_t c = threadIdx.x; c < a.width; c += THREADS) {
			float o = 0;

			for (int64_t j = 0; j < count; j++)
				o += p[j] * (float)k[j * a.width + c];
			((T *)a.o)[row * a.width + c] = (T)o;
		}
		__syncthreads();
	}
}

static unsigned blocks_of(int64_t rows)
{
	return rows < PD_BLOCKS_MOST ? (unsigned)rows : PD_BLOCKS_MOST;
}

cudaError_t pd_kernel_additive(cudaStream_t stream, enum pd_dtype dtype,
			       const struct pd_kernel_additive *a)
{
	unsigned blocks = blocks_of(a->batch * a->queries);
	cudaError_t status;

	PD_BY_TYPE(dtype, T, (direction<T><<<1, THREADS, 0, stream>>>(*a)));
	status = cudaGetLastError();
	if (status != cudaSuccess)
		return status;
	PD_BY_TYPE(dtype, T, (attend<T><<<blocks, THREADS, 0, stream>>>(*a)));
	return cudaGetLastError();
}

/* ---- backward ---- */

/* The gradients of the scores. */
template <typename T>
__global__ static void scores_back(struct pd_kernel_additive a)
{
	__shared__ struct parts s;

	for (int64_t row = blockIdx.x; row < a.batch * a.queries; row += gridDim.x) {
		int64_t sample = row / a.queries, count = seen(a, sample);
		const T *k = (const T *)a.k + sample * a.keys * a.width;
		const T *d_o = (const T *)a.d_o + row * a.width;
		const float *p = a.p + row * a.keys;
		float *ds = a.ds + row * a.keys, sum = 0;

		for_keys(&s, ds, count, a.width, [&](int64_t j, int64_t c) {
			return (float)d_o[c] * (float)k[j * a.width + c];
		});
		for (int64_t j = threadIdx.x; j < count; j += THREADS)
			sum += p[j] * ds[j];
		sum = pd_block_sum<THREADS>(sum);
		for (int64_t j = threadIdx.x; j < count; j += THREADS)
			ds[j] = p[j] * (ds[j] - sum);
		__syncthreads();
	}
}

/* dA, and of each query what it adds to du. */
template <typename T>
__global__ static void queries_back(struct pd_kernel_additive a)
{
	PD_FOR_EACH(e, (size_t)(a.batch * a.queries * a.width)) {
		int64_t c = e % a.width, row = e / a.width, sample = row / a.queries;
		const float *b = a.b + sample * a.keys * a.width, *ds = a.ds + row * a.keys;
		float left = a.a[e] + (float)((const T *)a.bias)[c], da = 0, du = 0;
		int64_t count = seen(a, sample);

		for (int64_t j = 0; j < count; j++) {
			float t = tanhf(left + b[j * a.width + c]);

			da += ds[j] * (a.u[c] * (1 - t * t));
			du += ds[j] * t;
		}
		a.da[e] = da;
		a.du_rows[e] = du;
		((T *)a.da_narrow)[e] = (T)da;
	}
}

template <typename T>
__global__ static void keys_back(struct pd_kernel_additive a)
{
	PD_FOR_EACH(e, (size_t)(a.batch * a.keys * a.width)) {
		int64_t c = e % a.width, row = e / a.width, sample = row / a.keys;
		const float *left = a.a + sample * a.queries * a.width;
		const float *ds = a.ds + sample * a.queries * a.keys + row % a.keys;
		float right = (float)((const T *)a.bias)[c] + a.b[e], db = 0;

		for (int64_t i = 0; i < a.queries && row % a.keys < seen(a, sample); i++) {
			float t = tanhf(left[i * a.width + c] + right);

			db += ds[i * a.keys] * (a.u[c] * (1 - t * t));
		}
		((T *)a.db_narrow)[e] = (T)db;
	}
}

/* du, the sum over queries, becomes the gradient of the weight; and that of the scale. */
template <typename T>
__global__ static void direction_back(struct pd_kernel_additive a, float *d_weight, float *d_scale)
{
	const T *w = (const T *)a.weight;
	float length = a.u[a.width], scale = (float)((const T *)a.scale)[0], along = 0;

	for (int64_t c = threadIdx.x; c < a.width; c += THREADS)
		along += d_weight[c] * ((float)w[c] / length);
	along = pd_block_sum<THREADS>(along);
	for (int64_t c = threadIdx.x; c < a.width; c += THREADS)
		d_weight[c] = scale / length * (d_weight[c] - along * ((float)w[c] / length));
	if (threadIdx.x == 0)
		*d_scale = along;
}

cudaError_t pd_kernel_additive_back(cudaStream_t stream, enum pd_dtype dtype,
				    const struct pd_kernel_additive *a, float *d_bias,
				    float *d_weight, float *d_scale, float *room)
{
	size_t queries = (size_t)(a->batch * a->queries * a->width);
	size_t keys = (size_t)(a->batch * a->keys * a->width);
	unsigned blocks = blocks_of(a->batch * a->queries);
	cudaError_t status;

	PD_BY_TYPE(dtype, T, (direction<T><<<1, THREADS, 0, stream>>>(*a)));
	PD_BY_TYPE(dtype, T, (scores_back<T><<<blocks, THREADS, 0, stream>>>(*a)));
	PD_BY_TYPE(dtype, T, (queries_back<T><<<pd_grid_blocks(queries), PD_THREADS, 0, stream>>>(*a)));
	PD_BY_TYPE(dtype, T, (keys_back<T><<<pd_grid_blocks(keys), PD_THREADS, 0, stream>>>(*a)));
	status = cudaGetLastError();
	if (status == cudaSuccess)
		status = pd_kernel_columns(stream, PD_F32, d_bias, room, a->da,
					   a->batch * a->queries, a->width);
	if (status == cudaSuccess)
		status = pd_kernel_columns(stream, PD_F32, d_weight, room, a->du_rows,
					   a->batch * a->queries, a->width);
	if (status != cudaSuccess)
		return status;
	PD_BY_TYPE(dtype, T, (direction_back<T><<<1, THREADS, 0, stream>>>(*a, d_weight, d_scale)));
	return cudaGetLastError();
}

template <typename T>
__global__ static void values_back(struct pd_kernel_additive a, T *dk, const float *part)
{
	PD_FOR_EACH(e, (size_t)(a.batch * a.keys * a.width)) {
		int64_t c = e % a.width, row = e / a.width, sample = row / a.keys;
		const float *p = a.p + sample * a.queries * a.keys + row % a.keys;
		const T *d_o = (const T *)a.d_o + sample * a.queries * a.width + c;
		float sum = part[e];

		for (int64_t i = 0; i < a.queries; i++)
			sum += p[i * a.keys] * (float)d_o[i * a.width];
		dk[e] = (T)sum;
	}
}

cudaError_t pd_kernel_additive_values(cudaStream_t stream, enum pd_dtype dtype,
				      const struct pd_kernel_additive *a, void *dk, const float *part)
{
	size_t keys = (size_t)(a->batch * a->keys * a->width);

	PD_BY_TYPE(dtype, T, (values_back<T><<<pd_grid_blocks(keys), PD_THREADS, 0, stream>>>(
		*a, (T *)dk, part)));
	return cudaGetLastError();
}
