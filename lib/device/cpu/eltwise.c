/* SPDX-License-Identifier: Apache-2.0 */
/*
 * relu, tanh, sigmoid: backward reads the output.  relu may lie in its input's place,
 * since a second relu changes nothing: a forward that is run again (recomputation, the
 * profiler) gives the same bits.  The others and dropout would not.
 */
#include "base/mem.h"
#include "device/cpu/cpu.h"

struct eltwise {
	struct pd_op *forward, *backward;
	size_t forward_scratch, backward_scratch;
};

static int prepare(struct pd_compiled_layer *l, enum pd_curve curve, struct pd_error *err)
{
	struct pd_onednn *dnn = l->net->engine;
	struct eltwise *e;

	l->out = l->in[0];
	if (!l->inside)
		return 0;
	l->own = e = pd_zalloc(sizeof(*e));
	e->forward = pd_op_eltwise(dnn, PD_FORWARD, curve, l->out, NULL, err);
	if (!e->forward ||
	    pd_op_prepare(e->forward, &e->forward_scratch, &l->forward_bytes, err) < 0)
		return -1;
	e->backward = pd_op_eltwise(dnn, PD_BACKWARD_DATA, curve, l->out, e->forward, err);
	if (!e->backward)
		return -1;
	return pd_op_prepare(e->backward, &e->backward_scratch, &l->backward_bytes, err);
}

static int prepare_relu(struct pd_compiled_layer *l, struct pd_error *err)
{
	return prepare(l, PD_CURVE_RELU, err);
}

static int prepare_tanh(struct pd_compiled_layer *l, struct pd_error *err)
{
	return prepare(l, PD_CURVE_TANH, err);
}

static int prepare_sigmoid(struct pd_compiled_layer *l, struct pd_error *err)
{
	return prepare(l, PD_CURVE_SIGMOID, err);
}

static int forward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	struct eltwise *e = l->own;
	const void *args[PD_ARGS] = {
		[PD_ARG_SRC] = l->src[0],
		[PD_ARG_DST] = l->dst,
		[PD_ARG_SCRATCH] = (char *)l->temporary + e->forward_scratch,
	};

	return pd_op_run(e->forward, args, err);
}

static int backward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	struct eltwise *e = l->own;
	const void *args[PD_ARGS] = {
		[PD_ARG_DST] = l->dst,
		[PD_ARG_DIFF_DST] = l->diff_dst,
		[PD_ARG_DIFF_SRC] = l->diff_src[0],
		[PD_ARG_SCRATCH] = (char *)l->temporary + e->backward_scratch,
	};

	return l->diff_src[0] ? pd_op_run(e->backward, args, err) : 0;
}

const struct pd_compiled_kind pd_cpu_relu = {
	.keeps_output = true,
	.in_place = true,
	.prepare = prepare_relu,
	.forward = forward,
	.backward = backward,
};

const struct pd_compiled_kind pd_cpu_tanh = {
	.keeps_output = true,
	.prepare = prepare_tanh,
	.forward = forward,
	.backward = backward,
};

const struct pd_compiled_kind pd_cpu_sigmoid = {
	.keeps_output = true,
	.prepare = prepare_sigmoid,
	.forward = forward,
	.backward = backward,
};
