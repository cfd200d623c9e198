/* SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/both.cuh"

#include "device/cuda/grid.cuh"
#include "device/cuda/kernels.h"
#include "device/cuda/typed.cuh"

template <typename T>
__global__ static void curve(enum pd_kernel_curve which, T *y, const T *x, size_t count)
{
	PD_FOR_EACH(i, count) {
		float v = (float)x[i];

		if (which == PD_KERNEL_RELU)
			v = v < 0 ? 0 : v;
		else if (which == PD_KERNEL_TANH)
			v = tanhf(v);
		else
			v = 1 / (1 + expf(-v));
		y[i] = (T)v;
	}
}

cudaError_t pd_kernel_curve(cudaStream_t stream, enum pd_dtype dtype, enum pd_kernel_curve which,
			    void *y, const void *x, size_t count)
{
	if (count > 0)
		PD_BY_TYPE(dtype, T, (curve<T><<<pd_blocks(count), PD_THREADS, 0, stream>>>(
			which, (T *)y, (const T *)x, count)));
	return cudaGetLastError();
}

template <typename T>
__global__ static void curve_back(enum pd_kernel_curve which, T *dx, const T *y, const T *dy,
				  size_t count)
{
	PD_FOR_EACH(i, count) {
		float v = (float)y[i], g = (float)dy[i];

		if (which == PD_KERNEL_RELU)
			g = v > 0 ? g : 0;
		else if (which == PD_KERNEL_TANH)
			g = g * (1 - v * v);
		else
			g = g * (v * (1 - v));
		dx[i] = (T)g;
	}
}

cudaError_t pd_kernel_curve_back(cudaStream_t stream, enum pd_dtype dtype,
				 enum pd_kernel_curve which, void *dx, const void *y,
				 const void *dy, size_t count)
{
	if (count > 0)
		PD_BY_TYPE(dtype, T, (curve_back<T><<<pd_blocks(count), PD_THREADS, 0, stream>>>(
			which, (T *)dx, (const T *)y, (const T *)dy, count)));
	return cudaGetLastError();
}

struct sources {
	const void *src[PD_KERNEL_SOURCES];
};

/* dst may be any of the sources: an element is read from all before it is written. */
template <typename T>
__global__ static void sum(T *dst, struct sources from, int n, size_t count, bool relu)
{
	PD_FOR_EACH(i, count) {
		float total = (float)((const T *)from.src[0])[i];

		for (int k = 1; k < n; k++)
			total += (float)((const T *)from.src[k])[i];
		dst[i] = (T)(relu && total < 0 ? 0 : total);
	}
}

cudaError_t pd_kernel_sum(cudaStream_t stream, enum pd_dtype dtype, void *dst,
			  const void *const *src, int n, size_t count, bool relu)
{
	struct sources from;

	if (n < 1 || n > PD_KERNEL_SOURCES)
		return cudaErrorInvalidValue;
	for (int k = 0; k < PD_KERNEL_SOURCES; k++)
		from.src[k] = src[k < n ? k : 0];
	if (count > 0)
		PD_BY_TYPE(dtype, T, (sum<T><<<pd_blocks(count), PD_THREADS, 0, stream>>>(
			(T *)dst, from, n, count, relu)));
	return cudaGetLastError();
}

/* Where element number k of a sample lies in it. */
__device__ static int64_t place_of(const struct pd_kernel_dropout &d, int64_t k)
{
	return k % d.area * d.channels + k / d.area;
}

/* A thread takes eight elements of one sample: a byte of the mask. */
template <typename T>
__global__ static void dropout(struct pd_kernel_dropout d, const struct pd_kernel_now *now, T *y,
			       unsigned char *keep, const T *x)
{
	int64_t row = (d.elements + 7) / 8, first = now->first_sample;

	PD_FOR_EACH(i, (size_t)(d.samples * row)) {
		int64_t sample = (int64_t)i / row, byte = (int64_t)i % row;
		unsigned char bits = pd_dropout_byte(d.seed, d.stream,
						     (uint32_t)(first + sample), byte,
						     d.elements, d.p);

		keep[i] = bits;
		for (int k = 0; k < 8 && 8 * byte + k < d.elements; k++) {
			int64_t at = sample * d.elements + place_of(d, 8 * byte + k);

			y[at] = (T)(bits >> k & 1 ? (float)x[at] * d.scale : 0);
		}
	}
}

cudaError_t pd_kernel_dropout(cudaStream_t stream, enum pd_dtype dtype,
			      const struct pd_kernel_dropout *d, const struct pd_kernel_now *now,
			      void *y, unsigned char *keep, const void *x)
{
	size_t count = (size_t)(d->samples * ((d->elements + 7) / 8));

	if (count > 0)
		PD_BY_TYPE(dtype, T, (dropout<T><<<pd_blocks(count), PD_THREADS, 0, stream>>>(
			*d, now, (T *)y, keep, (const T *)x)));
	return cudaGetLastError();
}

template <typename T>
__global__ static void dropout_back(struct pd_kernel_dropout d, T *dx, const unsigned char *keep,
				    const T *dy)
{
	int64_t row = (d.elements + 7) / 8;

	PD_FOR_EACH(i, (size_t)(d.samples * d.elements)) {
		int64_t sample = (int64_t)i / d.elements, k = (int64_t)i % d.elements;
		int64_t at = sample * d.elements + place_of(d, k);
		bool kept = keep[sample * row + k / 8] >> (k % 8) & 1;

		dx[at] = (T)(kept ? (float)dy[at] * d.scale : 0);
	}
}

cudaError_t pd_kernel_dropout_back(cudaStream_t stream, enum pd_dtype dtype,
				   const struct pd_kernel_dropout *d, void *dx,
				   const unsigned char *keep, const void *dy)
{
	size_t count = (size_t)(d->samples * d->elements);

	if (count > 0)
		PD_BY_TYPE(dtype, T, (dropout_back<T><<<pd_blocks(count), PD_THREADS, 0, stream>>>(
			*d, (T *)dx, keep, (const T *)dy)));
	return cudaGetLastError();
}
