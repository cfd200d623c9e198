/* SPDX-License-Identifier: Apache-2.0 */
/*
 * speed MODEL.json BATCH-SIZE STEPS [DEVICE [THREADS [TYPE]]]: times training steps (copy in, forward,
 * backward, SGD with momentum) of one stage, driven directly.  After two steps that warm up it prints,
 * for each, the milliseconds of processor time that it took, which a busy machine disturbs less, and
 * those of wall clock.  All inputs but the first get the same labels or tokens, from 0 to 9.
 */
#include "../conform/chain.h"

#include "base/clock.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>

static int64_t cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* Fills the first input with numbers from -1 to 1, or with tokens below 251. */
static void fill(const struct pd_model *model, float *x, int64_t count)
{
	int32_t *tokens = (int32_t *)x;

	for (int64_t i = 0; i < count; i++)
		if (model->inputs[0].dtype == PD_I32)
			tokens[i] = (int32_t)(i * 7919 % 251);
		else
			x[i] = (float)(i * 7919 % 1001) / 500 - 1;
}

int main(int argc, char **argv)
{
	int64_t batch = argc > 2 ? atoll(argv[2]) : 0, count, labels = 0;
	int steps = argc > 3 ? atoi(argv[3]) : 0;
	struct pd_error err;
	struct pd_model *model;
	const struct pd_device_ops *ops;
	struct chain *c;
	float *x;
	int32_t *y;

	if (batch < 1 || steps < 1) {
		fprintf(stderr, "usage: speed MODEL.json BATCH-SIZE STEPS [DEVICE [THREADS [TYPE]]]\n");
		return 2;
	}
	model = pd_model_read(argv[1], &err);
	ops = model ? pd_device_find(argc > 4 ? argv[4] : "cpu", &err) : NULL;
	if (!ops) {
		fprintf(stderr, "speed: %s\n", err.text);
		return 2;
	}
	chain_dtype = pd_dtype_find(argc > 6 ? argv[6] : "f32");
	if (chain_dtype == PD_DTYPES) {
		fprintf(stderr, "speed: \"%s\": expected f32, bf16 or f16\n", argv[6]);
		return 2;
	}
	count = batch * pd_shape_elements(&model->inputs[0].shape);
	for (int i = 1; i < model->input_count; i++)
		labels = pd_shape_elements(&model->inputs[i].shape) > labels
			? pd_shape_elements(&model->inputs[i].shape) : labels;
	labels *= batch;
	x = pd_calloc((size_t)count, sizeof(*x));
	y = pd_calloc((size_t)labels, sizeof(*y));
	fill(model, x, count);
	for (int64_t i = 0; i < labels; i++)
		y[i] = (int32_t)(i % 10);
	c = chain_open(ops, model, NULL, 0, batch, 1, argc > 5 ? atoi(argv[5]) : 1);
	for (int i = -2; i < steps; i++) {
		int64_t start_ns = pd_now_ns(), start_cpu_ns = cpu_ns();

		chain_load(c, x, y);
		chain_forward(c);
		chain_backward(c);
		chain_update(c, 0.01f, 0.9f, 1e-4f);
		if (i < 0)
			continue;
		printf("%.3f %.3f\n", (double)(cpu_ns() - start_cpu_ns) / 1e6,
		       (double)(pd_now_ns() - start_ns) / 1e6);
	}
	chain_close(c);
	pd_model_free(model);
	free(x);
	free(y);
	return 0;
}
