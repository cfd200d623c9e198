/* SPDX-License-Identifier: Apache-2.0 */
/* upsample: see the CPU's. */
#include "run/device/cuda/cuda.h"

static int prepare(struct pd_compiled_layer *l, struct pd_error *err)
{
	l->out = l->in[0];
	return 0;
}

static struct pd_kernel_resize resize_of(const struct pd_compiled_layer *l)
{
	const int64_t channels = l->in_shape[0]->size[0];

	return (struct pd_kernel_resize){
		.rows = pd_compiled_resize(l, 0), .columns = pd_compiled_resize(l, 1),
		.planes = l->net->batch * channels, .step = l->in[0] ? channels : 1,
	};
}

static int forward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	const struct pd_kernel_resize r = resize_of(l);

	return pd_cuda_queued(l, pd_kernel_upsample(pd_cuda_engine(l)->stream, l->net->dtype, &r, l->dst,
						    l->src[0]), err);
}

static int backward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	const struct pd_kernel_resize r = resize_of(l);

	if (!l->diff_src[0])
		return 0;
	return pd_cuda_queued(l, pd_kernel_upsample_back(pd_cuda_engine(l)->stream, l->net->dtype, &r,
							 l->diff_src[0], l->diff_dst), err);
}

const struct pd_compiled_kind pd_cuda_upsample = {
	.prepare = prepare,
	.forward = forward,
	.backward = backward,
};
