/* SPDX-License-Identifier: Apache-2.0 */
/* A thread per element: of the output forward, of the input backward, so that none is shared. */
#include "device/cuda/both.cuh"

#include "device/cuda/grid.cuh"
#include "device/cuda/kernels.h"
#include "device/cuda/typed.cuh"

/* Where an element lies in planes of that size; s.step: 1, or as many as there are channels. */
struct place {
	size_t plane;                   /* first element of it, with `other` elements in a plane */
	int row, column;
};

__device__ static struct place place_of(const struct pd_pool_shape &s, size_t i, const int *size,
					const int *other)
{
	struct place p;
	size_t step = (size_t)s.step, area = (size_t)size[0] * size[1];
	size_t channel = pd_rest(i, step), rest = pd_times(i, step);
	size_t number = pd_times(rest, area);
	int within = (int)pd_rest(rest, area);

	p.plane = number * step * other[0] * other[1] + channel;
	p.row = within / size[1];
	p.column = within % size[1];
	return p;
}

static size_t elements(const int *size, int64_t planes)
{
	return (size_t)planes * (size_t)size[0] * (size_t)size[1];
}

template <typename T>
__global__ static void maxpool(struct pd_pool_shape s, size_t count, T *y, int32_t *chosen,
			       const T *x)
{
	PD_FOR_EACH(i, count) {
		struct place p = place_of(s, i, s.out, s.in);
		int best = pd_pool_largest(&s, x + p.plane, p.row, p.column);

		chosen[i] = best;
		y[i] = x[p.plane + (size_t)best * s.step];
	}
}

cudaError_t pd_kernel_maxpool(cudaStream_t stream, enum pd_dtype dtype,
			      const struct pd_pool_shape *shape, int64_t planes, void *y,
			      int32_t *chosen, const void *x)
{
	size_t count = elements(shape->out, planes);

	if (count > 0)
		PD_BY_TYPE(dtype, T, (maxpool<T><<<pd_blocks(count), PD_THREADS, 0, stream>>>(
			*shape, count, (T *)y, chosen, (const T *)x)));
	return cudaGetLastError();
}

template <typename T>
__global__ static void maxpool_back(struct pd_pool_shape s, size_t count, T *dx,
				    const int32_t *chosen, const T *dy)
{
	PD_FOR_EACH(i, count) {
		struct place p = place_of(s, i, s.in, s.out);

		dx[i] = (T)pd_pool_chosen(&s, dy + p.plane, chosen + p.plane, p.row, p.column);
	}
}

cudaError_t pd_kernel_maxpool_back(cudaStream_t stream, enum pd_dtype dtype,
				   const struct pd_pool_shape *shape, int64_t planes, void *dx,
				   const int32_t *chosen, const void *dy)
{
	size_t count = elements(shape->in, planes);

	if (count > 0)
		PD_BY_TYPE(dtype, T, (maxpool_back<T><<<pd_blocks(count), PD_THREADS, 0, stream>>>(
			*shape, count, (T *)dx, chosen, (const T *)dy)));
	return cudaGetLastError();
}

template <typename T>
__global__ static void meanpool(struct pd_pool_shape s, size_t count, T *y, const T *x)
{
	PD_FOR_EACH(i, count) {
		struct place p = place_of(s, i, s.out, s.in);

		y[i] = (T)pd_pool_mean(&s, x + p.plane, p.row, p.column);
	}
}

cudaError_t pd_kernel_meanpool(cudaStream_t stream, enum pd_dtype dtype,
			       const struct pd_pool_shape *shape, int64_t planes, void *y,
			       const void *x)
{
	size_t count = elements(shape->out, planes);

	if (count > 0)
		PD_BY_TYPE(dtype, T, (meanpool<T><<<pd_blocks(count), PD_THREADS, 0, stream>>>(
			*shape, count, (T *)y, (const T *)x)));
	return cudaGetLastError();
}

template <typename T>
__global__ static void meanpool_back(struct pd_pool_shape s, size_t count, T *dx, const T *dy)
{
	PD_FOR_EACH(i, count) {
		struct place p = place_of(s, i, s.in, s.out);

		dx[i] = (T)pd_pool_share(&s, dy + p.plane, p.row, p.column);
	}
}

cudaError_t pd_kernel_meanpool_back(cudaStream_t stream, enum pd_dtype dtype,
				    const struct pd_pool_shape *shape, int64_t planes, void *dx,
				    const void *dy)
{
	size_t count = elements(shape->in, planes);

	if (count > 0)
		PD_BY_TYPE(dtype, T, (meanpool_back<T><<<pd_blocks(count), PD_THREADS, 0, stream>>>(
			*shape, count, (T *)dx, (const T *)dy)));
	return cudaGetLastError();
}
