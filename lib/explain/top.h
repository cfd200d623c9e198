/* SPDX-License-Identifier: Apache-2.0 */
/* The best plans, as a table for people or as JSON Lines. */
#pragma once

#include "planner/top.h"

#include <stdio.h>

void pd_top_print(const struct pd_top *top, FILE *out);
/* Writes an object a line, whose last member is the command line of the whole plan. */
int pd_top_write(const struct pd_top *top, FILE *out, struct pd_error *err);
