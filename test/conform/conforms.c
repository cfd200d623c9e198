/* SPDX-License-Identifier: Apache-2.0 */
#include "conforms.h"

#include "tap.h"

#include "base/mem.h"
#include "base/rng.h"

#include <math.h>
#include <stdlib.h>

float conform_random(uint32_t stream, int64_t i)
{
	return 2 * pd_unit(pd_random(7, stream, 0, (uint32_t)i).v[0]) - 1;
}

void conform_import(struct ref *r, const float *weights)
{
	for (int l = 0; l < r->model->layer_count; l++)
		for (int p = 0; r->model->layers[l].shares < 0 &&
		     p < r->model->layers[l].parameter_count; p++)
			for (int64_t i = 0; i < r->model->layers[l].parameters[p].elements; i++)
				r->w[l][p][i] = *weights++;
}

static double greatest(const double *values, int64_t count)
{
	double most = 0;

	for (int64_t i = 0; i < count; i++)
		most = fabs(values[i]) > most ? fabs(values[i]) : most;
	return most;
}

/* Returns the greatest difference in units of the greatest value, or of `floor` if that is greater. */
static double difference(const double *expected, const float *got, int64_t count, double floor)
{
	double most = 0, scale = greatest(expected, count);

	for (int64_t i = 0; i < count; i++) {
		double d = fabs(expected[i] - (double)got[i]);

		most = d > most || isnan(d) ? d : most;
	}
	return most / (scale > floor ? scale : floor);
}

/*
 * A gradient that is zero except for rounding is compared in units of what cancels: of the sum of the sizes
 * of its own terms (a scale before batchnorm2d whose channel is small, so that its terms are large), or,
 * where these are nothing themselves (what leads to a softmax of one number), of the other gradients.  In
 * 16 bits it is a greater part of these, since they are rounded before they are added up.
 */
bool conform_gradients(const struct ref *r, const float *got, double tolerance)
{
	double part = chain_dtype == PD_F32 ? 0.01 : 0.04;
	double most = 1e-20;    /* all gradients are zero when no sample is valid */
	bool same = true;

	for (int l = 0; l < r->model->layer_count; l++)
		for (int p = 0; p < r->model->layers[l].parameter_count; p++)
			most = fmax(most, greatest(r->dw[l][p],
						   r->model->layers[l].parameters[p].elements));
	for (int l = 0; l < r->model->layer_count; l++) {
		const struct pd_layer *layer = &r->model->layers[l];

		for (int p = 0; layer->shares < 0 && p < layer->parameter_count; p++) {
			int64_t n = layer->parameters[p].elements;
			double cancels = fmax(most, greatest(r->terms[l][p], n));
			double d = difference(r->dw[l][p], got, n, part * cancels);

			if (!(d <= tolerance)) {
				diag("gradient of %s.%s is off by %g", layer->name,
				     layer->parameters[p].name, d);
				same = false;
			}
			got += n;
		}
	}
	return same;
}

bool conform_state(const struct ref *r, const float *got, double tolerance)
{
	bool same = true;

	for (int l = 0; l < r->model->layer_count; l++)
		for (int s = 0; s < r->model->layers[l].state_count; s++) {
			const struct pd_layer_tensor *state = &r->model->layers[l].states[s];
			int64_t n = state->elements;
			double d = difference(r->state[l][s], got, n, 0.01);

			if (!(d <= tolerance)) {
				diag("%s.%s is off by %g", r->model->layers[l].name, state->name,
				     d);
				same = false;
			}
			got += n;
		}
	return same;
}

float *conform_weights(struct chain *c)
{
	int64_t n;
	float *weights = chain_export(c, WEIGHTS, &n);

	for (int64_t i = 0; i < n; i++)
		if (weights[i] == 0)
			weights[i] = 0.3f * conform_random(3, i);
	chain_import_weights(c, weights);
	free(weights);
	return chain_export(c, WEIGHTS, &n);
}

void conform_load(struct chain *c, struct ref *r)
{
	int64_t n = c->batch * pd_shape_elements(&c->model->inputs[0].shape);
	float *x = pd_calloc((size_t)n, sizeof(*x));
	int64_t labels = c->batch * pd_shape_elements(&c->model->inputs[1].shape);
	int32_t *y = pd_calloc((size_t)labels, sizeof(*y));

	for (int64_t i = 0; i < n; i++)
		r->x[0][i] = x[i] = chain_round(c->dtype, conform_random(1, i));
	for (int64_t i = 0; i < labels; i++)
		r->x[1][i] = y[i] = (int32_t)(i * 5 % CLASSES);
	chain_load(c, x, y);
	free(x);
	free(y);
}

/*
 * In 16 bits the reference rounds as the device does, except for one number in some thousand, where the
 * device's sum, taken in f32, falls on the other side of a middle between two numbers.  Errors of a few
 * units in the last of 8 or 11 bits remain.
 */
const double conform_tolerances[PD_DTYPES] = { [PD_BF16] = 6.0 / 256, [PD_F16] = 6.0 / 2048 };

double conform_round(double x)
{
	return chain_round(chain_dtype, (float)x);
}

bool conforms(const struct pd_device_ops *ops, const struct pd_model *model, int64_t batch,
		     int64_t valid, double tolerance)
{
	struct chain *c = chain_open(ops, model, NULL, 0, batch, SEED, 1);
	struct ref *r = ref_new(model, batch, SEED);
	float *weights, *gradients, *state;
	int64_t n;
	bool good;

	/* A GPU's convolutions may take another algorithm (Winograd), which is less exact. */
	if (ops != &pd_device_cpu)
		tolerance *= 5;
	if (chain_dtype != PD_F32) {
		tolerance = conform_tolerances[chain_dtype];
		r->round = conform_round;
	}
	c->valid = r->valid = valid;
	c->first_sample = r->first_sample = 640;
	weights = conform_weights(c);
	conform_import(r, weights);
	conform_load(c, r);
	good = chain_forward(c) && chain_backward(c);
	ref_forward(r);
	ref_backward(r);
	gradients = chain_export(c, GRADIENTS, &n);
	state = chain_export(c, STATE, &n);
	good = good && conform_gradients(r, gradients, tolerance) &&
	       conform_state(r, state, tolerance);
	if (!(fabs(c->loss.sum - r->loss) <= tolerance * fabs(r->loss)) ||
	    c->loss.correct != r->correct || c->loss.samples != valid ||
	    c->loss.rows != r->rows) {
		diag("loss %.9g, correct %d; expected %.9g, %d", c->loss.sum, (int)c->loss.correct,
		     r->loss, (int)r->correct);
		good = false;
	}
	/* An evaluation uses running statistics and no dropout. */
	c->evaluate = r->evaluate = true;
	good = chain_forward(c) && good;
	ref_forward(r);
	if (!(fabs(c->loss.sum - r->loss) <= tolerance * fabs(r->loss))) {
		diag("evaluation: loss %.9g, expected %.9g", c->loss.sum, r->loss);
		good = false;
	}
	free(weights);
	free(gradients);
	free(state);
	ref_free(r);
	chain_close(c);
	return good;
}

struct pd_model *model_around(int64_t channels, int64_t height, int64_t width, const char *layers)
{
	char *shape = pd_format("5, %d, %d", (int)height, (int)width);
	char *text = pd_format("{'name': 'in', 'kind': 'conv2d', 'inputs': ['x'], "
	                       "'out_channels': %d, 'kernel': 1}, "
			       "%s, {'name': 'flat', 'kind': 'flatten', 'inputs': ['it']}, "
			       "{'name': 'out', 'kind': 'linear', 'inputs': ['flat'], "
			       "'out_features': %d}, "
			       "{'name': 'loss', 'kind': 'softmax_cross_entropy', "
			       "'inputs': ['out', 'y']}",
			       (int)channels, layers, CLASSES);
	struct pd_model *model = model_of(shape, text);

	free(shape);
	free(text);
	return model;
}

void conform_differences(struct pd_model *model, const char *what)
{
	struct ref *r = ref_new(model, 2, SEED);
	const double h = 1e-6;
	double worst = 0;
	uint32_t draws = 0;

	for (int64_t i = 0; i < 2 * pd_shape_elements(&model->inputs[0].shape); i++)
		r->x[0][i] = conform_random(1, i);
	for (int64_t i = 0; i < 2 * pd_shape_elements(&model->inputs[1].shape); i++)
		r->x[1][i] = (double)(i * 7 % CLASSES);
	for (int l = 0; l < model->layer_count; l++)
		for (int p = 0; p < model->layers[l].parameter_count; p++)
			for (int64_t i = 0; i < model->layers[l].parameters[p].elements; i++)
				r->w[l][p][i] = 0.5 * conform_random(2, draws++);
	ref_forward(r);
	ref_backward(r);
	for (int l = 0; l < model->layer_count; l++)
		for (int p = 0; p < model->layers[l].parameter_count; p++)
			for (int64_t i = 0; i < model->layers[l].parameters[p].elements; i += 7) {
				double *w = &r->w[l][p][i], was = *w, up, slope, d;

				*w = was + h;
				ref_forward(r);
				up = r->loss;
				*w = was - h;
				ref_forward(r);
				slope = (up - r->loss) / (2 * h) / (double)r->rows;
				*w = was;
				d = fabs(slope - r->dw[l][p][i]);
				worst = d > worst ? d : worst;
			}
	if (!ok(worst < 1e-7, "the reference's gradients are its finite differences: %s", what))
		diag("off by %g", worst);
	ref_free(r);
	pd_model_free(model);
}
