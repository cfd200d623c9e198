/* SPDX-License-Identifier: Apache-2.0 */
/* Small cases of every kind of layer, for test/conform/layers and nonfinite. */
#pragma once

#include "conforms.h"

struct kind_case {
	const char *what;
	const char *in, *out;           /* shapes */
	const char *layers;             /* from 'p' to 'it' */
	/* a device may make more elements not finite than the reference, and others of NaN and infinity */
	bool spreads;
	/* in 16 bits an element may be rounded to the other side of an edge, which changes gradients by more */
	bool edges;
};

typedef void kind_case_test(const struct pd_device_ops *ops, const struct kind_case *k);
/* Calls test() for each case, those of every kind that computes element by element among them. */
void each_kind_case(kind_case_test *test, const struct pd_device_ops *ops);

/* Returns the elements of a shape. */
int64_t kind_case_elements(const char *shape);
/*
 * Returns the model of a case.  The layers called 'it' are between two parameters that have an element for each
 * of their input's and output's, and whose gradients so are those of the input and the output.  The loss is the
 * distance to a target, which a sample has behind the input.
 */
struct pd_model *kind_case_model(const struct kind_case *k);
