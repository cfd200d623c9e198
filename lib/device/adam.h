/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is the same for all elements in an update by Adam or AdamW, worked out once, in
 * double; see device.h for the formulas.
 */
#ifndef PD_DEVICE_ADAM_H
#define PD_DEVICE_ADAM_H

#include "device/device.h"

#include <math.h>

struct pd_adam_factors {
	float keep;                     /* of the weight itself: AdamW's decay */
	float decay;                    /* added to the gradient: Adam's */
	float beta1, rest1, beta2, rest2;       /* rest: 1 - beta */
	float root;                     /* sqrt(1 - beta2^t) */
	float eps, step;                /* step: rate / (1 - beta1^t) */
};

static inline struct pd_adam_factors pd_adam_factors(const struct pd_update *u)
{
	bool decoupled = u->kind == PD_ADAMW;

	return (struct pd_adam_factors){
		.keep = decoupled ? (float)(1 - u->rate * u->weight_decay) : 1,
		.decay = decoupled ? 0 : (float)u->weight_decay,
		.beta1 = (float)u->beta1, .rest1 = (float)(1 - u->beta1),
		.beta2 = (float)u->beta2, .rest2 = (float)(1 - u->beta2),
		.root = (float)sqrt(1 - pow(u->beta2, (double)u->count)),
		.eps = (float)u->eps,
		.step = (float)(u->rate / (1 - pow(u->beta1, (double)u->count))),
	};
}

#endif
