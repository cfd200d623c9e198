/* SPDX-License-Identifier: Apache-2.0 */
/*
 * softmax_cross_entropy.  Of sample n with logits x and label y the loss is
 * log(sum exp(x - max)) - (x[y] - max); its gradient (softmax(x) - onehot(y)) / batch size.
 * For backward the loss is multiplied by pass->scale.
 * Samples from pass->valid on are padding: no loss, no gradient.
 */
#include "device/cpu/cpu.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static int prepare(struct pd_compiled_layer *l, struct pd_error *err)
{
	if (l->in_shape[0]->dims != 1)
		return pd_error_input(err, "layer \"%s\": softmax_cross_entropy takes a vector of "
				      "logits per sample", l->layer->name);
	l->out = pd_cpu_plain(l->net, &l->layer->output);
	return 0;
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
	int64_t classes = l->in_shape[0]->size[0];
	const float *x = l->src[0];
	const int32_t *label = l->src[1];
	struct pd_loss loss = { .samples = pass->valid };
	float *out = l->dst;

	memset(out, 0, sizeof(float) * (size_t)l->net->batch);
	for (int64_t n = 0; n < pass->valid; n++, x += classes) {
		int64_t best = largest(x, classes);

		if (label[n] < 0 || label[n] >= classes)
			return pd_error_failed(err, "layer \"%s\": sample %" PRId64 " of the "
					       "minibatch has label %" PRId32 ", expected 0 to %"
					       PRId64, l->layer->name, n, label[n], classes - 1);
		out[n] = logf(sum_exp(x, classes, x[best])) - (x[label[n]] - x[best]);
		loss.sum += out[n];
		loss.correct += best == label[n];
	}
	if (pass->loss)
		*pass->loss = loss;
	return 0;
}

static int backward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	int64_t classes = l->in_shape[0]->size[0], batch = l->net->batch;
	const float *x = l->src[0];
	const int32_t *label = l->src[1];
	float scale = pass->scale ? (float)pass->scale->loss_scale : 1;
	float *dx = l->diff_src[0], mean = scale / (float)batch;

	if (!dx)
		return 0;
	for (int64_t n = 0; n < pass->valid; n++, x += classes, dx += classes) {
		float max = x[largest(x, classes)], sum = sum_exp(x, classes, max);

		for (int64_t i = 0; i < classes; i++)
			dx[i] = expf(x[i] - max) / sum * mean;
		dx[label[n]] -= mean;
	}
	memset(dx, 0, sizeof(float) * (size_t)((batch - pass->valid) * classes));
	return 0;
}

const struct pd_compiled_kind pd_cpu_softmax_cross_entropy = {
	.is_loss = true,
	.prepare = prepare,
	.forward = forward,
	.backward = backward,
};
