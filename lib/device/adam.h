/* SPDX-License-Identifier: Apache-2.0 */
/*
 * These factors of an update by Adam or AdamW are the same for all elements.  They are computed
 * once, in double; device.h has the formulas.
 */
#pragma once

#include "base/inline.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

struct pd_adam {
	bool decoupled;                 /* AdamW */
	double rate, weight_decay, beta1, beta2, eps;
	int64_t count;                  /* number of this update, from 1 */
};

struct pd_adam_factors {
	float keep;                     /* the weight is multiplied by this (AdamW's decay) */
	float decay;	/* this times the weight is added to the gradient (Adam's decay) */
	float beta1, rest1, beta2, rest2;       /* rest: 1 - beta */
	float root;                     /* sqrt(1 - beta2^t) */
	float eps, step;                /* step: rate / (1 - beta1^t) */
};

PD_INLINE struct pd_adam_factors pd_adam_factors(const struct pd_adam *a)
{
	struct pd_adam_factors f;

	f.keep = a->decoupled ? (float)(1 - a->rate * a->weight_decay) : 1;
	f.decay = a->decoupled ? 0 : (float)a->weight_decay;
	f.beta1 = (float)a->beta1;
	f.rest1 = (float)(1 - a->beta1);
	f.beta2 = (float)a->beta2;
	f.rest2 = (float)(1 - a->beta2);
	f.root = (float)sqrt(1 - pow(a->beta2, (double)a->count));
	f.eps = (float)a->eps;
	f.step = (float)(a->rate / (1 - pow(a->beta1, (double)a->count)));
	return f;
}
