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
 * Products take 16 bits where oneDNN has kernels for that ("native"), else f32: what they take then
 * is widened in scratch.
 */
#include "device/cpu/lstm.h"

#include "base/mem.h"
#include "device/cpu/cpu.h"

#include <string.h>

#define PIECE 4096              /* elements, a multiple of 4 */
#define COLUMNS 256             /* of which sums are taken at a time */

/* Rows times weights that an op has in a layout of its own. */
struct product {
	struct pd_primitive *op;
	struct pd_reorder weights;
	size_t scratch;
};

/* The gradient of weights, by an op. */
struct weights_op {
	struct pd_primitive *op;
	struct pd_reorder out;
	size_t scratch;
};

struct lstm {
	int64_t steps, inputs, hidden, rows, lanes;
	int directions;
	bool narrow, native;            /* the net has 16 bits; products take them */
	size_t element, work;           /* bytes of a number of the net, of one in products */
	size_t gates, cells, kept;      /* of one direction in the slot: bytes; of `kept`, in split */
	struct product recurrent, recurrent_back;
	struct product input, input_back;       /* where native */
	struct weights_op input_weights, hidden_weights;
	/* Places in scratch.  f32 but where said; "work": as products take it. */
	struct {
		size_t sums;            /* (rows, 4 hidden), where narrow */
		size_t product;         /* (batch, 4 hidden) */
		size_t hidden, state;   /* (batch, hidden); the same, work */
		size_t cells, bias;     /* (batch, hidden) before the first step; (4 hidden) */
		size_t weights;         /* of the hidden state, work: without what is dropped */
		size_t input, input_weights;    /* widened */
	} forward;
	struct {
		size_t kept;            /* gradients of the gates' sums (rows, 4 hidden), the net's */
		size_t gates, output;   /* (batch, 4 hidden), (batch, hidden), where narrow */
		size_t sums, work;      /* (batch, 4 hidden); the same, work */
		size_t hidden, cells;   /* gradients (batch, hidden) */
		size_t zeros, weights;
		size_t wide;            /* `kept`, widened */
		size_t input, input_weights;
		size_t data[2];         /* the input's gradient, of either direction */
		size_t before;          /* hidden states before each row (rows, hidden), work */
	} backward;
};

static size_t take(size_t *bytes_p, size_t bytes)
{
	size_t offset = pd_align(*bytes_p);

	*bytes_p = offset + pd_align(bytes);
	return offset;
}

static size_t floats(int64_t count)
{
	return sizeof(float) * (size_t)count;
}

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
static int prepare_product(struct pd_compiled_layer *l, struct product *p, int64_t rows, int64_t in,
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

static int prepare_weights_op(struct pd_compiled_layer *l, struct weights_op *w, int64_t in,
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
		m->forward.sums = take(bytes, floats(m->rows * 4 * hidden));
	m->forward.product = take(bytes, floats(batch * 4 * hidden));
	m->forward.hidden = take(bytes, floats(batch * hidden));
	m->forward.state = m->native ? take(bytes, m->work * (size_t)(batch * hidden))
				     : m->forward.hidden;
	m->forward.cells = take(bytes, floats(batch * hidden));
	m->forward.bias = take(bytes, floats(4 * hidden));
	if (l->layer->weight_dropout > 0 || (m->narrow && !m->native))
		m->forward.weights = take(bytes, m->work * (size_t)(4 * hidden * hidden));
	if (m->narrow && !m->native) {
		m->forward.input = take(bytes, floats(m->rows * m->inputs));
		m->forward.input_weights = take(bytes, floats(4 * hidden * m->inputs));
	}
	if (m->native && prepare_product(l, &m->input, m->rows, m->inputs, 4 * hidden, false, bytes,
					 err) < 0)
		return -1;
	return prepare_product(l, &m->recurrent, batch, hidden, 4 * hidden, false, bytes, err);
}

/* What the steps take; what the products behind them take may lie in the same place. */
static int prepare_back(struct pd_compiled_layer *l, struct lstm *m, struct pd_error *err)
{
	int64_t batch = l->net->batch, hidden = m->hidden;
	size_t *bytes = &l->backward_bytes, steps, data, weights;
	bool widens = m->narrow && !m->native;

	m->backward.kept = take(bytes, m->kept);
	if (widens)
		m->backward.wide = take(bytes, floats(m->rows * 4 * hidden));
	if (m->narrow && l->wants[0])           /* of the first direction, until the second's is there */
		m->backward.data[0] = take(bytes, floats(m->rows * m->inputs));
	steps = data = weights = *bytes;
	if (m->narrow) {
		m->backward.gates = take(&steps, floats(batch * 4 * hidden));
		m->backward.output = take(&steps, floats(batch * hidden));
	}
	m->backward.sums = take(&steps, floats(batch * 4 * hidden));
	m->backward.work = m->native ? take(&steps, m->work * (size_t)(batch * 4 * hidden))
				     : m->backward.sums;
	m->backward.hidden = take(&steps, floats(batch * hidden));
	m->backward.cells = take(&steps, floats(batch * hidden));
	m->backward.zeros = take(&steps, floats(hidden));
	if (l->layer->weight_dropout > 0 || widens)
		m->backward.weights = take(&steps, m->work * (size_t)(4 * hidden * hidden));
	if (prepare_product(l, &m->recurrent_back, batch, 4 * hidden, hidden, true, &steps, err) < 0)
		return -1;
	if (l->wants[0] && m->narrow) {
		if (m->native && m->directions > 1)
			m->backward.data[1] = take(&data, floats(m->rows * m->inputs));
		if (widens)
			m->backward.input_weights = take(&data, floats(4 * hidden * m->inputs));
		if (m->native && prepare_product(l, &m->input_back, m->rows, 4 * hidden, m->inputs,
						 true, &data, err) < 0)
			return -1;
	}
	m->backward.before = take(&weights, m->work * (size_t)(m->rows * hidden));
	if (widens)
		m->backward.input = take(&weights, floats(m->rows * m->inputs));
	if (m->native &&
	    (prepare_weights_op(l, &m->input_weights, m->inputs, &weights, err) < 0 ||
	     prepare_weights_op(l, &m->hidden_weights, hidden, &weights, err) < 0))
		return -1;
	*bytes = most(steps, most(data, weights));
	return 0;
}

static void describe(struct pd_compiled_layer *l, struct lstm *m)
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
	m->cells = pd_align(floats(m->rows * m->hidden));
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
	describe(l, m);
	return prepare_forward(l, m, err) < 0 ? -1 : prepare_back(l, m, err);
}

/* ---- both ways ---- */

/* One direction of a pass. */
struct way {
	struct pd_compiled_layer *l;
	const struct lstm *m;
	const struct pd_pass *pass;
	int direction;
	const int32_t *lengths;         /* NULL: all of the steps */
	char *gates;                    /* in the slot */
	float *cells;
};

static struct way way_of(struct pd_compiled_layer *l, const struct pd_pass *pass, int direction)
{
	const struct lstm *m = l->own;
	char *slot = l->extra;

	return (struct way){
		.l = l, .m = m, .pass = pass, .direction = direction,
		.lengths = l->layer->input_count > 1 ? l->src[1] : NULL,
		.gates = slot + (size_t)direction * m->gates,
		.cells = (float *)(slot + (size_t)m->directions * m->gates +
				   (size_t)direction * m->cells),
	};
}

static char *scratch(const struct way *w, size_t offset)
{
	return (char *)w->l->temporary + offset;
}

static float *room(const struct way *w, size_t offset)
{
	return (float *)scratch(w, offset);
}

/* Steps of a sample. */
static int64_t length(const struct way *w, int64_t sample)
{
	int64_t steps = w->lengths ? w->lengths[sample] : w->m->steps;

	return steps < 0 ? 0 : steps > w->m->steps ? w->m->steps : steps;
}

/* The row that is a sample's step number `step` in this direction. */
static int64_t row_of(const struct way *w, int64_t sample, int64_t step)
{
	return sample * w->m->steps + (w->direction ? length(w, sample) - 1 - step : step);
}

enum { INPUT, HIDDEN, INPUT_BIAS, HIDDEN_BIAS };

static int parameter(const struct way *w, int which)
{
	return w->direction * (2 + (int)w->l->layer->biases) + which;
}

/* Where a row of this direction lies in what the layer gives, or in the gradient of that. */
static void *output_row(const struct way *w, const void *output, int64_t row)
{
	size_t number = (size_t)((row * w->m->directions + w->direction) * w->m->hidden);

	return (char *)output + number * w->m->element;
}

/* To or from f32. */
static void narrow(const struct way *w, void *to, const float *from, int64_t count)
{
	if (w->m->narrow)
		pd_cpu_narrow(w->l->net->dtype, to, from, (size_t)count);
	else
		memcpy(to, from, floats(count));
}

static void widen(const struct way *w, float *to, const void *from, int64_t count)
{
	if (w->m->narrow)
		pd_cpu_widen(w->l->net->dtype, to, from, (size_t)count);
	else
		memcpy(to, from, floats(count));
}

/* In f32: where it is, or widened to `wide`. */
static const float *wide(const struct way *w, const void *from, size_t at, int64_t count)
{
	if (!w->m->narrow)
		return from;
	widen(w, room(w, at), from, count);
	return room(w, at);
}

static const void *pack(const struct way *w, const struct product *p, const void *weights,
			struct pd_error *err)
{
	return pd_reorder_in(w->l, &p->weights, weights, err);
}

static int multiply(const struct way *w, const struct product *p, const void *rows,
		    const void *packed, float *out, struct pd_error *err)
{
	const void *args[PD_ARGS] = {
		[PD_ARG_SRC] = rows, [PD_ARG_WEIGHTS] = packed, [PD_ARG_DST] = out,
		[PD_ARG_SCRATCH] = scratch(w, p->scratch),
	};

	return pd_primitive_run(p->op, args, err);
}

/* Some of the weights of the hidden state are dropped, for all steps and samples of a microbatch. */
static void drop(const struct way *w, void *to, const void *from, bool of_16)
{
	int64_t all = 4 * w->m->hidden * w->m->hidden;

#pragma omp parallel for schedule(static)
	for (int64_t at = 0; at < all; at += PIECE) {
		int64_t count = all - at < PIECE ? all - at : PIECE;
		float piece[PIECE];

		if (of_16)
			widen(w, piece, (const uint16_t *)from + at, count);
		else
			memcpy(piece, (const float *)from + at, floats(count));
		pd_cpu_drop_weights(w->l, w->pass, piece, w->direction * all + at, count);
		if (of_16)
			narrow(w, (uint16_t *)to + at, piece, count);
		else
			memcpy((float *)to + at, piece, floats(count));
	}
}

static bool drops(const struct way *w)
{
	return w->l->layer->weight_dropout > 0 && !w->pass->evaluate;
}

/* The weights of the hidden state, as products take them; `at`: there is room. */
static const void *hidden_weights(const struct way *w, size_t at)
{
	const void *weights = w->l->parameters[parameter(w, HIDDEN)];

	if (!w->m->native)
		weights = wide(w, weights, at, 4 * w->m->hidden * w->m->hidden);
	if (!drops(w))
		return weights;
	drop(w, scratch(w, at), weights, w->m->native);
	return scratch(w, at);
}

/* ---- forward ---- */

static void add_biases(const struct way *w, float *bias)
{
	const struct pd_compiled_layer *l = w->l;
	int64_t count = 4 * w->m->hidden;
	float *second = room(w, w->m->forward.product);

	memset(bias, 0, floats(count));
	if (!l->layer->bias)
		return;
	widen(w, bias, l->parameters[parameter(w, INPUT_BIAS)], count);
	if (l->layer->biases < 2)
		return;
	widen(w, second, l->parameters[parameter(w, HIDDEN_BIAS)], count);
	for (int64_t j = 0; j < count; j++)
		bias[j] += second[j];
}

/* What the inputs give to the gates of all rows. */
static int project(const struct way *w, float *sums, struct pd_error *err)
{
	const struct lstm *m = w->m;
	const void *weights = w->l->parameters[parameter(w, INPUT)], *packed;
	struct pd_gemm gemm = {
		.m = m->rows, .n = 4 * m->hidden, .k = m->inputs,
		.lda = m->inputs, .ldb = m->inputs, .transposed_b = true,
		.c = sums, .ldc = 4 * m->hidden,
	};

	if (m->native) {
		packed = pack(w, &m->input, weights, err);
		return packed ? multiply(w, &m->input, w->l->src[0], packed, sums, err) : -1;
	}
	gemm.a = wide(w, w->l->src[0], m->forward.input, m->rows * m->inputs);
	gemm.b = wide(w, weights, m->forward.input_weights, 4 * m->hidden * m->inputs);
	return pd_onednn_gemm(&gemm, err);
}

/* The hidden state, or the cells, of a sample's lane. */
static float *lane(const struct way *w, int64_t n, bool cells)
{
	size_t quarter = w->l->state_bytes / 4;
	char *state = (char *)w->l->state + (w->pass->evaluate ? 2 : 0) * quarter +
		      (cells ? quarter : 0);

	return (float *)state + (w->pass->first_sample + n) % w->m->lanes * w->m->hidden;
}

/* The cells, or hidden states, before the first step of a sample with a lane. */
static float *carried(const struct way *w, int64_t n, bool cells)
{
	size_t half = cells ? w->l->carried_bytes / 2 : 0;

	return (float *)((char *)w->l->carried + half) + n * w->m->hidden;
}

/* Takes what its lane has been left with; zeros if it is the first in it. */
static void take_up(const struct way *w, int64_t n)
{
	size_t bytes = floats(w->m->hidden);

	for (int cells = 0; cells < 2; cells++)
		if (w->pass->first_sample + n < w->m->lanes)
			memset(carried(w, n, cells), 0, bytes);
		else
			memcpy(carried(w, n, cells), lane(w, n, cells), bytes);
}

/* Hidden states and cells before the first step: zeros, or those of the lanes. */
static void begin(const struct way *w)
{
	const struct lstm *m = w->m;
	int64_t batch = w->l->net->batch, all = batch * m->hidden;
	float *hidden = room(w, m->forward.hidden), *cells = room(w, m->forward.cells);

	for (int64_t n = 0; n < batch && m->lanes && !w->pass->again; n++)
		take_up(w, n);
	if (m->lanes) {
		memcpy(hidden, carried(w, 0, false), floats(all));
		memcpy(cells, carried(w, 0, true), floats(all));
	} else {
		memset(hidden, 0, floats(all));
		memset(cells, 0, floats(all));
	}
	if (m->native)
		narrow(w, scratch(w, m->forward.state), hidden, all);
}

/* The state that the next sample of each lane begins with. */
static void leave(const struct way *w)
{
	const struct lstm *m = w->m;

	for (int64_t n = 0; n < w->l->net->batch && m->lanes && !w->pass->again; n++) {
		int64_t steps = length(w, n);
		const float *cells = steps > 0
			? w->cells + row_of(w, n, steps - 1) * m->hidden
			: room(w, m->forward.cells) + n * m->hidden;

		memcpy(lane(w, n, false), room(w, m->forward.hidden) + n * m->hidden,
		       floats(m->hidden));
		memcpy(lane(w, n, true), cells, floats(m->hidden));
	}
}

/* One step of one sample; product: NULL: none. */
static void step_forward(const struct way *w, int64_t n, int64_t step, float *all_sums,
			 const float *product)
{
	const struct lstm *m = w->m;
	int64_t row = row_of(w, n, step), count = m->hidden;
	float *sums = all_sums + row * 4 * count, *hidden = room(w, m->forward.hidden) + n * count;
	const float *before = step > 0 ? w->cells + row_of(w, n, step - 1) * count
				       : room(w, m->forward.cells) + n * count;
	void *out = output_row(w, w->l->dst, row);

	pd_lstm_gates(sums, product ? product + n * 4 * count : NULL, room(w, m->forward.bias),
		      before, w->cells + row * count, hidden, count);
	narrow(w, out, hidden, count);
	if (!m->narrow)
		return;
	narrow(w, w->gates + m->element * (size_t)(row * 4 * count), sums, 4 * count);
	widen(w, hidden, out, count);           /* as it is rounded */
	if (m->native)
		memcpy(scratch(w, m->forward.state) + m->work * (size_t)(n * count), out,
		       m->work * (size_t)count);
}

static void clear_padding(const struct way *w)
{
	const struct lstm *m = w->m;

	for (int64_t n = 0; n < w->l->net->batch && w->lengths; n++)
		for (int64_t t = length(w, n); t < m->steps; t++)
			memset(output_row(w, w->l->dst, n * m->steps + t), 0,
			       m->element * (size_t)m->hidden);
}

static int forward_way(const struct way *w, struct pd_error *err)
{
	const struct lstm *m = w->m;
	float *sums = m->narrow ? room(w, m->forward.sums) : (float *)w->gates;
	const void *packed;

	add_biases(w, room(w, m->forward.bias));
	if (project(w, sums, err) < 0)
		return -1;
	packed = pack(w, &m->recurrent, hidden_weights(w, m->forward.weights), err);
	if (!packed)
		return -1;
	begin(w);
	for (int64_t step = 0; step < m->steps; step++) {
		float *product = step > 0 || m->lanes ? room(w, m->forward.product) : NULL;

		if (product && multiply(w, &m->recurrent, scratch(w, m->forward.state), packed,
					product, err) < 0)
			return -1;
#pragma omp parallel for schedule(static)
		for (int64_t n = 0; n < w->l->net->batch; n++)
			if (step < length(w, n))
				step_forward(w, n, step, sums, product);
	}
	clear_padding(w);
	leave(w);
	return 0;
}

static int forward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	const struct lstm *m = l->own;

	for (int d = 0; d < m->directions; d++) {
		const struct way w = way_of(l, pass, d);

		if (forward_way(&w, err) < 0)
			return -1;
	}
	return 0;
}

/* ---- backward: the steps ---- */

static void step_back(const struct way *w, int64_t n, int64_t step, char *kept)
{
	const struct lstm *m = w->m;
	int64_t row = row_of(w, n, step), count = m->hidden;
	float *sums = room(w, m->backward.sums) + n * 4 * count;
	char *to = kept + m->element * (size_t)(row * 4 * count);
	struct pd_lstm_back back = {
		.cell = w->cells + row * count,
		.before = step > 0 ? w->cells + row_of(w, n, step - 1) * count
				   : m->lanes ? carried(w, n, true) : room(w, m->backward.zeros),
		.recurrent = room(w, m->backward.hidden) + n * count,
		.cells = room(w, m->backward.cells) + n * count, .back = sums,
	};

	back.gates = (const float *)w->gates + row * 4 * count;
	back.output = output_row(w, w->l->diff_dst, row);
	if (m->narrow) {
		float *gates = room(w, m->backward.gates) + n * 4 * count;
		float *output = room(w, m->backward.output) + n * count;

		widen(w, gates, w->gates + m->element * (size_t)(row * 4 * count), 4 * count);
		widen(w, output, back.output, count);
		back.gates = gates;
		back.output = output;
	}
	pd_lstm_gates_back(&back, count);
	narrow(w, to, sums, 4 * count);
	if (m->native)
		memcpy(scratch(w, m->backward.work) + m->work * (size_t)(n * 4 * count), to,
		       m->work * (size_t)(4 * count));
	else if (m->narrow)
		widen(w, sums, to, 4 * count);
}

/* What a sample gives to the gates before its last step: nothing. */
static void rest(const struct way *w, int64_t n)
{
	const struct lstm *m = w->m;

	memset(scratch(w, m->backward.work) + m->work * (size_t)(n * 4 * m->hidden), 0,
	       m->work * (size_t)(4 * m->hidden));
}

static int steps_back(const struct way *w, char *kept, struct pd_error *err)
{
	const struct lstm *m = w->m;
	int64_t batch = w->l->net->batch;
	const void *packed = pack(w, &m->recurrent_back, hidden_weights(w, m->backward.weights), err);

	if (!packed)
		return -1;
	if (w->lengths)
		memset(kept, 0, m->kept);
	memset(room(w, m->backward.hidden), 0, floats(batch * m->hidden));
	memset(room(w, m->backward.cells), 0, floats(batch * m->hidden));
	memset(room(w, m->backward.zeros), 0, floats(m->hidden));
	for (int64_t step = m->steps - 1; step >= 0; step--) {
#pragma omp parallel for schedule(static)
		for (int64_t n = 0; n < batch; n++)
			if (step < length(w, n))
				step_back(w, n, step, kept);
			else
				rest(w, n);
		if (step > 0 && multiply(w, &m->recurrent_back, scratch(w, m->backward.work), packed,
					 room(w, m->backward.hidden), err) < 0)
			return -1;
	}
	return 0;
}

/* ---- backward: the rest ---- */

/* The gradients of the gates' sums, as f32 products take them. */
static const float *widened(const struct way *w, const char *kept)
{
	return wide(w, kept, w->m->backward.wide, w->m->rows * 4 * w->m->hidden);
}

/* The gradient of the input; the second direction adds its part. */
static int back_data(const struct way *w, const char *kept, struct pd_error *err)
{
	const struct lstm *m = w->m;
	const void *weights = w->l->parameters[parameter(w, INPUT)], *packed;
	struct pd_gemm gemm = {
		.m = m->rows, .n = m->inputs, .k = 4 * m->hidden,
		.lda = 4 * m->hidden, .ldb = m->inputs, .ldc = m->inputs, .adds = w->direction > 0,
	};

	if (m->native) {
		packed = pack(w, &m->input_back, weights, err);
		return packed ? multiply(w, &m->input_back, kept, packed,
					 room(w, m->backward.data[w->direction]), err) : -1;
	}
	gemm.a = widened(w, kept);
	gemm.b = wide(w, weights, m->backward.input_weights, 4 * m->hidden * m->inputs);
	gemm.c = m->narrow ? room(w, m->backward.data[0]) : w->l->diff_src[0];
	return pd_onednn_gemm(&gemm, err);
}

/* Rounds what is then whole. */
static void end_data(const struct way *w)
{
	const struct lstm *m = w->m;
	float *data[] = { room(w, m->backward.data[0]), room(w, m->backward.data[1]) };
	int64_t count = m->rows * m->inputs;

	if (!m->narrow || w->direction < m->directions - 1)
		return;
	if (m->native && m->directions > 1)
		pd_cpu_sum(data[0], (const float *const *)data, 2, (size_t)count);
	narrow(w, w->l->diff_src[0], data[0], count);
}

/* The hidden states that rows were made from, where products take them from. */
static void gather_before(const struct way *w)
{
	const struct lstm *m = w->m;
	size_t bytes = m->work * (size_t)m->hidden;

	memset(scratch(w, m->backward.before), 0, bytes * (size_t)m->rows);
#pragma omp parallel for schedule(static)
	for (int64_t n = 0; n < w->l->net->batch; n++)
		for (int64_t step = 0; step < length(w, n); step++) {
			char *to = scratch(w, m->backward.before) +
				   bytes * (size_t)row_of(w, n, step);
			const float *first = m->lanes ? carried(w, n, false) : NULL;
			const void *from = step > 0
				? output_row(w, w->l->dst, row_of(w, n, step - 1)) : NULL;

			if (from && m->native)
				memcpy(to, from, bytes);
			else if (from)
				widen(w, (float *)to, from, m->hidden);
			else if (first && m->native)
				narrow(w, to, first, m->hidden);
			else if (first)
				memcpy(to, first, bytes);
		}
}

PD_VECTOR static void add_to(float *restrict sums, const float *restrict row, int64_t count)
{
	for (int64_t i = 0; i < count; i++)
		sums[i] += row[i];
}

static void back_biases(const struct way *w, const char *kept)
{
	const struct lstm *m = w->m;
	int64_t all = 4 * m->hidden;
	float *first = w->l->diff_parameters[parameter(w, INPUT_BIAS)];

#pragma omp parallel for schedule(static)
	for (int64_t at = 0; at < all; at += COLUMNS) {
		int64_t count = all - at < COLUMNS ? all - at : COLUMNS;
		float row[COLUMNS];

		memset(first + at, 0, floats(count));
		for (int64_t r = 0; r < m->rows; r++) {
			widen(w, row, kept + m->element * (size_t)(r * all + at), count);
			add_to(first + at, row, count);
		}
	}
	if (w->l->layer->biases > 1)
		memcpy(w->l->diff_parameters[parameter(w, HIDDEN_BIAS)], first, floats(all));
}

static int run_weights_op(const struct way *w, const struct weights_op *op, const void *rows,
			  const void *kept, float *gradient, struct pd_error *err)
{
	const void *args[PD_ARGS] = {
		[PD_ARG_SRC] = rows, [PD_ARG_DIFF_DST] = kept,
		[PD_ARG_DIFF_WEIGHTS] = pd_reorder_buffer(w->l, &op->out, gradient),
		[PD_ARG_SCRATCH] = scratch(w, op->scratch),
	};

	if (pd_primitive_run(op->op, args, err) < 0)
		return -1;
	return pd_reorder_out(w->l, &op->out, gradient, err);
}

static int back_weights(const struct way *w, const char *kept, struct pd_error *err)
{
	const struct lstm *m = w->m;
	float *of_input = w->l->diff_parameters[parameter(w, INPUT)];
	float *of_hidden = w->l->diff_parameters[parameter(w, HIDDEN)];
	struct pd_gemm gemm = {
		.m = 4 * m->hidden, .k = m->rows, .lda = 4 * m->hidden, .transposed_a = true,
	};

	gather_before(w);
	if (m->native)
		return run_weights_op(w, &m->input_weights, w->l->src[0], kept, of_input,
				      err) < 0 ? -1 :
		       run_weights_op(w, &m->hidden_weights, scratch(w, m->backward.before), kept,
				      of_hidden, err);
	gemm.a = widened(w, kept);
	gemm.n = gemm.ldb = gemm.ldc = m->inputs;
	gemm.b = wide(w, w->l->src[0], m->backward.input, m->rows * m->inputs);
	gemm.c = of_input;
	if (pd_onednn_gemm(&gemm, err) < 0)
		return -1;
	gemm.n = gemm.ldb = gemm.ldc = m->hidden;
	gemm.b = room(w, m->backward.before);
	gemm.c = of_hidden;
	return pd_onednn_gemm(&gemm, err);
}

static int back_parameters(const struct way *w, const char *kept, struct pd_error *err)
{
	float *of_hidden = w->l->diff_parameters[parameter(w, HIDDEN)];

	if (back_weights(w, kept, err) < 0)
		return -1;
	if (w->l->layer->weight_dropout > 0)
		drop(w, of_hidden, of_hidden, false);
	if (w->l->layer->bias)
		back_biases(w, kept);
	return 0;
}

static int backward_way(const struct way *w, struct pd_error *err)
{
	enum pd_backward_part part = w->pass->part;
	char *kept = part == PD_BACKWARD_ALL
		? scratch(w, w->m->backward.kept)
		: (char *)w->l->split + (size_t)w->direction * w->m->kept;

	if (part != PD_BACKWARD_WEIGHT && steps_back(w, kept, err) < 0)
		return -1;
	if (part != PD_BACKWARD_WEIGHT && w->l->diff_src[0]) {
		if (back_data(w, kept, err) < 0)
			return -1;
		end_data(w);
	}
	return part != PD_BACKWARD_INPUT ? back_parameters(w, kept, err) : 0;
}

static int backward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	const struct lstm *m = l->own;

	for (int d = 0; d < m->directions; d++) {
		const struct way w = way_of(l, pass, d);

		if (backward_way(&w, err) < 0)
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
