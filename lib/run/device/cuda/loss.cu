/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A block takes a row, and its threads take classes at their stride; results are combined in an
 * order that follows from the number of classes alone.  Then one block adds up the batch.
 */
#include "run/device/cuda/host_device.cuh"

#include "run/device/cuda/block_sum.cuh"
#include "run/device/cuda/grid.cuh"
#include "run/device/cuda/kernels.h"
#include "run/device/cuda/typed.cuh"

#define THREADS 128             /* for a row; a power of two */
#define SUMMERS 128             /* a power of two */

enum verdict { WRONG, RIGHT, NO_CLASS, IGNORED };

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
	int t = threadIdx.x;

	best[t] = pd_softmax_largest(x, classes, t, THREADS);
	for (int half = THREADS / 2; half > 0; half /= 2) {
		__syncthreads();
		if (t < half)
			best[t] = pd_softmax_larger(best[t], best[t + half], classes);
	}
	__syncthreads();
	*sum_p = pd_block_sum<THREADS>(pd_softmax_sum(x, classes, t, THREADS, best[0].value));
	return best[0];
}

template <typename T>
__global__ static void losses(struct pd_kernel_logits s, const struct pd_pass_numbers *numbers,
			      float *out, int32_t *verdict, const T *__restrict__ x,
			      const int32_t *label)
{
	int64_t n = blockIdx.x, classes = s.classes;
	bool valid = n < numbers->valid * s.rows, ignored = valid && label[n] == s.ignored;
	bool good = valid && !ignored && is_class(label[n], classes);
	struct pd_softmax_best best = { 0, classes };
	float sum = 1, below = 0;

	x += n * s.apart;
	/* a block has one row, so all its threads take the same branch */
	if (good)
		best = denominator(x, classes, &sum);
	if (good && s.smooth > 0)
		below = pd_block_sum<THREADS>(pd_softmax_below(x, classes, threadIdx.x,
							       THREADS, best.value));
	if (threadIdx.x != 0)
		return;
	out[n] = good ? pd_softmax_loss(x, classes, label[n], best.value, sum,
					s.smooth, below) : 0;
	verdict[n] = good && best.at == label[n] && !isnan(out[n]) ? RIGHT : ignored ? IGNORED
		: valid && !good ? NO_CLASS : WRONG;
}

/* Thread t takes rows t, t + SUMMERS, ...; then halves are added to halves. */
__global__ static void total(struct pd_kernel_logits s, const struct pd_pass_numbers *numbers,
			     int number, const float *out, int32_t *verdict, const int32_t *label)
{
	__shared__ double sum[SUMMERS];
	__shared__ long long right[SUMMERS], bad[SUMMERS], ignored[SUMMERS];
	struct pd_kernel_loss *loss = numbers->loss + number;
	int64_t valid = numbers->valid * s.rows;
	int t = threadIdx.x;

	sum[t] = 0;
	right[t] = ignored[t] = 0;
	bad[t] = valid;
	for (int64_t n = t; n < valid; n += SUMMERS) {
		sum[t] += out[n];
		right[t] += verdict[n] == RIGHT;
		ignored[t] += verdict[n] == IGNORED;
		if (verdict[n] == NO_CLASS && n < bad[t])
			bad[t] = n;
	}
	for (int half = SUMMERS / 2; half > 0; half /= 2) {
		__syncthreads();
		if (t < half) {
			sum[t] += sum[t + half];
			right[t] += right[t + half];
			ignored[t] += ignored[t + half];
			if (bad[t + half] < bad[t])
				bad[t] = bad[t + half];
		}
	}
	if (t != 0)
		return;
	loss->sum = sum[0];
	loss->correct = right[0];
	loss->rows = valid - ignored[0];
	loss->bad_row = bad[0] < valid ? bad[0] : -1;
	loss->bad_label = bad[0] < valid ? label[bad[0]] : 0;
	verdict[s.batch * s.rows] = (int32_t)ignored[0];
}

cudaError_t pd_kernel_loss(cudaStream_t stream, enum pd_dtype dtype,
			   const struct pd_kernel_logits *s, const struct pd_pass_numbers *numbers,
			   int number, float *out, int32_t *verdicts, const void *x,
			   const int32_t *label)
{
	unsigned blocks = (unsigned)(s->batch * s->rows);
	cudaError_t status;

	PD_BY_TYPE(dtype, T, (losses<T><<<blocks, THREADS, 0, stream>>>(
		*s, numbers, out, verdicts, (const T *)x, label)));
	status = cudaGetLastError();
	if (status != cudaSuccess)
		return status;
	total<<<1, SUMMERS, 0, stream>>>(*s, numbers, number, out, verdicts, label);
	return cudaGetLastError();
}

/* If a label is no class, the forward has failed already and the gradient does not matter. */
template <typename T>
__global__ static void losses_back(struct pd_kernel_logits s,
				   const struct pd_pass_numbers *numbers, T *__restrict__ dx,
				   const T *__restrict__ x, const int32_t *label,
				   const int32_t *verdict, const struct pd_scale *scale)
{
	int64_t n = blockIdx.x, classes = s.classes, all = s.batch * s.rows;
	float factor = scale ? (float)scale->loss_scale : 1, sum;
	struct pd_softmax_best best;

	dx += n * s.apart;
	x += n * s.apart;
	for (int64_t i = classes + threadIdx.x; i < s.apart; i += THREADS)
		dx[i] = (T)0.0f;
	if (n < numbers->valid * s.rows && label[n] != s.ignored && is_class(label[n], classes)) {
		best = denominator(x, classes, &sum);
		pd_softmax_gradient(dx, x, classes, threadIdx.x, THREADS, label[n], best.value,
				    sum, s.smooth,
				    factor / (float)(s.microbatches * (all - verdict[all])));
		return;
	}
	for (int64_t i = threadIdx.x; i < classes; i += THREADS)
		dx[i] = (T)0.0f;
}

cudaError_t pd_kernel_loss_back(cudaStream_t stream, enum pd_dtype dtype,
				const struct pd_kernel_logits *s,
				const struct pd_pass_numbers *numbers, void *dx, const void *x,
				const int32_t *label, const int32_t *verdicts,
				const struct pd_scale *scale)
{
	unsigned blocks = (unsigned)(s->batch * s->rows);

	PD_BY_TYPE(dtype, T, (losses_back<T><<<blocks, THREADS, 0, stream>>>(
		*s, numbers, (T *)dx, (const T *)x, label, verdicts, scale)));
	return cudaGetLastError();
}

/* ---- mse: a block per sample, then one for all ---- */

template <typename T>
__global__ static void squares(const struct pd_pass_numbers *numbers, float *out,
			       const T *__restrict__ a, const T *__restrict__ b, float weight,
			       int64_t elements)
{
	int64_t n = blockIdx.x;
	float sum = 0;

	for (int64_t i = threadIdx.x; i < elements && n < numbers->valid; i += THREADS) {
		float d = (float)a[n * elements + i] - (b ? (float)b[n * elements + i] : 0);

		sum += d * d;
	}
	sum = pd_block_sum<THREADS>(sum);
	if (threadIdx.x == 0)
		out[n] = weight * (sum / (float)elements);
}

__global__ static void squares_total(const struct pd_pass_numbers *numbers, int number,
				     const float *out)
{
	struct pd_kernel_loss loss = { 0, 0, numbers->valid, -1, 0 };

	for (int64_t n = 0; n < numbers->valid; n++)
		loss.sum += out[n];
	numbers->loss[number] = loss;
}

cudaError_t pd_kernel_mse(cudaStream_t stream, enum pd_dtype dtype,
			  const struct pd_pass_numbers *numbers, int number, float *out,
			  const void *a, const void *b, float weight, int64_t batch,
			  int64_t elements)
{
	cudaError_t status;

	PD_BY_TYPE(dtype, T, (squares<T><<<(unsigned)batch, THREADS, 0, stream>>>(
		numbers, out, (const T *)a, (const T *)b, weight, elements)));
	status = cudaGetLastError();
	if (status != cudaSuccess)
		return status;
	squares_total<<<1, 1, 0, stream>>>(numbers, number, out);
	return cudaGetLastError();
}

template <typename T>
__global__ static void differences(const struct pd_pass_numbers *numbers, T *da, const T *a,
				   const T *b, const struct pd_scale *scale, float factor,
				   size_t count, int64_t elements)
{
	size_t valid = (size_t)(numbers->valid * elements);

	if (scale)
		factor *= (float)scale->loss_scale;
	PD_FOR_EACH(i, count)
		da[i] = (T)(i < valid ? ((float)a[i] - (b ? (float)b[i] : 0)) * factor : 0);
}

cudaError_t pd_kernel_mse_back(cudaStream_t stream, enum pd_dtype dtype,
			       const struct pd_pass_numbers *numbers, void *da, const void *a,
			       const void *b, const struct pd_scale *scale, float factor,
			       int64_t batch, int64_t elements)
{
	size_t count = (size_t)(batch * elements);

	PD_BY_TYPE(dtype, T, (differences<T><<<pd_grid_blocks(count), PD_THREADS, 0, stream>>>(
		numbers, (T *)da, (const T *)a, (const T *)b, scale, factor, count, elements)));
	return cudaGetLastError();
}
