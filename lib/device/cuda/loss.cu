/* SPDX-License-Identifier: Apache-2.0 */
/* A thread per sample, which sums in the CPU's order; then one block for the whole batch. */
#include "device/cuda/both.cuh"

#include "device/cuda/kernels.h"
#include "device/cuda/typed.cuh"

#define SAMPLES 32              /* of a block */
#define SUMMERS 128             /* a power of two */

enum verdict { WRONG, RIGHT, NO_CLASS };

__device__ static bool is_class(int32_t label, int64_t classes)
{
	return label >= 0 && label < classes;
}

template <typename T>
__global__ static void losses(const struct pd_kernel_now *now, float *out, int32_t *verdict,
			      const T *x, const int32_t *label, int64_t batch, int64_t classes)
{
	int64_t n = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, best = -1;

	if (n >= batch)
		return;
	out[n] = 0;
	verdict[n] = WRONG;
	if (n >= now->valid)
		return;
	if (!is_class(label[n], classes)) {
		verdict[n] = NO_CLASS;
		return;
	}
	out[n] = pd_softmax_loss(x + n * classes, classes, label[n], &best);
	if (best == label[n])
		verdict[n] = RIGHT;
}

/* Thread t takes samples t, t + SUMMERS, ...; then halves are added to halves. */
__global__ static void total(const struct pd_kernel_now *now, const float *out,
			     const int32_t *verdict, const int32_t *label)
{
	__shared__ double sum[SUMMERS];
	__shared__ long long right[SUMMERS], bad[SUMMERS];
	struct pd_kernel_loss *loss = now->loss;
	int64_t valid = now->valid;
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
	loss->bad_sample = bad[0] < valid ? bad[0] : -1;
	loss->bad_label = bad[0] < valid ? label[bad[0]] : 0;
}

static unsigned sample_blocks(int64_t batch)
{
	return (unsigned)((batch + SAMPLES - 1) / SAMPLES);
}

cudaError_t pd_kernel_loss(cudaStream_t stream, enum pd_dtype dtype,
			   const struct pd_kernel_now *now, float *out, int32_t *verdict,
			   const void *x, const int32_t *label, int64_t batch, int64_t classes)
{
	cudaError_t status;

	PD_BY_TYPE(dtype, T, (losses<T><<<sample_blocks(batch), SAMPLES, 0, stream>>>(
		now, out, verdict, (const T *)x, label, batch, classes)));
	status = cudaGetLastError();
	if (status != cudaSuccess)
		return status;
	total<<<1, SUMMERS, 0, stream>>>(now, out, verdict, label);
	return cudaGetLastError();
}

/* Where the label is no class, the forward has said so and the gradient matters no more. */
template <typename T>
__global__ static void losses_back(const struct pd_kernel_now *now, T *dx, const T *x,
				   const int32_t *label, const struct pd_scale *scale,
				   int64_t batch, int64_t classes)
{
	int64_t n = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
	float factor = scale ? (float)scale->loss_scale : 1;

	if (n >= batch)
		return;
	if (n < now->valid && is_class(label[n], classes)) {
		pd_softmax_gradient(dx + n * classes, x + n * classes, classes, label[n],
				    factor / (float)batch);
		return;
	}
	for (int64_t i = 0; i < classes; i++)
		dx[n * classes + i] = (T)0.0f;
}

cudaError_t pd_kernel_loss_back(cudaStream_t stream, enum pd_dtype dtype,
				const struct pd_kernel_now *now, void *dx, const void *x,
				const int32_t *label, const struct pd_scale *scale, int64_t batch,
				int64_t classes)
{
	PD_BY_TYPE(dtype, T, (losses_back<T><<<sample_blocks(batch), SAMPLES, 0, stream>>>(
		now, (T *)dx, (const T *)x, label, scale, batch, classes)));
	return cudaGetLastError();
}
