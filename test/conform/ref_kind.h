/* SPDX-License-Identifier: Apache-2.0 */
/* The kinds of layers in plain C: each has a function, which does forward and backward. */
#pragma once

#include "ref.h"

#include <math.h>

/* Keeps sanitizers out of these loops, which would take them longer than the rest of a test takes. */
#define UNCHECKED __attribute__((no_sanitize("address", "undefined")))

/* The arguments of one layer's function.  With `back` it adds gradients to dx and dw, else it writes y. */
struct ref_job {
	struct ref *r;
	const struct pd_layer *layer;
	int index;
	const struct pd_shape *in;      /* the first input's shape */
	const double *x, *dy;
	double *y, *dx;
	double **w, **dw, **terms;      /* by parameter */
	double **state, *kept;
	bool back;
};

/* Adds a term of the gradient of an element of a parameter. */
UNCHECKED static inline void ref_add(const struct ref_job *j, int parameter, int64_t i, double term)
{
	j->dw[parameter][i] += term;
	j->terms[parameter][i] += fabs(term);
}

/* Returns the number of elements of a tensor, in the whole batch. */
size_t ref_elements(const struct ref *r, int tensor);
/* Returns the factor of weight_dropout for an element of a weight in this microbatch. */
double ref_weight_factor(const struct ref_job *j, int64_t number);

/* ref_SHAPE() of each row of layer_kind.def computes the kinds whose shapes are found alike. */
#define LAYER_KIND(name, shape, inputs, attributes, parameters, states, flags, what) \
	void ref_##shape(const struct ref_job *j);
#include "model/layer_kind.def"
#undef LAYER_KIND
