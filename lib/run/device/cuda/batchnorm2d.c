/* SPDX-License-Identifier: Apache-2.0 */
/*
 * batchnorm2d by cuDNN, which keeps the mean and the inverse deviation in the slot and moves the
 * running statistics (mean, unbiased variance) as PyTorch does.  One call computes all gradients,
 * so with backward in two parts the slot keeps those of the parameters.  In 16 bits, and with
 * channels last, kernels of our own do the same, and the relu behind it, forward and backward.
 */
#include "run/device/cuda/cuda.h"

#include <limits.h>

struct batchnorm {
	struct pd_cuda_own own;
	cudnnTensorDescriptor_t x, channels;
	size_t half;                    /* bytes from the mean to the inverse deviation */
	size_t kept;                    /* bytes from scale to shift, in the kept gradients */
	bool ours;
	struct pd_kernel_norm norm;     /* for our own kernels */
};

static void release(void *own)
{
	struct batchnorm *b = own;

	if (b->x)
		cudnnDestroyTensorDescriptor(b->x);
	if (b->channels)
		cudnnDestroyTensorDescriptor(b->channels);
}

static void prepare_ours(struct batchnorm *b, struct pd_compiled_layer *l)
{
	const struct pd_shape *shape = l->in_shape[0];
	int64_t samples, area;

	pd_cuda_rows(l, l->out, shape, &samples, &area);
	b->ours = l->sums = true;
	b->norm = (struct pd_kernel_norm){
		.rows = samples * area, .channels = shape->size[0], .area = area,
		.half = b->half / sizeof(float), .eps = (float)l->layer->eps,
		.momentum = (float)l->layer->momentum,
		.relu = pd_cuda_does_relu(l->net, l->index),
	};
	/* mean, inverse deviation; the relu's backward needs forward's scale and bias */
	l->extra_bytes = (b->norm.relu ? 4 : 2) * b->half;
	l->forward_bytes = l->backward_bytes =
		sizeof(float) * pd_kernel_norm_scratch(b->norm.rows, b->norm.channels);
}

static int prepare(struct pd_compiled_layer *l, struct pd_error *err)
{
	const struct pd_shape *shape = l->in_shape[0];
	struct batchnorm *b;

	l->out = l->in[0];
	if (!l->inside)
		return 0;
	l->own = b = pd_zalloc(sizeof(*b));
	b->own.release = release;
	b->half = pd_align(sizeof(float) * (size_t)shape->size[0]);
	l->extra_bytes = 2 * b->half;
	b->kept = pd_compiled_reserved(l->net, sizeof(float) * (size_t)shape->size[0]);
	l->split_bytes = 2 * b->kept;
	if (pd_cuda_engine(l)->last || l->net->dtype != PD_F32) {
		prepare_ours(b, l);
		return 0;
	}
	/* an input's gradient that nobody wants */
	if (!l->wants[0])
		l->backward_bytes = pd_align(sizeof(float) * pd_cuda_batch_elements(l, shape));
	if (l->net->batch > INT_MAX)
		return pd_error_input(err, "a batch of %lld is too large for cuDNN",
				      (long long)l->net->batch);
	if (pd_cudnn_check(cudnnCreateTensorDescriptor(&b->x), "a tensor", err) < 0 ||
	    pd_cudnn_check(cudnnCreateTensorDescriptor(&b->channels), "a tensor", err) < 0 ||
	    pd_cudnn_check(cudnnSetTensor4dDescriptor(b->x, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT,
						      (int)l->net->batch, (int)shape->size[0],
						      (int)shape->size[1], (int)shape->size[2]),
			   "a tensor", err) < 0)
		return -1;
	return pd_cudnn_check(cudnnDeriveBNTensorDescriptor(b->channels, b->x,
							    CUDNN_BATCHNORM_SPATIAL),
			      "a tensor", err);
}

static int check(const struct pd_compiled_layer *l, cudnnStatus_t status, struct pd_error *err)
{
	if (status == CUDNN_STATUS_SUCCESS)
		return 0;
	return pd_error_failed(err, "layer \"%s\": cuDNN: %s", l->layer->name,
			       cudnnGetErrorString(status));
}

static int forward_ours(struct pd_compiled_layer *l, const struct pd_pass *pass,
			struct pd_error *err)
{
	const struct pd_cuda_engine *engine = pd_cuda_engine(l);
	const struct batchnorm *b = l->own;

	return pd_cuda_queued(l, pass->evaluate
		? pd_kernel_norm_evaluate(engine->stream, l->net->dtype, &b->norm, l->dst,
					  l->src[0], l->parameters[0], l->parameters[1], l->state)
		: pd_kernel_norm(engine->stream, l->net->dtype, &b->norm, l->dst, l->src[0],
				 l->parameters[0], l->parameters[1], l->extra,
				 pass->again ? NULL : l->state, l->temporary), err);
}

static int forward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	cudnnHandle_t dnn = pd_cuda_engine(l)->dnn;
	const float one = 1, zero = 0;
	struct batchnorm *b = l->own;
	char *running = l->state, *kept = l->extra;
	char *moved = pass->again ? NULL : running;     /* NULL: cuDNN moves nothing */

	if (b->ours)
		return forward_ours(l, pass, err);
	if (pass->evaluate)
		return check(l, cudnnBatchNormalizationForwardInference(
			dnn, CUDNN_BATCHNORM_SPATIAL, &one, &zero, b->x, l->src[0], b->x, l->dst,
			b->channels, l->parameters[0], l->parameters[1], running,
			running + b->half, l->layer->eps), err);
	return check(l, cudnnBatchNormalizationForwardTraining(
		dnn, CUDNN_BATCHNORM_SPATIAL, &one, &zero, b->x, l->src[0], b->x, l->dst,
		b->channels, l->parameters[0], l->parameters[1], l->layer->momentum, moved,
		moved ? moved + b->half : NULL, l->layer->eps, kept, kept + b->half), err);
}

static int copy(struct pd_compiled_layer *l, void *dst, const void *src, struct pd_error *err)
{
	return l->net->device->copy(l->net, dst, src,
				    sizeof(float) * (size_t)l->in_shape[0]->size[0], err);
}

static int backward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	const float one = 1, zero = 0;
	struct batchnorm *b = l->own;
	bool early = pass->part == PD_BACKWARD_INPUT;
	char *kept = l->extra, *split = l->split;

	if (pass->part == PD_BACKWARD_WEIGHT)
		return copy(l, l->diff_parameters[0], split, err) < 0 ||
		       copy(l, l->diff_parameters[1], split + b->kept, err) < 0 ? -1 : 0;
	if (b->ours)
		return pd_cuda_queued(l, pd_kernel_norm_back(
			pd_cuda_engine(l)->stream, l->net->dtype, &b->norm, l->diff_src[0],
			l->before[0], l->src[0], l->diff_dst, l->parameters[0], (const float *)kept,
			early ? (float *)split : l->diff_parameters[0],
			early ? (float *)(split + b->kept) : l->diff_parameters[1],
			l->temporary), err);
	return check(l, cudnnBatchNormalizationBackward(
		pd_cuda_engine(l)->dnn, CUDNN_BATCHNORM_SPATIAL, &one, &zero, &one, &zero, b->x,
		l->src[0], b->x, l->diff_dst, b->x,
		l->diff_src[0] ? l->diff_src[0] : l->temporary, b->channels, l->parameters[0],
		early ? split : l->diff_parameters[0],
		early ? split + b->kept : l->diff_parameters[1], l->layer->eps, kept,
		kept + b->half), err);
}

const struct pd_compiled_kind pd_cuda_batchnorm2d = {
	.fuses_relu = true,
	.prepare = prepare,
	.forward = forward,
	.backward = backward,
};
