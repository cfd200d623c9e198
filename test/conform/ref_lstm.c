/* SPDX-License-Identifier: Apache-2.0 */
#include "ref_kind.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>

/* ---- lstm: a sample and a direction at a time ---- */

/*
 * One sample and one direction.  Forward keeps gates and cells of all directions by row, and the states
 * that it began with by sample.
 */
struct lstm {
	const struct ref_job *j;
	int64_t steps, inputs, hidden, n, length;
	int d, directions;
	double *gates, *cells, *first_hidden, *first_cells, *lanes;
	int first;                      /* the direction's first parameter */
	double **w;                     /* its weights of input and of hidden, and its biases */
};

static struct lstm lstm_of(const struct ref_job *j, int64_t n, int d)
{
	int64_t hidden = j->layer->hidden_size, steps = j->in->size[0];
	int directions = j->layer->bidirectional ? 2 : 1, parameters = 2 + (int)j->layer->biases;
	int64_t rows = j->r->batch * steps * directions;
	struct lstm m = {
		.j = j, .steps = steps, .inputs = j->in->size[1], .hidden = hidden, .n = n, .d = d,
		.directions = directions, .gates = j->kept, .cells = j->kept + rows * 4 * hidden,
		.first = d * parameters, .w = j->w + d * parameters,
	};

	m.length = j->layer->input_count > 1 ? (int64_t)j->r->x[j->layer->inputs[1]][n] : steps;
	m.length = m.length > steps ? steps : m.length;
	m.first_hidden = m.cells + rows * hidden;
	m.first_cells = m.first_hidden + j->r->batch * hidden;
	m.lanes = j->kept + 7 * rows * hidden;
	return m;
}

/* Returns the number of step s among the rows of the output, which have `hidden` numbers each. */
static int64_t lstm_row(const struct lstm *m, int64_t s)
{
	return (m->n * m->steps + (m->d ? m->length - 1 - s : s)) * m->directions + m->d;
}

static const double *lstm_input(const struct lstm *m, int64_t s)
{
	return m->j->x + lstm_row(m, s) / m->directions * m->inputs;
}

static double lstm_factor(const struct lstm *m, int64_t element)
{
	return ref_weight_factor(m->j, m->d * 4 * m->hidden * m->hidden + element);
}

static double lstm_rounded(const struct lstm *m, double x)
{
	return m->j->r->round ? m->j->r->round(x) : x;
}

/* Returns the hidden state of the sample's lane, or its cells. */
static double *lstm_lane(const struct lstm *m, bool cells)
{
	const struct ref *r = m->j->r;
	int64_t all = m->j->layer->lanes * m->hidden;
	int64_t at = (r->first_sample + m->n) % m->j->layer->lanes * m->hidden;

	return r->evaluate ? m->lanes + (cells ? all : 0) + at : m->j->state[cells] + at;
}

static double lstm_gate(const struct lstm *m, const double *x, const double *h, int64_t g)
{
	double sum = 0;

	for (int64_t b = 0; b < m->j->layer->biases; b++)
		sum += m->w[2 + b][g];
	for (int64_t k = 0; k < m->inputs; k++)
		sum += m->w[0][g * m->inputs + k] * x[k];
	for (int64_t k = 0; k < m->hidden; k++)
		sum += lstm_factor(m, g * m->hidden + k) * m->w[1][g * m->hidden + k] * h[k];
	return g / m->hidden == 2 ? tanh(sum) : 1 / (1 + exp(-sum));
}

static void lstm_forward(const struct lstm *m)
{
	int64_t hidden = m->hidden;
	bool carries = m->j->layer->lanes > 0;
	bool goes_on = carries && m->j->r->first_sample + m->n >= m->j->layer->lanes;
	double *h = m->first_hidden + m->n * hidden, *c = m->first_cells + m->n * hidden;

	for (int64_t i = 0; i < hidden; i++) {
		h[i] = goes_on ? lstm_lane(m, false)[i] : 0;
		c[i] = goes_on ? lstm_lane(m, true)[i] : 0;
	}
	for (int64_t s = 0; s < m->length; s++) {
		int64_t row = lstm_row(m, s);
		double *gates = m->gates + row * 4 * hidden, *cells = m->cells + row * hidden;
		double *y = m->j->y + row * hidden;

		for (int64_t g = 0; g < 4 * hidden; g++)
			gates[g] = lstm_gate(m, lstm_input(m, s), h, g);
		for (int64_t i = 0; i < hidden; i++) {
			cells[i] = gates[hidden + i] * c[i] + gates[i] * gates[2 * hidden + i];
			y[i] = lstm_rounded(m, gates[3 * hidden + i] * tanh(cells[i]));
		}
		for (int64_t g = 0; g < 4 * hidden; g++)
			gates[g] = lstm_rounded(m, gates[g]);
		h = y;
		c = cells;
	}
	for (int64_t i = 0; i < hidden && carries; i++) {
		lstm_lane(m, false)[i] = h[i];
		lstm_lane(m, true)[i] = c[i];
	}
}

/* Adds a gate's part of the gradients: `slope` is the gradient of the gate's sum. */
static void lstm_pass_on(const struct lstm *m, int64_t s, int64_t g, double slope, double *dh)
{
	const double *x = lstm_input(m, s);
	const double *h = s > 0 ? m->j->y + lstm_row(m, s - 1) * m->hidden
				: m->first_hidden + m->n * m->hidden;
	double *dx = m->j->dx + (x - m->j->x);

	for (int64_t k = 0; k < m->inputs; k++) {
		dx[k] += slope * m->w[0][g * m->inputs + k];
		ref_add(m->j, m->first, g * m->inputs + k, slope * x[k]);
	}
	for (int64_t k = 0; k < m->hidden; k++) {
		double factor = lstm_factor(m, g * m->hidden + k);

		dh[k] += slope * factor * m->w[1][g * m->hidden + k];
		ref_add(m->j, m->first + 1, g * m->hidden + k, slope * factor * h[k]);
	}
	for (int b = 0; b < m->j->layer->biases; b++)
		ref_add(m->j, m->first + 2 + b, g, slope);
}

static void lstm_back(const struct lstm *m)
{
	int64_t hidden = m->hidden;
	double *dh = pd_calloc((size_t)hidden, sizeof(*dh)), *dc = pd_calloc((size_t)hidden, sizeof(*dc));
	double *slopes = pd_calloc(4 * (size_t)hidden, sizeof(*slopes));

	for (int64_t s = m->length - 1; s >= 0; s--) {
		int64_t row = lstm_row(m, s);
		const double *i = m->gates + row * 4 * hidden, *f = i + hidden, *g = f + hidden;
		const double *o = g + hidden, *c = m->cells + row * hidden;
		const double *before = s > 0 ? m->cells + lstm_row(m, s - 1) * hidden
					     : m->first_cells + m->n * hidden;

		for (int64_t k = 0; k < hidden; k++) {
			double t = tanh(c[k]);

			dh[k] += m->j->dy[row * hidden + k];
			dc[k] += dh[k] * o[k] * (1 - t * t);
			slopes[k] = dc[k] * g[k] * i[k] * (1 - i[k]);
			slopes[hidden + k] = dc[k] * before[k] * f[k] * (1 - f[k]);
			slopes[2 * hidden + k] = dc[k] * i[k] * (1 - g[k] * g[k]);
			slopes[3 * hidden + k] = dh[k] * t * o[k] * (1 - o[k]);
			dc[k] *= f[k];
			dh[k] = 0;
		}
		for (int64_t k = 0; k < 4 * hidden; k++)
			lstm_pass_on(m, s, k, lstm_rounded(m, slopes[k]), dh);
	}
	free(dh);
	free(dc);
	free(slopes);
}

void ref_lstm(const struct ref_job *j)
{
	for (int64_t n = 0; n < j->r->batch; n++)
		for (int d = 0; d < (j->layer->bidirectional ? 2 : 1); d++) {
			const struct lstm m = lstm_of(j, n, d);

			if (j->back)
				lstm_back(&m);
			else
				lstm_forward(&m);
		}
}
