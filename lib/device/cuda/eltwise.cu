/* SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/both.cuh"

#include "device/cuda/grid.cuh"
#include "device/cuda/kernels.h"

__global__ static void curve(enum pd_kernel_curve which, float *y, const float *x, size_t count)
{
	PD_FOR_EACH(i, count) {
		float v = x[i];

		if (which == PD_KERNEL_RELU)
			y[i] = v < 0 ? 0 : v;
		else if (which == PD_KERNEL_TANH)
			y[i] = tanhf(v);
		else
			y[i] = 1 / (1 + expf(-v));
	}
}

cudaError_t pd_kernel_curve(cudaStream_t stream, enum pd_kernel_curve which, float *y,
			    const float *x, size_t count)
{
	if (count > 0)
		curve<<<pd_blocks(count), PD_THREADS, 0, stream>>>(which, y, x, count);
	return cudaGetLastError();
}

__global__ static void curve_back(enum pd_kernel_curve which, float *dx, const float *y,
				  const float *dy, size_t count)
{
	PD_FOR_EACH(i, count) {
		float v = y[i], g = dy[i];

		if (which == PD_KERNEL_RELU)
			dx[i] = v > 0 ? g : 0;
		else if (which == PD_KERNEL_TANH)
			dx[i] = g * (1 - v * v);
		else
			dx[i] = g * (v * (1 - v));
	}
}

cudaError_t pd_kernel_curve_back(cudaStream_t stream, enum pd_kernel_curve which, float *dx,
				 const float *y, const float *dy, size_t count)
{
	if (count > 0)
		curve_back<<<pd_blocks(count), PD_THREADS, 0, stream>>>(which, dx, y, dy, count);
	return cudaGetLastError();
}

struct sources {
	const float *src[PD_KERNEL_SOURCES];
};

/* dst may be any of the sources: an element is read from all before it is written. */
__global__ static void sum(float *dst, struct sources from, int n, size_t count)
{
	PD_FOR_EACH(i, count) {
		float total = from.src[0][i];

		for (int k = 1; k < n; k++)
			total += from.src[k][i];
		dst[i] = total;
	}
}

cudaError_t pd_kernel_sum(cudaStream_t stream, float *dst, const float *const *src, int n,
			  size_t count)
{
	struct sources from;

	if (n < 1 || n > PD_KERNEL_SOURCES)
		return cudaErrorInvalidValue;
	for (int k = 0; k < PD_KERNEL_SOURCES; k++)
		from.src[k] = src[k < n ? k : 0];
	if (count > 0)
		sum<<<pd_blocks(count), PD_THREADS, 0, stream>>>(dst, from, n, count);
	return cudaGetLastError();
}

/* A thread takes eight elements of one sample: a byte of the mask. */
__global__ static void dropout(struct pd_kernel_dropout d, const struct pd_kernel_now *now,
			       float *y, unsigned char *keep, const float *x)
{
	int64_t row = (d.elements + 7) / 8, first = now->first_sample;

	PD_FOR_EACH(i, (size_t)(d.samples * row)) {
		int64_t sample = (int64_t)i / row, byte = (int64_t)i % row;
		int64_t at = sample * d.elements + 8 * byte;
		unsigned char bits = pd_dropout_byte(d.seed, d.stream,
						     (uint32_t)(first + sample), byte,
						     d.elements, d.p);

		keep[i] = bits;
		for (int k = 0; k < 8 && 8 * byte + k < d.elements; k++)
			y[at + k] = bits >> k & 1 ? x[at + k] * d.scale : 0;
	}
}

cudaError_t pd_kernel_dropout(cudaStream_t stream, const struct pd_kernel_dropout *d,
			      const struct pd_kernel_now *now, float *y, unsigned char *keep,
			      const float *x)
{
	size_t count = (size_t)(d->samples * ((d->elements + 7) / 8));

	if (count > 0)
		dropout<<<pd_blocks(count), PD_THREADS, 0, stream>>>(*d, now, y, keep, x);
	return cudaGetLastError();
}

__global__ static void dropout_back(struct pd_kernel_dropout d, float *dx,
				    const unsigned char *keep, const float *dy)
{
	int64_t row = (d.elements + 7) / 8;

	PD_FOR_EACH(i, (size_t)(d.samples * d.elements)) {
		int64_t sample = (int64_t)i / d.elements, k = (int64_t)i % d.elements;

		dx[i] = keep[sample * row + k / 8] >> (k % 8) & 1 ? dy[i] * d.scale : 0;
	}
}

cudaError_t pd_kernel_dropout_back(cudaStream_t stream, const struct pd_kernel_dropout *d,
				   float *dx, const unsigned char *keep, const float *dy)
{
	size_t count = (size_t)(d->samples * d->elements);

	if (count > 0)
		dropout_back<<<pd_blocks(count), PD_THREADS, 0, stream>>>(*d, dx, keep, dy);
	return cudaGetLastError();
}
