/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A conv2d's output has the layout that its kernel prefers, if the layers behind it have quick
 * kernels for that layout, too.  conv1d is a conv2d of planes with a height of 1, between plain lines.
 */
#include "run/device/cpu/cpu.h"

/* plain: the output's layout; NULL: what suits. */
static int prepare_planes(struct pd_compiled_layer *l, const struct pd_layout *plain, struct pd_error *err)
{
	const struct pd_layer *layer = l->layer;
	const struct pd_shape in = pd_shape_plane(l->in_shape[0]), out = pd_shape_plane(&layer->output);
	const struct pd_conv conv = {
		.batch = l->net->batch,
		.channels = in.size[0],
		.height = in.size[1],
		.width = in.size[2],
		.out_channels = out.size[0],
		.out_height = out.size[1],
		.out_width = out.size[2],
		.kernel = { layer->kernel[0], layer->kernel[1] },
		.stride = { layer->stride[0], layer->stride[1] },
		.padding = { layer->padding[0], layer->padding[1] },
		.dilation = { layer->dilation[0], layer->dilation[1] },
		.groups = layer->groups,
		.bias = layer->bias,
	};
	struct pd_onednn *dnn = l->net->engine;
	struct pd_conv_linear_ops ops = { NULL };

	ops.forward = pd_primitive_conv(dnn, PD_FORWARD, &conv, l->parameter[0], NULL, err);
	if (!ops.forward)
		return -1;
	l->out = plain ? plain : pd_layout_quick(dnn, pd_layout_stored(dnn,
							pd_primitive_layout(ops.forward, PD_ARG_DST)));
	if (layer->bias)
		l->parameter[1] = pd_layout_stored(dnn, pd_primitive_layout(ops.forward,
									    PD_ARG_BIAS));
	ops.weights = pd_primitive_conv(dnn, PD_BACKWARD_WEIGHTS, &conv, l->parameter[0],
					ops.forward, err);
	if (!ops.weights)
		return -1;
	/* gradients are f32: if only one direction can do without a reorder, it is theirs */
	if (!l->parameter[0])
		l->parameter[0] = pd_layout_stored(dnn, pd_primitive_layout(ops.weights,
									    PD_ARG_DIFF_WEIGHTS));
	if (!l->inside)
		return 0;
	if (l->wants[0]) {
		ops.data = pd_primitive_conv(dnn, PD_BACKWARD_DATA, &conv, l->parameter[0],
					     ops.forward, err);
		if (!ops.data)
			return -1;
	}
	return pd_conv_linear_prepare(l, &ops, err);
}

static int prepare(struct pd_compiled_layer *l, struct pd_error *err)
{
	return prepare_planes(l, NULL, err);
}

static int prepare_lines(struct pd_compiled_layer *l, struct pd_error *err)
{
	const struct pd_shape in = pd_shape_plane(l->in_shape[0]), out = pd_shape_plane(&l->layer->output);
	int status;

	l->in[0] = pd_cpu_plain(l->net, &in);
	status = prepare_planes(l, pd_cpu_plain(l->net, &out), err);
	l->out = pd_cpu_plain(l->net, &l->layer->output);
	return status;
}

const struct pd_compiled_kind pd_cpu_conv2d = {
	.prepare = prepare,
	.forward = pd_conv_linear_forward,
	.backward = pd_conv_linear_backward,
};

const struct pd_compiled_kind pd_cpu_conv1d = {
	.plain = true,
	.prepare = prepare_lines,
	.forward = pd_conv_linear_forward,
	.backward = pd_conv_linear_backward,
};
