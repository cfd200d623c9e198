/* SPDX-License-Identifier: Apache-2.0 */
#include "run/device/cuda/choice.h"

#include "base/half.h"
#include "base/rng.h"
#include "run/device/cuda/cuda.h"

#include <stdlib.h>

#define CALLS 2                         /* calls of a candidate that are timed as one */
#define PATTERN ((size_t)64 << 10)      /* bytes of random numbers, which are repeated */

struct events {
	const struct pd_cuda_trial *trial;
	cudaEvent_t begin, end;
};

static float time_calls(void *context, int candidate)
{
	const struct events *e = context;
	float ms;

	if (cudaEventRecord(e->begin, 0) != cudaSuccess)
		return -1;
	for (int i = 0; i < CALLS; i++)
		if (e->trial->queue(e->trial->context, candidate) < 0)
			return -1;
	if (cudaEventRecord(e->end, 0) != cudaSuccess ||
	    cudaEventSynchronize(e->end) != cudaSuccess ||
	    cudaEventElapsedTime(&ms, e->begin, e->end) != cudaSuccess)
		return -1;
	return ms / CALLS;
}

static int fastest(const struct pd_cuda_trial *trial, int n)
{
	struct events e = { .trial = trial };
	float shortest[PD_CHOICES];
	int best = -1;

	if (cudaEventCreate(&e.begin) == cudaSuccess && cudaEventCreate(&e.end) == cudaSuccess) {
		pd_choice_measure(shortest, n, &(struct pd_choice_timer){ time_calls, &e, CALLS });
		best = pd_choice_fastest(shortest, n);
	}
	if (e.begin)
		cudaEventDestroy(e.begin);
	if (e.end)
		cudaEventDestroy(e.end);
	cudaGetLastError();     /* clears errors of candidates that failed */
	return best;
}

void pd_cuda_recall(struct pd_compiled_layer *l, const int64_t *what, int n)
{
	struct pd_cuda_engine *engine = l->net->engine;
	struct pd_choice_maker maker = { .layer = l };
	const struct pd_choice_maker *before;

	if (!l->net->measure || l->recorded != 0 || l->recorded_engines)
		return;
	memcpy(maker.what, what, sizeof(*what) * (size_t)n);
	before = pd_choice_alike(engine->makers, engine->maker_count, &maker);
	if (before) {
		const struct pd_compiled_layer *first = before->layer;

		l->recorded = first->algorithms;
		l->recorded_engines = first->engines;
	} else if (engine->maker_count < PD_CHOICE_MAKERS) {
		engine->makers[engine->maker_count++] = maker;
	}
}

bool pd_cuda_times(const struct pd_compiled_layer *l, int way)
{
	return l->net->measure && pd_choice_code(l->recorded, way) == 0;
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
	if (!pd_cuda_times(l, way) || n < 1)
		return 0;
	if (n > 1)
		best = fastest(trial, n);
	if (best < 0)
		return 0;
	l->algorithms = pd_choice_with(l->algorithms, way, codes[best]);
	return best;
}

/*
 * Fills with numbers uniform in [-0.5, 0.5).  With zeros a GPU draws less power, and clocks higher.
 */
static void fill(void *pattern, enum pd_dtype dtype)
{
	for (uint32_t i = 0; i < PATTERN / pd_dtype_bytes(dtype); i++) {
		float value = pd_unit(pd_random(0, 0, 0, i).v[0]) - 0.5f;

		if (dtype == PD_F32)
			((float *)pattern)[i] = value;
		else
			((uint16_t *)pattern)[i] = dtype == PD_BF16 ? pd_to_bf16(value)
								    : pd_to_f16(value);
	}
}

int pd_cuda_trial_memory(void *out_p, enum pd_dtype dtype, size_t bytes)
{
	size_t done = bytes < PATTERN ? bytes : PATTERN, more;
	char **p = out_p, *pattern = pd_calloc(1, PATTERN);
	cudaError_t status;

	fill(pattern, dtype);
	status = cudaMalloc((void **)p, bytes ? bytes : 1);
	if (status == cudaSuccess)
		status = cudaMemcpyAsync(*p, pattern, done, cudaMemcpyHostToDevice, 0);
	for (; done < bytes && status == cudaSuccess; done += more) {
		more = done < bytes - done ? done : bytes - done;
		status = cudaMemcpyAsync(*p + done, *p, more, cudaMemcpyDeviceToDevice, 0);
	}
	/* some GPUs read ordinary memory by themselves, when they come to it */
	if (status == cudaSuccess)
		status = cudaStreamSynchronize(0);
	free(pattern);
	if (status == cudaSuccess)
		return 0;
	cudaGetLastError();
	return -1;
}
