/* SPDX-License-Identifier: Apache-2.0 */
/* A network as a table for people. */
#pragma once

#include "model/model.h"

#include <stdio.h>

/*
 * Prints a line for each input and each layer with the shape of what it makes, its kind, its parameters
 * and their shapes; then their sum, in which those that layers share count once.
 */
int pd_model_summary(const struct pd_model *model, FILE *out, struct pd_error *err);
