/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lstm, with PyTorch's formulas, parameters and order of gates (lstm_gates.c).
 *
 * What the inputs give to all gates of all steps is one product.  Step by step, the hidden state
 * before is multiplied by its weights, which are brought once into the layout that is quickest for
 * so few rows, and the rest is done element by element.  Backward goes the other way, step by step,
 * and makes the gradients of the gates' sums; from them all other gradients are one product each.
 * In two parts the second makes those of the parameters, from what the first keeps of these.
 *
 * A row is one step of one sample, samples first.  The slot keeps every row's gates and cells.  The
 * reversed direction takes a sample's steps from its last one down: it begins at the length where
 * there are lengths, as PyTorch's packed sequences do.
 *
 * These loops take 0.8 to 1.05 times the time of oneDNN's own LSTM in f32, 0.5 to 1 in bf16, and keep
 * a fourth to a ninth of its workspace (test/bench/lstm); it cannot train in f16 and has no lengths.
 *
 * Products take 16 bits where oneDNN has kernels for that ("native"), else f32: what they take then
 * is widened in scratch.
 */
#include "run/device/cpu/lstm.h"

#include <string.h>

static size_t most(size_t a, size_t b)
{
	return a > b ? a : b;
}

/* ---- what is known before ---- */

static const struct pd_layout *matrix(struct pd_compiled_layer *l, int64_t rows, int64_t columns)
{
	return pd_layout_plain(l->net->engine, 2, (int64_t[]){ rows, columns });
}

/* The layout of what products take. */
static const struct pd_layout *worked(struct pd_compiled_layer *l, int64_t rows, int64_t columns)
{
	const struct lstm *m = l->own;
	const struct pd_layout *layout = matrix(l, rows, columns);

	return m->native ? layout : pd_layout_full(l->net->engine, layout);
}

/* Rows of `in` numbers times weights (out, in), which lie there transposed or not. */
static int prepare_product(struct pd_compiled_layer *l, struct lstm_product *p, int64_t rows, int64_t in,
			   int64_t out, bool transposed, size_t *bytes_p, struct pd_error *err)
{
	struct pd_onednn *dnn = l->net->engine;
	const struct pd_layout *weights = transposed
		? pd_layout_transposed(dnn, worked(l, in, out)) : worked(l, out, in);

	p->op = pd_primitive_product(dnn, worked(l, rows, in), matrix(l, rows, out), err);
	return p->op ? pd_primitive_prepare(l, p->op, &p->scratch, bytes_p, err) < 0 ||
		       pd_reorder_prepare(l, &p->weights, weights,
					  pd_primitive_layout(p->op, PD_ARG_WEIGHTS), false,
					  bytes_p, err) < 0 ? -1 : 0
		     : -1;
}

static int prepare_weights_op(struct pd_compiled_layer *l, struct lstm_weights_op *w, int64_t in,
			      size_t *bytes_p, struct pd_error *err)
{
	const struct lstm *m = l->own;
	struct pd_onednn *dnn = l->net->engine;
	const struct pd_layout *src = matrix(l, m->rows, in);
	const struct pd_layout *dst = matrix(l, m->rows, 4 * m->hidden);
	struct pd_primitive *hint = pd_primitive_linear(dnn, PD_FORWARD, src, dst, NULL, false, NULL,
							err);

	if (!hint)
		return -1;
	w->op = pd_primitive_linear(dnn, PD_BACKWARD_WEIGHTS, src, dst, NULL, false, hint, err);
	if (!w->op || pd_primitive_prepare(l, w->op, &w->scratch, bytes_p, err) < 0)
		return -1;
	return pd_reorder_prepare(l, &w->out, pd_primitive_layout(w->op, PD_ARG_DIFF_WEIGHTS),
				  pd_layout_full(dnn, matrix(l, 4 * m->hidden, in)), true, bytes_p,
				  err);
}

static int prepare_forward(struct pd_compiled_layer *l, struct lstm *m, struct pd_error *err)
{
	int64_t batch = l->net->batch, hidden = m->hidden;
	size_t *bytes = &l->forward_bytes;

	if (m->narrow)
		m->forward.sums = pd_take(bytes, lstm_floats(m->rows * 4 * hidden));
	m->forward.product = pd_take(bytes, lstm_floats(batch * 4 * hidden));
	m->forward.hidden = pd_take(bytes, lstm_floats(batch * hidden));
	m->forward.state = m->native ? pd_take(bytes, m->work * (size_t)(batch * hidden))
				     : m->forward.hidden;
	m->forward.cells = pd_take(bytes, lstm_floats(batch * hidden));
	m->forward.bias = pd_take(bytes, lstm_floats(4 * hidden));
	if (l->layer->weight_dropout > 0 || (m->narrow && !m->native))
		m->forward.weights = pd_take(bytes, m->work * (size_t)(4 * hidden * hidden));
	if (m->narrow && !m->native) {
		m->forward.input = pd_take(bytes, lstm_floats(m->rows * m->inputs));
		m->forward.input_weights = pd_take(bytes, lstm_floats(4 * hidden * m->inputs));
	}
	if (m->native && prepare_product(l, &m->input, m->rows, m->inputs, 4 * hidden, false, bytes,
					 err) < 0)
		return -1;
	return prepare_product(l, &m->recurrent, batch, hidden, 4 * hidden, false, bytes, err);
}

/* Places the scratch of backward's steps; the products after the steps may take the same place. */
static int prepare_back(struct pd_compiled_layer *l, struct lstm *m, struct pd_error *err)
{
	int64_t batch = l->net->batch, hidden = m->hidden;
	size_t *bytes = &l->backward_bytes, steps, data, weights;
	bool widens = m->narrow && !m->native;

	m->backward.kept = pd_take(bytes, m->kept);
	if (widens)
		m->backward.wide = pd_take(bytes, lstm_floats(m->rows * 4 * hidden));
	if (m->narrow && l->wants[0])           /* of the first direction, until the second's is there */
		m->backward.data[0] = pd_take(bytes, lstm_floats(m->rows * m->inputs));
	steps = data = weights = *bytes;
	if (m->narrow) {
		m->backward.gates = pd_take(&steps, lstm_floats(batch * 4 * hidden));
		m->backward.output = pd_take(&steps, lstm_floats(batch * hidden));
	}
	m->backward.sums = pd_take(&steps, lstm_floats(batch * 4 * hidden));
	m->backward.work = m->native ? pd_take(&steps, m->work * (size_t)(batch * 4 * hidden))
				     : m->backward.sums;
	m->backward.hidden = pd_take(&steps, lstm_floats(batch * hidden));
	m->backward.cells = pd_take(&steps, lstm_floats(batch * hidden));
	m->backward.zeros = pd_take(&steps, lstm_floats(hidden));
	if (l->layer->weight_dropout > 0 || widens)
		m->backward.weights = pd_take(&steps, m->work * (size_t)(4 * hidden * hidden));
	if (prepare_product(l, &m->recurrent_back, batch, 4 * hidden, hidden, true, &steps, err) < 0)
		return -1;
	if (l->wants[0] && m->narrow) {
		if (m->native && m->directions > 1)
			m->backward.data[1] = pd_take(&data, lstm_floats(m->rows * m->inputs));
		if (widens)
			m->backward.input_weights = pd_take(&data, lstm_floats(4 * hidden * m->inputs));
		if (m->native && prepare_product(l, &m->input_back, m->rows, 4 * hidden, m->inputs,
						 true, &data, err) < 0)
			return -1;
	}
	m->backward.before = pd_take(&weights, m->work * (size_t)(m->rows * hidden));
	if (widens)
		m->backward.input = pd_take(&weights, lstm_floats(m->rows * m->inputs));
	if (m->native &&
	    (prepare_weights_op(l, &m->input_weights, m->inputs, &weights, err) < 0 ||
	     prepare_weights_op(l, &m->hidden_weights, hidden, &weights, err) < 0))
		return -1;
	*bytes = most(steps, most(data, weights));
	return 0;
}

static void set_sizes(struct pd_compiled_layer *l, struct lstm *m)
{
	const struct pd_layer *layer = l->layer;

	m->steps = l->in_shape[0]->size[0];
	m->inputs = l->in_shape[0]->size[1];
	m->hidden = layer->hidden_size;
	m->rows = l->net->batch * m->steps;
	m->lanes = layer->lanes;
	m->directions = layer->bidirectional ? 2 : 1;
	m->narrow = l->net->dtype != PD_F32;
	m->native = m->narrow && !pd_onednn_widens(l->net->engine);
	m->element = pd_dtype_bytes(l->net->dtype);
	m->work = m->native ? m->element : sizeof(float);
	m->gates = m->kept = pd_align(m->element * (size_t)(m->rows * 4 * m->hidden));
	m->cells = pd_align(lstm_floats(m->rows * m->hidden));
	l->extra_bytes = (size_t)m->directions * (m->gates + m->cells);
	l->split_bytes = (size_t)m->directions * m->kept;
}

static int prepare(struct pd_compiled_layer *l, struct pd_error *err)
{
	struct lstm *m;

	l->out = pd_cpu_plain(l->net, &l->layer->output);
	for (int p = 0; p < l->layer->parameter_count; p++)
		l->parameter[p] = pd_layout_plain(l->net->engine, l->layer->parameters[p].dims,
						  l->layer->parameters[p].size);
	if (pd_compiled_lanes(l, err) < 0)
		return -1;
	if (!l->inside)
		return 0;
	l->own = m = pd_zalloc(sizeof(*m));
	set_sizes(l, m);
	return prepare_forward(l, m, err) < 0 ? -1 : prepare_back(l, m, err);
}

static int forward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	const struct lstm *m = l->own;

	for (int d = 0; d < m->directions; d++) {
		const struct lstm_way w = lstm_way_of(l, pass, d);

		if (lstm_forward(&w, err) < 0)
			return -1;
	}
	return 0;
}

static int backward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	const struct lstm *m = l->own;

	for (int d = 0; d < m->directions; d++) {
		const struct lstm_way w = lstm_way_of(l, pass, d);

		if (lstm_backward(&w, err) < 0)
			return -1;
	}
	return 0;
}

const struct pd_compiled_kind pd_cpu_lstm = {
	.plain = true,
	.prepare = prepare,
	.forward = forward,
	.backward = backward,
};
