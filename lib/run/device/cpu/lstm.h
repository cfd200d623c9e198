/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the LSTM share: its places in slot and scratch, one direction of a pass (a way), and
 * one step of one sample.
 */
#pragma once

#include "base/mem.h"
#include "run/device/cpu/cpu.h"

/* Rows times weights that an op has in a layout of its own. */
struct lstm_product {
	struct pd_primitive *op;
	struct pd_reorder weights;
	size_t scratch;
};

/* The gradient of weights, by an op. */
struct lstm_weights_op {
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
	struct lstm_product recurrent, recurrent_back;
	struct lstm_product input, input_back;       /* where native */
	struct lstm_weights_op input_weights, hidden_weights;
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

/* One direction of a pass. */
struct lstm_way {
	struct pd_compiled_layer *l;
	const struct lstm *m;
	const struct pd_pass *pass;
	int direction;
	const int32_t *lengths;         /* NULL: all of the steps */
	char *gates;                    /* in the slot */
	float *cells;
};

static inline size_t lstm_floats(int64_t count)
{
	return sizeof(float) * (size_t)count;
}

static inline char *lstm_scratch(const struct lstm_way *w, size_t offset)
{
	return (char *)w->l->temporary + offset;
}

static inline float *lstm_room(const struct lstm_way *w, size_t offset)
{
	return (float *)lstm_scratch(w, offset);
}

/* Steps of a sample. */
static inline int64_t lstm_length(const struct lstm_way *w, int64_t sample)
{
	int64_t steps = w->lengths ? w->lengths[sample] : w->m->steps;

	return steps < 0 ? 0 : steps > w->m->steps ? w->m->steps : steps;
}

/* The row that is a sample's step number `step` in this direction. */
static inline int64_t lstm_row_of(const struct lstm_way *w, int64_t sample, int64_t step)
{
	return sample * w->m->steps + (w->direction ? lstm_length(w, sample) - 1 - step : step);
}

enum { INPUT, HIDDEN, INPUT_BIAS, HIDDEN_BIAS };

static inline int lstm_parameter(const struct lstm_way *w, int which)
{
	return w->direction * (2 + (int)w->l->layer->biases) + which;
}

/* Returns a row of this direction in the layer's output or its gradient. */
static inline void *lstm_output_row(const struct lstm_way *w, const void *output, int64_t row)
{
	size_t number = (size_t)((row * w->m->directions + w->direction) * w->m->hidden);

	return (char *)output + number * w->m->element;
}

/* --- lstm_way.c */
struct lstm_way lstm_way_of(struct pd_compiled_layer *l, const struct pd_pass *pass, int direction);
/* Some of the weights of the hidden state are dropped, for all steps and samples of a microbatch. */
void lstm_drop(const struct lstm_way *w, void *to, const void *from, bool of_16);
/* To or from f32. */
void lstm_narrow(const struct lstm_way *w, void *to, const float *from, int64_t count);
void lstm_widen(const struct lstm_way *w, float *to, const void *from, int64_t count);
/* Returns `from` for products of f32; numbers of 16 bits are widened in scratch. */
const float *lstm_wide(const struct lstm_way *w, const void *from, size_t at, int64_t count);
/* Weights in a product's own layout, and rows times them.  NULL or -1: *err. */
const void *lstm_pack(const struct lstm_way *w, const struct lstm_product *p, const void *weights,
		      struct pd_error *err);
int lstm_multiply(const struct lstm_way *w, const struct lstm_product *p, const void *rows,
		  const void *packed, float *out, struct pd_error *err);
/* The weights of the hidden state, as products take them; `at`: there is room. */
const void *lstm_hidden_weights(const struct lstm_way *w, size_t at);

/* --- lstm_lanes.c */
/* The cells, or hidden states, before the first step of a sample with a lane. */
float *lstm_carried(const struct lstm_way *w, int64_t n, bool cells);
/* Hidden states and cells before the first step: zeros, or those of the lanes. */
void lstm_take_up_lanes(const struct lstm_way *w);
/* The state that the next sample of each lane begins with. */
void lstm_leave_lanes(const struct lstm_way *w);

/* --- lstm_steps.c, lstm_gradients.c */
int lstm_forward(const struct lstm_way *w, struct pd_error *err);
/* Backward of all steps; kept: the gradients of the gates' sums. */
int lstm_steps_back(const struct lstm_way *w, char *kept, struct pd_error *err);
int lstm_backward(const struct lstm_way *w, struct pd_error *err);

/* --- lstm_gates.c: one step of one sample, element by element, in f32 */
/*
 * gates: 4 x hidden, those of input, forget, cell and output; in: what the products made of them,
 * out: what they are.  recurrent: the part of the hidden state before, to be added; NULL: none.
 * before: the cells before.  Writes the cells and the hidden state.
 */
void pd_lstm_gates(float *gates, const float *recurrent, const float *bias, const float *before,
		   float *cell, float *hidden, int64_t count);

struct pd_lstm_back {
	const float *gates, *before, *cell;     /* of forward */
	const float *output, *recurrent;        /* gradients of the hidden state that add up; the
						   second from the next step; NULL: none */
	float *cells;                           /* gradient of the cells after, then before */
	float *back;                            /* 4 x hidden: gradients of the gates' sums */
};

void pd_lstm_gates_back(const struct pd_lstm_back *step, int64_t count);
