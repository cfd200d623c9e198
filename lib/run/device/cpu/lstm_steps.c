/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of an LSTM, one after the other, and backward (lstm_gates.c has one of them). */
#include "run/device/cpu/lstm.h"

#include <string.h>

static void add_biases(const struct lstm_way *w, float *bias)
{
	const struct pd_compiled_layer *l = w->l;
	int64_t count = 4 * w->m->hidden;
	float *second = lstm_room(w, w->m->forward.product);

	memset(bias, 0, lstm_floats(count));
	if (!l->layer->bias)
		return;
	lstm_widen(w, bias, l->parameters[lstm_parameter(w, INPUT_BIAS)], count);
	if (l->layer->biases < 2)
		return;
	lstm_widen(w, second, l->parameters[lstm_parameter(w, HIDDEN_BIAS)], count);
	for (int64_t j = 0; j < count; j++)
		bias[j] += second[j];
}

/* Computes the inputs' part of the gates of all rows. */
static int project(const struct lstm_way *w, float *sums, struct pd_error *err)
{
	const struct lstm *m = w->m;
	const void *weights = w->l->parameters[lstm_parameter(w, INPUT)], *packed;
	struct pd_matrix_product gemm = {
		.m = m->rows, .n = 4 * m->hidden, .k = m->inputs,
		.lda = m->inputs, .ldb = m->inputs, .transposed_b = true,
		.c = sums, .ldc = 4 * m->hidden,
	};

	if (m->native) {
		packed = lstm_pack(w, &m->input, weights, err);
		return packed ? lstm_multiply(w, &m->input, w->l->src[0], packed, sums, err) : -1;
	}
	gemm.a = lstm_wide(w, w->l->src[0], m->forward.input, m->rows * m->inputs);
	gemm.b = lstm_wide(w, weights, m->forward.input_weights, 4 * m->hidden * m->inputs);
	return pd_matrix_multiply(&gemm, err);
}

/* One step of one sample; product: NULL: none. */
static void step_forward(const struct lstm_way *w, int64_t n, int64_t step, float *all_sums,
			 const float *product)
{
	const struct lstm *m = w->m;
	int64_t row = lstm_row_of(w, n, step), count = m->hidden;
	float *sums = all_sums + row * 4 * count, *hidden = lstm_room(w, m->forward.hidden) + n * count;
	const float *before = step > 0 ? w->cells + lstm_row_of(w, n, step - 1) * count
				       : lstm_room(w, m->forward.cells) + n * count;
	void *out = lstm_output_row(w, w->l->dst, row);

	pd_lstm_gates(sums, product ? product + n * 4 * count : NULL, lstm_room(w, m->forward.bias),
		      before, w->cells + row * count, hidden, count);
	lstm_narrow(w, out, hidden, count);
	if (!m->narrow)
		return;
	lstm_narrow(w, w->gates + m->element * (size_t)(row * 4 * count), sums, 4 * count);
	lstm_widen(w, hidden, out, count);           /* as it is rounded */
	if (m->native)
		memcpy(lstm_scratch(w, m->forward.state) + m->work * (size_t)(n * count), out,
		       m->work * (size_t)count);
}

static void clear_padding(const struct lstm_way *w)
{
	const struct lstm *m = w->m;

	for (int64_t n = 0; n < w->l->net->batch && w->lengths; n++)
		for (int64_t t = lstm_length(w, n); t < m->steps; t++)
			memset(lstm_output_row(w, w->l->dst, n * m->steps + t), 0,
			       m->element * (size_t)m->hidden);
}

int lstm_forward(const struct lstm_way *w, struct pd_error *err)
{
	const struct lstm *m = w->m;
	float *sums = m->narrow ? lstm_room(w, m->forward.sums) : (float *)w->gates;
	const void *packed;

	add_biases(w, lstm_room(w, m->forward.bias));
	if (project(w, sums, err) < 0)
		return -1;
	packed = lstm_pack(w, &m->recurrent, lstm_hidden_weights(w, m->forward.weights), err);
	if (!packed)
		return -1;
	lstm_take_up_lanes(w);
	for (int64_t step = 0; step < m->steps; step++) {
		float *product = step > 0 || m->lanes ? lstm_room(w, m->forward.product) : NULL;

		if (product && lstm_multiply(w, &m->recurrent, lstm_scratch(w, m->forward.state), packed,
					     product, err) < 0)
			return -1;
#pragma omp parallel for schedule(static)
		for (int64_t n = 0; n < w->l->net->batch; n++)
			if (step < lstm_length(w, n))
				step_forward(w, n, step, sums, product);
	}
	clear_padding(w);
	lstm_leave_lanes(w);
	return 0;
}

static void step_back(const struct lstm_way *w, int64_t n, int64_t step, char *kept)
{
	const struct lstm *m = w->m;
	int64_t row = lstm_row_of(w, n, step), count = m->hidden;
	float *sums = lstm_room(w, m->backward.sums) + n * 4 * count;
	char *to = kept + m->element * (size_t)(row * 4 * count);
	struct pd_lstm_back back = {
		.cell = w->cells + row * count,
		.before = step > 0 ? w->cells + lstm_row_of(w, n, step - 1) * count
				   : m->lanes ? lstm_carried(w, n, true) : lstm_room(w, m->backward.zeros),
		.recurrent = lstm_room(w, m->backward.hidden) + n * count,
		.cells = lstm_room(w, m->backward.cells) + n * count, .back = sums,
	};

	back.gates = (const float *)w->gates + row * 4 * count;
	back.output = lstm_output_row(w, w->l->diff_dst, row);
	if (m->narrow) {
		float *gates = lstm_room(w, m->backward.gates) + n * 4 * count;
		float *output = lstm_room(w, m->backward.output) + n * count;

		lstm_widen(w, gates, w->gates + m->element * (size_t)(row * 4 * count), 4 * count);
		lstm_widen(w, output, back.output, count);
		back.gates = gates;
		back.output = output;
	}
	pd_lstm_gates_back(&back, count);
	lstm_narrow(w, to, sums, 4 * count);
	if (m->native)
		memcpy(lstm_scratch(w, m->backward.work) + m->work * (size_t)(n * 4 * count), to,
		       m->work * (size_t)(4 * count));
	else if (m->narrow)
		lstm_widen(w, sums, to, 4 * count);
}

/* Clears a sample's gradients of the gates, for a step behind its end. */
static void rest(const struct lstm_way *w, int64_t n)
{
	const struct lstm *m = w->m;

	memset(lstm_scratch(w, m->backward.work) + m->work * (size_t)(n * 4 * m->hidden), 0,
	       m->work * (size_t)(4 * m->hidden));
}

int lstm_steps_back(const struct lstm_way *w, char *kept, struct pd_error *err)
{
	const struct lstm *m = w->m;
	int64_t batch = w->l->net->batch;
	const void *packed = lstm_pack(w, &m->recurrent_back, lstm_hidden_weights(w, m->backward.weights), err);

	if (!packed)
		return -1;
	if (w->lengths)
		memset(kept, 0, m->kept);
	memset(lstm_room(w, m->backward.hidden), 0, lstm_floats(batch * m->hidden));
	memset(lstm_room(w, m->backward.cells), 0, lstm_floats(batch * m->hidden));
	memset(lstm_room(w, m->backward.zeros), 0, lstm_floats(m->hidden));
	for (int64_t step = m->steps - 1; step >= 0; step--) {
#pragma omp parallel for schedule(static)
		for (int64_t n = 0; n < batch; n++)
			if (step < lstm_length(w, n))
				step_back(w, n, step, kept);
			else
				rest(w, n);
		if (step > 0 && lstm_multiply(w, &m->recurrent_back, lstm_scratch(w, m->backward.work), packed,
					      lstm_room(w, m->backward.hidden), err) < 0)
			return -1;
	}
	return 0;
}
