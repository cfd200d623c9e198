/* SPDX-License-Identifier: Apache-2.0 */
#include "layers.h"
#include "tap.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

/* An LSTM on sequences of so many steps; with `lengths`, the labels, 0 to 8, are their lengths. */
struct lstm_case {
	int steps, inputs, hidden, batch;
	const char *attributes;
	bool lengths;
};

static struct pd_model *lstm_model(const struct lstm_case *c)
{
	char *shape = pd_format("%d, 5", c->steps);
	char *layers = pd_format(
		"{'name': 'in', 'kind': 'linear', 'inputs': ['x'], 'out_features': %d}, "
		"{'name': 'it', 'kind': 'lstm', 'inputs': ['in'%s], 'hidden_size': %d%s}, "
		"{'name': 'flat', 'kind': 'flatten', 'inputs': ['it']}, "
		"{'name': 'out', 'kind': 'linear', 'inputs': ['flat'], 'out_features': %d}, "
		"{'name': 'loss', 'kind': 'softmax_cross_entropy', 'inputs': ['out', 'y']}",
		c->inputs, c->lengths ? ", 'y'" : "", c->hidden, c->attributes, CLASSES);
	struct pd_model *model = model_with(shape, "", layers);

	free(shape);
	free(layers);
	return model;
}

static const struct lstm_case lstm_cases[] = {
	{ 1, 1, 1, 1, "", false },
	{ 7, 5, 6, 3, "", false },
	{ 9, 16, 32, 8, "", false },
	{ 10, 7, 17, 4, ", 'bias': false", false },
	{ 6, 5, 11, 4, ", 'biases': 1", false },
	{ 9, 4, 7, 6, ", 'biases': 1, 'bidirectional': true", true },
	{ 8, 6, 9, 5, ", 'bidirectional': true", false },
	{ 11, 5, 7, 9, ", 'bidirectional': true", true },
	{ 10, 3, 20, 9, ", 'bidirectional': true, 'bias': false, 'weight_dropout': 0.3", true },
	{ 9, 4, 8, 9, "", true },
	{ 6, 5, 12, 4, ", 'weight_dropout': 0.5", false },
	{ 4, 70, 67, 2, ", 'bidirectional': true", false },
};

static void test_lstm(const struct pd_device_ops *ops)
{
	bool good = true;

	for (size_t i = 0; i < PD_COUNT(lstm_cases); i++) {
		const struct lstm_case *c = &lstm_cases[i];
		struct pd_model *model = lstm_model(c);
		bool one = conforms(ops, model, c->batch, c->batch - (i % 3 == 1), 2e-5);

		if (!one)
			diag("%d steps of %d, hidden size %d, batch %d%s%s", c->steps, c->inputs,
			     c->hidden, c->batch, c->attributes, c->lengths ? ", lengths" : "");
		good = good && one;
		pd_model_free(model);
	}
	ok(good, "%s: lstm", chain_name(ops));
}

/*
 * Tells whether forward's loss and states are the reference's for one microbatch of training or of an
 * evaluation, which starts afresh and leaves the lanes of training alone.
 */
static bool carries(struct chain *c, struct ref *r, int64_t number, bool evaluate, double tolerance)
{
	int64_t n;
	float *state;
	bool good;

	c->evaluate = r->evaluate = evaluate;
	c->first_sample = r->first_sample = number * c->batch;
	conform_load(c, r);
	good = chain_forward(c);
	ref_forward(r);
	state = chain_export(c, STATE, &n);
	good = good && conform_state(r, state, tolerance);
	if (!(fabs(c->loss.sum - r->loss) <= tolerance * fabs(r->loss))) {
		diag("microbatch %d%s: loss %.9g, expected %.9g", (int)number,
		     evaluate ? " of an evaluation" : "", c->loss.sum, r->loss);
		good = false;
	}
	free(state);
	return good;
}

/*
 * Tests microbatches of a third of the lanes with evaluations in between.  With `again` every forward is
 * done twice, as recomputation does it, and must leave the same state.
 */
static void test_lanes(const struct pd_device_ops *ops, bool lengths, bool again)
{
	const struct lstm_case at = { 9, 5, 14, 3, ", 'lanes': 9, 'weight_dropout': 0.2", lengths };
	double tolerance = chain_dtype == PD_F32 ? 1e-4 : conform_tolerances[chain_dtype];
	struct pd_model *model = lstm_model(&at);
	struct chain *c = chain_open(ops, model, NULL, 0, at.batch, SEED, 2);
	struct ref *r = ref_new(model, at.batch, SEED);
	float *weights = conform_weights(c), *gradients;
	bool good = true;
	int64_t n;

	if (chain_dtype != PD_F32)
		r->round = conform_round;
	conform_import(r, weights);
	c->twice = again;
	for (int64_t number = 0; number < 8; number++) {
		good = carries(c, r, number, false, tolerance) && good;
		good = carries(c, r, number, true, tolerance) && good;
	}
	good = carries(c, r, 8, false, tolerance) && chain_backward(c) && good;
	ref_backward(r);
	gradients = chain_export(c, GRADIENTS, &n);
	good = conform_gradients(r, gradients, tolerance) && good;
	ok(good, "%s: lanes of an lstm%s%s", chain_name(ops), lengths ? " with lengths" : "",
	   again ? ", computed again" : "");
	free(weights);
	free(gradients);
	ref_free(r);
	chain_close(c);
	pd_model_free(model);
}

void layers_lstm_reference(void)
{
	conform_differences(lstm_model(&(struct lstm_case){ 4, 3, 5, 2, ", 'weight_dropout': 0.3",
								false }), "lstm with dropout");
	conform_differences(lstm_model(&(struct lstm_case){ 9, 4, 5, 2, ", 'bidirectional': true",
								true }), "lstm with lengths");
}

void layers_lstm(const struct pd_device_ops *ops)
{
	test_lstm(ops);
	test_lanes(ops, false, false);
	test_lanes(ops, true, false);
	test_lanes(ops, true, true);
}
