/* SPDX-License-Identifier: Apache-2.0 */
/* These change a model's order of layers; private to this folder. */
#pragma once

#include "model/model.h"

/* Puts layer order[n] at place n and renumbers inputs.  pd_model_index() must follow. */
void pd_model_sort(struct pd_model *model, const int *order);
/* Makes the answers to queries: who uses a tensor, which tensors have a gradient, what is shared. */
void pd_model_index(struct pd_model *model);
