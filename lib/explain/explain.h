/* SPDX-License-Identifier: Apache-2.0 */
/* A plan for people: in tables, and as drawings. */
#pragma once

#include "planner/planner.h"

#include <stdio.h>

/*
 * Prints tables for people: stages, their times and memory, links, the limit, and the comparison.
 */
void pd_plan_explain(const struct pd_plan *plan, FILE *out);
/* Prints what came of each way to put devices together. */
void pd_groups_explain(const struct pd_group_request *groups, FILE *out);
/* Prints what was found for each of several profiles. */
void pd_batch_explain(const struct pd_batch_choice *choices, int count, FILE *out);
/*
 * These draw.  -1 (usage): there is too much to draw; the first one checks this before a plan is
 * made.
 */
int pd_plan_svg_check(const struct pd_topology *topology, struct pd_error *err);
int pd_plan_svg(const struct pd_plan *plan, FILE *out, struct pd_error *err);
int pd_plan_dot(const struct pd_plan *plan, FILE *out, struct pd_error *err);
