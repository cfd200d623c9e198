/* SPDX-License-Identifier: Apache-2.0 */
/* prelu computes as run/device/cpu/prelu.c does, plain or with channels last. */
#include "run/device/cuda/cuda.h"

/* The numbers of the weight as channels; of one, whatever the layout, all channels are samples. */
static struct pd_kernel_channels slopes(const struct pd_compiled_layer *l)
{
	const struct pd_axis a = pd_compiled_slopes(l);

	return a.extent > 1 ? pd_cuda_channels(l)
		: (struct pd_kernel_channels){ .samples = a.outer, .channels = 1, .area = a.inner };
}

static int prepare(struct pd_compiled_layer *l, struct pd_error *err)
{
	const struct pd_axis a = pd_compiled_slopes(l);

	l->out = l->in[0];
	l->split_bytes = pd_compiled_reserved(l->net, sizeof(float) * (size_t)a.extent);
	l->backward_bytes = 2 * sizeof(float) * (size_t)(a.outer * a.extent);
	return 0;
}

static int forward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	const struct pd_kernel_channels s = slopes(l);

	return pd_cuda_queued(l, pd_kernel_prelu(pd_cuda_engine(l)->stream, l->net->dtype, &s, l->dst,
						 l->src[0], l->parameters[0]), err);
}

static int backward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	float *all = pass->part == PD_BACKWARD_INPUT ? l->split : l->diff_parameters[0];
	const struct pd_kernel_channels s = slopes(l);
	cudaStream_t stream = pd_cuda_engine(l)->stream;

	if (pass->part == PD_BACKWARD_WEIGHT)
		return l->net->device->copy(l->net, all, l->split, sizeof(float) * (size_t)s.channels, err);
	if (pd_cuda_queued(l, pd_kernel_prelu_weight(stream, l->net->dtype, &s, all, l->temporary, l->src[0],
						     l->diff_dst), err) < 0)
		return -1;
	return !l->diff_src[0] ? 0 :
	       pd_cuda_queued(l, pd_kernel_prelu_back(stream, l->net->dtype, &s, l->diff_src[0], l->src[0],
						      l->diff_dst, l->parameters[0]), err);
}

const struct pd_compiled_kind pd_cuda_prelu = {
	.prepare = prepare,
	.forward = forward,
	.backward = backward,
};
