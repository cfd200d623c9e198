/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread takes an element of the output (forward) or input (backward), so that none is shared.
 * Where channels are last, maxpool takes as many at a time as 16 bytes hold, since most of the work
 * is to find an element's place.
 */
#include "run/device/cuda/host_device.cuh"

#include "run/device/cuda/grid.cuh"
#include "run/device/cuda/kernels.h"
#include "run/device/cuda/typed.cuh"

/* An element's place in planes of that size; s.step: 1, or the number of channels. */
struct place {
	size_t plane;	/* the plane's first element, where planes have `other` elements */
	int row, column;
};

/* i: number of the element, or of the pack of `lanes` elements. */
__device__ static struct place place_of(const struct pd_pool_shape &s, size_t i, const int *size,
					const int *other, int lanes = 1)
{
	struct place p;
	size_t step = (size_t)s.step, packs = step / lanes, area = (size_t)size[0] * size[1];
	size_t channel = pd_rest(i, packs) * lanes, rest = pd_quotient(i, packs);
	size_t number = pd_quotient(rest, area);
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

template <typename T, int N>
__global__ static void maxpool(struct pd_pool_shape s, size_t count, T *y, int32_t *chosen,
			       const T *x)
{
	PD_FOR_EACH(i, count / N) {
		struct place p = place_of(s, i, s.out, s.in, N);
		struct pd_pack<int32_t, N> best;
		struct pd_pack<T, N> made;
		float most[N];

		pd_pool_largest<N>(&s, x + p.plane, p.row, p.column, most, best.v);
		for (int k = 0; k < N; k++)
			made.v[k] = (T)most[k];
		*(struct pd_pack<int32_t, N> *)&chosen[i * N] = best;
		*(struct pd_pack<T, N> *)&y[i * N] = made;
	}
}

/* Returns whether these arrays can be read in packs of so many elements. */
static bool packs(const struct pd_pool_shape *s, int lanes, const void *a, const void *b,
		  const int32_t *chosen)
{
	return s->step % lanes == 0 && (((uintptr_t)a | (uintptr_t)b) & 15) == 0 &&
	       ((uintptr_t)chosen & (lanes * sizeof(*chosen) - 1)) == 0;
}

cudaError_t pd_kernel_maxpool(cudaStream_t stream, enum pd_dtype dtype,
			      const struct pd_pool_shape *shape, int64_t planes, void *y,
			      int32_t *chosen, const void *x)
{
	size_t count = elements(shape->out, planes);

	if (count > 0)
		PD_BY_TYPE(dtype, T, PD_BY_PACK(T, packs(shape, N, y, x, chosen), N, (
			maxpool<T, N><<<pd_grid_blocks(count / N), PD_THREADS, 0, stream>>>(
				*shape, count, (T *)y, chosen, (const T *)x))));
	return cudaGetLastError();
}

template <typename T, int N>
__global__ static void maxpool_back(struct pd_pool_shape s, size_t count, T *dx,
				    const int32_t *chosen, const T *dy)
{
	PD_FOR_EACH(i, count / N) {
		struct place p = place_of(s, i, s.in, s.out, N);
		struct pd_pack<T, N> made;
		float sum[N];

		pd_pool_chosen<N>(&s, dy + p.plane, chosen + p.plane, p.row, p.column, sum);
		for (int k = 0; k < N; k++)
			made.v[k] = (T)sum[k];
		*(struct pd_pack<T, N> *)&dx[i * N] = made;
	}
}

cudaError_t pd_kernel_maxpool_back(cudaStream_t stream, enum pd_dtype dtype,
				   const struct pd_pool_shape *shape, int64_t planes, void *dx,
				   const int32_t *chosen, const void *dy)
{
	size_t count = elements(shape->in, planes);

	if (count > 0)
		PD_BY_TYPE(dtype, T, PD_BY_PACK(T, packs(shape, N, dx, dy, chosen), N, (
			maxpool_back<T, N><<<pd_grid_blocks(count / N), PD_THREADS, 0, stream>>>(
				*shape, count, (T *)dx, chosen, (const T *)dy))));
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
		PD_BY_TYPE(dtype, T, (meanpool<T><<<pd_grid_blocks(count), PD_THREADS, 0, stream>>>(
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
		PD_BY_TYPE(dtype, T, (meanpool_back<T><<<pd_grid_blocks(count), PD_THREADS, 0, stream>>>(
			*shape, count, (T *)dx, (const T *)dy)));
	return cudaGetLastError();
}
