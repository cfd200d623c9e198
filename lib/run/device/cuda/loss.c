/* SPDX-License-Identifier: Apache-2.0 */
/*
 * softmax_cross_entropy, mse: see the CPU's.  The sum and the verdicts go to pinned memory, which
 * the stream's second thread reads once the work is done.
 */
#include "run/device/cuda/cuda.h"

static struct pd_kernel_logits logits_of(const struct pd_compiled_layer *l)
{
	return (struct pd_kernel_logits){
		.batch = l->net->batch, .rows = pd_shape_rows(l->in_shape[0]),
		.classes = pd_shape_width(l->in_shape[0]),
		.apart = pd_cuda_row(l->net, l->layer->inputs[0]),
		.microbatches = l->net->minibatch / l->net->batch,
		.ignored = (int32_t)l->layer->ignore_index,
		.smooth = (float)l->layer->label_smoothing,
	};
}

static int prepare(struct pd_compiled_layer *l, struct pd_error *err)
{
	int64_t rows = pd_cuda_matrix_rows(l, l->in_shape[0]);

	if (l->inside)
		l->extra_bytes = sizeof(int32_t) * (size_t)(rows + 1);
	return 0;
}

static int forward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	const struct pd_kernel_logits s = logits_of(l);
	struct pd_cuda_engine *engine = pd_cuda_engine(l);

	engine->loses = true;
	return pd_cuda_queued(l, pd_kernel_loss(engine->stream, l->net->dtype, &s, engine->numbers,
						l->loss, l->dst, l->extra, l->src[0], l->src[1]),
			      err);
}

static int backward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	const struct pd_kernel_logits s = logits_of(l);
	const struct pd_cuda_engine *engine = pd_cuda_engine(l);

	if (!l->diff_src[0])
		return 0;
	return pd_cuda_queued(l, pd_kernel_loss_back(engine->stream, l->net->dtype, &s,
						     engine->numbers, l->diff_src[0], l->src[0],
						     l->src[1], l->extra, pass->scale), err);
}

const struct pd_compiled_kind pd_cuda_softmax_cross_entropy = {
	.plain = true,
	.prepare = prepare,
	.forward = forward,
	.backward = backward,
};

/* ---- mse ---- */

static int prepare_mse(struct pd_compiled_layer *l, struct pd_error *err)
{
	return 0;
}

/* NULL: zeros. */
static const void *other_of(const struct pd_compiled_layer *l, int i)
{
	return l->layer->input_count > 1 ? l->src[1 - i] : NULL;
}

static int forward_mse(struct pd_compiled_layer *l, const struct pd_pass *pass,
		       struct pd_error *err)
{
	struct pd_cuda_engine *engine = pd_cuda_engine(l);

	engine->loses = true;
	return pd_cuda_queued(l, pd_kernel_mse(engine->stream, l->net->dtype, engine->numbers,
					       l->loss, l->dst, l->src[0], other_of(l, 0),
					       (float)l->layer->weight, l->net->batch,
					       pd_shape_elements(l->in_shape[0])), err);
}

static int backward_mse(struct pd_compiled_layer *l, const struct pd_pass *pass,
			struct pd_error *err)
{
	const struct pd_cuda_engine *engine = pd_cuda_engine(l);
	int64_t elements = pd_shape_elements(l->in_shape[0]);
	float factor = (float)l->layer->weight * (2 / (float)(l->net->minibatch * elements));

	for (int i = 0; i < l->layer->input_count; i++)
		if (l->diff_src[i] &&
		    pd_cuda_queued(l, pd_kernel_mse_back(engine->stream, l->net->dtype,
							 engine->numbers, l->diff_src[i],
							 l->src[i], other_of(l, i), pass->scale,
							 factor, l->net->batch, elements), err) < 0)
			return -1;
	return 0;
}

const struct pd_compiled_kind pd_cuda_mse = {
	.plain = true,
	.prepare = prepare_mse,
	.forward = forward_mse,
	.backward = backward_mse,
};
