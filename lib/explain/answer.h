/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a plan comes to, in the words of those who train: does it fit, how is it laid out, how fast is it, what limits
 * it, what is next best.
 */
#pragma once

#include "plan/plan.h"

#include <stdio.h>

/*
 * Prints some ten lines, each with its noun in front.  memory_bytes is what one device may use; 0: the plan's topology
 * or profile says it.
 */
void pd_answer_print(const struct pd_plan *plan, int64_t memory_bytes, FILE *out);
