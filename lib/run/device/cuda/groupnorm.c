/* SPDX-License-Identifier: Apache-2.0 */
/* groupnorm computes as run/device/cpu/groupnorm.c does, plain or with channels last. */
#include "run/device/cuda/cuda.h"

struct groupnorm {
	struct pd_cuda_own own;         /* nothing to release */
	struct pd_kernel_groupnorm norm;
	size_t kept[2];                 /* offsets of the parameters' gradients that the slot keeps */
};

static size_t bytes_of(const struct groupnorm *n)
{
	return sizeof(float) * (size_t)n->norm.channels.channels;
}

static int prepare(struct pd_compiled_layer *l, struct pd_error *err)
{
	struct groupnorm *n;

	l->out = l->in[0];
	if (!l->inside)
		return 0;
	l->own = n = pd_zalloc(sizeof(*n));
	n->norm = (struct pd_kernel_groupnorm){ .channels = pd_cuda_channels(l),
						.groups = l->layer->num_groups,
						.eps = (float)l->layer->eps };
	l->extra_bytes = 2 * sizeof(float) * (size_t)(l->net->batch * l->layer->num_groups);
	l->backward_bytes = 2 * (size_t)l->net->batch * bytes_of(n);
	for (int p = 0; p < l->layer->parameter_count; p++) {
		n->kept[p] = l->split_bytes;
		l->split_bytes += pd_compiled_reserved(l->net, bytes_of(n));
	}
	return 0;
}

static int forward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	const struct groupnorm *n = l->own;

	return pd_cuda_queued(l, pd_kernel_groupnorm(pd_cuda_engine(l)->stream, l->net->dtype, &n->norm,
						     l->dst, l->src[0], l->parameters[0],
						     l->parameters[1], l->extra), err);
}

/* Returns where this part of backward puts the gradient of parameter p. */
static float *gradient_of(const struct pd_compiled_layer *l, const struct pd_pass *pass, int p)
{
	const struct groupnorm *n = l->own;

	return pass->part == PD_BACKWARD_INPUT ? (float *)((char *)l->split + n->kept[p])
					       : l->diff_parameters[p];
}

/* Copies the gradients that the first part of backward kept. */
static int take_kept(struct pd_compiled_layer *l, struct pd_error *err)
{
	const struct groupnorm *n = l->own;

	for (int p = 0; p < l->layer->parameter_count; p++)
		if (l->net->device->copy(l->net, l->diff_parameters[p], (char *)l->split + n->kept[p],
					 bytes_of(n), err) < 0)
			return -1;
	return 0;
}

static int backward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	cudaStream_t stream = pd_cuda_engine(l)->stream;
	enum pd_dtype dtype = l->net->dtype;
	const struct groupnorm *n = l->own;

	if (pass->part == PD_BACKWARD_WEIGHT)
		return take_kept(l, err);
	if (pd_cuda_queued(l, pd_kernel_groupnorm_sums(stream, dtype, &n->norm, l->temporary, l->src[0],
						       l->diff_dst, l->extra), err) < 0 ||
	    (l->layer->parameter_count > 0 &&
	     pd_cuda_queued(l, pd_kernel_groupnorm_parameters(stream, &n->norm, gradient_of(l, pass, 0),
							      gradient_of(l, pass, 1), l->temporary),
			    err) < 0))
		return -1;
	return !l->diff_src[0] ? 0 :
	       pd_cuda_queued(l, pd_kernel_groupnorm_back(stream, dtype, &n->norm, l->diff_src[0], l->src[0],
							  l->diff_dst, l->parameters[0], l->extra,
							  l->temporary), err);
}

const struct pd_compiled_kind pd_cuda_groupnorm = {
	.prepare = prepare,
	.forward = forward,
	.backward = backward,
};
