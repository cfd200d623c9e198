/* SPDX-License-Identifier: Apache-2.0 */
/* Sums and products of two inputs whose shapes differ: see the CPU's. */
#include "run/device/cuda/cuda.h"

static int prepare(struct pd_compiled_layer *l, struct pd_error *err)
{
	return 0;
}

static struct pd_kernel_repeated repeated(const struct pd_compiled_layer *l, int input)
{
	const struct pd_axis a = pd_compiled_repeats(l, input);

	return (struct pd_kernel_repeated){ l->src[input], a.extent, a.inner };
}

static bool multiplies(const struct pd_compiled_layer *l)
{
	return l->layer->kind == PD_LAYER_mul;
}

static int forward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	return pd_cuda_queued(l, pd_kernel_broadcast(pd_cuda_engine(l)->stream, l->net->dtype,
						     multiplies(l), l->dst, repeated(l, 0),
						     repeated(l, 1),
						     pd_cuda_batch_elements(l, &l->layer->output)),
			      err);
}

static int input_back(struct pd_compiled_layer *l, int input, struct pd_error *err)
{
	const struct pd_axis a = pd_compiled_repeats(l, input);
	struct pd_kernel_repeated other = repeated(l, 1 - input);

	if (!multiplies(l))
		other.values = NULL;
	return pd_cuda_queued(l, pd_kernel_broadcast_back(pd_cuda_engine(l)->stream, l->net->dtype,
							  l->diff_src[input], l->diff_dst, other,
							  a.outer, a.extent, a.inner), err);
}

static int backward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	for (int i = 0; i < 2; i++)
		if (l->diff_src[i] && input_back(l, i, err) < 0)
			return -1;
	return 0;
}

const struct pd_compiled_kind pd_cuda_broadcast = {
	.plain = true,
	.prepare = prepare,
	.forward = forward,
	.backward = backward,
};
