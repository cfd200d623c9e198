/* SPDX-License-Identifier: Apache-2.0 */
/* The table of plans: the best of a request, or those that were replayed. */
#pragma once

#include "planner/top.h"

#include <jansson.h>
#include <stdio.h>

enum pd_table_format { PD_TABLE_TEXT, PD_TABLE_MARKDOWN, PD_TABLE_CSV, PD_TABLE_JSONL };

/*
 * Writes it, for people or one object a line (pd-plan(1), pd-replay(1)); in CSV each member is a
 * column.
 */
int pd_top_write(const struct pd_top *top, enum pd_table_format format, FILE *out,
		 struct pd_error *err);
/* Returns them as an array of objects. */
json_t *pd_top_json(const struct pd_top *top);
/*
 * Returns what takes most of a plan's time and how much of it, as "computing 93% (stage 3)"; owned
 * by the caller.
 */
char *pd_top_bottleneck(const struct pd_plan *plan);
