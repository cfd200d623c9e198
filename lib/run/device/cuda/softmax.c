/* SPDX-License-Identifier: Apache-2.0 */
/* softmax along an axis: see the CPU's. */
#include "run/device/cuda/cuda.h"

static int prepare(struct pd_compiled_layer *l, struct pd_error *err)
{
	return 0;
}

static int forward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	const struct pd_axis a = pd_compiled_around(l, l->layer->dim);

	return pd_cuda_queued(l, pd_kernel_softmax(pd_cuda_engine(l)->stream, l->net->dtype, l->dst,
						   l->src[0], a.outer, a.extent, a.inner), err);
}

static int backward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	const struct pd_axis a = pd_compiled_around(l, l->layer->dim);

	if (!l->diff_src[0])
		return 0;
	return pd_cuda_queued(l, pd_kernel_softmax_back(pd_cuda_engine(l)->stream, l->net->dtype,
							l->diff_src[0], l->dst, l->diff_dst, a.outer,
							a.extent, a.inner), err);
}

const struct pd_compiled_kind pd_cuda_softmax = {
	.plain = true,
	.keeps_output = true,
	.prepare = prepare,
	.forward = forward,
	.backward = backward,
};
