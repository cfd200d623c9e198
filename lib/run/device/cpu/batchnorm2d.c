/* SPDX-License-Identifier: Apache-2.0 */
/*
 * batchnorm2d is PyTorch's.  Training normalises with the batch's own mean and (biased) variance,
 * which the slot keeps for backward, and moves the running statistics, with the unbiased variance.
 * Evaluation uses the running statistics.  The padding of a padded minibatch counts.
 *
 * One kernel makes all gradients, so with backward in two parts the slot keeps those of the
 * parameters.  The kernel takes scale and shift in f32; scratch has copies of 16-bit weights.
 */
#include "base/mem.h"
#include "run/device/cpu/cpu.h"

#include <string.h>

struct batchnorm {
	struct pd_primitive *train, *evaluate, *backward;
	size_t train_scratch, evaluate_scratch, backward_scratch;
	size_t half;                    /* bytes from the mean to the variance */
	size_t kept;                    /* bytes from scale to shift, in the kept gradients */
	struct pd_reorder src, dst, saved, diff_dst, diff_src;
	size_t unwanted;                /* in scratch: an input's gradient that nobody wants */
	size_t wide[2];                 /* in scratch of forward and backward: scale and shift */
};

static int prepare_reorders(struct pd_compiled_layer *l, struct batchnorm *b, struct pd_error *err)
{
	const struct pd_layout *op = pd_primitive_layout(b->train, PD_ARG_DST);

	return pd_reorder_prepare(l, &b->src, l->in[0], op, false, &l->forward_bytes, err) < 0 ||
	       pd_reorder_prepare(l, &b->dst, op, l->out, true, &l->forward_bytes, err) < 0 ||
	       pd_reorder_prepare(l, &b->saved, l->in[0], op, false, &l->backward_bytes, err) < 0 ||
	       pd_reorder_prepare(l, &b->diff_dst, l->out, op, false, &l->backward_bytes,
				  err) < 0 ||
	       (l->wants[0] && pd_reorder_prepare(l, &b->diff_src, op, l->in[0], true,
						  &l->backward_bytes, err) < 0)
		? -1 : 0;
}

static int prepare(struct pd_compiled_layer *l, struct pd_error *err)
{
	struct pd_onednn *dnn = l->net->engine;
	int64_t channels = l->in_shape[0]->size[0];
	float eps = (float)l->layer->eps;
	size_t evaluate_bytes = 0;
	struct batchnorm *b;

	l->out = pd_layout_quick(dnn, l->in[0]);
	l->parameter[0] = l->parameter[1] = pd_layout_plain(dnn, 1, &channels);
	if (!l->inside)
		return 0;
	l->own = b = pd_zalloc(sizeof(*b));
	b->half = pd_align(sizeof(float) * (size_t)channels);
	l->extra_bytes = 2 * b->half;
	b->kept = pd_compiled_reserved(l->net, sizeof(float) * (size_t)channels);
	l->split_bytes = 2 * b->kept;
	b->train = pd_primitive_batchnorm(dnn, PD_FORWARD, false, l->out, eps, NULL, err);
	if (!b->train || pd_primitive_prepare(l, b->train, &b->train_scratch, &l->forward_bytes,
					      err) < 0)
		return -1;
	b->evaluate = pd_primitive_batchnorm(dnn, PD_FORWARD, true, l->out, eps, NULL, err);
	if (!b->evaluate ||
	    pd_primitive_prepare(l, b->evaluate, &b->evaluate_scratch, &evaluate_bytes, err) < 0)
		return -1;
	if (evaluate_bytes > l->forward_bytes)
		l->forward_bytes = evaluate_bytes;
	b->backward = pd_primitive_batchnorm(dnn, PD_BACKWARD_DATA, false, l->out, eps, b->train,
					     err);
	if (!b->backward ||
	    pd_primitive_prepare(l, b->backward, &b->backward_scratch, &l->backward_bytes, err) < 0)
		return -1;
	b->unwanted = l->backward_bytes;
	if (!l->wants[0])
		l->backward_bytes += pd_align(pd_layout_bytes(pd_primitive_layout(b->train,
										  PD_ARG_DST)));
	if (prepare_reorders(l, b, err) < 0)
		return -1;
	if (l->net->dtype == PD_F32)
		return 0;
	b->wide[0] = l->forward_bytes;
	b->wide[1] = l->backward_bytes;
	l->forward_bytes += 2 * b->half;
	l->backward_bytes += 2 * b->half;
	return 0;
}

/* Returns scale (0) or shift (1) in f32; `back` selects the scratch of backward. */
static const void *parameter(struct pd_compiled_layer *l, int which, bool back)
{
	const struct batchnorm *b = l->own;
	float *wide;

	if (l->net->dtype == PD_F32)
		return l->parameters[which];
	wide = (float *)((char *)l->temporary + b->wide[back] + (size_t)which * b->half);
	pd_cpu_widen(l->net->dtype, wide, l->parameters[which], (size_t)l->in_shape[0]->size[0]);
	return wide;
}

static void move_running(struct pd_compiled_layer *l, const struct batchnorm *b)
{
	const struct pd_shape *shape = l->in_shape[0];
	double n = (double)(l->net->batch * shape->size[1] * shape->size[2]);
	float unbiased = (float)(n > 1 ? n / (n - 1) : 1), momentum = (float)l->layer->momentum;
	const float *mean = l->extra, *variance = (float *)((char *)l->extra + b->half);
	float *running_mean = l->state, *running_variance = (float *)((char *)l->state + b->half);

	for (int64_t c = 0; c < shape->size[0]; c++) {
		running_mean[c] = (1 - momentum) * running_mean[c] + momentum * mean[c];
		running_variance[c] = (1 - momentum) * running_variance[c] +
				      momentum * (variance[c] * unbiased);
	}
}

static int forward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	struct batchnorm *b = l->own;
	char *statistics = pass->evaluate ? l->state : l->extra;
	const void *args[PD_ARGS] = {
		[PD_ARG_SRC] = pd_reorder_in(l, &b->src, l->src[0], err),
		[PD_ARG_DST] = pd_reorder_buffer(l, &b->dst, l->dst),
		[PD_ARG_SCALE] = parameter(l, 0, false),
		[PD_ARG_SHIFT] = parameter(l, 1, false),
		[PD_ARG_MEAN] = statistics,
		[PD_ARG_VARIANCE] = statistics + b->half,
		[PD_ARG_SCRATCH] = (char *)l->temporary +
			(pass->evaluate ? b->evaluate_scratch : b->train_scratch),
	};

	if (!args[PD_ARG_SRC] || pd_primitive_run(pass->evaluate ? b->evaluate : b->train, args,
						  err) < 0 ||
	    pd_reorder_out(l, &b->dst, l->dst, err) < 0)
		return -1;
	if (!pass->evaluate && !pass->again)
		move_running(l, b);
	return 0;
}

static int backward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	struct batchnorm *b = l->own;
	void *scale = l->diff_parameters[0], *shift = l->diff_parameters[1];
	void *kept_shift = (char *)l->split + b->kept;
	size_t bytes = sizeof(float) * (size_t)l->in_shape[0]->size[0];
	bool early = pass->part == PD_BACKWARD_INPUT;
	void *unwanted = (char *)l->temporary + b->unwanted;
	const void *args[PD_ARGS] = {
		[PD_ARG_MEAN] = l->extra,
		[PD_ARG_VARIANCE] = (char *)l->extra + b->half,
		[PD_ARG_DIFF_SRC] = l->diff_src[0] ? pd_reorder_buffer(l, &b->diff_src,
								       l->diff_src[0])
						   : unwanted,
		[PD_ARG_DIFF_SCALE] = early ? l->split : scale,
		[PD_ARG_DIFF_SHIFT] = early ? kept_shift : shift,
		[PD_ARG_SCRATCH] = (char *)l->temporary + b->backward_scratch,
	};

	if (pass->part == PD_BACKWARD_WEIGHT) {
		memcpy(scale, l->split, bytes);
		memcpy(shift, kept_shift, bytes);
		return 0;
	}
	args[PD_ARG_SRC] = pd_reorder_in(l, &b->saved, l->src[0], err);
	args[PD_ARG_DIFF_DST] = pd_reorder_in(l, &b->diff_dst, l->diff_dst, err);
	args[PD_ARG_SCALE] = parameter(l, 0, true);
	args[PD_ARG_SHIFT] = parameter(l, 1, true);
	if (!args[PD_ARG_SRC] || !args[PD_ARG_DIFF_DST] || pd_primitive_run(b->backward, args,
									    err) < 0)
		return -1;
	return l->diff_src[0] ? pd_reorder_out(l, &b->diff_src, l->diff_src[0], err) : 0;
}

const struct pd_compiled_kind pd_cpu_batchnorm2d = {
	.prepare = prepare,
	.forward = forward,
	.backward = backward,
};
