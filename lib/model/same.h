/* SPDX-License-Identifier: Apache-2.0 */
/* What two networks compute differently, layer by layer, by their names, in whatever order. */
#pragma once

#include "model/model.h"

enum pd_difference {
	PD_DIFFERS_TRAINING,            /* a loss, or what only training draws or keeps */
	PD_DIFFERS_FUNCTION,            /* what a layer that both have makes of its inputs */
	PD_DIFFERS_LAYERS,              /* one alone has the layer or input, or another form */
};

/* A layer or input, the kind or attribute that differs, what it was in the first, is in the second. */
typedef void pd_model_differs(void *context, enum pd_difference how, const char *name,
			      const char *key, const char *was, const char *is);

/*
 * Calls differs for each difference, first those of the second model's inputs and layers, in its
 * order.  How inputs are normalised (normalize.h), what begins how and what others call it are no
 * differences; nor is what is frozen.
 */
void pd_model_compare(const struct pd_model *was, const struct pd_model *is,
		      pd_model_differs *differs, void *context);
