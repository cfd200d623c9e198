/* SPDX-License-Identifier: Apache-2.0 */
/*
 * softmax_cross_entropy computes as device/cpu/loss.c does.  The sum and the verdicts go to pinned
 * memory; the device's poller reads them once the work is done.
 */
#include "device/cuda/cuda.h"

static int prepare(struct pd_compiled_layer *l, struct pd_error *err)
{
	int64_t rows = pd_cuda_matrix_rows(l, l->in_shape[0]);

	if (l->inside)
		l->extra_bytes = sizeof(int32_t) * (size_t)rows;
	return 0;
}

static int forward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	struct pd_cuda_engine *engine = pd_cuda_engine(l);

	engine->loses = true;
	return pd_cuda_queued(l, pd_kernel_loss(engine->stream, l->net->dtype, engine->numbers,
						l->loss, l->dst, l->extra, l->src[0], l->src[1],
						l->net->batch, pd_shape_rows(l->in_shape[0]),
						pd_shape_width(l->in_shape[0])), err);
}

static int backward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	const struct pd_cuda_engine *engine = pd_cuda_engine(l);

	if (!l->diff_src[0])
		return 0;
	return pd_cuda_queued(l, pd_kernel_loss_back(engine->stream, l->net->dtype, engine->numbers,
						     l->diff_src[0], l->src[0], l->src[1],
						     pass->scale, l->net->minibatch,
						     l->net->batch, pd_shape_rows(l->in_shape[0]),
						     pd_shape_width(l->in_shape[0])), err);
}

const struct pd_compiled_kind pd_cuda_softmax_cross_entropy = {
	.plain = true,
	.prepare = prepare,
	.forward = forward,
	.backward = backward,
};
