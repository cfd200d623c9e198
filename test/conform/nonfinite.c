/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every kind of layer makes of a NaN and of both infinities, in its input and in the gradient of its
 * output, against the reference, which does what PyTorch does: element by element the same of NaN, inf,
 * -inf and finite.  A target that is infinite gives the output a gradient that is, while all before is finite.
 */
#include "kind_cases.h"
#include "tap.h"

#include "base/half.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum class { FINITE, PLUS, MINUS, NONE };

static enum class class_of(double x)
{
	return isnan(x) ? NONE : isinf(x) ? (x > 0 ? PLUS : MINUS) : FINITE;
}

static const char *const names[] = { "finite", "inf", "-inf", "NaN" };

/* Returns whether both are alike where the reference's gradients of a parameter are not finite. */
static bool alike(const struct kind_case *k, const char *name, const double *expected, const float *got,
		  int64_t count)
{
	for (int64_t i = 0; i < count; i++) {
		enum class e = class_of(expected[i]), g = class_of((double)got[i]);

		if (e == g || (k->spreads && g != FINITE))
			continue;
		diag("%s: element %d of the gradient of %s is %s, expected %s", k->what, (int)i, name,
		     names[g], names[e]);
		return false;
	}
	return true;
}

static bool gradients_alike(const struct kind_case *k, const struct ref *r, const float *got)
{
	bool good = true;

	for (int l = 0; l < r->model->layer_count; l++)
		for (int p = 0; p < r->model->layers[l].parameter_count; p++) {
			const struct pd_layer *layer = &r->model->layers[l];

			good = alike(k, layer->name, r->dw[l][p], got, layer->parameters[p].elements) &&
			       good;
			got += layer->parameters[p].elements;
		}
	return good;
}

/* Loads random samples, among whose elements the number stands at `at`. */
static void load_with(struct chain *c, struct ref *r, int64_t at, float number)
{
	int64_t each = pd_shape_elements(&c->model->inputs[0].shape);
	int64_t labels = pd_shape_elements(&c->model->inputs[1].shape) * c->batch;
	float *x = pd_calloc((size_t)(each * c->batch), sizeof(*x));
	int32_t *y = pd_calloc((size_t)labels, sizeof(*y));

	for (int64_t i = 0; i < each * c->batch; i++)
		r->x[0][i] = x[i] = i == at ? number
					    : chain_round(c->dtype, conform_random(1, i));
	for (int64_t i = 0; i < labels; i++)
		r->x[1][i] = y[i] = (int32_t)(i * 5 % CLASSES);
	chain_load(c, x, y);
	free(x);
	free(y);
}

static bool one_case(const struct kind_case *k, struct chain *c, struct ref *r, int64_t at, float number)
{
	int64_t n, in = kind_case_elements(k->in);
	float *gradients;
	bool good;

	load_with(c, r, at, number);
	at %= in + kind_case_elements(k->out);
	good = chain_forward(c) && chain_backward(c);
	ref_forward(r);
	ref_backward(r);
	gradients = chain_export(c, GRADIENTS, &n);
	good = good && gradients_alike(k, r, gradients);
	if (class_of(c->loss.sum) != class_of(r->loss) && !k->spreads) {
		diag("%s: the loss is %s, expected %s", k->what, names[class_of(c->loss.sum)],
		     names[class_of(r->loss)]);
		good = false;
	}
	if (!good)
		diag("%s: with %s at %d of the %s", k->what, names[class_of((double)number)],
		     (int)(at < in ? at : at - in), at < in ? "input" : "target");
	free(gradients);
	return good;
}

/* A NaN may have either sign, and any payload. */
static const uint32_t numbers[] = { 0x7fc00000, 0xffc00000, 0x7fffffff, 0x7f800000, 0xff800000 };

static void test_case(const struct pd_device_ops *ops, const struct kind_case *k)
{
	struct pd_model *model = kind_case_model(k);
	struct chain *c = chain_open(ops, model, NULL, 0, 2, SEED, 1);
	struct ref *r = ref_new(model, 2, SEED);
	float *weights = conform_weights(c);
	int64_t in = kind_case_elements(k->in), out = kind_case_elements(k->out);
	/* in the middle, and at the ends of tensors, which vectors of a loop may leave over */
	const int64_t at[] = { in / 2 + 1, 2 * in + out - 1, in, in + out / 2 + 1, 2 * (in + out) - 1 };
	bool good = true;

	r->round = chain_dtype == PD_F32 ? NULL : conform_round;
	conform_import(r, weights);
	for (size_t i = 0; i < PD_COUNT(at); i++)
		for (size_t n = 0; n < PD_COUNT(numbers); n++)
			good = one_case(k, c, r, at[i], pd_bits_float(numbers[n])) && good;
	ok(good, "%s: %s", chain_name(ops), k->what);
	free(weights);
	ref_free(r);
	chain_close(c);
	pd_model_free(model);
}

int main(void)
{
	for (int i = 0; pd_devices[i]; i++)
		for (int type = 0; type < chain_types(pd_devices[i]) && chain_usable(pd_devices[i]); type++) {
			if (!chain_take(pd_devices[i], type))
				continue;
			each_kind_case(test_case, pd_devices[i]);
		}
	return done_testing();
}
