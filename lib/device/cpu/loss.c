/* SPDX-License-Identifier: Apache-2.0 */
/*
 * softmax_cross_entropy.  The loss of row n with logits x and label y is log(sum exp(x - max)) -
 * (x[y] - max); its gradient is (softmax(x) - onehot(y)) / N, where N is the number of rows in a
 * minibatch, of all its microbatches (pd(7)).  A sample has one row or several.  For backward the
 * loss is multiplied by pass->scale.  Samples from pass->valid on are padding: no loss, no
 * gradient.  Logits of 16 bits are widened in scratch, a row at a time; only outputs are rounded.
 */
#include "base/mem.h"
#include "device/cpu/cpu.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static int64_t classes_of(const struct pd_compiled_layer *l)
{
	return pd_shape_width(l->in_shape[0]);
}

/* Half of the scratch holds a row of logits, or the losses. */
static size_t half(const struct pd_compiled_layer *l)
{
	int64_t rows = pd_cpu_rows(l->net, l->in_shape[0]), classes = classes_of(l);

	return pd_align(sizeof(float) * (size_t)(classes > rows ? classes : rows));
}

static int prepare(struct pd_compiled_layer *l, struct pd_error *err)
{
	l->out = pd_cpu_plain(l->net, &l->layer->output);
	if (l->net->dtype != PD_F32)    /* logits and their gradient */
		l->forward_bytes = l->backward_bytes = 2 * half(l);
	return 0;
}

/* Returns the logits of row n in f32. */
static const float *logits_of(const struct pd_compiled_layer *l, int64_t n)
{
	int64_t classes = classes_of(l);

	if (l->net->dtype == PD_F32)
		return (const float *)l->src[0] + n * classes;
	pd_cpu_widen(l->net->dtype, l->temporary, (const uint16_t *)l->src[0] + n * classes,
		     (size_t)classes);
	return l->temporary;
}

/* Returns the second half of the scratch. */
static float *made(const struct pd_compiled_layer *l)
{
	return (float *)((char *)l->temporary + half(l));
}

static int64_t largest(const float *x, int64_t classes)
{
	int64_t best = 0;

	for (int64_t i = 1; i < classes; i++)
		if (x[i] > x[best])
			best = i;
	return best;
}

static float sum_exp(const float *x, int64_t classes, float max)
{
	float sum = 0;

	for (int64_t i = 0; i < classes; i++)
		sum += expf(x[i] - max);
	return sum;
}

static int forward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	int64_t classes = classes_of(l), rows = pd_shape_rows(l->in_shape[0]);
	bool f32 = l->net->dtype == PD_F32;
	const int32_t *label = l->src[1];
	struct pd_loss loss = { .samples = pass->valid };
	float *out = f32 ? l->dst : made(l);

	memset(out, 0, sizeof(float) * (size_t)(l->net->batch * rows));
	for (int64_t n = 0; n < pass->valid * rows; n++) {
		const float *x = logits_of(l, n);
		int64_t best = largest(x, classes);

		if (label[n] < 0 || label[n] >= classes)
			return pd_error_failed(err, "layer \"%s\": sample %" PRId64 " of the "
					       "minibatch has label %" PRId32 ", expected 0 to %"
					       PRId64, l->layer->name, n / rows, label[n], classes - 1);
		out[n] = logf(sum_exp(x, classes, x[best])) - (x[label[n]] - x[best]);
		loss.sum += out[n];
		loss.correct += best == label[n];
	}
	if (!f32)
		pd_cpu_narrow(l->net->dtype, l->dst, out,
			      (size_t)(l->net->batch * rows));
	if (pass->losses)
		pass->losses[l->loss] = loss;
	return 0;
}

static int backward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	int64_t classes = classes_of(l), rows = pd_shape_rows(l->in_shape[0]);
	size_t bytes = pd_dtype_bytes(l->net->dtype) * (size_t)classes;
	const int32_t *label = l->src[1];
	float scale = pass->scale ? (float)pass->scale->loss_scale : 1;
	float mean = scale / (float)(l->net->minibatch * rows);
	char *to = l->diff_src[0];

	if (!to)
		return 0;
	for (int64_t n = 0; n < pass->valid * rows; n++, to += bytes) {
		float *dx = l->net->dtype == PD_F32 ? (float *)(void *)to : made(l);
		const float *x = logits_of(l, n);
		float max = x[largest(x, classes)], sum = sum_exp(x, classes, max);

		for (int64_t i = 0; i < classes; i++)
			dx[i] = expf(x[i] - max) / sum * mean;
		dx[label[n]] -= mean;
		if (l->net->dtype != PD_F32)
			pd_cpu_narrow(l->net->dtype, to, dx, (size_t)classes);
	}
	memset(to, 0, bytes * (size_t)((l->net->batch - pass->valid) * rows));
	return 0;
}

const struct pd_compiled_kind pd_cpu_softmax_cross_entropy = {
	.plain = true,
	.prepare = prepare,
	.forward = forward,
	.backward = backward,
};
