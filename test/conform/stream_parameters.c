/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of named tensors, and of the initial values of parameters and states. */
#include "stream.h"
#include "tap.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void test_named(const struct pd_device_ops *ops, struct chain *c)
{
	struct stage *s = &c->stages[0];
	const struct pd_named *list;
	int n = ops->net.named(s->net, &list), found = -1;
	bool good = true;

	for (int i = 0; i < n; i++) {
		float *host = pd_calloc((size_t)list[i].elements, sizeof(float));
		float *back = pd_calloc((size_t)list[i].elements, sizeof(float));
		char *arena = list[i].part == PD_PART_STATE ? s->state : s->velocity;

		for (int64_t k = 0; k < list[i].elements; k++)
			host[k] = (float)(k + 1) + (float)i / 64;
		ops->net.import(s->net, i, PD_FULL, arena, host);
		ops->net.export(s->net, i, PD_FULL, arena, back);
		good = good && memcmp(host, back, (size_t)list[i].elements * 4) == 0;
		found = strcmp(list[i].name, "n1.running_var") == 0 ? i : found;
		free(host);
		free(back);
	}
	ok(good && n == 19, "%s: %d named tensors, there and back", ops->name, n);
	ok(found >= 0 && list[found].part == PD_PART_STATE && list[found].elements == 20 &&
	   strcmp(list[0].name, "c1.weight") == 0 && list[0].dims == 4,
	   "%s: under their names", ops->name);
}

void test_init(const struct pd_device_ops *ops, struct chain *c)
{
	int64_t n;
	float *w = chain_export(c, WEIGHTS, &n), *s = chain_export(c, STATE, &n);
	float bound = sqrtf(6.0f / 27), most = 0;
	double sum = 0;

	for (int i = 0; i < 20 * 27; i++) {
		most = fabsf(w[i]) > most ? fabsf(w[i]) : most;
		sum += w[i];
	}
	ok(most <= bound && most > 0.95f * bound && fabs(sum) / (20 * 27) < 0.1 * bound,
	   "%s: weights are uniform up to sqrt(6 / fan-in)", ops->name);
	ok(w[20 * 27] == 0 && w[20 * 27 + 20] == 1 && w[20 * 27 + 40] == 0,
	   "%s: biases zero, scales one", ops->name);
	ok(s[0] == 0 && s[20] == 1, "%s: running mean zero, variance one", ops->name);
	free(w);
	free(s);
}

/* Tests that weights are normally distributed: two thirds are nearer to 0 than the standard deviation, and
 * one in 22 is at least two deviations away. */
void test_normal_init(const struct pd_device_ops *ops)
{
	struct pd_model *model = model_of("50",
		"{'name': 'it', 'kind': 'linear', 'inputs': ['x'], 'out_features': 81, "
		"'init': {'weight': 'normal(0.02)', 'bias': -2}}, {'name': 'loss', 'kind': "
		"'softmax_cross_entropy', 'inputs': ['it', 'y']}");
	struct chain *c = chain_open(ops, model, NULL, 0, 2, 1, 1);
	double sum = 0, squares = 0, near = 0, far = 0;
	const double count = 50 * 81;
	int64_t n;
	float *w = chain_export(c, WEIGHTS, &n);

	for (int i = 0; i < 50 * 81; i++) {
		double z = (double)w[i] / 0.02;

		sum += z;
		squares += z * z;
		near += fabs(z) < 1;
		far += fabs(z) > 2;
	}
	ok(fabs(sum / count) < 0.05 && fabs(squares / count - 1) < 0.05 &&
	   fabs(near / count - 0.6827) < 0.02 && fabs(far / count - 0.0455) < 0.01,
	   "%s: normal weights, as the model says", ops->name);
	ok(w[50 * 81] == -2 && w[n - 1] == -2, "%s: and biases of one value", ops->name);
	free(w);
	chain_close(c);
	pd_model_free(model);
}
