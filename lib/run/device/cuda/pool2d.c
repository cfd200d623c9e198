/* SPDX-License-Identifier: Apache-2.0 */
/*
 * maxpool2d keeps the place of each window's largest input in the slot; avgpool2d and
 * adaptive_avgpool2d keep nothing.
 */
#include "run/device/cuda/cuda.h"

#include <limits.h>

/* The elements of one plane are counted in int. */
static int prepare(struct pd_compiled_layer *l, struct pd_error *err)
{
	const int64_t *in = l->in_shape[0]->size, *out = l->layer->output.size;

	l->out = l->in[0];
	if (in[1] * in[2] > INT_MAX || out[1] * out[2] > INT_MAX)
		return pd_error_input(err, "layer \"%s\": a plane of more than 2^31 - 1 elements "
				      "is too large for a GPU", l->layer->name);
	return 0;
}

static int prepare_max(struct pd_compiled_layer *l, struct pd_error *err)
{
	if (l->inside)
		l->extra_bytes = sizeof(int32_t) * pd_cuda_batch_elements(l, &l->layer->output);
	return prepare(l, err);
}

static struct pd_pool_shape shape_of(const struct pd_compiled_layer *l)
{
	const struct pd_layer *a = l->layer;
	const int64_t *in = l->in_shape[0]->size, *out = a->output.size;

	return (struct pd_pool_shape){
		.in = { (int)in[1], (int)in[2] }, .out = { (int)out[1], (int)out[2] },
		.kernel = { (int)a->kernel[0], (int)a->kernel[1] },
		.stride = { (int)a->stride[0], (int)a->stride[1] },
		.padding = { (int)a->padding[0], (int)a->padding[1] },
		.adaptive = a->kind == PD_LAYER_adaptive_avgpool2d,
		.include_padding = a->count_include_pad,
		.step = l->in[0] ? (int)in[0] : 1,
	};
}

static int64_t planes(const struct pd_compiled_layer *l)
{
	return l->net->batch * l->in_shape[0]->size[0];
}

static int forward_max(struct pd_compiled_layer *l, const struct pd_pass *pass,
		       struct pd_error *err)
{
	const struct pd_pool_shape shape = shape_of(l);

	return pd_cuda_queued(l, pd_kernel_maxpool(pd_cuda_engine(l)->stream, l->net->dtype, &shape,
						   planes(l), l->dst, l->extra, l->src[0]), err);
}

static int backward_max(struct pd_compiled_layer *l, const struct pd_pass *pass,
			struct pd_error *err)
{
	const struct pd_pool_shape shape = shape_of(l);

	if (!l->diff_src[0])
		return 0;
	return pd_cuda_queued(l, pd_kernel_maxpool_back(pd_cuda_engine(l)->stream, l->net->dtype,
							&shape, planes(l), l->diff_src[0], l->extra,
							l->diff_dst), err);
}

static int forward_mean(struct pd_compiled_layer *l, const struct pd_pass *pass,
			struct pd_error *err)
{
	const struct pd_pool_shape shape = shape_of(l);

	return pd_cuda_queued(l, pd_kernel_meanpool(pd_cuda_engine(l)->stream, l->net->dtype,
						    &shape, planes(l), l->dst, l->src[0]), err);
}

static int backward_mean(struct pd_compiled_layer *l, const struct pd_pass *pass,
			 struct pd_error *err)
{
	const struct pd_pool_shape shape = shape_of(l);

	if (!l->diff_src[0])
		return 0;
	return pd_cuda_queued(l, pd_kernel_meanpool_back(pd_cuda_engine(l)->stream, l->net->dtype,
							 &shape, planes(l), l->diff_src[0],
							 l->diff_dst), err);
}

const struct pd_compiled_kind pd_cuda_maxpool2d = {
	.prepare = prepare_max,
	.forward = forward_max,
	.backward = backward_max,
};

const struct pd_compiled_kind pd_cuda_avgpool2d = {
	.prepare = prepare,
	.forward = forward_mean,
	.backward = backward_mean,
};

const struct pd_compiled_kind pd_cuda_adaptive_avgpool2d = {
	.prepare = prepare,
	.forward = forward_mean,
	.backward = backward_mean,
};
