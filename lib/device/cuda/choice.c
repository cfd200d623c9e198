/* SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/choice.h"

#include "device/cuda/cuda.h"

#define TIMES 5

/* Milliseconds of one; below 0: it failed. */
static float time_one(const struct pd_cuda_trial *trial, int candidate, cudaEvent_t begin,
		      cudaEvent_t end)
{
	float ms;

	/* the first is not timed */
	if (trial->queue(trial->context, candidate) < 0 || cudaEventRecord(begin, 0) != cudaSuccess)
		return -1;
	for (int i = 0; i < TIMES; i++)
		if (trial->queue(trial->context, candidate) < 0)
			return -1;
	if (cudaEventRecord(end, 0) != cudaSuccess || cudaEventSynchronize(end) != cudaSuccess ||
	    cudaEventElapsedTime(&ms, begin, end) != cudaSuccess)
		return -1;
	return ms / TIMES;
}

static int fastest(const struct pd_cuda_trial *trial, int n)
{
	cudaEvent_t begin = NULL, end = NULL;
	float ms[PD_CHOICES];
	int best = -1;

	if (cudaEventCreate(&begin) == cudaSuccess && cudaEventCreate(&end) == cudaSuccess) {
		for (int i = 0; i < n; i++)
			ms[i] = time_one(trial, i, begin, end);
		best = pd_choice_fastest(ms, n);
	}
	if (begin)
		cudaEventDestroy(begin);
	if (end)
		cudaEventDestroy(end);
	cudaGetLastError();     /* of those that failed, and nobody else's */
	return best;
}

int pd_cuda_choose(struct pd_compiled_layer *l, int way, const int *codes, int n,
		   const struct pd_cuda_trial *trial)
{
	int recorded = pd_choice_code(l->recorded, way), best = 0;

	for (int i = 0; i < n && recorded > 0; i++)
		if (codes[i] == recorded) {
			l->algorithms = pd_choice_with(l->algorithms, way, recorded);
			return i;
		}
	if (!l->net->measure || n < 1)
		return 0;
	if (n > 1)
		best = fastest(trial, n);
	if (best < 0)
		return 0;
	l->algorithms = pd_choice_with(l->algorithms, way, codes[best]);
	return best;
}

int pd_cuda_trial_memory(void *out_p, size_t bytes)
{
	void **p = out_p;

	if (cudaMalloc(p, bytes ? bytes : 1) == cudaSuccess &&
	    cudaMemsetAsync(*p, 0, bytes ? bytes : 1, 0) == cudaSuccess)
		return 0;
	cudaGetLastError();
	return -1;
}
