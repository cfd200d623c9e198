/* SPDX-License-Identifier: Apache-2.0 */
/* One direction of a pass of an LSTM: its numbers in f32 and as products take them. */
#include "run/device/cpu/lstm.h"

#include <string.h>

#define PIECE 4096              /* elements, a multiple of 4 */

struct lstm_way lstm_way_of(struct pd_compiled_layer *l, const struct pd_pass *pass, int direction)
{
	const struct lstm *m = l->own;
	char *slot = l->extra;

	return (struct lstm_way){
		.l = l, .m = m, .pass = pass, .direction = direction,
		.lengths = l->layer->input_count > 1 ? l->src[1] : NULL,
		.gates = slot + (size_t)direction * m->gates,
		.cells = (float *)(slot + (size_t)m->directions * m->gates +
				   (size_t)direction * m->cells),
	};
}

void lstm_narrow(const struct lstm_way *w, void *to, const float *from, int64_t count)
{
	if (w->m->narrow)
		pd_cpu_narrow(w->l->net->dtype, to, from, (size_t)count);
	else
		memcpy(to, from, lstm_floats(count));
}

void lstm_widen(const struct lstm_way *w, float *to, const void *from, int64_t count)
{
	if (w->m->narrow)
		pd_cpu_widen(w->l->net->dtype, to, from, (size_t)count);
	else
		memcpy(to, from, lstm_floats(count));
}

const float *lstm_wide(const struct lstm_way *w, const void *from, size_t at, int64_t count)
{
	if (!w->m->narrow)
		return from;
	lstm_widen(w, lstm_room(w, at), from, count);
	return lstm_room(w, at);
}

const void *lstm_pack(const struct lstm_way *w, const struct lstm_product *p, const void *weights,
		      struct pd_error *err)
{
	return pd_reorder_in(w->l, &p->weights, weights, err);
}

int lstm_multiply(const struct lstm_way *w, const struct lstm_product *p, const void *rows,
		  const void *packed, float *out, struct pd_error *err)
{
	const void *args[PD_ARGS] = {
		[PD_ARG_SRC] = rows, [PD_ARG_WEIGHTS] = packed, [PD_ARG_DST] = out,
		[PD_ARG_SCRATCH] = lstm_scratch(w, p->scratch),
	};

	return pd_primitive_run(p->op, args, err);
}

void lstm_drop(const struct lstm_way *w, void *to, const void *from, bool of_16)
{
	int64_t all = 4 * w->m->hidden * w->m->hidden;

#pragma omp parallel for schedule(static)
	for (int64_t at = 0; at < all; at += PIECE) {
		int64_t count = all - at < PIECE ? all - at : PIECE;
		float piece[PIECE];

		if (of_16)
			lstm_widen(w, piece, (const uint16_t *)from + at, count);
		else
			memcpy(piece, (const float *)from + at, lstm_floats(count));
		pd_cpu_drop_weights(w->l, w->pass, piece, w->direction * all + at, count);
		if (of_16)
			lstm_narrow(w, (uint16_t *)to + at, piece, count);
		else
			memcpy((float *)to + at, piece, lstm_floats(count));
	}
}

static bool drops(const struct lstm_way *w)
{
	return w->l->layer->weight_dropout > 0 && !w->pass->evaluate;
}

const void *lstm_hidden_weights(const struct lstm_way *w, size_t at)
{
	const void *weights = w->l->parameters[lstm_parameter(w, HIDDEN)];

	if (!w->m->native)
		weights = lstm_wide(w, weights, at, 4 * w->m->hidden * w->m->hidden);
	if (!drops(w))
		return weights;
	lstm_drop(w, lstm_scratch(w, at), weights, w->m->native);
	return lstm_scratch(w, at);
}
