/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Of the algorithms that cuDNN's heuristics propose, best first, those that are deterministic,
 * keep to the arithmetic that was asked for and do with the workspace; of these choice.h's.
 */
#include "device/cuda/conv2d.h"

struct candidates {
	int n;
	int algorithm[PD_CHOICES], codes[PD_CHOICES];
	cudnnMathType_t math[PD_CHOICES];
	size_t workspace[PD_CHOICES], most;     /* most: of them */
};

/* What a candidate is timed with. */
struct trial {
	const struct pd_cuda_conv *c;
	const struct candidates *found;
	cudnnHandle_t dnn;
	int way;
	void *x, *y, *w, *workspace;
};

/* May it be taken?  *math_p: with what arithmetic. */
static bool suits(const struct pd_compiled_layer *l, cudnnStatus_t status,
		  cudnnDeterminism_t determinism, cudnnMathType_t *math_p)
{
	if (status != CUDNN_STATUS_SUCCESS || determinism != CUDNN_DETERMINISTIC)
		return false;
	if (l->net->dtype != PD_F32)
		return true;
	/* with tf32, none that makes f16 of f32; without it none but FMA */
	if (pd_cuda_engine(l)->tf32)
		return *math_p != CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION;
	if (*math_p != CUDNN_FMA_MATH && *math_p != CUDNN_DEFAULT_MATH)
		return false;
	*math_p = CUDNN_FMA_MATH;
	return true;
}

static void add(struct candidates *all, int algorithm, cudnnMathType_t math, size_t workspace)
{
	if (all->n == PD_CHOICES || workspace > PD_CUDA_WORKSPACE_MOST)
		return;
	all->algorithm[all->n] = algorithm;
	all->math[all->n] = math;
	all->codes[all->n] = 1 + 4 * algorithm + (int)math;
	all->workspace[all->n++] = workspace;
	if (workspace > all->most)
		all->most = workspace;
}

/*
 * The three ways differ in names and in the order of arguments: proposed() fills found and n,
 * needs() tells the workspace of an algorithm.
 */
#define LIST(name, perf, most, proposed, needs) \
	static int list_##name(const struct pd_cuda_conv *c, const struct pd_compiled_layer *l, \
			       cudnnConvolutionDescriptor_t conv, struct candidates *all, \
			       struct pd_error *err) \
	{ \
		cudnnHandle_t dnn = pd_cuda_engine(l)->dnn; \
		perf found[2 * (most)]; \
		int n = 0; \
		\
		if (pd_cudnn_check(proposed, "choosing an algorithm", err) < 0) \
			return -1; \
		for (int i = 0; i < n; i++) { \
			cudnnMathType_t math = found[i].mathType; \
			size_t bytes = 0; \
			\
			if (suits(l, found[i].status, found[i].determinism, &math) && \
			    cudnnSetConvolutionMathType(conv, math) == CUDNN_STATUS_SUCCESS && \
			    (needs) == CUDNN_STATUS_SUCCESS) \
				add(all, (int)found[i].algo, math, bytes); \
		} \
		return 0; \
	}
LIST(forward, cudnnConvolutionFwdAlgoPerf_t, CUDNN_CONVOLUTION_FWD_ALGO_COUNT,
     cudnnGetConvolutionForwardAlgorithm_v7(dnn, c->x, c->w, conv, c->y, (int)PD_COUNT(found), &n,
					    found),
     cudnnGetConvolutionForwardWorkspaceSize(dnn, c->x, c->w, conv, c->y, found[i].algo, &bytes))
LIST(data, cudnnConvolutionBwdDataAlgoPerf_t, CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT,
     cudnnGetConvolutionBackwardDataAlgorithm_v7(dnn, c->w, c->y, conv, c->x,
						 (int)PD_COUNT(found), &n, found),
     cudnnGetConvolutionBackwardDataWorkspaceSize(dnn, c->w, c->y, conv, c->x, found[i].algo,
						  &bytes))
LIST(weights, cudnnConvolutionBwdFilterAlgoPerf_t, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT,
     cudnnGetConvolutionBackwardFilterAlgorithm_v7(dnn, c->x, c->y, conv, c->w,
						   (int)PD_COUNT(found), &n, found),
     cudnnGetConvolutionBackwardFilterWorkspaceSize(dnn, c->x, c->y, conv, c->w, found[i].algo,
						    &bytes))
#undef LIST

static int queue(void *context, int candidate)
{
	const struct trial *t = context;
	const struct pd_cuda_conv *c = t->c;
	cudnnConvolutionDescriptor_t conv = c->conv[t->way];
	int algorithm = t->found->algorithm[candidate];
	size_t bytes = t->found->workspace[candidate];
	void *workspace = pd_cuda_workspace(t->workspace);
	const float one = 1, zero = 0;
	cudnnStatus_t status = cudnnSetConvolutionMathType(conv, t->found->math[candidate]);

	if (status == CUDNN_STATUS_SUCCESS && t->way == PD_WAY_FORWARD)
		status = cudnnConvolutionForward(t->dnn, &one, c->x, t->x, c->w, t->w, conv,
						 (cudnnConvolutionFwdAlgo_t)algorithm, workspace,
						 bytes, &zero, c->y, t->y);
	else if (status == CUDNN_STATUS_SUCCESS && t->way == PD_WAY_DATA)
		status = cudnnConvolutionBackwardData(t->dnn, &one, c->w, t->w, c->y, t->y, conv,
						      (cudnnConvolutionBwdDataAlgo_t)algorithm,
						      workspace, bytes, &zero, c->x, t->x);
	else if (status == CUDNN_STATUS_SUCCESS)
		status = cudnnConvolutionBackwardFilter(t->dnn, &one, c->x, t->x, c->y, t->y, conv,
							(cudnnConvolutionBwdFilterAlgo_t)algorithm,
							workspace, bytes, &zero, c->w, t->w);
	return status == CUDNN_STATUS_SUCCESS ? 0 : -1;
}

/* Where there is no memory to time them in, the first. */
static int choose(const struct pd_cuda_conv *c, struct pd_compiled_layer *l, int way,
		  const struct candidates *found)
{
	size_t w = pd_dtype_bytes(l->net->dtype) * (size_t)l->layer->parameters[0].elements;
	struct trial t = { .c = c, .found = found, .dnn = pd_cuda_engine(l)->dnn, .way = way };
	int best = 0;

	if (!l->net->measure ||
	    (pd_cuda_trial_memory(&t.x, pd_cuda_batch_bytes(l, l->in_shape[0])) == 0 &&
	     pd_cuda_trial_memory(&t.y, pd_cuda_batch_bytes(l, &l->layer->output)) == 0 &&
	     pd_cuda_trial_memory(&t.w, w) == 0 &&
	     pd_cuda_trial_memory(&t.workspace, pd_cuda_room(found->most)) == 0))
		best = pd_cuda_choose(l, way, found->codes, found->n,
				      &(struct pd_cuda_trial){ queue, &t });
	cudaFree(t.x);
	cudaFree(t.y);
	cudaFree(t.w);
	cudaFree(t.workspace);
	return best;
}

int pd_cuda_conv_choose(struct pd_cuda_conv *c, struct pd_compiled_layer *l, struct pd_error *err)
{
	static int (*const list[PD_WAYS])(const struct pd_cuda_conv *,
					  const struct pd_compiled_layer *,
					  cudnnConvolutionDescriptor_t, struct candidates *,
					  struct pd_error *) = {
		list_forward, list_data, list_weights
	};
	static const char *const what[PD_WAYS] = {
		"forward", "gradient of the input", "gradient of the weights"
	};

	for (int way = 0; way < PD_WAYS; way++) {
		struct candidates found = { 0 };
		int best;

		if (way == PD_WAY_DATA && !l->wants[0])
			continue;
		if (list[way](c, l, c->conv[way], &found, err) < 0)
			return -1;
		if (found.n == 0)
			return pd_error_failed(err, "layer \"%s\": cuDNN knows no deterministic "
					       "algorithm for its %s with at most %zu bytes of "
					       "workspace", l->layer->name, what[way],
					       PD_CUDA_WORKSPACE_MOST);
		best = choose(c, l, way, &found);
		c->algorithm[way] = found.algorithm[best];
		c->workspace[way] = found.workspace[best];
		if (pd_cudnn_check(cudnnSetConvolutionMathType(c->conv[way], found.math[best]),
				   "the arithmetic", err) < 0)
			return -1;
	}
	return 0;
}
