/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order that a plan gives itself (its key "order"), for schedules whose kind has PD_FACT_ORDERED: a text for each
 * position of the pipeline, in which order its ranks compute one group of microbatches (order/order.h).
 *
 * The first stages that are on ranks of their own are at positions 0, 1 and so on; other stages are where
 * the first with their rank is.
 */
#pragma once

#include "base/json.h"
#include "plan/plan.h"

/* Sets the position of each stage; returns how many positions there are. */
int pd_plan_positions(const struct pd_plan *plan, int *position_of);
/* Makes an empty order for a group of the plan's microbatches; refuses replicas that differ or do not share a group. */
struct pd_order *pd_plan_order_new(const struct pd_plan *plan, struct pd_error *err);
/* Reads and certifies a plan's order; all else of the plan is there.  It must have one just where its kind has. */
int pd_plan_read_order(const struct pd_place *root, struct pd_plan *plan, struct pd_error *err);
/* Returns the texts of a struct pd_plan's order, or NULL if it has none (base/rows.h). */
json_t *pd_plan_order_json(const void *plan);
