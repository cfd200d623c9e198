/* SPDX-License-Identifier: Apache-2.0 */
/* What devices share of layers that compute element by element; the table is curve.def. */
#pragma once

#include <stdbool.h>

struct pd_layer;

/*
 * What PyTorch's approximation of gelu takes the tanh of: x by sqrt(2 / pi), and a part of its cube;
 * the slope of that.
 */
#define PD_GELU_INNER(x) (0.79788456f * ((x) + 0.044715f * ((x) * (x) * (x))))
#define PD_GELU_INNER_SLOPE(x) (0.79788456f * (1 + 3 * 0.044715f * (x) * (x)))

enum pd_curve {
#define CURVE(name, cpu, flags, value, gradient) PD_CURVE_##name,
#define VARIANT CURVE
#include "run/device/curve.def"
#undef VARIANT
#undef CURVE
	PD_CURVES
};

enum pd_curve_flag {
	PD_CURVE_FROM_OUTPUT = 1,       /* backward reads the output, not the input */
	PD_CURVE_IDEMPOTENT = 2,        /* the curve of its output is that output: it may overwrite its input */
};

/* Returns the curve of a layer whose kind is one. */
enum pd_curve pd_curve_of(const struct pd_layer *layer);
/* Tells whether backward reads the output. */
bool pd_curve_from_output(enum pd_curve curve);
