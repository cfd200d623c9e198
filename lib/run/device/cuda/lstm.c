/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lstm: products by cuBLASLt, and kernels of our own for a step; see the CPU's.  The state of lanes
 * lies alike.  Weights are never packed: products take them as they lie.
 *
 * cuDNN's RNN could not replace this, only stand beside it for layers without lengths.  Since 8.9.1 it
 * takes lengths from host memory alone; ours are in device memory, and a graph (graph.h) would keep
 * those of the pass that it was captured from.  Its gradients of weights have the weights' type, where
 * ours are f32; and its backward writes into what forward kept, so that it cannot run again.  Nobody has
 * measured how much faster it is.
 */
#include "run/device/cuda/product.h"

#include "base/rng.h"

enum { INPUT, HIDDEN, INPUT_BIAS, HIDDEN_BIAS };

struct lstm {
	struct pd_cuda_own own;         /* nothing to release */
	int64_t steps, inputs, hidden, rows;
	int directions;
	size_t gates, cells;            /* of one direction in the slot: bytes */
	struct pd_cuda_product input, recurrent, recurrent_back, input_back, input_weights,
		hidden_weights;
	/* Places in scratch; workspaces of products, and parts of a sum, are at `room`, one at a time. */
	struct {
		size_t sums, product, hidden, weights, room;
	} forward;
	struct {
		size_t kept, sums, hidden, cells, weights, before, room;
		size_t data[2];
	} backward;
};

static size_t floats(int64_t count)
{
	return sizeof(float) * (size_t)count;
}

static size_t numbers(const struct pd_compiled_layer *l, int64_t count)
{
	return pd_dtype_bytes(l->net->dtype) * (size_t)count;
}

static int prepare_products(struct pd_compiled_layer *l, struct lstm *m, struct pd_error *err)
{
	int64_t batch = l->net->batch, out = 4 * m->hidden;
	/* of two directions the parts are added in f32 */
	cudaDataType data = m->directions > 1 ? CUDA_R_32F : pd_cuda_product_type(l);

	if (pd_cuda_product_prepare(&m->input, l, PD_FORWARD, m->rows, m->inputs, out,
				    CUDA_R_32F, err) < 0 ||
	    pd_cuda_product_prepare(&m->recurrent, l, PD_FORWARD, batch, m->hidden, out,
				    CUDA_R_32F, err) < 0 ||
	    pd_cuda_product_prepare(&m->recurrent_back, l, PD_BACKWARD_DATA, batch, m->hidden, out,
				    CUDA_R_32F, err) < 0 ||
	    pd_cuda_product_prepare(&m->input_weights, l, PD_BACKWARD_WEIGHTS, m->rows, m->inputs, out,
				    CUDA_R_32F, err) < 0 ||
	    pd_cuda_product_prepare(&m->hidden_weights, l, PD_BACKWARD_WEIGHTS, m->rows, m->hidden, out,
				    CUDA_R_32F, err) < 0)
		return -1;
	return l->wants[0] ? pd_cuda_product_prepare(&m->input_back, l, PD_BACKWARD_DATA, m->rows,
						     m->inputs, out, data, err) : 0;
}

/* The largest workspace of some products. */
static size_t room_of(const struct pd_cuda_product *const *products, int count)
{
	size_t most = 0;

	for (int i = 0; i < count; i++)
		most = products[i]->workspace > most ? products[i]->workspace : most;
	return pd_cuda_workspace_bytes(most);
}

static void place(struct pd_compiled_layer *l, struct lstm *m)
{
	const struct pd_cuda_product *const ahead[] = { &m->input, &m->recurrent };
	const struct pd_cuda_product *const back[] = {
		&m->recurrent_back, &m->input_back, &m->input_weights, &m->hidden_weights,
	};
	int64_t batch = l->net->batch, hidden = m->hidden;
	bool drops = l->layer->weight_dropout > 0;
	size_t *bytes = &l->forward_bytes, room = room_of(back, PD_COUNT(back));
	size_t of_biases = l->layer->bias
		? sizeof(float) * pd_kernel_norm_scratch(m->rows, 4 * hidden) : 0;

	if (l->net->dtype != PD_F32)
		m->forward.sums = pd_take(bytes, floats(m->rows * 4 * hidden));
	m->forward.product = pd_take(bytes, floats(batch * 4 * hidden));
	m->forward.hidden = pd_take(bytes, numbers(l, batch * hidden));
	m->forward.weights = pd_take(bytes, drops ? numbers(l, 4 * hidden * hidden) : 0);
	m->forward.room = pd_take(bytes, room_of(ahead, PD_COUNT(ahead)));
	bytes = &l->backward_bytes;
	m->backward.kept = pd_take(bytes, numbers(l, m->rows * 4 * hidden));
	m->backward.sums = pd_take(bytes, numbers(l, batch * 4 * hidden));
	m->backward.hidden = pd_take(bytes, floats(batch * hidden));
	m->backward.cells = pd_take(bytes, floats(batch * hidden));
	m->backward.weights = pd_take(bytes, drops ? numbers(l, 4 * hidden * hidden) : 0);
	m->backward.before = pd_take(bytes, numbers(l, m->rows * hidden));
	for (int d = 0; d < 2 && m->directions > 1 && l->wants[0]; d++)
		m->backward.data[d] = pd_take(bytes, floats(m->rows * m->inputs));
	m->backward.room = pd_take(bytes, of_biases > room ? of_biases : room);
}

static int prepare(struct pd_compiled_layer *l, struct pd_error *err)
{
	size_t kept;
	struct lstm *m;

	if (pd_compiled_lanes(l, err) < 0)
		return -1;
	if (!l->inside)
		return 0;
	l->own = m = pd_zalloc(sizeof(*m));
	m->steps = l->in_shape[0]->size[0];
	m->inputs = l->in_shape[0]->size[1];
	m->hidden = l->layer->hidden_size;
	m->rows = l->net->batch * m->steps;
	m->directions = l->layer->bidirectional ? 2 : 1;
	kept = pd_align(numbers(l, m->rows * 4 * m->hidden));
	m->gates = kept;
	m->cells = pd_align(floats(m->rows * m->hidden));
	l->extra_bytes = (size_t)m->directions * (m->gates + m->cells);
	l->split_bytes = (size_t)m->directions * kept;
	if (prepare_products(l, m, err) < 0)
		return -1;
	place(l, m);
	return 0;
}

/* One direction of a pass. */
struct way {
	struct pd_compiled_layer *l;
	struct lstm *m;
	const struct pd_pass *pass;
	int direction;
	cudaStream_t stream;
	enum pd_dtype dtype;
	struct pd_kernel_lstm kernel;
	char *gates;                    /* in the slot */
	float *cells;
};

static struct way way_of(struct pd_compiled_layer *l, const struct pd_pass *pass, int direction)
{
	struct lstm *m = l->own;
	char *slot = l->extra, *first = l->carried;
	int64_t lanes = l->layer->lanes;

	return (struct way){
		.l = l, .m = m, .pass = pass, .direction = direction,
		.stream = pd_cuda_engine(l)->stream, .dtype = l->net->dtype,
		.kernel = {
			.batch = l->net->batch, .steps = m->steps, .hidden = m->hidden,
			.output = m->directions * m->hidden, .reversed = direction > 0,
			.lengths = l->layer->input_count > 1 ? l->src[1] : NULL, .lanes = lanes,
			.first_hidden = lanes ? (float *)first : NULL,
			.first_cells = lanes ? (float *)(first + l->carried_bytes / 2) : NULL,
			.again = pass->again,
		},
		.gates = slot + (size_t)direction * m->gates,
		.cells = (float *)(slot + (size_t)m->directions * m->gates +
				   (size_t)direction * m->cells),
	};
}

static char *scratch(const struct way *w, size_t offset)
{
	return (char *)w->l->temporary + offset;
}

static int queued(const struct way *w, cudaError_t status, struct pd_error *err)
{
	return pd_cuda_queued(w->l, status, err);
}

static int parameter(const struct way *w, int which)
{
	return w->direction * (2 + (int)w->l->layer->biases) + which;
}

/* Returns the first number of this direction in the layer's output or its gradient. */
static void *output(const struct way *w, const void *rows)
{
	return (char *)rows + numbers(w->l, w->direction * w->m->hidden);
}

/* The hidden states of the lanes, or their cells: of training, or of an evaluation. */
static float *lanes(const struct way *w, bool cells)
{
	size_t quarter = w->l->state_bytes / 4;

	return (float *)((char *)w->l->state + (w->pass->evaluate ? 2 : 0) * quarter +
			 (cells ? quarter : 0));
}

static int drop(const struct way *w, enum pd_dtype dtype, void *to, const void *from,
		struct pd_error *err)
{
	const struct pd_compiled_layer *l = w->l;
	int64_t count = 4 * w->m->hidden * w->m->hidden;
	const struct pd_kernel_drop d = {
		.seed = l->net->seed,
		.stream = PD_RNG_DROPOUT + (uint64_t)pd_model_number(l->net->model, l->index),
		.first = w->direction * count, .count = count,
		.p = (float)l->layer->weight_dropout,
		.scale = (float)(1 / (1 - l->layer->weight_dropout)),
	};

	return queued(w, pd_kernel_lstm_drop(w->stream, dtype, &d, pd_cuda_engine(l)->numbers, to,
					     from), err);
}

/* The weights of the hidden state, without what is dropped; `at`: there is room.  NULL: *err. */
static const void *hidden_weights(const struct way *w, size_t at, struct pd_error *err)
{
	const void *weights = w->l->parameters[parameter(w, HIDDEN)];
	void *kept = scratch(w, at);

	if (w->l->layer->weight_dropout == 0 || w->pass->evaluate)
		return weights;
	return drop(w, w->dtype, kept, weights, err) < 0 ? NULL : kept;
}

static int multiply(const struct way *w, struct pd_cuda_product *p, const void *a, const void *b,
		    void *d, size_t room, struct pd_error *err)
{
	return pd_cuda_product_run(p, w->l, a, b, d, scratch(w, room), err);
}

static int steps_forward(const struct way *w, const void *weights, float *sums,
			 struct pd_error *err)
{
	struct lstm *m = w->m;
	int64_t count = w->l->layer->biases;
	const void *biases[] = { count > 0 ? w->l->parameters[parameter(w, INPUT_BIAS)] : NULL,
				 count > 1 ? w->l->parameters[parameter(w, HIDDEN_BIAS)] : NULL };
	void *hidden = scratch(w, m->forward.hidden);

	for (int64_t step = 0; step < m->steps; step++) {
		float *product = step > 0 || w->kernel.lanes
			? (float *)scratch(w, m->forward.product) : NULL;

		if (product && multiply(w, &m->recurrent, weights, hidden, product, m->forward.room,
					err) < 0)
			return -1;
		if (queued(w, pd_kernel_lstm(w->stream, w->dtype, &w->kernel, step, sums, product,
					     biases, w->gates, w->cells, hidden,
					     output(w, w->l->dst)), err) < 0)
			return -1;
	}
	return 0;
}

static int forward_way(const struct way *w, struct pd_error *err)
{
	struct lstm *m = w->m;
	const struct pd_pass_numbers *now = pd_cuda_engine(w->l)->numbers;
	float *sums = w->dtype == PD_F32 ? (float *)w->gates : (float *)scratch(w, m->forward.sums);
	void *hidden = scratch(w, m->forward.hidden);
	const void *weights;

	if (multiply(w, &m->input, w->l->parameters[parameter(w, INPUT)], w->l->src[0], sums,
		     m->forward.room, err) < 0)
		return -1;
	weights = hidden_weights(w, m->forward.weights, err);
	if (!weights)
		return -1;
	/* a hidden state that no step has made is multiplied too, where other samples go on */
	if (queued(w, w->kernel.lanes
		   ? pd_kernel_lstm_begin(w->stream, w->dtype, &w->kernel, now, hidden,
					  lanes(w, false), lanes(w, true))
		   : cudaMemsetAsync(hidden, 0, numbers(w->l, w->kernel.batch * m->hidden),
				     w->stream), err) < 0 ||
	    steps_forward(w, weights, sums, err) < 0)
		return -1;
	return w->kernel.lanes == 0 || w->kernel.again ? 0 :
	       queued(w, pd_kernel_lstm_end(w->stream, w->dtype, &w->kernel, now, hidden, w->cells,
					    lanes(w, false), lanes(w, true)), err);
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

static int steps_back(const struct way *w, char *kept, struct pd_error *err)
{
	struct lstm *m = w->m;
	const void *weights = hidden_weights(w, m->backward.weights, err);
	float *hidden = (float *)scratch(w, m->backward.hidden);
	void *sums = scratch(w, m->backward.sums);

	if (!weights)
		return -1;
	for (int64_t step = m->steps - 1; step >= 0; step--) {
		bool last = step == m->steps - 1;

		if (queued(w, pd_kernel_lstm_back(w->stream, w->dtype, &w->kernel, step, w->gates,
						  w->cells, output(w, w->l->diff_dst),
						  last ? NULL : hidden,
						  (float *)scratch(w, m->backward.cells), kept,
						  sums), err) < 0 ||
		    (step > 0 && multiply(w, &m->recurrent_back, weights, sums, hidden,
					  m->backward.room, err) < 0))
			return -1;
	}
	return 0;
}

/* The gradient of the input, once both directions have given their parts. */
static int back_data(const struct way *w, const char *kept, struct pd_error *err)
{
	struct lstm *m = w->m;
	bool two = m->directions > 1;
	void *to = two ? scratch(w, m->backward.data[w->direction]) : w->l->diff_src[0];

	if (multiply(w, &m->input_back, w->l->parameters[parameter(w, INPUT)], kept, to,
		     m->backward.room, err) < 0)
		return -1;
	if (!two || w->direction == 0)
		return 0;
	return queued(w, pd_kernel_lstm_add(w->stream, w->dtype, w->l->diff_src[0],
					    (float *)scratch(w, m->backward.data[0]),
					    (float *)scratch(w, m->backward.data[1]),
					    (size_t)(m->rows * m->inputs)), err);
}

static int back_biases(const struct way *w, const char *kept, struct pd_error *err)
{
	struct pd_compiled_layer *l = w->l;
	float *of_input = l->diff_parameters[parameter(w, INPUT_BIAS)];

	if (queued(w, pd_kernel_columns(w->stream, w->dtype, of_input,
					(float *)scratch(w, w->m->backward.room), kept, w->m->rows,
					4 * w->m->hidden), err) < 0)
		return -1;
	if (l->layer->biases < 2)
		return 0;
	return l->net->device->copy(l->net, l->diff_parameters[parameter(w, HIDDEN_BIAS)], of_input,
				    floats(4 * w->m->hidden), err);
}

static int back_parameters(const struct way *w, const char *kept, struct pd_error *err)
{
	struct lstm *m = w->m;
	void *before = scratch(w, m->backward.before);
	float *of_hidden = w->l->diff_parameters[parameter(w, HIDDEN)];

	if (multiply(w, &m->input_weights, w->l->src[0], kept,
		     w->l->diff_parameters[parameter(w, INPUT)], m->backward.room, err) < 0 ||
	    queued(w, pd_kernel_lstm_before(w->stream, w->dtype, &w->kernel, before,
					    output(w, w->l->dst)), err) < 0 ||
	    multiply(w, &m->hidden_weights, before, kept, of_hidden, m->backward.room, err) < 0)
		return -1;
	if (w->l->layer->weight_dropout > 0 && drop(w, PD_F32, of_hidden, of_hidden, err) < 0)
		return -1;
	return w->l->layer->bias ? back_biases(w, kept, err) : 0;
}

static int backward_way(const struct way *w, struct pd_error *err)
{
	enum pd_backward_part part = w->pass->part;
	char *kept = part == PD_BACKWARD_ALL
		? scratch(w, w->m->backward.kept)
		: (char *)w->l->split + (size_t)w->direction * w->m->gates;

	if (part != PD_BACKWARD_WEIGHT &&
	    (steps_back(w, kept, err) < 0 ||
	     (w->l->diff_src[0] && back_data(w, kept, err) < 0)))
		return -1;
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

const struct pd_compiled_kind pd_cuda_lstm = {
	.plain = true,
	.prepare = prepare,
	.forward = forward,
	.backward = backward,
};
