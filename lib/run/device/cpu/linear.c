/* SPDX-License-Identifier: Apache-2.0 */
/* linear has plain activations.  Its kernels see matrices, whose rows are all axes but the last. */
#include "run/device/cpu/cpu.h"

static int prepare_matrices(struct pd_compiled_layer *l, struct pd_error *err)
{
	struct pd_onednn *dnn = l->net->engine;
	bool bias = l->layer->bias;
	const struct pd_layout *src, *dst;
	struct pd_conv_linear_ops ops = { NULL };

	src = l->in[0] = pd_cpu_matrix(l->net, l->in_shape[0]);
	dst = l->out = pd_cpu_matrix(l->net, &l->layer->output);
	if (pd_linear_is_blocked(l)) {
		pd_linear_blocked_prepare(l);
		return 0;
	}
	ops.forward = pd_primitive_linear(dnn, PD_FORWARD, src, dst, l->parameter[0], bias, NULL,
					  err);
	if (!ops.forward)
		return -1;
	if (!l->parameter[0])
		l->parameter[0] = pd_layout_stored(dnn, pd_primitive_layout(ops.forward,
									    PD_ARG_WEIGHTS));
	if (bias)
		l->parameter[1] = pd_layout_stored(dnn, pd_primitive_layout(ops.forward,
									    PD_ARG_BIAS));
	if (!l->inside)
		return 0;
	ops.weights = pd_primitive_linear(dnn, PD_BACKWARD_WEIGHTS, src, dst, l->parameter[0], bias,
					  ops.forward, err);
	if (!ops.weights)
		return -1;
	ops.transposed = l->wants[0] && pd_linear_transposes(l);
	if (l->wants[0] && !ops.transposed) {
		ops.data = pd_primitive_linear(dnn, PD_BACKWARD_DATA, src, dst, l->parameter[0],
					       bias, ops.forward, err);
		if (!ops.data)
			return -1;
	}
	return pd_conv_linear_prepare(l, &ops, err);
}

static int prepare(struct pd_compiled_layer *l, struct pd_error *err)
{
	int status = prepare_matrices(l, err);

	l->out = pd_cpu_plain(l->net, &l->layer->output);
	return status;
}

static int forward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	return pd_linear_is_blocked(l) ? pd_linear_blocked_forward(l, err)
				       : pd_conv_linear_forward(l, pass, err);
}

static int backward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	return pd_linear_is_blocked(l) ? pd_linear_blocked_backward(l, pass, err)
				       : pd_conv_linear_backward(l, pass, err);
}

const struct pd_compiled_kind pd_cpu_linear = {
	.plain = true,
	.prepare = prepare,
	.forward = forward,
	.backward = backward,
};
