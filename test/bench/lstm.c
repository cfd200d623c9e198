/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lstm [ROUNDS]: forward and backward of an LSTM by lib/run/device/cpu and by oneDNN's lstm primitive,
 * in turn, with one thread.  A row for each shape and type gives the median milliseconds of processor
 * time of both, how many times as fast ours is, the MB that each keeps from forward to backward and the
 * MB that it needs besides, and how far oneDNN's gradients of the weights are from ours, as a part of
 * the largest.
 *
 * oneDNN gets the layout that favours it: activations and their gradients lie with the steps first, the
 * gradients are f32, and there is one bias instead of two.  Its weights are brought into its layouts in
 * every round, as in training, and their gradients out of them.
 */
#include "onednn_lstm.h"

#include "../conform/chain.h"

#include "base/mem.h"
#include "engine/device/submit.h"
#include "run/device/cpu/cpu.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const struct lstm_shape shapes[] = {
	{ 20, 70, 400, 1150 }, { 20, 70, 1150, 1150 }, { 20, 70, 1150, 400 },   /* AWD-LM */
	{ 32, 50, 256, 256 }, { 32, 50, 512, 256 },                             /* GNMT */
};

/* ---- ours ---- */

/*
 * The LSTM is a stage of its own.  The one before it has parameters, so that the gradient of the input
 * is made, and the one after it makes a gradient.
 */
static struct chain *ours_open(const struct lstm_shape *s, struct pd_model **model_p)
{
	char *shape = pd_format("%lld, %lld", (long long)s->steps, (long long)s->inputs);
	char *layers = pd_format(
		"{'name': 'in', 'kind': 'bias', 'inputs': ['x']}, "
		"{'name': 'it', 'kind': 'lstm', 'inputs': ['in'], 'hidden_size': %lld}, "
		"{'name': 'flat', 'kind': 'flatten', 'inputs': ['it']}, "
		"{'name': 'out', 'kind': 'linear', 'inputs': ['flat'], 'out_features': 10}, "
		"{'name': 'loss', 'kind': 'softmax_cross_entropy', 'inputs': ['out', 'y']}",
		(long long)s->hidden);
	int64_t count = s->batch * s->steps * s->inputs;
	float *x = pd_calloc((size_t)count, sizeof(*x));
	int32_t *y = pd_calloc((size_t)s->batch, sizeof(*y));
	struct chain *c;

	*model_p = model_of(shape, layers);
	for (int64_t i = 0; i < count; i++)
		x[i] = (float)(i * 7919 % 1001) / 500 - 1;
	c = chain_open(&pd_device_cpu, *model_p, (int[]){ 1, 2 }, 2, s->batch, 1, 1);
	chain_load(c, x, y);
	chain_forward(c);
	chain_backward(c);
	free(x);
	free(y);
	free(shape);
	free(layers);
	return c;
}

static void ours_run(struct chain *c)
{
	struct stage *s = &c->stages[1];
	struct pd_pass p = {
		.weights = s->weights, .state = s->state, .gradients = s->gradients,
		.inbox = s->inbox, .slot = s->slot, .scratch = s->scratch, .gradient_in = s->in,
		.gradient_out = s->out, .valid = c->valid, .losses = &c->loss,
	};

	for (int back = 0; back < 2; back++) {
		struct pd_event ev;

		pd_event_arm(&ev);
		(back ? pd_submit_backward : pd_submit_forward)(c->stream, s->net, &p, 1, 1, &ev);
		pd_event_wait(&ev, &c->gate);
	}
}

/* ---- both ---- */

/* Copies a tensor of rows with the samples first to one with the steps first. */
static void steps_first(const struct lstm_shape *s, char *to, const char *from, size_t row)
{
	for (int64_t n = 0; n < s->batch; n++)
		for (int64_t i = 0; i < s->steps; i++)
			memcpy(to + row * (size_t)(i * s->batch + n),
			       from + row * (size_t)(n * s->steps + i), row);
}

/* Returns a parameter of our LSTM, or its gradient, in f32. */
static float *ours_parameter(struct chain *c, int which, bool gradient, int64_t *count_p)
{
	struct stage *s = &c->stages[1];
	const struct pd_named *list;
	float *copy;

	c->ops->net.named(s->net, &list);
	*count_p = list[which].elements;
	copy = pd_calloc((size_t)*count_p, sizeof(*copy));
	c->ops->net.export(s->net, which, gradient ? PD_FULL : PD_WORKING,
			   gradient ? s->gradients : s->weights, copy);
	return copy;
}

static void give_weights(struct chain *c, struct onednn_lstm *t, int which, int to)
{
	int64_t count;
	float *from = ours_parameter(c, which, false, &count);

	if (c->dtype == PD_F32)
		memcpy(onednn_lstm_data(t, to), from, onednn_lstm_bytes(t, to));
	else
		pd_cpu_narrow(c->dtype, onednn_lstm_data(t, to), from, (size_t)count);
	free(from);
}

static void give_biases(struct chain *c, struct onednn_lstm *t)
{
	float *to = onednn_lstm_data(t, BIAS);
	int64_t count;

	for (int which = 2; which < 4; which++) {
		float *from = ours_parameter(c, which, false, &count);

		for (int64_t i = 0; i < count; i++)
			to[i] += from[i];
		free(from);
	}
}

static void give_gradient(struct chain *c, struct onednn_lstm *t)
{
	const struct stage *stage = &c->stages[1];
	const struct lstm_shape *s = onednn_lstm_shape(t);
	const char *gradient = stage->in + stage->sizes->out[0].gradient_offset;
	size_t count = (size_t)(s->batch * s->steps * s->hidden);
	float *wide = pd_calloc(count, sizeof(*wide));

	if (c->dtype == PD_F32)
		memcpy(wide, gradient, count * sizeof(*wide));
	else
		pd_cpu_widen(c->dtype, wide, gradient, count);
	steps_first(s, onednn_lstm_data(t, D_OUTPUT), (const char *)wide,
		    sizeof(*wide) * (size_t)s->hidden);
	free(wide);
}

/* Gives oneDNN our input, our weights and our gradient of the output. */
static void give(struct chain *c, struct onednn_lstm *t)
{
	const struct stage *s = &c->stages[1];

	steps_first(onednn_lstm_shape(t), onednn_lstm_data(t, INPUT), s->inbox + s->sizes->in[0].offset,
		    pd_dtype_bytes(c->dtype) * (size_t)onednn_lstm_shape(t)->inputs);
	give_weights(c, t, 0, PLAIN_WEIGHTS);
	give_weights(c, t, 1, PLAIN_HIDDEN_WEIGHTS);
	give_biases(c, t);
	give_gradient(c, t);
}

/* Returns the largest difference of oneDNN's gradient of some weights, as a part of the largest element. */
static float difference(struct chain *c, const struct onednn_lstm *t, int which, int tensor)
{
	const float *theirs = onednn_lstm_data(t, tensor);
	float most = 0, off = 0;
	int64_t count;
	float *ours = ours_parameter(c, which, true, &count);

	for (int64_t i = 0; i < count; i++) {
		most = fmaxf(most, fabsf(ours[i]));
		off = fmaxf(off, fabsf(ours[i] - theirs[i]));
	}
	free(ours);
	return off / most;
}

static double cpu_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec / 1e6;
}

static int ascending(const void *a, const void *b)
{
	return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

static double median(double *of, int count)
{
	qsort(of, (size_t)count, sizeof(*of), ascending);
	return of[count / 2];
}

static double mb(size_t bytes)
{
	return (double)bytes / 1e6;
}

static void row(struct chain *c, const struct onednn_lstm *t, double ours_ms, double theirs_ms)
{
	const struct lstm_shape *s = onednn_lstm_shape(t);
	struct pd_net_layer layer;
	size_t output = (size_t)(s->batch * s->steps * s->hidden) * pd_dtype_bytes(c->dtype);

	c->ops->net.layer(c->stages[1].net, 1, &layer);
	printf("%2lld x %-2lld %5lld %5lld  %-4s %8.1f %8.1f %6.2f  %8.1f %7.1f %8.1f %7.1f   %.0e %.0e\n",
	       (long long)s->batch, (long long)s->steps, (long long)s->inputs, (long long)s->hidden,
	       pd_dtype_name[c->dtype], ours_ms, theirs_ms, theirs_ms / ours_ms,
	       mb(layer.slot_bytes - output), mb(onednn_lstm_bytes(t, WORKSPACE)), mb(layer.scratch_bytes),
	       mb(onednn_lstm_besides(t)), (double)difference(c, t, 0, PLAIN_D_WEIGHTS),
	       (double)difference(c, t, 1, PLAIN_D_HIDDEN_WEIGHTS));
	fflush(stdout);
}

static void compare(const struct lstm_shape *s, enum pd_dtype dtype, int rounds)
{
	double *ours_ms = pd_calloc((size_t)rounds, sizeof(*ours_ms));
	double *theirs_ms = pd_calloc((size_t)rounds, sizeof(*theirs_ms));
	struct pd_model *model;
	struct chain *c;
	struct onednn_lstm *t;

	chain_dtype = dtype;
	c = ours_open(s, &model);
	t = onednn_lstm_open(s, dtype);
	give(c, t);
	for (int i = -1; i < rounds; i++) {
		double began = cpu_ms(), between;

		ours_run(c);
		between = cpu_ms();
		onednn_lstm_run(t);
		if (i < 0)
			continue;
		ours_ms[i] = between - began;
		theirs_ms[i] = cpu_ms() - between;
	}
	row(c, t, median(ours_ms, rounds), median(theirs_ms, rounds));
	onednn_lstm_close(t);
	chain_close(c);
	pd_model_free(model);
	free(ours_ms);
	free(theirs_ms);
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 9;

	if (argc > 2 || rounds < 1) {
		fprintf(stderr, "usage: lstm [ROUNDS]\n");
		return 2;
	}
	omp_set_num_threads(1);
	printf("%-7s %5s %5s  %-4s %8s %8s %6s  %8s %7s %8s %7s   %s\n", "", "in", "out", "type",
	       "ours ms", "oneDNN", "times", "kept: MB", "oneDNN", "rest: MB", "oneDNN", "differ by");
	for (size_t i = 0; i < PD_COUNT(shapes); i++)
		for (int narrow = 0; narrow < 2; narrow++)
			compare(&shapes[i], narrow ? PD_BF16 : PD_F32, rounds);
	return 0;
}
