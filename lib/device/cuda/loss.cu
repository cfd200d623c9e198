/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A block takes a row, and its threads take classes at their stride; results are combined in an
 * order that follows from the number of classes alone.  Then one block adds up the batch.
 */
#include "device/cuda/host_device.cuh"

#include "device/cuda/kernels.h"
#include "device/cuda/typed.cuh"

#define THREADS 128             /* for a row; a power of two */
#define SUMMERS 128             /* a power of two */

enum verdict { WRONG, RIGHT, NO_CLASS };

__device__ static bool is_class(int32_t label, int64_t classes)
{
	return label >= 0 && label < classes;
}

/*
 * Finds a row's largest logit, and the sum that is the softmax's denominator, in every thread of
 * the block.
 */
template <typename T>
__device__ static struct pd_softmax_best denominator(const T *x, int64_t classes, float *sum_p)
{
	__shared__ struct pd_softmax_best best[THREADS];
	__shared__ float sum[THREADS];
	int t = threadIdx.x;

	best[t] = pd_softmax_largest(x, classes, t, THREADS);
	for (int half = THREADS / 2; half > 0; half /= 2) {
		__syncthreads();
		if (t < half)
			best[t] = pd_softmax_larger(best[t], best[t + half], classes);
	}
	__syncthreads();
	sum[t] = pd_softmax_sum(x, classes, t, THREADS, best[0].value);
	for (int half = THREADS / 2; half > 0; half /= 2) {
		__syncthreads();
		if (t < half)
			sum[t] += sum[t + half];
	}
	__syncthreads();
	*sum_p = sum[0];
	return best[0];
}

template <typename T>
__global__ static void losses(const struct pd_pass_numbers *numbers, float *out, int32_t *verdict,
			      const T *__restrict__ x, const int32_t *label, int64_t rows,
			      int64_t classes)
{
	int64_t n = blockIdx.x;
	bool valid = n < numbers->valid * rows, good = valid && is_class(label[n], classes);
	struct pd_softmax_best best = { 0, classes };
	float sum = 1;

	/* a block has one row, so all its threads take the same branch */
	if (good)
		best = denominator(x + n * classes, classes, &sum);
	if (threadIdx.x != 0)
		return;
	out[n] = good ? pd_softmax_loss(x + n * classes, label[n], best.value, sum) : 0;
	verdict[n] = good && best.at == label[n] ? RIGHT : valid && !good ? NO_CLASS : WRONG;
}

/* Thread t takes rows t, t + SUMMERS, ...; then halves are added to halves. */
__global__ static void total(const struct pd_pass_numbers *numbers, int number, const float *out,
			     const int32_t *verdict, const int32_t *label, int64_t rows)
{
	__shared__ double sum[SUMMERS];
	__shared__ long long right[SUMMERS], bad[SUMMERS];
	struct pd_kernel_loss *loss = numbers->loss + number;
	int64_t valid = numbers->valid * rows;
	int t = threadIdx.x;

	sum[t] = 0;
	right[t] = 0;
	bad[t] = valid;
	for (int64_t n = t; n < valid; n += SUMMERS) {
		sum[t] += out[n];
		right[t] += verdict[n] == RIGHT;
		if (verdict[n] == NO_CLASS && n < bad[t])
			bad[t] = n;
	}
	for (int half = SUMMERS / 2; half > 0; half /= 2) {
		__syncthreads();
		if (t < half) {
			sum[t] += sum[t + half];
			right[t] += right[t + half];
			if (bad[t + half] < bad[t])
				bad[t] = bad[t + half];
		}
	}
	if (t != 0)
		return;
	loss->sum = sum[0];
	loss->correct = right[0];
	loss->bad_row = bad[0] < valid ? bad[0] : -1;
	loss->bad_label = bad[0] < valid ? label[bad[0]] : 0;
}

cudaError_t pd_kernel_loss(cudaStream_t stream, enum pd_dtype dtype,
			   const struct pd_pass_numbers *numbers, int number, float *out,
			   int32_t *verdict, const void *x, const int32_t *label, int64_t batch,
			   int64_t rows, int64_t classes)
{
	cudaError_t status;

	PD_BY_TYPE(dtype, T, (losses<T><<<(unsigned)(batch * rows), THREADS, 0, stream>>>(
		numbers, out, verdict, (const T *)x, label, rows, classes)));
	status = cudaGetLastError();
	if (status != cudaSuccess)
		return status;
	total<<<1, SUMMERS, 0, stream>>>(numbers, number, out, verdict, label, rows);
	return cudaGetLastError();
}

/* Where a label is no class, the forward has failed already and the gradient does not matter. */
template <typename T>
__global__ static void losses_back(const struct pd_pass_numbers *numbers, T *__restrict__ dx,
				   const T *__restrict__ x, const int32_t *label,
				   const struct pd_scale *scale, int64_t minibatch,
				   int64_t rows, int64_t classes)
{
	int64_t n = blockIdx.x;
	float factor = scale ? (float)scale->loss_scale : 1, sum;
	struct pd_softmax_best best;

	dx += n * classes;
	x += n * classes;
	if (n < numbers->valid * rows && is_class(label[n], classes)) {
		best = denominator(x, classes, &sum);
		pd_softmax_gradient(dx, x, classes, threadIdx.x, THREADS, label[n], best.value,
				    sum, factor / (float)(minibatch * rows));
		return;
	}
	for (int64_t i = threadIdx.x; i < classes; i += THREADS)
		dx[i] = (T)0.0f;
}

cudaError_t pd_kernel_loss_back(cudaStream_t stream, enum pd_dtype dtype,
				const struct pd_pass_numbers *numbers, void *dx, const void *x,
				const int32_t *label, const struct pd_scale *scale,
				int64_t minibatch, int64_t batch, int64_t rows, int64_t classes)
{
	PD_BY_TYPE(dtype, T, (losses_back<T><<<(unsigned)(batch * rows), THREADS, 0, stream>>>(
		numbers, (T *)dx, (const T *)x, label, scale, minibatch, rows, classes)));
	return cudaGetLastError();
}
