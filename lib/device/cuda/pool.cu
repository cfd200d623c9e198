/* SPDX-License-Identifier: Apache-2.0 */
/* A thread per element: of the output forward, of the input backward, so that none is shared. */
#include "device/cuda/both.cuh"

#include "device/cuda/grid.cuh"
#include "device/cuda/kernels.h"

/* Where an element lies in planes of that size. */
struct place {
	size_t plane;
	int row, column;
};

__device__ static struct place place_of(size_t i, const int *size)
{
	struct place p;
	int within = (int)(i % ((size_t)size[0] * size[1]));

	p.plane = i / ((size_t)size[0] * size[1]);
	p.row = within / size[1];
	p.column = within % size[1];
	return p;
}

static size_t elements(const int *size, int64_t planes)
{
	return (size_t)planes * (size_t)size[0] * (size_t)size[1];
}

__global__ static void maxpool(struct pd_pool_shape s, size_t count, float *y, int32_t *chosen,
			       const float *x)
{
	PD_FOR_EACH(i, count) {
		struct place p = place_of(i, s.out);
		const float *plane = x + p.plane * s.in[0] * s.in[1];
		int best = pd_pool_largest(&s, plane, p.row, p.column);

		chosen[i] = best;
		y[i] = plane[best];
	}
}

cudaError_t pd_kernel_maxpool(cudaStream_t stream, const struct pd_pool_shape *shape,
			      int64_t planes, float *y, int32_t *chosen, const float *x)
{
	size_t count = elements(shape->out, planes);

	if (count > 0)
		maxpool<<<pd_blocks(count), PD_THREADS, 0, stream>>>(*shape, count, y, chosen, x);
	return cudaGetLastError();
}

__global__ static void maxpool_back(struct pd_pool_shape s, size_t count, float *dx,
				    const int32_t *chosen, const float *dy)
{
	PD_FOR_EACH(i, count) {
		struct place p = place_of(i, s.in);
		size_t plane = p.plane * s.out[0] * s.out[1];

		dx[i] = pd_pool_chosen(&s, dy + plane, chosen + plane, p.row, p.column);
	}
}

cudaError_t pd_kernel_maxpool_back(cudaStream_t stream, const struct pd_pool_shape *shape,
				   int64_t planes, float *dx, const int32_t *chosen,
				   const float *dy)
{
	size_t count = elements(shape->in, planes);

	if (count > 0)
		maxpool_back<<<pd_blocks(count), PD_THREADS, 0, stream>>>(*shape, count, dx,
									  chosen, dy);
	return cudaGetLastError();
}

__global__ static void meanpool(struct pd_pool_shape s, size_t count, float *y, const float *x)
{
	PD_FOR_EACH(i, count) {
		struct place p = place_of(i, s.out);

		y[i] = pd_pool_mean(&s, x + p.plane * s.in[0] * s.in[1], p.row, p.column);
	}
}

cudaError_t pd_kernel_meanpool(cudaStream_t stream, const struct pd_pool_shape *shape,
			       int64_t planes, float *y, const float *x)
{
	size_t count = elements(shape->out, planes);

	if (count > 0)
		meanpool<<<pd_blocks(count), PD_THREADS, 0, stream>>>(*shape, count, y, x);
	return cudaGetLastError();
}

__global__ static void meanpool_back(struct pd_pool_shape s, size_t count, float *dx,
				     const float *dy)
{
	PD_FOR_EACH(i, count) {
		struct place p = place_of(i, s.in);

		dx[i] = pd_pool_share(&s, dy + p.plane * s.out[0] * s.out[1], p.row, p.column);
	}
}

cudaError_t pd_kernel_meanpool_back(cudaStream_t stream, const struct pd_pool_shape *shape,
				    int64_t planes, float *dx, const float *dy)
{
	size_t count = elements(shape->in, planes);

	if (count > 0)
		meanpool_back<<<pd_blocks(count), PD_THREADS, 0, stream>>>(*shape, count, dx, dy);
	return cudaGetLastError();
}
