/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The judge of every device: each kind of layer, forward and backward, as plain loops in
 * double precision over plain layouts.  One whole model, one minibatch.
 */
#pragma once

#include "model/model.h"

struct ref {
	const struct pd_model *model;
	int64_t batch, first_sample, valid;
	uint64_t seed;
	bool evaluate;
	double (*round)(double);        /* what activations and their gradients are rounded by */
	double **x, **dx;               /* by tensor: [batch][elements] */
	double ***w, ***dw;             /* by layer, parameter; those of the owner for sharers */
	double ***state;                /* by layer, state */
	double **kept;                  /* by layer: what forward keeps for backward */
	double loss;                    /* summed over the valid samples */
	int64_t correct, rows;          /* rows: those that count */
};

struct ref *ref_new(const struct pd_model *model, int64_t batch, uint64_t seed);
void ref_free(struct ref *r);
void ref_forward(struct ref *r);
/* Needs the forward before; all parameters' gradients, those of tensors where they flow. */
void ref_backward(struct ref *r);
