/* SPDX-License-Identifier: Apache-2.0 */
#include "run/device/cuda/host_device.cuh"

#include "run/device/cuda/grid.cuh"
#include "run/device/cuda/kernels.h"
#include "run/device/cuda/typed.cuh"

/*
 * Elements are taken N at a time, 16 bytes, where all arrays begin at a multiple of that; else one
 * at a time.  Thread 0 takes the last few, less than N.
 */
static bool packs(const void *a, const void *b, const void *c)
{
	return pd_packs(a) && pd_packs(b) && pd_packs(c);
}

/* Calls pack_at(i) for N elements from i on, one_at(i) for those that are left. */
template <int N, typename Pack, typename One>
__device__ static void for_packs(size_t count, Pack pack_at, One one_at)
{
	size_t first = blockIdx.x * (size_t)blockDim.x + threadIdx.x;

	for (size_t k = first; k < count / N; k += (size_t)gridDim.x * blockDim.x)
		pack_at(k * N);
	for (size_t i = count / N * N; i < count && first == 0; i++)
		one_at(i);
}

/* ---- curves: the formulas of run/device/curve.def ---- */

#define EXP(x) expf(x)
#define EXPM1(x) expm1f(x)
#define TANH(x) tanhf(x)

__device__ static float curved(enum pd_curve which, float x, float a, float b)
{
	switch (which) {
#define CURVE(name, cpu, flags, value, gradient) case PD_CURVE_##name: return value;
#define VARIANT CURVE
#include "run/device/curve.def"
#undef VARIANT
#undef CURVE
	default: return x;
	}
}

/* Returns the gradient at v, which is the output or the input as pd_curve_from_output() says. */
__device__ static float slope(enum pd_curve which, float v, float g, float a, float b)
{
	switch (which) {
#define CURVE(name, cpu, flags, value, gradient) case PD_CURVE_##name: return gradient;
#define VARIANT CURVE
#include "run/device/curve.def"
#undef VARIANT
#undef CURVE
	default: return g;
	}
}

/* Curves are compiled one by one: a choice at each element would take longer than the formula. */
template <enum pd_curve which, typename T, int N>
__global__ static void curve(float a, float b, T *y, const T *x, size_t count)
{
	for_packs<N>(count, [&](size_t i) {
		struct pd_pack<T, N> p = *(const struct pd_pack<T, N> *)&x[i];

		for (int k = 0; k < N; k++)
			p.v[k] = (T)curved(which, (float)p.v[k], a, b);
		*(struct pd_pack<T, N> *)&y[i] = p;
	}, [&](size_t i) {
		y[i] = (T)curved(which, (float)x[i], a, b);
	});
}

template <enum pd_curve which, typename T, int N>
__global__ static void curve_back(float a, float b, T *dx, const T *y, const T *dy, size_t count)
{
	for_packs<N>(count, [&](size_t i) {
		struct pd_pack<T, N> p = *(const struct pd_pack<T, N> *)&y[i];
		struct pd_pack<T, N> g = *(const struct pd_pack<T, N> *)&dy[i];

		for (int k = 0; k < N; k++)
			g.v[k] = (T)slope(which, (float)p.v[k], (float)g.v[k], a, b);
		*(struct pd_pack<T, N> *)&dx[i] = g;
	}, [&](size_t i) {
		dx[i] = (T)slope(which, (float)y[i], (float)dy[i], a, b);
	});
}

/* What pd_kernel_curve() and pd_kernel_curve_back() are given. */
struct curve_work {
	cudaStream_t stream;
	enum pd_dtype dtype;
	float a, b;
	void *y, *dx;
	const void *x, *kept, *dy;
	size_t count;
};

template <enum pd_curve which>
static void launch_curve(const struct curve_work *w)
{
	PD_BY_TYPE(w->dtype, T, PD_BY_PACK(T, packs(w->y, w->x, w->x), N, (
		curve<which, T, N>
			<<<pd_grid_blocks((w->count + N - 1) / N), PD_THREADS, 0, w->stream>>>(
			w->a, w->b, (T *)w->y, (const T *)w->x, w->count))));
}

template <enum pd_curve which>
static void launch_curve_back(const struct curve_work *w)
{
	PD_BY_TYPE(w->dtype, T, PD_BY_PACK(T, packs(w->dx, w->kept, w->dy), N, (
		curve_back<which, T, N>
			<<<pd_grid_blocks((w->count + N - 1) / N), PD_THREADS, 0, w->stream>>>(
			w->a, w->b, (T *)w->dx, (const T *)w->kept, (const T *)w->dy, w->count))));
}

cudaError_t pd_kernel_curve(cudaStream_t stream, enum pd_dtype dtype, enum pd_curve which, float a,
			    float b, void *y, const void *x, size_t count)
{
	static void (*const launch[])(const struct curve_work *w) = {
#define CURVE(name, cpu, flags, value, gradient) launch_curve<PD_CURVE_##name>,
#define VARIANT CURVE
#include "run/device/curve.def"
#undef VARIANT
#undef CURVE
	};
	struct curve_work w = { stream, dtype, a, b, y, NULL, x, NULL, NULL, count };

	if (count > 0)
		launch[which](&w);
	return cudaGetLastError();
}

cudaError_t pd_kernel_curve_back(cudaStream_t stream, enum pd_dtype dtype, enum pd_curve which,
				 float a, float b, void *dx, const void *y, const void *dy, size_t count)
{
	static void (*const launch[])(const struct curve_work *w) = {
#define CURVE(name, cpu, flags, value, gradient) launch_curve_back<PD_CURVE_##name>,
#define VARIANT CURVE
#include "run/device/curve.def"
#undef VARIANT
#undef CURVE
	};
	struct curve_work w = { stream, dtype, a, b, NULL, dx, NULL, y, dy, count };

	if (count > 0)
		launch[which](&w);
	return cudaGetLastError();
}

/* ---- products and sums ---- */

template <typename T, int N>
__global__ static void product(T *dst, const T *a, const T *b, size_t count)
{
	for_packs<N>(count, [&](size_t i) {
		struct pd_pack<T, N> p = *(const struct pd_pack<T, N> *)&a[i];
		const struct pd_pack<T, N> q = *(const struct pd_pack<T, N> *)&b[i];

		for (int k = 0; k < N; k++)
			p.v[k] = (T)((float)p.v[k] * (float)q.v[k]);
		*(struct pd_pack<T, N> *)&dst[i] = p;
	}, [&](size_t i) {
		dst[i] = (T)((float)a[i] * (float)b[i]);
	});
}

cudaError_t pd_kernel_mul(cudaStream_t stream, enum pd_dtype dtype, void *dst, const void *a,
			  const void *b, size_t count)
{
	if (count > 0)
		PD_BY_TYPE(dtype, T, PD_BY_PACK(T, packs(dst, a, b), N, (
			product<T, N><<<pd_grid_blocks((count + N - 1) / N), PD_THREADS, 0, stream>>>(
				(T *)dst, (const T *)a, (const T *)b, count))));
	return cudaGetLastError();
}

struct sources {
	const void *src[PD_KERNEL_SOURCES];
};

/* dst may be any of the sources, since elements are read from all before they are written. */
template <typename T, int N>
__global__ static void sum(T *dst, struct sources from, int n, size_t count, bool relu)
{
	for_packs<N>(count, [&](size_t i) {
		struct pd_pack<T, N> p = *(const struct pd_pack<T, N> *)&((const T *)from.src[0])[i];
		float total[N];

		for (int k = 0; k < N; k++)
			total[k] = (float)p.v[k];
		for (int s = 1; s < n; s++) {
			p = *(const struct pd_pack<T, N> *)&((const T *)from.src[s])[i];
			for (int k = 0; k < N; k++)
				total[k] += (float)p.v[k];
		}
		for (int k = 0; k < N; k++)
			p.v[k] = (T)(relu && total[k] < 0 ? 0 : total[k]);
		*(struct pd_pack<T, N> *)&dst[i] = p;
	}, [&](size_t i) {
		float total = (float)((const T *)from.src[0])[i];

		for (int s = 1; s < n; s++)
			total += (float)((const T *)from.src[s])[i];
		dst[i] = (T)(relu && total < 0 ? 0 : total);
	});
}

cudaError_t pd_kernel_sum(cudaStream_t stream, enum pd_dtype dtype, void *dst,
			  const void *const *src, int n, size_t count, bool relu)
{
	bool packed = packs(dst, dst, dst);
	struct sources from;

	if (n < 1 || n > PD_KERNEL_SOURCES)
		return cudaErrorInvalidValue;
	for (int k = 0; k < PD_KERNEL_SOURCES; k++) {
		from.src[k] = src[k < n ? k : 0];
		packed = packed && packs(from.src[k], dst, dst);
	}
	if (count > 0)
		PD_BY_TYPE(dtype, T, PD_BY_PACK(T, packed, N, (
			sum<T, N><<<pd_grid_blocks((count + N - 1) / N), PD_THREADS, 0, stream>>>(
				(T *)dst, from, n, count, relu))));
	return cudaGetLastError();
}

/* dst may be a or b. */
template <typename T, int N>
__global__ static void sum_relu(T *dst, const T *a, const T *b, const T *__restrict__ y,
				size_t count)
{
	for_packs<N>(count, [&](size_t i) {
		struct pd_pack<T, N> p = *(const struct pd_pack<T, N> *)&a[i];
		const struct pd_pack<T, N> q = *(const struct pd_pack<T, N> *)&b[i];
		const struct pd_pack<T, N> r = *(const struct pd_pack<T, N> *)&y[i];

#pragma unroll
		for (int k = 0; k < N; k++)
			p.v[k] = (T)((float)r.v[k] <= 0 ? 0 : (float)p.v[k] + (float)q.v[k]);
		*(struct pd_pack<T, N> *)&dst[i] = p;
	}, [&](size_t i) {
		dst[i] = (T)((float)y[i] <= 0 ? 0 : (float)a[i] + (float)b[i]);
	});
}

cudaError_t pd_kernel_sum_relu(cudaStream_t stream, enum pd_dtype dtype, void *dst, const void *a,
			       const void *b, const void *y, size_t count)
{
	bool packed = packs(dst, a, b) && pd_packs(y);

	if (count > 0)
		PD_BY_TYPE(dtype, T, PD_BY_PACK(T, packed, N, (
			sum_relu<T, N><<<pd_grid_blocks((count + N - 1) / N), PD_THREADS, 0, stream>>>(
				(T *)dst, (const T *)a, (const T *)b, (const T *)y, count))));
	return cudaGetLastError();
}

/* Returns where element k of a sample lies in it. */
__device__ static int64_t place_of(const struct pd_kernel_dropout &d, int64_t k)
{
	return (int64_t)(pd_rest((size_t)k, (size_t)d.area) * (size_t)d.channels +
			 pd_quotient((size_t)k, (size_t)d.area));
}

/* Returns how many elements of a sample draw a number each. */
__host__ __device__ static int64_t drawn_of(const struct pd_kernel_dropout &d)
{
	return d.elements / d.extent;
}

/* A thread draws eight numbers of a sample, a byte of the mask, and applies it unless places share it. */
template <typename T>
__global__ static void dropout(struct pd_kernel_dropout d, const struct pd_pass_numbers *numbers,
			       T *y, unsigned char *keep, const T *x)
{
	int64_t drawn = drawn_of(d), row = (drawn + 7) / 8, first = numbers->first_sample;

	PD_FOR_EACH(i, (size_t)(d.samples * row)) {
		int64_t sample = (int64_t)i / row, byte = (int64_t)i % row;
		unsigned char bits = pd_dropout_byte(d.seed, d.stream,
						     (uint32_t)(first + sample), byte,
						     drawn, d.p);

		keep[i] = bits;
		for (int k = 0; k < 8 && 8 * byte + k < drawn && d.extent == 1; k++) {
			int64_t at = sample * d.elements + place_of(d, 8 * byte + k);

			y[at] = (T)pd_dropped((float)x[at], bits >> k & 1, d.scale);
		}
	}
}

cudaError_t pd_kernel_dropout(cudaStream_t stream, enum pd_dtype dtype,
			      const struct pd_kernel_dropout *d,
			      const struct pd_pass_numbers *numbers, void *y, unsigned char *keep,
			      const void *x)
{
	size_t count = (size_t)(d->samples * ((drawn_of(*d) + 7) / 8));

	if (count > 0)
		PD_BY_TYPE(dtype, T, (dropout<T><<<pd_grid_blocks(count), PD_THREADS, 0, stream>>>(
			*d, numbers, (T *)y, keep, (const T *)x)));
	return d->extent > 1 ? pd_kernel_dropout_back(stream, dtype, d, y, keep, x) : cudaGetLastError();
}

template <typename T>
__global__ static void dropout_back(struct pd_kernel_dropout d, T *dx, const unsigned char *keep,
				    const T *dy)
{
	int64_t row = (drawn_of(d) + 7) / 8;

	PD_FOR_EACH(i, (size_t)(d.samples * d.elements)) {
		int64_t sample = (int64_t)i / d.elements, number = (int64_t)i % d.elements;
		int64_t at = sample * d.elements + place_of(d, number);
		int64_t k = d.extent == 1 ? number
			: number / d.inner / d.extent * d.inner + number % d.inner;
		bool kept = keep[sample * row + k / 8] >> (k % 8) & 1;

		dx[at] = (T)pd_dropped((float)dy[at], kept, d.scale);
	}
}

cudaError_t pd_kernel_dropout_back(cudaStream_t stream, enum pd_dtype dtype,
				   const struct pd_kernel_dropout *d, void *dx,
				   const unsigned char *keep, const void *dy)
{
	size_t count = (size_t)(d->samples * d->elements);

	if (count > 0)
		PD_BY_TYPE(dtype, T, (dropout_back<T><<<pd_grid_blocks(count), PD_THREADS, 0, stream>>>(
			*d, (T *)dx, keep, (const T *)dy)));
	return cudaGetLastError();
}
