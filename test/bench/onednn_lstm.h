/* SPDX-License-Identifier: Apache-2.0 */
/* oneDNN's lstm primitive, forward and backward, with one thread; any failure ends the program. */
#pragma once

#include "model/model.h"

struct lstm_shape {
	int64_t batch, steps, inputs, hidden;
};

/*
 * The tensors, of which PLAIN_ ones lie as ours do.  The states before the first step are given, as
 * zeros: without them the gradient of the hidden weights is wrong in f32 (oneDNN 2.6).
 */
enum onednn_lstm_tensor {
	INPUT, OUTPUT, BIAS, PLAIN_WEIGHTS, PLAIN_HIDDEN_WEIGHTS, WEIGHTS_AHEAD, HIDDEN_WEIGHTS_AHEAD,
	WEIGHTS_BACK, HIDDEN_WEIGHTS_BACK, STATE_BEFORE, CELLS_BEFORE, WORKSPACE, SCRATCH_AHEAD,
	SCRATCH_BACK, D_INPUT, D_OUTPUT, D_WEIGHTS, D_HIDDEN_WEIGHTS, D_BIAS, PLAIN_D_WEIGHTS,
	PLAIN_D_HIDDEN_WEIGHTS, D_STATE_BEFORE, D_CELLS_BEFORE, TENSORS
};

struct onednn_lstm *onednn_lstm_open(const struct lstm_shape *shape, enum pd_dtype dtype);
void onednn_lstm_close(struct onednn_lstm *t);
/* Runs forward and backward, with weights and their gradients in the PLAIN_ tensors. */
void onednn_lstm_run(struct onednn_lstm *t);
const struct lstm_shape *onednn_lstm_shape(const struct onednn_lstm *t);
void *onednn_lstm_data(const struct onednn_lstm *t, int tensor);
size_t onednn_lstm_bytes(const struct onednn_lstm *t, int tensor);
/* Returns the most bytes that forward or backward needs at a time besides the workspace. */
size_t onednn_lstm_besides(const struct onednn_lstm *t);
