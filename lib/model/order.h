/* SPDX-License-Identifier: Apache-2.0 */
/* A model's layers while they are brought into an order; private to this folder. */
#ifndef PD_MODEL_ORDER_H
#define PD_MODEL_ORDER_H

#include "model/model.h"

/* Puts layer order[n] at place n and renumbers; what the queries answer from is not made anew. */
void pd_model_sort(struct pd_model *model, const int *order);
/* Makes what the queries answer from: who uses a tensor, which have a gradient. */
void pd_model_index(struct pd_model *model);

#endif
