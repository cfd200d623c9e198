/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conv2d by cuDNN.  Of the algorithms that its heuristics propose, best first, the first that
 * is deterministic, keeps to the arithmetic that was asked for and does with the workspace.
 *
 * Bias, and the relu that follows, are added by the same call where the library can, else by
 * a kernel of ours.  With channels last an input that is plain is turned first.  In 16 bits
 * the library makes the gradient of the weights in that type, and it is widened.
 */
#include "device/cuda/cuda.h"

#include <limits.h>

enum { FORWARD, DATA, WEIGHTS, WAYS };

struct conv {
	struct pd_cuda_own own;
	cudnnTensorDescriptor_t x, y, bias;
	cudnnFilterDescriptor_t w;
	cudnnActivationDescriptor_t after;
	cudnnConvolutionDescriptor_t conv[WAYS];        /* each with its own arithmetic */
	cudnnConvolutionFwdAlgo_t forward;
	cudnnConvolutionBwdDataAlgo_t data;
	cudnnConvolutionBwdFilterAlgo_t weights;
	size_t workspace[WAYS];
	bool relu, fused;               /* fused: one call does all of forward */
	size_t turned_bytes;            /* of the input in the other layout; 0: it is as wanted */
	size_t narrow_bytes;            /* of the weights' gradient as it is made; 0: f32 */
};

static void release(void *own)
{
	struct conv *c = own;

	if (c->x)
		cudnnDestroyTensorDescriptor(c->x);
	if (c->y)
		cudnnDestroyTensorDescriptor(c->y);
	if (c->bias)
		cudnnDestroyTensorDescriptor(c->bias);
	if (c->w)
		cudnnDestroyFilterDescriptor(c->w);
	if (c->after)
		cudnnDestroyActivationDescriptor(c->after);
	for (int way = 0; way < WAYS; way++)
		if (c->conv[way])
			cudnnDestroyConvolutionDescriptor(c->conv[way]);
}

static cudnnDataType_t type_of(const struct pd_compiled_layer *l)
{
	return l->net->dtype == PD_BF16 ? CUDNN_DATA_BFLOAT16
		: l->net->dtype == PD_F16 ? CUDNN_DATA_HALF : CUDNN_DATA_FLOAT;
}

static cudnnTensorFormat_t format_of(const struct pd_compiled_layer *l)
{
	return pd_cuda_engine(l)->last ? CUDNN_TENSOR_NHWC : CUDNN_TENSOR_NCHW;
}

static int set_tensor(cudnnTensorDescriptor_t *p, const struct pd_compiled_layer *l, int64_t batch,
		      int64_t channels, int64_t height, int64_t width, struct pd_error *err)
{
	if (pd_cudnn_check(cudnnCreateTensorDescriptor(p), "a tensor", err) < 0)
		return -1;
	return pd_cudnn_check(cudnnSetTensor4dDescriptor(*p, format_of(l), type_of(l), (int)batch,
							 (int)channels, (int)height, (int)width),
			      "a tensor", err);
}

static int set_conv(struct conv *c, int way, const struct pd_compiled_layer *l,
		    struct pd_error *err)
{
	bool cores = pd_cuda_engine(l)->tf32 || l->net->dtype != PD_F32;
	cudnnConvolutionDescriptor_t *p = &c->conv[way];
	const struct pd_layer *a = l->layer;

	if (pd_cudnn_check(cudnnCreateConvolutionDescriptor(p), "a convolution", err) < 0 ||
	    pd_cudnn_check(cudnnSetConvolution2dDescriptor(
				*p, (int)a->padding[0], (int)a->padding[1], (int)a->stride[0],
				(int)a->stride[1], (int)a->dilation[0], (int)a->dilation[1],
				CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT),
			   "a convolution", err) < 0 ||
	    pd_cudnn_check(cudnnSetConvolutionGroupCount(*p, (int)a->groups), "groups", err) < 0)
		return -1;
	return pd_cudnn_check(cudnnSetConvolutionMathType(*p, cores ? CUDNN_DEFAULT_MATH
								    : CUDNN_FMA_MATH),
			      "the arithmetic", err);
}

static int set_after(struct conv *c, struct pd_error *err)
{
	if (pd_cudnn_check(cudnnCreateActivationDescriptor(&c->after), "a relu", err) < 0)
		return -1;
	return pd_cudnn_check(cudnnSetActivationDescriptor(
				c->after, c->relu ? CUDNN_ACTIVATION_RELU
						  : CUDNN_ACTIVATION_IDENTITY,
				CUDNN_NOT_PROPAGATE_NAN, 0), "a relu", err);
}

static int describe(struct conv *c, const struct pd_compiled_layer *l, struct pd_error *err)
{
	const int64_t *w = l->layer->parameters[0].size, batch = l->net->batch;
	const int64_t *x = l->in_shape[0]->size, *y = l->layer->output.size;

	if (l->net->batch > INT_MAX)
		return pd_error_input(err, "a batch of %lld is too large for cuDNN",
				      (long long)l->net->batch);
	if (set_tensor(&c->x, l, batch, x[0], x[1], x[2], err) < 0 ||
	    set_tensor(&c->y, l, batch, y[0], y[1], y[2], err) < 0 ||
	    set_tensor(&c->bias, l, 1, y[0], 1, 1, err) < 0 || set_after(c, err) < 0 ||
	    pd_cudnn_check(cudnnCreateFilterDescriptor(&c->w), "a kernel", err) < 0 ||
	    pd_cudnn_check(cudnnSetFilter4dDescriptor(c->w, type_of(l), format_of(l), (int)w[0],
						      (int)w[1], (int)w[2], (int)w[3]),
			   "a kernel", err) < 0)
		return -1;
	for (int way = 0; way < WAYS; way++)
		if (set_conv(c, way, l, err) < 0)
			return -1;
	return 0;
}

/* May it be taken?  Its arithmetic then is the one that the descriptor says. */
static bool suits(const struct pd_compiled_layer *l, cudnnConvolutionDescriptor_t conv,
		  cudnnStatus_t status, cudnnDeterminism_t determinism, cudnnMathType_t math)
{
	if (status != CUDNN_STATUS_SUCCESS || determinism != CUDNN_DETERMINISTIC)
		return false;
	if (l->net->dtype != PD_F32)
		return cudnnSetConvolutionMathType(conv, math) == CUDNN_STATUS_SUCCESS;
	/* without tf32 none but FMA; with it, none that makes f16 of f32 */
	if (!pd_cuda_engine(l)->tf32)
		return math == CUDNN_FMA_MATH || math == CUDNN_DEFAULT_MATH;
	return math != CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION &&
	       cudnnSetConvolutionMathType(conv, math) == CUDNN_STATUS_SUCCESS;
}

static size_t bias_room(const struct pd_compiled_layer *l)
{
	const struct pd_shape *out = &l->layer->output;
	int64_t samples, area;

	pd_cuda_rows(l, l->out, out, &samples, &area);
	return l->out ? pd_kernel_norm_room(samples, out->size[0])
		      : pd_kernel_bias_room(samples, out->size[0]);
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
static void size(struct conv *c, struct pd_compiled_layer *l)
{
	const struct pd_shape *out = &l->layer->output;
	size_t ways = l->layer->bias ? sizeof(float) * bias_room(l) : 0;

	if (c->workspace[WEIGHTS] > ways)
		ways = c->workspace[WEIGHTS];
	if (l->wants[0] && c->workspace[DATA] > ways)
		ways = c->workspace[DATA];
	if (pd_cuda_unlike(l->in[0], l->out, l->in_shape[0]))
		c->turned_bytes = pd_align(pd_cuda_batch_bytes(l, l->in_shape[0]));
	if (l->net->dtype != PD_F32)
		c->narrow_bytes = pd_align(pd_dtype_bytes(l->net->dtype) *
					   (size_t)l->layer->parameters[0].elements);
	l->forward_bytes = c->turned_bytes + pd_cuda_room(c->workspace[FORWARD]);
	l->backward_bytes = c->turned_bytes + c->narrow_bytes + pd_cuda_room(ways);
	l->split_bytes = pd_cuda_batch_bytes(l, out);
}

static int prepare(struct pd_compiled_layer *l, struct pd_error *err)
{
	struct conv *c;

	if (pd_cuda_engine(l)->last)
		l->out = l->parameter[0] = &pd_cuda_last;
	if (!l->inside)
		return 0;
	l->own = c = pd_zalloc(sizeof(*c));
	c->own.release = release;
	c->relu = pd_cuda_does_relu(l->net, l->index);
	if (describe(c, l, err) < 0 || choose_forward(c, l, err) < 0 ||
	    choose_weights(c, l, err) < 0 || (l->wants[0] && choose_data(c, l, err) < 0))
		return -1;
	/* without a relu the library has it for this algorithm alone */
	c->fused = l->layer->bias &&
		   (c->relu || c->forward == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM);
	size(c, l);
	return 0;
}

static int check(const struct pd_compiled_layer *l, cudnnStatus_t status, struct pd_error *err)
{
	if (status == CUDNN_STATUS_SUCCESS)
		return 0;
	return pd_error_failed(err, "layer \"%s\": cuDNN: %s", l->layer->name,
			       cudnnGetErrorString(status));
}

/* The input in the layout that is wanted: itself, or turned, at the beginning of the scratch. */
static const void *input(struct pd_compiled_layer *l, struct pd_error *err)
{
	const struct conv *c = l->own;

	if (c->turned_bytes == 0)
		return l->src[0];
	return pd_cuda_turn(l, l->temporary, l->out, l->src[0], l->in_shape[0], err) < 0
		? NULL : l->temporary;
}

/* 1: done; 0: the library has no such thing. */
static int forward_fused(struct pd_compiled_layer *l, const void *x, void *workspace,
			 struct pd_error *err)
{
	const float one = 1, zero = 0;
	struct conv *c = l->own;
	cudnnStatus_t status = cudnnConvolutionBiasActivationForward(
		pd_cuda_engine(l)->dnn, &one, c->x, x, c->w, l->parameters[0], c->conv[FORWARD],
		c->forward, workspace, c->workspace[FORWARD], &zero, c->y, l->dst, c->bias,
		l->parameters[1], c->after, c->y, l->dst);

	if (CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED ||
	    CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_BAD_PARAM)
		return 0;
	return check(l, status, err) < 0 ? -1 : 1;
}

static int forward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	const struct pd_cuda_engine *engine = pd_cuda_engine(l);
	const struct pd_shape *out = &l->layer->output;
	const float one = 1, zero = 0;
	struct conv *c = l->own;
	void *workspace = pd_cuda_workspace((char *)l->temporary + c->turned_bytes);
	const void *x = input(l, err);
	int64_t samples, area;

	if (!x)
		return -1;
	if (c->fused) {
		int verdict = forward_fused(l, x, workspace, err);

		if (verdict != 0)
			return verdict < 0 ? -1 : 0;
		c->fused = false;       /* nor the next time */
	}
	if (check(l, cudnnConvolutionForward(engine->dnn, &one, c->x, x, c->w, l->parameters[0],
					     c->conv[FORWARD], c->forward, workspace,
					     c->workspace[FORWARD], &zero, c->y, l->dst), err) < 0)
		return -1;
	if (!l->layer->bias && !c->relu)
		return 0;
	pd_cuda_rows(l, l->out, out, &samples, &area);
	return pd_cuda_queued(l, pd_kernel_bias(engine->stream, l->net->dtype, l->dst,
						l->layer->bias ? l->parameters[1] : NULL, c->relu,
						samples, out->size[0], area), err);
}

static int backward_bias(struct pd_compiled_layer *l, void *room, struct pd_error *err)
{
	const struct pd_shape *out = &l->layer->output;
	const struct pd_cuda_engine *engine = pd_cuda_engine(l);
	int64_t samples, area;

	pd_cuda_rows(l, l->out, out, &samples, &area);
	return pd_cuda_queued(l, l->out
		? pd_kernel_columns(engine->stream, l->net->dtype, l->diff_parameters[1], room,
				    l->diff_dst, samples, out->size[0])
		: pd_kernel_bias_back(engine->stream, l->net->dtype, l->diff_parameters[1], room,
				      l->diff_dst, samples, out->size[0], area), err);
}

static int backward_weights(struct pd_compiled_layer *l, struct pd_error *err)
{
	const struct pd_cuda_engine *engine = pd_cuda_engine(l);
	const float one = 1, zero = 0;
	struct conv *c = l->own;
	char *narrow = (char *)l->temporary + c->turned_bytes;
	void *workspace = pd_cuda_workspace(narrow + c->narrow_bytes);
	void *dw = c->narrow_bytes ? narrow : l->diff_parameters[0];
	const void *x = input(l, err);

	if (!x || check(l, cudnnConvolutionBackwardFilter(engine->dnn, &one, c->x, x, c->y,
							  l->diff_dst, c->conv[WEIGHTS],
							  c->weights, workspace,
							  c->workspace[WEIGHTS], &zero, c->w, dw),
			err) < 0)
		return -1;
	if (c->narrow_bytes &&
	    pd_cuda_queued(l, pd_kernel_widen(engine->stream, l->net->dtype,
					      l->diff_parameters[0], dw,
					      (size_t)l->layer->parameters[0].elements), err) < 0)
		return -1;
	return l->layer->bias ? backward_bias(l, workspace, err) : 0;
}

static int backward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	const float one = 1, zero = 0;
	struct conv *c = l->own;
	void *workspace, *dx;

	if (pass->part != PD_BACKWARD_INPUT && backward_weights(l, err) < 0)
		return -1;
	if (pass->part == PD_BACKWARD_WEIGHT || !l->diff_src[0])
		return 0;
	workspace = pd_cuda_workspace((char *)l->temporary + c->turned_bytes);
	dx = c->turned_bytes ? l->temporary : l->diff_src[0];
	if (check(l, cudnnConvolutionBackwardData(pd_cuda_engine(l)->dnn, &one, c->w,
						  l->parameters[0], c->y, l->diff_dst,
						  c->conv[DATA], c->data, workspace,
						  c->workspace[DATA], &zero, c->x, dx), err) < 0)
		return -1;
	return dx == l->diff_src[0] ? 0
		: pd_cuda_turn(l, l->diff_src[0], l->in[0], dx, l->in_shape[0], err);
}

const struct pd_compiled_kind pd_cuda_conv2d = {
	.splits = true,
	.prepare = prepare,
	.forward = forward,
	.backward = backward,
};
