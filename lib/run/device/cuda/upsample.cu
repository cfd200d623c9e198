/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread takes an element of the output (forward) or input (backward), so that none is shared; neighbours
 * read adjacent memory.
 */
#include "run/device/cuda/host_device.cuh"

#include "run/device/cuda/grid.cuh"
#include "run/device/cuda/kernels.h"
#include "run/device/cuda/typed.cuh"

/* Where an element is: the number of a plane, or of a sample whose channels are last. */
struct place {
	size_t number, channel, row, column;
};

__device__ static struct place place_of(const struct pd_kernel_resize &r, size_t i, size_t rows, size_t columns)
{
	struct place p;
	size_t step = (size_t)r.step, rest = pd_quotient(i, step);

	p.channel = pd_rest(i, step);
	p.column = pd_rest(rest, columns);
	rest = pd_quotient(rest, columns);
	p.row = pd_rest(rest, rows);
	p.number = pd_quotient(rest, rows);
	return p;
}

template <typename T>
__global__ static void upsample(struct pd_kernel_resize r, size_t count, T *y, const T *__restrict__ x)
{
	PD_FOR_EACH(i, count) {
		const struct place p = place_of(r, i, (size_t)r.rows.out, (size_t)r.columns.out);
		const struct pd_blend v = pd_resize_blend(&r.rows, (int64_t)p.row);
		const struct pd_blend h = pd_resize_blend(&r.columns, (int64_t)p.column);
		const int64_t row = r.columns.in * r.step;
		const T *plane = x + p.number * (size_t)(r.rows.in * row) + p.channel;
		const T *one = plane + v.one * row, *other = plane + v.other * row;
		int64_t left = h.one * r.step, right = h.other * r.step;

		if (!r.rows.blends)
			y[i] = one[left];
		else
			y[i] = (T)((1 - v.share) * ((1 - h.share) * (float)one[left] +
						    h.share * (float)one[right]) +
				   v.share * ((1 - h.share) * (float)other[left] +
					      h.share * (float)other[right]));
	}
}

template <typename T>
__global__ static void upsample_back(struct pd_kernel_resize r, size_t count, T *dx, const T *__restrict__ dy)
{
	PD_FOR_EACH(i, count) {
		const struct place p = place_of(r, i, (size_t)r.rows.in, (size_t)r.columns.in);
		const int64_t row = (int64_t)p.row, column = (int64_t)p.column, out = r.columns.out * r.step;
		const T *plane = dy + p.number * (size_t)(r.rows.out * out) + p.channel;
		const int64_t first = pd_resize_first(&r.columns, column);
		float sum = 0;

		for (int64_t v = pd_resize_first(&r.rows, row);
		     v < r.rows.out && pd_resize_blend(&r.rows, v).one <= row; v++) {
			const float part = pd_resize_part(&r.rows, v, row);

			for (int64_t h = first;
			     h < r.columns.out && pd_resize_blend(&r.columns, h).one <= column; h++)
				sum += part * pd_resize_part(&r.columns, h, column) *
				       (float)plane[v * out + h * r.step];
		}
		dx[i] = (T)sum;
	}
}

cudaError_t pd_kernel_upsample(cudaStream_t stream, enum pd_dtype dtype, const struct pd_kernel_resize *r,
			       void *y, const void *x)
{
	size_t count = (size_t)(r->planes * r->rows.out * r->columns.out);

	PD_BY_TYPE(dtype, T, (upsample<T><<<pd_grid_blocks(count), PD_THREADS, 0, stream>>>(
		*r, count, (T *)y, (const T *)x)));
	return cudaGetLastError();
}

cudaError_t pd_kernel_upsample_back(cudaStream_t stream, enum pd_dtype dtype,
				    const struct pd_kernel_resize *r, void *dx, const void *dy)
{
	size_t count = (size_t)(r->planes * r->rows.in * r->columns.in);

	PD_BY_TYPE(dtype, T, (upsample_back<T><<<pd_grid_blocks(count), PD_THREADS, 0, stream>>>(
		*r, count, (T *)dx, (const T *)dy)));
	return cudaGetLastError();
}
