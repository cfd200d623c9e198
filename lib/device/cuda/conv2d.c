/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conv2d by cuDNN.  Of the algorithms that its heuristics propose, best first, the first that
 * is deterministic, keeps to the arithmetic that was asked for and does with the workspace.
 */
#include "device/cuda/cuda.h"

#include <limits.h>

enum { FORWARD, DATA, WEIGHTS, WAYS };

struct conv {
	struct pd_cuda_own own;
	cudnnTensorDescriptor_t x, y;
	cudnnFilterDescriptor_t w;
	cudnnConvolutionDescriptor_t conv[WAYS];        /* each with its own arithmetic */
	cudnnConvolutionFwdAlgo_t forward;
	cudnnConvolutionBwdDataAlgo_t data;
	cudnnConvolutionBwdFilterAlgo_t weights;
	size_t workspace[WAYS];
};

static void release(void *own)
{
	struct conv *c = own;

	if (c->x)
		cudnnDestroyTensorDescriptor(c->x);
	if (c->y)
		cudnnDestroyTensorDescriptor(c->y);
	if (c->w)
		cudnnDestroyFilterDescriptor(c->w);
	for (int way = 0; way < WAYS; way++)
		if (c->conv[way])
			cudnnDestroyConvolutionDescriptor(c->conv[way]);
}

static int set_tensor(cudnnTensorDescriptor_t *p, int64_t batch, const struct pd_shape *shape,
		      struct pd_error *err)
{
	if (pd_cudnn_check(cudnnCreateTensorDescriptor(p), "a tensor", err) < 0)
		return -1;
	return pd_cudnn_check(cudnnSetTensor4dDescriptor(*p, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT,
							 (int)batch, (int)shape->size[0],
							 (int)shape->size[1], (int)shape->size[2]),
			      "a tensor", err);
}

static int set_conv(struct conv *c, int way, const struct pd_layer *a, bool tf32,
		    struct pd_error *err)
{
	cudnnConvolutionDescriptor_t *p = &c->conv[way];

	if (pd_cudnn_check(cudnnCreateConvolutionDescriptor(p), "a convolution", err) < 0 ||
	    pd_cudnn_check(cudnnSetConvolution2dDescriptor(
				*p, (int)a->padding[0], (int)a->padding[1], (int)a->stride[0],
				(int)a->stride[1], (int)a->dilation[0], (int)a->dilation[1],
				CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT),
			   "a convolution", err) < 0 ||
	    pd_cudnn_check(cudnnSetConvolutionGroupCount(*p, (int)a->groups), "groups", err) < 0)
		return -1;
	return pd_cudnn_check(cudnnSetConvolutionMathType(*p, tf32 ? CUDNN_DEFAULT_MATH
								   : CUDNN_FMA_MATH),
			      "the arithmetic", err);
}

static int describe(struct conv *c, const struct pd_compiled_layer *l, struct pd_error *err)
{
	const struct pd_layer *a = l->layer;
	const int64_t *w = a->parameters[0].size;

	if (l->net->batch > INT_MAX)
		return pd_error_input(err, "a batch of %lld is too large for cuDNN",
				      (long long)l->net->batch);
	if (set_tensor(&c->x, l->net->batch, l->in_shape[0], err) < 0 ||
	    set_tensor(&c->y, l->net->batch, &a->output, err) < 0 ||
	    pd_cudnn_check(cudnnCreateFilterDescriptor(&c->w), "a kernel", err) < 0 ||
	    pd_cudnn_check(cudnnSetFilter4dDescriptor(c->w, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW,
						      (int)w[0], (int)w[1], (int)w[2], (int)w[3]),
			   "a kernel", err) < 0)
		return -1;
	for (int way = 0; way < WAYS; way++)
		if (set_conv(c, way, a, pd_cuda_engine(l)->tf32, err) < 0)
			return -1;
	return 0;
}

/* May it be taken?  Its arithmetic then is the one that the descriptor says. */
static bool suits(const struct pd_compiled_layer *l, cudnnConvolutionDescriptor_t conv,
		  cudnnStatus_t status, cudnnDeterminism_t determinism, cudnnMathType_t math)
{
	if (status != CUDNN_STATUS_SUCCESS || determinism != CUDNN_DETERMINISTIC)
		return false;
	/* without tf32 none but FMA; with it, none that makes f16 of f32 */
	if (!pd_cuda_engine(l)->tf32)
		return math == CUDNN_FMA_MATH || math == CUDNN_DEFAULT_MATH;
	return math != CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION &&
	       cudnnSetConvolutionMathType(conv, math) == CUDNN_STATUS_SUCCESS;
}

static int none(const struct pd_compiled_layer *l, const char *way, struct pd_error *err)
{
	return pd_error_failed(err, "layer \"%s\": cuDNN knows no deterministic algorithm for its "
			       "%s with at most %zu bytes of workspace", l->layer->name, way,
			       PD_CUDA_WORKSPACE_MOST);
}

static int choose_forward(struct conv *c, const struct pd_compiled_layer *l, struct pd_error *err)
{
	cudnnHandle_t dnn = pd_cuda_engine(l)->dnn;
	cudnnConvolutionFwdAlgoPerf_t found[2 * CUDNN_CONVOLUTION_FWD_ALGO_COUNT];
	size_t *bytes = &c->workspace[FORWARD];
	int n = 0;

	if (pd_cudnn_check(cudnnGetConvolutionForwardAlgorithm_v7(
				dnn, c->x, c->w, c->conv[FORWARD], c->y,
				(int)PD_COUNT(found), &n, found), "choosing an algorithm", err) < 0)
		return -1;
	for (int i = 0; i < n; i++)
		if (suits(l, c->conv[FORWARD], found[i].status, found[i].determinism,
			  found[i].mathType) &&
		    cudnnGetConvolutionForwardWorkspaceSize(dnn, c->x, c->w, c->conv[FORWARD],
							    c->y, found[i].algo, bytes) ==
			    CUDNN_STATUS_SUCCESS && *bytes <= PD_CUDA_WORKSPACE_MOST) {
			c->forward = found[i].algo;
			return 0;
		}
	return none(l, "forward", err);
}

static int choose_data(struct conv *c, const struct pd_compiled_layer *l, struct pd_error *err)
{
	cudnnHandle_t dnn = pd_cuda_engine(l)->dnn;
	cudnnConvolutionBwdDataAlgoPerf_t found[2 * CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT];
	size_t *bytes = &c->workspace[DATA];
	int n = 0;

	if (pd_cudnn_check(cudnnGetConvolutionBackwardDataAlgorithm_v7(
				dnn, c->w, c->y, c->conv[DATA], c->x,
				(int)PD_COUNT(found), &n, found), "choosing an algorithm", err) < 0)
		return -1;
	for (int i = 0; i < n; i++)
		if (suits(l, c->conv[DATA], found[i].status, found[i].determinism,
			  found[i].mathType) &&
		    cudnnGetConvolutionBackwardDataWorkspaceSize(dnn, c->w, c->y, c->conv[DATA],
								 c->x, found[i].algo, bytes) ==
			    CUDNN_STATUS_SUCCESS && *bytes <= PD_CUDA_WORKSPACE_MOST) {
			c->data = found[i].algo;
			return 0;
		}
	return none(l, "gradient of the input", err);
}

static int choose_weights(struct conv *c, const struct pd_compiled_layer *l, struct pd_error *err)
{
	cudnnHandle_t dnn = pd_cuda_engine(l)->dnn;
	cudnnConvolutionBwdFilterAlgoPerf_t found[2 * CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT];
	size_t *bytes = &c->workspace[WEIGHTS];
	int n = 0;

	if (pd_cudnn_check(cudnnGetConvolutionBackwardFilterAlgorithm_v7(
				dnn, c->x, c->y, c->conv[WEIGHTS], c->w,
				(int)PD_COUNT(found), &n, found), "choosing an algorithm", err) < 0)
		return -1;
	for (int i = 0; i < n; i++)
		if (suits(l, c->conv[WEIGHTS], found[i].status, found[i].determinism,
			  found[i].mathType) &&
		    cudnnGetConvolutionBackwardFilterWorkspaceSize(dnn, c->x, c->y,
								   c->conv[WEIGHTS], c->w,
								   found[i].algo, bytes) ==
			    CUDNN_STATUS_SUCCESS && *bytes <= PD_CUDA_WORKSPACE_MOST) {
			c->weights = found[i].algo;
			return 0;
		}
	return none(l, "gradient of the weights", err);
}

/* The ways follow one another: they share the scratch.  The bias' gradient has its own. */
static int prepare(struct pd_compiled_layer *l, struct pd_error *err)
{
	const struct pd_shape *out = &l->layer->output;
	struct conv *c;
	size_t back, room = sizeof(float) * pd_kernel_bias_room(l->net->batch, out->size[0]);

	if (!l->inside)
		return 0;
	l->own = c = pd_zalloc(sizeof(*c));
	c->own.release = release;
	if (describe(c, l, err) < 0 || choose_forward(c, l, err) < 0 ||
	    choose_weights(c, l, err) < 0 || (l->wants[0] && choose_data(c, l, err) < 0))
		return -1;
	back = c->workspace[WEIGHTS];
	if (l->wants[0] && c->workspace[DATA] > back)
		back = c->workspace[DATA];
	if (l->layer->bias && room > back)
		back = room;
	l->forward_bytes = pd_cuda_room(c->workspace[FORWARD]);
	l->backward_bytes = pd_cuda_room(back);
	l->split_bytes = sizeof(float) * pd_cuda_batch_elements(l, out);
	return 0;
}

static int check(const struct pd_compiled_layer *l, cudnnStatus_t status, struct pd_error *err)
{
	if (status == CUDNN_STATUS_SUCCESS)
		return 0;
	return pd_error_failed(err, "layer \"%s\": cuDNN: %s", l->layer->name,
			       cudnnGetErrorString(status));
}

static int forward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	const struct pd_cuda_engine *engine = pd_cuda_engine(l);
	const int64_t *out = l->layer->output.size;
	const float one = 1, zero = 0;
	struct conv *c = l->own;

	if (check(l, cudnnConvolutionForward(engine->dnn, &one, c->x, l->src[0], c->w,
					     l->parameters[0], c->conv[FORWARD], c->forward,
					     pd_cuda_workspace(l->temporary),
					     c->workspace[FORWARD], &zero, c->y, l->dst), err) < 0)
		return -1;
	if (!l->layer->bias)
		return 0;
	return pd_cuda_queued(l, pd_kernel_bias(engine->stream, l->dst, l->parameters[1],
						l->net->batch, out[0], out[1] * out[2]), err);
}

static int backward_weights(struct pd_compiled_layer *l, struct pd_error *err)
{
	const struct pd_cuda_engine *engine = pd_cuda_engine(l);
	const int64_t *out = l->layer->output.size;
	void *workspace = pd_cuda_workspace(l->temporary);
	const float one = 1, zero = 0;
	struct conv *c = l->own;

	if (check(l, cudnnConvolutionBackwardFilter(engine->dnn, &one, c->x, l->src[0], c->y,
						    l->diff_dst, c->conv[WEIGHTS], c->weights,
						    workspace, c->workspace[WEIGHTS], &zero, c->w,
						    l->diff_parameters[0]), err) < 0)
		return -1;
	if (!l->layer->bias)
		return 0;
	return pd_cuda_queued(l, pd_kernel_bias_back(engine->stream, l->diff_parameters[1],
						     workspace, l->diff_dst, l->net->batch, out[0],
						     out[1] * out[2]), err);
}

static int backward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	const float one = 1, zero = 0;
	struct conv *c = l->own;

	if (pass->part != PD_BACKWARD_INPUT && backward_weights(l, err) < 0)
		return -1;
	if (pass->part == PD_BACKWARD_WEIGHT || !l->diff_src[0])
		return 0;
	return check(l, cudnnConvolutionBackwardData(pd_cuda_engine(l)->dnn, &one, c->w,
						     l->parameters[0], c->y, l->diff_dst,
						     c->conv[DATA], c->data,
						     pd_cuda_workspace(l->temporary),
						     c->workspace[DATA], &zero, c->x,
						     l->diff_src[0]), err);
}

const struct pd_compiled_kind pd_cuda_conv2d = {
	.splits = true,
	.prepare = prepare,
	.forward = forward,
	.backward = backward,
};
