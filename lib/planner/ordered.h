/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans whose order is searched for: for the stages of plans of other schedules and of equal pipelines, with one or two
 * virtual stages a rank in a V.  The search of orders looks at the memory of devices; the plan of the shortest replay is
 * taken.
 */
#pragma once

#include "planner/scout.h"

/* Offers an order for the stages of a plan, which all have as many replicas; takes the plan. */
void pd_ordered_offer(struct pd_best *best, struct pd_variant *variant, struct pd_plan *plan);
/* Offers orders for the shapes that may be fast, and for what else is at hand; `thorough`: all of it. */
void pd_ordered_offer_shapes(struct pd_best *best, struct pd_variant *variant, bool thorough);
/* Plans task->request->stages with an order, and sets the time. */
struct pd_plan *pd_ordered_hand_plan(const struct pd_task *task, int64_t *time_ns_p, struct pd_error *err);
/* Tells whether all stages of a plan have as many replicas. */
bool pd_ordered_is_equal(const struct pd_plan *plan);
/* Tells whether a search for an order of a plan's stages is short. */
bool pd_ordered_is_short(const struct pd_plan *plan);
