/* SPDX-License-Identifier: Apache-2.0 */
/* The kinds of layers in plain C: each has a function, which does forward and backward. */
#pragma once

#include "ref.h"

/* The arguments of one layer's function.  With `back` it adds gradients to dx and dw, else it writes y. */
struct ref_job {
	struct ref *r;
	const struct pd_layer *layer;
	int index;
	const struct pd_shape *in;      /* the first input's shape */
	const double *x, *dy;
	double *y, *dx;
	double **w, **dw;               /* by parameter */
	double **state, *kept;
	bool back;
};

/* Returns the number of elements of a tensor, in the whole batch. */
size_t ref_elements(const struct ref *r, int tensor);
/* Returns the factor of weight_dropout for an element of a weight in this microbatch. */
double ref_weight_factor(const struct ref_job *j, int64_t number);

void ref_conv2d(const struct ref_job *j);
void ref_linear(const struct ref_job *j);
void ref_curve(const struct ref_job *j);
void ref_pool2d(const struct ref_job *j);
void ref_batchnorm2d(const struct ref_job *j);
void ref_layernorm(const struct ref_job *j);
void ref_dropout(const struct ref_job *j);
void ref_attention(const struct ref_job *j);
void ref_lstm(const struct ref_job *j);
void ref_additive_attention(const struct ref_job *j);
void ref_join(const struct ref_job *j);
void ref_loss(const struct ref_job *j);
void ref_mse(const struct ref_job *j);
void ref_mul(const struct ref_job *j);
void ref_transpose(const struct ref_job *j);
void ref_along(const struct ref_job *j);
void ref_embedding(const struct ref_job *j);
void ref_position_embedding(const struct ref_job *j);
void ref_added_bias(const struct ref_job *j);
void ref_rope(const struct ref_job *j);
