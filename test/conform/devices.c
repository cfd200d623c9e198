/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CPU device and every other one of this machine, against each other, over whole training
 * steps of whole networks; and the CPU device with two threads against itself with one, which
 * is all there is to compare on a machine without a GPU.
 */
#include "chain.h"
#include "tap.h"

#include "base/mem.h"
#include "base/rng.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SEED 5
#define STEPS 3
#define CLOSE 1e-3              /* losses and weights: f32 through a deep network */
/*
 * The limit for gradients.  A relu cuts off an activation that is 0 except for rounding on one device and
 * not on the other; if that happens to a part f of the activations, gradients differ by the root of f.
 * Activations of a deep network differ by about 1e-5, which makes one percent on some processors, less
 * on others.
 */
#define CLOSE_GRADIENTS 0.03

struct run {
	double losses[STEPS];
	float *gradients, *weights;     /* the first backward's gradients, the final weights */
	int64_t count;
	bool good;
};

static struct run train(const struct pd_device_ops *ops, const struct pd_model *model,
			int64_t batch, int threads)
{
	struct chain *c = chain_open(ops, model, NULL, 0, batch, SEED, threads);
	int64_t n = batch * pd_shape_elements(&model->inputs[0].shape);
	float *x = pd_calloc((size_t)n, sizeof(*x));
	int32_t *y = pd_calloc((size_t)batch, sizeof(*y));
	struct run r = { .good = true };

	for (int step = 0; step < STEPS; step++) {
		for (int64_t i = 0; i < n; i++)
			x[i] = 2 * pd_unit(pd_random(SEED, 1, (uint32_t)step, (uint32_t)i).v[0]) - 1;
		for (int64_t i = 0; i < batch; i++)
			y[i] = (int32_t)((i + step) % 10);
		c->first_sample = step * batch;
		chain_load(c, x, y);
		r.good = chain_forward(c) && chain_backward(c) && r.good;
		r.losses[step] = c->loss.sum;
		if (step == 0)
			r.gradients = chain_export(c, GRADIENTS, &r.count);
		chain_update(c, 0.01f, 0.9f, 1e-4f);
	}
	r.weights = chain_export(c, WEIGHTS, &r.count);
	if (!r.good)
		diag("%s: %s", ops->name, c->gate.err.text);
	chain_close(c);
	free(x);
	free(y);
	return r;
}

/* Returns the norm of the difference in units of the norm of a. */
static double apart(const float *a, const float *b, int64_t count)
{
	double difference = 0, all = 0;

	for (int64_t i = 0; i < count; i++) {
		double d = (double)a[i] - (double)b[i];

		difference += d * d;
		all += (double)a[i] * (double)a[i];
	}
	return sqrt(difference / all);
}

static void compare(const struct pd_model *model, const struct run *one, const struct run *other,
		    const char *what)
{
	double gradients = apart(one->gradients, other->gradients, one->count);
	double weights = apart(one->weights, other->weights, one->count), losses = 0;

	for (int i = 0; i < STEPS; i++)
		losses = fmax(losses, fabs(one->losses[i] - other->losses[i]) /
				      fabs(one->losses[i]));
	ok(one->good && other->good && one->count == other->count && losses <= CLOSE &&
	   gradients <= CLOSE_GRADIENTS && weights <= CLOSE, "%s: %s", model->name, what);
	diag("losses apart by %.2g, gradients %.2g, weights %.2g", losses, gradients, weights);
}

static void release(struct run *r)
{
	free(r->gradients);
	free(r->weights);
}

static void test_model(const struct pd_model *model, int64_t batch)
{
	struct run one = train(&pd_device_cpu, model, batch, 1);
	struct run other = train(&pd_device_cpu, model, batch, 2);

	compare(model, &one, &other, "the CPU with two threads as with one");
	release(&other);
	for (int i = 0; pd_devices[i]; i++) {
		char what[64];

		if (pd_devices[i] == &pd_device_cpu || !chain_usable(pd_devices[i]))
			continue;
		other = train(pd_devices[i], model, batch, 1);
		snprintf(what, sizeof(what), "%s as the CPU", pd_devices[i]->name);
		compare(model, &one, &other, what);
		release(&other);
		/* Another run gives the same bits. */
		struct run again = train(pd_devices[i], model, batch, 1);
		struct run once = train(pd_devices[i], model, batch, 1);

		ok(memcmp(once.weights, again.weights, (size_t)once.count * sizeof(float)) == 0,
		   "%s: %s twice, the same bits", model->name, pd_devices[i]->name);
		release(&again);
		/* A run without CUDA graphs (lib/run/device/cuda/graph.h) gives the same bits. */
		setenv("PD_CUDA_GRAPHS", "no", 1);
		again = train(pd_devices[i], model, batch, 1);
		unsetenv("PD_CUDA_GRAPHS");
		ok(memcmp(once.weights, again.weights, (size_t)once.count * sizeof(float)) == 0,
		   "%s: %s without graphs, the same bits", model->name, pd_devices[i]->name);
		release(&again);
		release(&once);
	}
	release(&one);
}

int main(void)
{
	const char *source = getenv("PD_SOURCE") ? getenv("PD_SOURCE") : ".";
	static const struct {
		const char *file;
		int64_t batch;
	} models[] = { { "lenet5", 16 }, { "fashion-cnn", 16 }, { "resnet18", 4 } };

	alarm(600);
	for (size_t i = 0; i < PD_COUNT(models); i++) {
		char *file = pd_format("%s/share/models/%s.json", source, models[i].file);
		struct pd_error err;
		struct pd_model *model = pd_model_read(file, &err);

		if (ok(model != NULL, "%s is a model", models[i].file)) {
			test_model(model, models[i].batch);
			pd_model_free(model);
		} else {
			diag("%s", err.text);
		}
		free(file);
	}
	return done_testing();
}
