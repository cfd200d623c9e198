/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reference for every device: each kind of layer, forward and backward, as plain loops in
 * double precision over plain layouts, for one whole model and one minibatch.
 */
#pragma once

#include "model/model.h"

struct ref {
	const struct pd_model *model;
	int64_t batch, first_sample, valid;
	uint64_t seed;
	bool evaluate;
	double (*round)(double);        /* rounds activations and their gradients */
	double **x, **dx;               /* by tensor: [batch][elements] */
	double ***w, ***dw;             /* by layer, parameter; sharers have the owner's */
	double ***terms;                /* beside dw: the sums of the sizes of what was added up there */
	double ***state;                /* by layer, state */
	double **kept;                  /* by layer: numbers that forward keeps for backward */
	double loss;                    /* summed over the valid samples */
	int64_t correct, rows;          /* rows: the ones that count */
};

struct ref *ref_new(const struct pd_model *model, int64_t batch, uint64_t seed);
void ref_free(struct ref *r);
void ref_forward(struct ref *r);
/* Computes one layer: its output, or, back, what it adds to the gradients of its inputs and parameters. */
void ref_run(struct ref *r, int layer, bool back);
/* Computes the gradients of all parameters, and of tensors that have one; needs a forward before. */
void ref_backward(struct ref *r);
