/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The curves of run/device/curve.def, mul, dropout: element by element, in place where the CPU's are
 * (run/device/cpu/eltwise.c).
 */
#include "run/device/cuda/cuda.h"

/* ---- curves ---- */

static int prepare_curve(struct pd_compiled_layer *l, struct pd_error *err)
{
	l->out = l->in[0];
	return 0;
}

static int forward_curve(struct pd_compiled_layer *l, const struct pd_pass *pass,
			 struct pd_error *err)
{
	int before = pd_model_producer(l->net->model, l->layer->inputs[0]);

	/* the layer before may have done this relu */
	if (l->kind->is_relu && l->dst == l->src[0] && before >= 0 &&
	    pd_cuda_does_relu(l->net, before))
		return 0;
	return pd_cuda_queued(l, pd_kernel_curve(pd_cuda_engine(l)->stream, l->net->dtype,
						 pd_curve_of(l->layer), (float)l->layer->alpha,
						 (float)l->layer->beta, l->dst, l->src[0],
						 pd_cuda_batch_elements(l, l->in_shape[0])), err);
}

/* Returns whether the batch norm before this relu does the relu's part of backward. */
static bool left_to_norm(const struct pd_compiled_layer *l)
{
	int before = pd_model_producer(l->net->model, l->layer->inputs[0]);

	return before >= 0 &&
	       l->net->layers[before].kind == &pd_cuda_batchnorm2d &&
	       pd_cuda_does_relu(l->net, before);
}

static int backward_curve(struct pd_compiled_layer *l, const struct pd_pass *pass,
			  struct pd_error *err)
{
	enum pd_curve curve = pd_curve_of(l->layer);

	if (!l->diff_src[0])
		return 0;
	/* another layer has done this relu's backward, or will */
	if (l->kind->is_relu && l->diff_src[0] == l->diff_dst && (l->relu_completed || left_to_norm(l)))
		return 0;
	return pd_cuda_queued(l, pd_kernel_curve_back(pd_cuda_engine(l)->stream, l->net->dtype, curve,
						      (float)l->layer->alpha,
						      (float)l->layer->beta, l->diff_src[0],
						      pd_curve_from_output(curve) ? l->dst
										  : l->src[0],
						      l->diff_dst,
						      pd_cuda_batch_elements(l, l->in_shape[0])),
			      err);
}

#define CURVE(name, cpu, flags, value, gradient)                                \
	const struct pd_compiled_kind pd_cuda_##name = {                        \
		.is_relu = PD_CURVE_##name == PD_CURVE_relu,                    \
		.keeps_output = (flags) & PD_CURVE_FROM_OUTPUT,                 \
		.in_place = (flags) & PD_CURVE_IDEMPOTENT,                      \
		.prepare = prepare_curve,                                       \
		.forward = forward_curve,                                       \
		.backward = backward_curve,                                     \
	};
#define VARIANT(name, cpu, flags, value, gradient)
#include "run/device/curve.def"
#undef VARIANT
#undef CURVE

/* ---- mul ---- */

static int prepare_mul(struct pd_compiled_layer *l, struct pd_error *err)
{
	return 0;
}

static int product(struct pd_compiled_layer *l, void *dst, const void *a, const void *b,
		   struct pd_error *err)
{
	return pd_cuda_queued(l, pd_kernel_mul(pd_cuda_engine(l)->stream, l->net->dtype, dst, a, b,
					       pd_cuda_batch_elements(l, l->in_shape[0])), err);
}

static int forward_mul(struct pd_compiled_layer *l, const struct pd_pass *pass,
		       struct pd_error *err)
{
	return product(l, l->dst, l->src[0], l->src[1], err);
}

static int backward_mul(struct pd_compiled_layer *l, const struct pd_pass *pass,
			struct pd_error *err)
{
	for (int i = 0; i < 2; i++)
		if (l->diff_src[i] &&
		    product(l, l->diff_src[i], l->diff_dst, l->src[1 - i], err) < 0)
			return -1;
	return 0;
}

const struct pd_compiled_kind pd_cuda_mul = {
	.broadcast = &pd_cuda_broadcast,
	.plain = true,
	.prepare = prepare_mul,
	.forward = forward_mul,
	.backward = backward_mul,
};

/* ---- dropout: the mask is the CPU's, bit for bit ---- */

static int prepare_dropout(struct pd_compiled_layer *l, struct pd_error *err)
{
	l->out = l->in[0];
	if (l->inside)
		l->extra_bytes = ((size_t)pd_shape_elements(&l->layer->mask) + 7) / 8 *
				 (size_t)l->net->batch;
	return 0;
}

static struct pd_kernel_dropout dropout_of(const struct pd_compiled_layer *l)
{
	const struct pd_shape *shape = l->in_shape[0];
	const struct pd_axis shared = pd_shape_repeats(&l->layer->mask, shape);
	bool last = l->in[0] && !pd_cuda_flat(shape);

	return (struct pd_kernel_dropout){
		.seed = l->net->seed, .stream = PD_RNG_DROPOUT +
			(uint64_t)pd_model_number(l->net->model, l->index),
		.samples = l->net->batch, .elements = pd_shape_elements(shape),
		.extent = shared.extent, .inner = shared.inner,
		.area = last ? shape->size[1] * shape->size[2] : pd_shape_elements(shape),
		.channels = last ? shape->size[0] : 1, .p = (float)l->layer->p,
		.scale = (float)(1 / (1 - l->layer->p)),
	};
}

static int forward_dropout(struct pd_compiled_layer *l, const struct pd_pass *pass,
			   struct pd_error *err)
{
	const struct pd_kernel_dropout d = dropout_of(l);
	const struct pd_cuda_engine *engine = pd_cuda_engine(l);

	if (pass->evaluate)
		return l->net->device->copy(l->net, l->dst, l->src[0],
					    pd_cuda_batch_bytes(l, l->in_shape[0]), err);
	return pd_cuda_queued(l, pd_kernel_dropout(engine->stream, l->net->dtype, &d,
						   engine->numbers, l->dst, l->extra, l->src[0]),
						   err);
}

static int backward_dropout(struct pd_compiled_layer *l, const struct pd_pass *pass,
			    struct pd_error *err)
{
	const struct pd_kernel_dropout d = dropout_of(l);

	if (!l->diff_src[0])
		return 0;
	return pd_cuda_queued(l, pd_kernel_dropout_back(pd_cuda_engine(l)->stream, l->net->dtype,
							&d, l->diff_src[0], l->extra, l->diff_dst),
			      err);
}

const struct pd_compiled_kind pd_cuda_dropout = {
	.prepare = prepare_dropout,
	.forward = forward_dropout,
	.backward = backward_dropout,
};
