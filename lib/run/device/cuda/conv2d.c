/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conv2d and conv_transpose2d by cuDNN, and conv1d, which is a conv2d of plain planes with a height of 1.
 *
 * Each way is an algorithm of the library's older calls or an engine of its graph API
 * (conv2d_graph.c).  The same call adds bias and the relu behind it where the library can, else a
 * kernel of our own does; a conv_transpose2d's bias is put into the output beforehand, and the
 * convolution added to it.  With channels last, a plain input is first brought into that layout.  In
 * 16 bits cuDNN writes the gradient of the weights in 16 bits, too; a kernel of our own widens it
 * to f32 (conv2d_widen.c).
 */
#include "run/device/cuda/conv2d.h"

#include <float.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>

static void release(void *own)
{
	struct pd_cuda_conv *c = own;

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
	for (int way = 0; way < PD_PROPAGATIONS; way++) {
		if (c->conv[way])
			cudnnDestroyConvolutionDescriptor(c->conv[way]);
		pd_dnn_engine_close(&c->engine[way]);
		pd_dnn_graph_close(&c->graph[way]);
	}
}

static cudnnDataType_t type_of(const struct pd_compiled_layer *l)
{
	return l->net->dtype == PD_BF16 ? CUDNN_DATA_BFLOAT16
		: l->net->dtype == PD_F16 ? CUDNN_DATA_HALF : CUDNN_DATA_FLOAT;
}

static cudnnTensorFormat_t format_of(const struct pd_compiled_layer *l)
{
	return pd_cuda_conv_last(l) ? CUDNN_TENSOR_NHWC : CUDNN_TENSOR_NCHW;
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

static int set_conv(struct pd_cuda_conv *c, int way, const struct pd_compiled_layer *l,
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

/* Sets the activation; its last argument is the most that a relu lets through. */
static int set_after(struct pd_cuda_conv *c, struct pd_error *err)
{
	if (pd_cudnn_check(cudnnCreateActivationDescriptor(&c->after), "a relu", err) < 0)
		return -1;
	return pd_cudnn_check(cudnnSetActivationDescriptor(
				c->after, c->relu ? CUDNN_ACTIVATION_RELU
						  : CUDNN_ACTIVATION_IDENTITY,
				CUDNN_PROPAGATE_NAN, DBL_MAX), "a relu", err);
}

static int set_descriptors(struct pd_cuda_conv *c, const struct pd_compiled_layer *l, struct pd_error *err)
{
	const struct pd_shape in = pd_shape_plane(pd_cuda_conv_x(l)), out = pd_shape_plane(pd_cuda_conv_y(l));
	const int64_t *w = l->layer->parameters[0].size, *kernel = l->layer->kernel;
	const int64_t *x = in.size, *y = out.size, batch = l->net->batch;

	if (l->net->batch > INT_MAX)
		return pd_error_input(err, "a batch of %lld is too large for cuDNN",
				      (long long)l->net->batch);
	if (set_tensor(&c->x, l, batch, x[0], x[1], x[2], err) < 0 ||
	    set_tensor(&c->y, l, batch, y[0], y[1], y[2], err) < 0 ||
	    set_tensor(&c->bias, l, 1, y[0], 1, 1, err) < 0 || set_after(c, err) < 0 ||
	    pd_cudnn_check(cudnnCreateFilterDescriptor(&c->w), "a kernel", err) < 0 ||
	    pd_cudnn_check(cudnnSetFilter4dDescriptor(c->w, type_of(l), format_of(l), (int)w[0],
						      (int)w[1], (int)kernel[0], (int)kernel[1]),
			   "a kernel", err) < 0)
		return -1;
	for (int way = 0; way < PD_PROPAGATIONS; way++)
		if (set_conv(c, way, l, err) < 0)
			return -1;
	return 0;
}

static size_t bias_room(const struct pd_compiled_layer *l)
{
	const struct pd_shape *out = &l->layer->output;
	int64_t samples, area;

	pd_cuda_rows(l, l->out, out, &samples, &area);
	return l->out ? pd_kernel_norm_scratch(samples, out->size[0])
		      : pd_kernel_bias_scratch(samples, out->size[0]);
}

/* Ways run one after the other and share the scratch; the bias' gradient has its own. */
static void size(struct pd_cuda_conv *c, struct pd_compiled_layer *l)
{
	const struct pd_shape *out = &l->layer->output;
	size_t ways = l->layer->bias ? sizeof(float) * bias_room(l) : 0;

	if (c->workspace[PD_BACKWARD_WEIGHTS] > ways)
		ways = c->workspace[PD_BACKWARD_WEIGHTS];
	if (l->wants[0] && c->workspace[pd_cuda_conv_way(l, PD_BACKWARD_DATA)] > ways)
		ways = c->workspace[pd_cuda_conv_way(l, PD_BACKWARD_DATA)];
	if (pd_cuda_unlike(l->in[0], l->out, l->in_shape[0]))
		c->turned_bytes = pd_align(pd_cuda_batch_bytes(l, l->in_shape[0]));
	if (l->net->dtype != PD_F32)
		c->narrow_bytes = pd_align(pd_dtype_bytes(l->net->dtype) *
					   (size_t)l->layer->parameters[0].elements);
	l->forward_bytes = c->turned_bytes +
			   pd_cuda_workspace_bytes(c->workspace[pd_cuda_conv_way(l, PD_FORWARD)]);
	l->backward_bytes = c->turned_bytes + c->narrow_bytes + pd_cuda_workspace_bytes(ways);
	l->split_bytes = pd_cuda_batch_bytes(l, out);
}

static int prepare(struct pd_compiled_layer *l, struct pd_error *err)
{
	struct pd_cuda_conv *c;

	if (pd_cuda_conv_last(l))
		l->out = l->parameter[0] = &pd_cuda_last;
	if (!l->inside)
		return 0;
	l->own = c = pd_zalloc(sizeof(*c));
	c->own.release = release;
	c->relu = pd_cuda_does_relu(l->net, l->index);
	if (set_descriptors(c, l, err) < 0 || pd_cuda_conv_choose(c, l, err) < 0)
		return -1;
	c->fused = pd_cuda_conv_fuses(c, l, c->algorithm[PD_FORWARD]);
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

/* Returns the input in the wanted layout: itself, or converted at the beginning of the scratch. */
static const void *input(struct pd_compiled_layer *l, struct pd_error *err)
{
	const struct pd_cuda_conv *c = l->own;

	if (c->turned_bytes == 0)
		return l->src[0];
	return pd_cuda_turn(l, l->temporary, l->out, l->src[0], l->in_shape[0], err) < 0
		? NULL : l->temporary;
}

/* Runs the engine of a way, else its algorithm: one of x, w and y is computed from the others. */
static int run(struct pd_compiled_layer *l, int way, const void *x, const void *w, const void *y,
	       void *workspace, struct pd_error *err)
{
	const struct pd_cuda_conv *c = l->own;
	const struct pd_dnn_data data = {
		.x = x, .w = w, .y = y, .workspace = workspace,
		.bias = c->engine[way].bias ? l->parameters[1] : NULL,
	};
	cudnnHandle_t dnn = pd_cuda_engine(l)->dnn;
	const float one = 1, zero = 0, old = pd_cuda_conv_adds(l, way);
	cudnnStatus_t status;

	if (c->engine[way].plan)
		status = pd_dnn_run(&c->engine[way], dnn, &data);
	else if (way == PD_FORWARD)
		status = cudnnConvolutionForward(dnn, &one, c->x, x, c->w, w, c->conv[way],
						 (cudnnConvolutionFwdAlgo_t)c->algorithm[way], workspace,
						 c->workspace[way], &zero, c->y, (void *)y);
	else if (way == PD_BACKWARD_DATA)
		status = cudnnConvolutionBackwardData(dnn, &one, c->w, w, c->y, y, c->conv[way],
						      (cudnnConvolutionBwdDataAlgo_t)c->algorithm[way],
						      workspace, c->workspace[way], &old, c->x, (void *)x);
	else
		status = cudnnConvolutionBackwardFilter(dnn, &one, c->x, x, c->y, y, c->conv[way],
							(cudnnConvolutionBwdFilterAlgo_t)c->algorithm[way],
							workspace, c->workspace[way], &zero, c->w, (void *)w);
	return check(l, status, err);
}

/* Runs a way of the layer with its input and output, or gradients of these. */
static int run_layer(struct pd_compiled_layer *l, int way, const void *in, const void *w, const void *out,
		     void *workspace, struct pd_error *err)
{
	const void *x = l->layer->transposed ? out : in, *y = l->layer->transposed ? in : out;

	return run(l, pd_cuda_conv_way(l, way), x, w, y, workspace, err);
}

/* Says once that a chosen call is refused, which the choice could not know. */
static void tell_refused(const struct pd_compiled_layer *l, cudnnStatus_t status)
{
	static atomic_flag said = ATOMIC_FLAG_INIT;

	if (!atomic_flag_test_and_set(&said))
		fprintf(stderr, "layer \"%s\": cuDNN refuses a convolution with its bias%s in one "
			"call (%s): such layers take two, which is slower%s\n", l->layer->name,
			((const struct pd_cuda_conv *)l->own)->relu ? " and a relu that keeps NaNs"
								    : "",
			cudnnGetErrorString(status),
			l->net->dtype == PD_F32 ? "" : " and rounds once more");
}

/* Runs forward in one call: 1; 0 where the library cannot. */
static int forward_fused(struct pd_compiled_layer *l, const void *x, void *workspace,
			 struct pd_error *err)
{
	const float one = 1, zero = 0;
	struct pd_cuda_conv *c = l->own;
	cudnnStatus_t status = cudnnConvolutionBiasActivationForward(
		pd_cuda_engine(l)->dnn, &one, c->x, x, c->w, l->parameters[0],
		c->conv[PD_FORWARD], (cudnnConvolutionFwdAlgo_t)c->algorithm[PD_FORWARD],
		workspace, c->workspace[PD_FORWARD], &zero, c->y, l->dst, c->bias,
		l->parameters[1], c->after, c->y, l->dst);

	if (CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED ||
	    CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_BAD_PARAM) {
		tell_refused(l, status);
		return 0;
	}
	return check(l, status, err) < 0 ? -1 : 1;
}

int pd_cuda_conv_begin(const struct pd_compiled_layer *l, cudaStream_t stream, void *y,
		       const void *bias, struct pd_error *err)
{
	const struct pd_shape *out = &l->layer->output;
	int64_t samples, area;

	if (!pd_cuda_conv_adds(l, pd_cuda_conv_way(l, PD_FORWARD)))
		return 0;
	pd_cuda_rows(l, l->out, out, &samples, &area);
	return pd_cuda_queued(l, pd_kernel_copies(stream, l->net->dtype, y, bias, samples,
						  out->size[0], area), err);
}

static int forward_rest(struct pd_compiled_layer *l, bool bias, bool relu, struct pd_error *err)
{
	const struct pd_shape *out = &l->layer->output;
	int64_t samples, area;

	if (!bias && !relu)
		return 0;
	pd_cuda_rows(l, l->out, out, &samples, &area);
	return pd_cuda_queued(l, pd_kernel_bias(pd_cuda_engine(l)->stream, l->net->dtype, l->dst,
						bias ? l->parameters[1] : NULL, relu, samples,
						out->size[0], area), err);
}

static int forward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	struct pd_cuda_conv *c = l->own;
	const struct pd_dnn_engine *engine = &c->engine[pd_cuda_conv_way(l, PD_FORWARD)];
	void *workspace = pd_cuda_workspace((char *)l->temporary + c->turned_bytes);
	const void *x = input(l, err);

	if (!x)
		return -1;
	if (c->fused && !engine->plan) {
		int verdict = forward_fused(l, x, workspace, err);

		if (verdict != 0)
			return verdict < 0 ? -1 : 0;
		c->fused = false;       /* do not try again */
	}
	if (pd_cuda_conv_begin(l, pd_cuda_engine(l)->stream, l->dst, l->parameters[1], err) < 0 ||
	    run_layer(l, PD_FORWARD, x, l->parameters[0], l->dst, workspace, err) < 0)
		return -1;
	return forward_rest(l, pd_cuda_conv_biased(l) && !engine->bias, c->relu && !engine->relu,
			    err);
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

static int backward_weights(struct pd_compiled_layer *l, const struct pd_pass *pass,
			    struct pd_error *err)
{
	struct pd_cuda_conv *c = l->own;
	char *narrow = (char *)l->temporary + c->turned_bytes;
	void *workspace = pd_cuda_workspace(narrow + c->narrow_bytes);
	void *dw = c->narrow_bytes ? pd_cuda_conv_narrow(l, pass, narrow) : l->diff_parameters[0];
	const void *x = input(l, err);

	if (!x || run_layer(l, PD_BACKWARD_WEIGHTS, x, dw, l->diff_dst, workspace, err) < 0 ||
	    (c->narrow_bytes && pd_cuda_conv_widen(l, pass, dw, err) < 0))
		return -1;
	return l->layer->bias ? backward_bias(l, workspace, err) : 0;
}

static int backward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	struct pd_cuda_conv *c = l->own;
	void *workspace, *dx;

	if (pass->part != PD_BACKWARD_INPUT && backward_weights(l, pass, err) < 0)
		return -1;
	if (pass->part == PD_BACKWARD_WEIGHT || !l->diff_src[0])
		return 0;
	workspace = pd_cuda_workspace((char *)l->temporary + c->turned_bytes);
	dx = c->turned_bytes ? l->temporary : l->diff_src[0];
	if (run_layer(l, PD_BACKWARD_DATA, dx, l->parameters[0], l->diff_dst, workspace, err) < 0)
		return -1;
	return dx == l->diff_src[0] ? 0
		: pd_cuda_turn(l, l->diff_src[0], l->in[0], dx, l->in_shape[0], err);
}

const struct pd_compiled_kind pd_cuda_conv2d = {
	.fuses_relu = true,
	.prepare = prepare,
	.forward = forward,
	.backward = backward,
};

const struct pd_compiled_kind pd_cuda_conv1d = {
	.fuses_relu = true,
	.plain = true,
	.prepare = prepare,
	.forward = forward,
	.backward = backward,
};

/* A relu behind it is a layer like others. */
const struct pd_compiled_kind pd_cuda_conv_transpose2d = {
	.prepare = prepare,
	.forward = forward,
	.backward = backward,
};
