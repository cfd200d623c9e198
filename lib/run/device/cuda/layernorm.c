/* SPDX-License-Identifier: Apache-2.0 */
/* layernorm and rmsnorm compute as run/device/cpu/layernorm.c does. */
#include "run/device/cuda/cuda.h"

struct layernorm {
	struct pd_cuda_own own;         /* nothing to release */
	struct pd_kernel_layernorm norm;
	size_t kept[2];                 /* offsets of the parameters' gradients that the slot keeps */
};

static int prepare(struct pd_compiled_layer *l, struct pd_error *err)
{
	int64_t width = pd_shape_elements(&l->layer->normalized_shape);
	struct layernorm *n;
	size_t half;

	if (!l->inside)
		return 0;
	l->own = n = pd_zalloc(sizeof(*n));
	n->norm.centred = l->kind == &pd_cuda_layernorm;
	n->norm.width = width;
	n->norm.rows = (int64_t)pd_cuda_batch_elements(l, l->in_shape[0]) / width;
	n->norm.eps = (float)l->layer->eps;
	half = pd_align(sizeof(float) * (size_t)n->norm.rows);
	n->norm.half = half / sizeof(float);
	l->extra_bytes = 2 * half;
	for (int p = 0; p < l->layer->parameter_count; p++) {
		n->kept[p] = l->split_bytes;
		l->split_bytes += pd_compiled_reserved(l->net, sizeof(float) * (size_t)width);
	}
	if (l->layer->parameter_count > 0)
		l->backward_bytes = sizeof(float) *
				    pd_kernel_layernorm_room(n->norm.rows, width);
	return 0;
}

static int forward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	const struct layernorm *n = l->own;
	const void *bias = l->layer->parameter_count > 1 ? l->parameters[1] : NULL;

	return pd_cuda_queued(l, pd_kernel_layernorm(pd_cuda_engine(l)->stream, l->net->dtype,
						     &n->norm, l->dst, l->src[0],
						     l->parameters[0], bias, l->extra),
			      err);
}

/*
 * Returns where this part of backward puts the gradient of parameter p; NULL: the layer has none.
 */
static float *gradient_of(const struct pd_compiled_layer *l, const struct pd_pass *pass, int p)
{
	const struct layernorm *n = l->own;

	if (p >= l->layer->parameter_count)
		return NULL;
	return pass->part == PD_BACKWARD_INPUT ? (float *)((char *)l->split + n->kept[p])
					       : l->diff_parameters[p];
}

/* Copies the gradients that the first part of backward kept. */
static int take_kept(struct pd_compiled_layer *l, struct pd_error *err)
{
	const struct layernorm *n = l->own;

	for (int p = 0; p < l->layer->parameter_count; p++)
		if (l->net->device->copy(l->net, l->diff_parameters[p],
					 (char *)l->split + n->kept[p],
					 sizeof(float) * (size_t)n->norm.width, err) < 0)
			return -1;
	return 0;
}

static int backward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	cudaStream_t stream = pd_cuda_engine(l)->stream;
	enum pd_dtype dtype = l->net->dtype;
	const struct layernorm *n = l->own;

	if (pass->part == PD_BACKWARD_WEIGHT)
		return take_kept(l, err);
	if (l->layer->parameter_count > 0 &&
	    pd_cuda_queued(l, pd_kernel_layernorm_parameters(stream, dtype, &n->norm,
							     gradient_of(l, pass, 0),
							     gradient_of(l, pass, 1), l->src[0],
							     l->diff_dst, l->extra,
							     l->temporary), err) < 0)
		return -1;
	return !l->diff_src[0] ? 0 :
	       pd_cuda_queued(l, pd_kernel_layernorm_back(stream, dtype, &n->norm, l->diff_src[0],
							  l->src[0], l->diff_dst,
							  l->parameters[0], l->extra), err);
}

const struct pd_compiled_kind pd_cuda_layernorm = {
	.plain = true,
	.prepare = prepare,
	.forward = forward,
	.backward = backward,
};

const struct pd_compiled_kind pd_cuda_rmsnorm = {
	.plain = true,
	.prepare = prepare,
	.forward = forward,
	.backward = backward,
};
