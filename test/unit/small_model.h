/* SPDX-License-Identifier: Apache-2.0 */
/* A model made by hand: an image, a label, and a loss over `classes`. */
#pragma once

#include "model/model.h"

struct small_model {
	struct pd_model model;
	struct pd_input inputs[2];
	struct pd_layer layers[2];
	int flatten_inputs[1], loss_inputs[2];
};

static inline const struct pd_model *small_model(struct small_model *m, int64_t channels,
						 int64_t height, int64_t width, int64_t classes)
{
	*m = (struct small_model){
		.inputs = {
			{ .name = "image", .dtype = PD_F32,
			  .shape = { .dims = 3, .size = { channels, height, width } } },
			{ .name = "label", .dtype = PD_I32 },
		},
		.layers = {
			{ .name = "logits", .kind = PD_LAYER_linear, .input_count = 1, .shares = -1,
			  .output = { .dims = 1, .size = { classes } } },
			{ .name = "loss", .kind = PD_LAYER_softmax_cross_entropy, .input_count = 2,
			  .shares = -1, .index_limit = classes },
		},
		.flatten_inputs = { 0 },
		.loss_inputs = { 2, 1 },
	};
	m->layers[0].inputs = m->flatten_inputs;
	m->layers[1].inputs = m->loss_inputs;
	m->model = (struct pd_model){ .name = "small", .input_count = 2, .layer_count = 2,
				      .inputs = m->inputs, .layers = m->layers };
	return &m->model;
}
