/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The backward of relu and sigmoid reads the output, that of gelu and silu the input.  A relu
 * may overwrite its input, since a second relu changes nothing: a forward that runs again
 * (recomputation, the profiler) gives the same bits.  For the others and dropout that does not hold.
 * relu has loops of our own, equal to those of the sums that do its backward (sum.c), so that both
 * give the same bits.  In 16 bits they work on the bits.  Curves that are not oneDNN's are in curves.c.
 */
#include "base/mem.h"
#include "run/device/cpu/cpu.h"
#include "run/device/curve.h"

#define PIECE 32768

struct eltwise {
	bool takes_output;
	bool loses_nan;                 /* oneDNN's plain loop makes 0 of it */
	enum pd_dtype dtype;            /* of the op */
	struct pd_primitive *forward, *backward;
	size_t forward_scratch, backward_scratch;
	struct pd_reorder src, dst, kept, diff_dst, diff_src;
};

static int prepare_reorders(struct pd_compiled_layer *l, struct eltwise *e, struct pd_error *err)
{
	const struct pd_layout *op = pd_primitive_layout(e->forward, PD_ARG_DST);

	return pd_reorder_prepare(l, &e->src, l->out, op, false, &l->forward_bytes, err) < 0 ||
	       pd_reorder_prepare(l, &e->dst, op, l->out, true, &l->forward_bytes, err) < 0 ||
	       pd_reorder_prepare(l, &e->kept, l->out, op, false, &l->backward_bytes, err) < 0 ||
	       pd_reorder_prepare(l, &e->diff_dst, l->out, op, false, &l->backward_bytes,
				  err) < 0 ||
	       pd_reorder_prepare(l, &e->diff_src, op, l->out, true, &l->backward_bytes, err) < 0
		? -1 : 0;
}

static int prepare(struct pd_compiled_layer *l, struct pd_error *err)
{
	enum pd_curve curve = pd_curve_of(l->layer);
	struct pd_onednn *dnn = l->net->engine;
	struct eltwise *e;

	l->out = l->in[0];
	if (!l->inside)
		return 0;
	l->own = e = pd_zalloc(sizeof(*e));
	e->takes_output = pd_curve_from_output(curve);
	e->dtype = pd_onednn_widens(dnn) ? PD_F32 : l->net->dtype;
	e->forward = pd_primitive_eltwise(dnn, PD_FORWARD, curve, l->out, NULL, err);
	if (!e->forward ||
	    pd_primitive_prepare(l, e->forward, &e->forward_scratch, &l->forward_bytes, err) < 0)
		return -1;
	e->loses_nan = curve == PD_CURVE_sigmoid && pd_primitive_is_slow(e->forward);
	e->backward = pd_primitive_eltwise(dnn, PD_BACKWARD_DATA, curve, l->out, e->forward, err);
	if (!e->backward ||
	    pd_primitive_prepare(l, e->backward, &e->backward_scratch, &l->backward_bytes, err) < 0)
		return -1;
	return prepare_reorders(l, e, err);
}

static int prepare_relu(struct pd_compiled_layer *l, struct pd_error *err)
{
	l->out = l->in[0];
	return 0;
}

PD_VECTOR static void keep_nan(float *dst, const float *src, size_t count)
{
	for (size_t i = 0; i < count; i++)
		dst[i] = src[i] == src[i] ? dst[i] : src[i];
}

/* minus_infinity: its bits, between those of numbers and of NaNs of that sign. */
PD_VECTOR static void keep_nan_narrow(uint16_t *dst, const uint16_t *src, uint16_t minus_infinity,
				      size_t count)
{
	for (size_t i = 0; i < count; i++)
		dst[i] = (src[i] | 0x8000) > minus_infinity ? src[i] : dst[i];
}

/* Puts the NaNs of an op's input into its output. */
static void restore_nan(const struct eltwise *e, void *dst, const void *src)
{
	size_t count = pd_layout_bytes(pd_primitive_layout(e->forward, PD_ARG_DST)) /
		       pd_dtype_bytes(e->dtype);

	if (e->dtype == PD_F32)
		keep_nan(dst, src, count);
	else
		keep_nan_narrow(dst, src, (uint16_t)pd_minus_infinity(e->dtype), count);
}

static int forward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	struct eltwise *e = l->own;
	const void *args[PD_ARGS] = {
		[PD_ARG_SRC] = pd_reorder_in(l, &e->src, l->src[0], err),
		[PD_ARG_DST] = pd_reorder_buffer(l, &e->dst, l->dst),
		[PD_ARG_SCRATCH] = (char *)l->temporary + e->forward_scratch,
	};

	if (!args[PD_ARG_SRC] || pd_primitive_run(e->forward, args, err) < 0)
		return -1;
	if (e->loses_nan)
		restore_nan(e, (void *)args[PD_ARG_DST], args[PD_ARG_SRC]);
	return pd_reorder_out(l, &e->dst, l->dst, err);
}

static int backward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	struct eltwise *e = l->own;
	const void *args[PD_ARGS] = { NULL };
	const void *kept;

	if (!l->diff_src[0])
		return 0;
	kept = pd_reorder_in(l, &e->kept, e->takes_output ? l->dst : l->src[0], err);
	args[e->takes_output ? PD_ARG_DST : PD_ARG_SRC] = kept;
	args[PD_ARG_DIFF_DST] = pd_reorder_in(l, &e->diff_dst, l->diff_dst, err);
	args[PD_ARG_DIFF_SRC] = pd_reorder_buffer(l, &e->diff_src, l->diff_src[0]);
	args[PD_ARG_SCRATCH] = (char *)l->temporary + e->backward_scratch;
	return !kept || !args[PD_ARG_DIFF_DST] ||
	       pd_primitive_run(e->backward, args, err) < 0
		? -1 : pd_reorder_out(l, &e->diff_src, l->diff_src[0], err);
}

/* dst may be src. */
PD_VECTOR static void rectify(int16_t *dst, const int16_t *src, int16_t minus_infinity, size_t count)
{
	for (size_t i = 0; i < count; i++)
		dst[i] = pd_relu_keeps_bits(src[i], minus_infinity) ? src[i] : 0;
}

PD_VECTOR static void rectify_f32(float *dst, const float *src, size_t count)
{
	for (size_t i = 0; i < count; i++)
		dst[i] = pd_relu_keeps(src[i]) ? src[i] : 0;
}

PD_VECTOR static void pass_on(int16_t *diff_src, const int16_t *diff_dst, const int16_t *dst,
			      int16_t minus_infinity, size_t count)
{
	for (size_t i = 0; i < count; i++)
		diff_src[i] = pd_relu_keeps_bits(dst[i], minus_infinity) ? diff_dst[i] : 0;
}

PD_VECTOR static void pass_on_f32(float *diff_src, const float *diff_dst, const float *dst,
				  size_t count)
{
	for (size_t i = 0; i < count; i++)
		diff_src[i] = pd_relu_keeps(dst[i]) ? diff_dst[i] : 0;
}

static size_t elements(const struct pd_compiled_layer *l)
{
	return pd_layout_bytes(l->out) / pd_dtype_bytes(l->net->dtype);
}

static int forward_relu(struct pd_compiled_layer *l, const struct pd_pass *pass,
			struct pd_error *err)
{
	size_t count = elements(l);
	bool f32 = l->net->dtype == PD_F32;

#pragma omp parallel for schedule(static) if (count > PIECE)
	for (size_t at = 0; at < count; at += PIECE) {
		size_t n = count - at < PIECE ? count - at : PIECE;

		if (f32)
			rectify_f32((float *)l->dst + at, (const float *)l->src[0] + at, n);
		else
			rectify((int16_t *)l->dst + at, (const int16_t *)l->src[0] + at,
				pd_minus_infinity(l->net->dtype), n);
	}
	return 0;
}

static int backward_relu(struct pd_compiled_layer *l, const struct pd_pass *pass,
			 struct pd_error *err)
{
	size_t count = elements(l);
	bool f32 = l->net->dtype == PD_F32;
	void *diff_src = l->diff_src[0];

	/* the sum behind it has done its backward */
	if (!diff_src || (l->relu_completed && diff_src == l->diff_dst))
		return 0;
#pragma omp parallel for schedule(static) if (count > PIECE)
	for (size_t at = 0; at < count; at += PIECE) {
		size_t n = count - at < PIECE ? count - at : PIECE;

		if (f32)
			pass_on_f32((float *)diff_src + at, (const float *)l->diff_dst + at,
				    (const float *)l->dst + at, n);
		else
			pass_on((int16_t *)diff_src + at, (const int16_t *)l->diff_dst + at,
				(const int16_t *)l->dst + at, pd_minus_infinity(l->net->dtype), n);
	}
	return 0;
}

const struct pd_compiled_kind pd_cpu_relu = {
	.keeps_output = true,
	.in_place = true,
	.prepare = prepare_relu,
	.forward = forward_relu,
	.backward = backward_relu,
};

const struct pd_compiled_kind pd_cpu_sigmoid = {
	.keeps_output = true,
	.prepare = prepare,
	.forward = forward,
	.backward = backward,
};

static bool is_gelu_tanh(const struct pd_compiled_layer *l)
{
	return pd_curve_of(l->layer) == PD_CURVE_gelu_tanh;
}

static int prepare_gelu(struct pd_compiled_layer *l, struct pd_error *err)
{
	return is_gelu_tanh(l) ? pd_cpu_gelu_tanh.prepare(l, err) : prepare(l, err);
}

static int forward_gelu(struct pd_compiled_layer *l, const struct pd_pass *pass,
			struct pd_error *err)
{
	return is_gelu_tanh(l) ? pd_cpu_gelu_tanh.forward(l, pass, err) : forward(l, pass, err);
}

static int backward_gelu(struct pd_compiled_layer *l, const struct pd_pass *pass,
			 struct pd_error *err)
{
	return is_gelu_tanh(l) ? pd_cpu_gelu_tanh.backward(l, pass, err) : backward(l, pass, err);
}

const struct pd_compiled_kind pd_cpu_gelu = {
	.prepare = prepare_gelu,
	.forward = forward_gelu,
	.backward = backward_gelu,
};

const struct pd_compiled_kind pd_cpu_silu = {
	.prepare = prepare,
	.forward = forward,
	.backward = backward,
};
