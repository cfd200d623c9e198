/* SPDX-License-Identifier: Apache-2.0 */
/* Shape inference: a file for each family of kinds, and what these files share. */
#pragma once

#include "model/layer.h"

/* A layer whose shapes are being worked out. */
struct infer {
	const struct pd_place *place;
	const struct pd_model *model;
	struct pd_layer *layer;
	const struct pd_shape *in;      /* shape of the first input */
	struct pd_error *err;
};

/* infer_SHAPE() of each row of layer_kind.def; returns 0, or -1 with an error. */
#define LAYER_KIND(name, shape, inputs, attributes, parameters, states, flags, what) \
	int infer_##shape(const struct infer *w);
#include "model/layer_kind.def"
#undef LAYER_KIND

/* Makes an error that begins with the layer's path, kind and name; returns -1. */
__attribute__((format(printf, 2, 3)))
int infer_error(const struct infer *w, const char *fmt, ...);

const struct pd_shape *infer_input(const struct infer *w, int input);

/* These add a parameter or a state; name is one of its kind's. */
int infer_parameter(const struct infer *w, const char *name, int dims, const int64_t *size);
int infer_state(const struct infer *w, const char *name, int dims, const int64_t *size);
/* Adds a parameter that begins within 1 / sqrt(inputs), as a linear layer of PyTorch's does. */
int infer_uniform(const struct infer *w, const char *name, int dims, const int64_t *size,
		  int64_t inputs);

int infer_needs_axis(const struct infer *w);
/* Checks that all inputs have the shape of the first; axis `but` (or PD_NO_AXIS) may differ. */
int infer_needs_alike(const struct infer *w, int64_t but);
/* Checks that an input is one length for each sample; lengths are at most `longest`. */
int infer_needs_lengths(const struct infer *w, int input, int64_t longest);
