/* SPDX-License-Identifier: Apache-2.0 */
/* One step of one sample of an LSTM: what is done element by element, in f32 (lstm_gates.c). */
#ifndef PD_DEVICE_CPU_LSTM_H
#define PD_DEVICE_CPU_LSTM_H

#include <stdint.h>

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

#endif
