/* SPDX-License-Identifier: Apache-2.0 */
/* From the gradients of the gates' sums of all rows, those of input, weights and biases. */
#include "run/device/cpu/lstm.h"

#include <string.h>

#define COLUMNS 256             /* of which sums are taken at a time */

/* The gradients of the gates' sums, as f32 products take them. */
static const float *widened(const struct lstm_way *w, const char *kept)
{
	return lstm_wide(w, kept, w->m->backward.wide, w->m->rows * 4 * w->m->hidden);
}

/* The gradient of the input; the second direction adds its part. */
static int back_data(const struct lstm_way *w, const char *kept, struct pd_error *err)
{
	const struct lstm *m = w->m;
	const void *weights = w->l->parameters[lstm_parameter(w, INPUT)], *packed;
	struct pd_matrix_product gemm = {
		.m = m->rows, .n = m->inputs, .k = 4 * m->hidden,
		.lda = 4 * m->hidden, .ldb = m->inputs, .ldc = m->inputs, .adds = w->direction > 0,
	};

	if (m->native) {
		packed = lstm_pack(w, &m->input_back, weights, err);
		return packed ? lstm_multiply(w, &m->input_back, kept, packed,
					      lstm_room(w, m->backward.data[w->direction]), err) : -1;
	}
	gemm.a = widened(w, kept);
	gemm.b = lstm_wide(w, weights, m->backward.input_weights, 4 * m->hidden * m->inputs);
	gemm.c = m->narrow ? lstm_room(w, m->backward.data[0]) : w->l->diff_src[0];
	return pd_matrix_multiply(&gemm, err);
}

/* Rounds what is then whole. */
static void end_data(const struct lstm_way *w)
{
	const struct lstm *m = w->m;
	float *data[] = { lstm_room(w, m->backward.data[0]), lstm_room(w, m->backward.data[1]) };
	int64_t count = m->rows * m->inputs;

	if (!m->narrow || w->direction < m->directions - 1)
		return;
	if (m->native && m->directions > 1)
		pd_cpu_sum(data[0], (const float *const *)data, 2, (size_t)count);
	lstm_narrow(w, w->l->diff_src[0], data[0], count);
}

/* The hidden states that rows were made from, where products take them from. */
static void gather_before(const struct lstm_way *w)
{
	const struct lstm *m = w->m;
	size_t bytes = m->work * (size_t)m->hidden;

	memset(lstm_scratch(w, m->backward.before), 0, bytes * (size_t)m->rows);
#pragma omp parallel for schedule(static)
	for (int64_t n = 0; n < w->l->net->batch; n++)
		for (int64_t step = 0; step < lstm_length(w, n); step++) {
			char *to = lstm_scratch(w, m->backward.before) +
				   bytes * (size_t)lstm_row_of(w, n, step);
			const float *first = m->lanes ? lstm_carried(w, n, false) : NULL;
			const void *from = step > 0
				? lstm_output_row(w, w->l->dst, lstm_row_of(w, n, step - 1)) : NULL;

			if (from && m->native)
				memcpy(to, from, bytes);
			else if (from)
				lstm_widen(w, (float *)to, from, m->hidden);
			else if (first && m->native)
				lstm_narrow(w, to, first, m->hidden);
			else if (first)
				memcpy(to, first, bytes);
		}
}

PD_VECTOR static void add_to(float *restrict sums, const float *restrict row, int64_t count)
{
	for (int64_t i = 0; i < count; i++)
		sums[i] += row[i];
}

static void back_biases(const struct lstm_way *w, const char *kept)
{
	const struct lstm *m = w->m;
	int64_t all = 4 * m->hidden;
	float *first = w->l->diff_parameters[lstm_parameter(w, INPUT_BIAS)];

#pragma omp parallel for schedule(static)
	for (int64_t at = 0; at < all; at += COLUMNS) {
		int64_t count = all - at < COLUMNS ? all - at : COLUMNS;
		float row[COLUMNS];

		memset(first + at, 0, lstm_floats(count));
		for (int64_t r = 0; r < m->rows; r++) {
			lstm_widen(w, row, kept + m->element * (size_t)(r * all + at), count);
			add_to(first + at, row, count);
		}
	}
	if (w->l->layer->biases > 1)
		memcpy(w->l->diff_parameters[lstm_parameter(w, HIDDEN_BIAS)], first, lstm_floats(all));
}

static int run_weights_op(const struct lstm_way *w, const struct lstm_weights_op *op, const void *rows,
			  const void *kept, float *gradient, struct pd_error *err)
{
	const void *args[PD_ARGS] = {
		[PD_ARG_SRC] = rows, [PD_ARG_DIFF_DST] = kept,
		[PD_ARG_DIFF_WEIGHTS] = pd_reorder_buffer(w->l, &op->out, gradient),
		[PD_ARG_SCRATCH] = lstm_scratch(w, op->scratch),
	};

	if (pd_primitive_run(op->op, args, err) < 0)
		return -1;
	return pd_reorder_out(w->l, &op->out, gradient, err);
}

static int back_weights(const struct lstm_way *w, const char *kept, struct pd_error *err)
{
	const struct lstm *m = w->m;
	float *of_input = w->l->diff_parameters[lstm_parameter(w, INPUT)];
	float *of_hidden = w->l->diff_parameters[lstm_parameter(w, HIDDEN)];
	struct pd_matrix_product gemm = {
		.m = 4 * m->hidden, .k = m->rows, .lda = 4 * m->hidden, .transposed_a = true,
	};

	gather_before(w);
	if (m->native)
		return run_weights_op(w, &m->input_weights, w->l->src[0], kept, of_input,
				      err) < 0 ? -1 :
		       run_weights_op(w, &m->hidden_weights, lstm_scratch(w, m->backward.before), kept,
				      of_hidden, err);
	gemm.a = widened(w, kept);
	gemm.n = gemm.ldb = gemm.ldc = m->inputs;
	gemm.b = lstm_wide(w, w->l->src[0], m->backward.input, m->rows * m->inputs);
	gemm.c = of_input;
	if (pd_matrix_multiply(&gemm, err) < 0)
		return -1;
	gemm.n = gemm.ldb = gemm.ldc = m->hidden;
	gemm.b = lstm_room(w, m->backward.before);
	gemm.c = of_hidden;
	return pd_matrix_multiply(&gemm, err);
}

static int back_parameters(const struct lstm_way *w, const char *kept, struct pd_error *err)
{
	float *of_hidden = w->l->diff_parameters[lstm_parameter(w, HIDDEN)];

	if (back_weights(w, kept, err) < 0)
		return -1;
	if (w->l->layer->weight_dropout > 0)
		lstm_drop(w, of_hidden, of_hidden, false);
	if (w->l->layer->bias)
		back_biases(w, kept);
	return 0;
}

int lstm_backward(const struct lstm_way *w, struct pd_error *err)
{
	enum pd_backward_part part = w->pass->part;
	char *kept = part == PD_BACKWARD_ALL
		? lstm_scratch(w, w->m->backward.kept)
		: (char *)w->l->split + (size_t)w->direction * w->m->kept;

	if (part != PD_BACKWARD_WEIGHT && lstm_steps_back(w, kept, err) < 0)
		return -1;
	if (part != PD_BACKWARD_WEIGHT && w->l->diff_src[0]) {
		if (back_data(w, kept, err) < 0)
			return -1;
		end_data(w);
	}
	return part != PD_BACKWARD_INPUT ? back_parameters(w, kept, err) : 0;
}
