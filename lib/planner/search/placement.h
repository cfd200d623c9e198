/* SPDX-License-Identifier: Apache-2.0 */
/* The placements of a plan's replicas on devices; private to this folder. */
#pragma once

#include "plan/plan.h"

#include <stdbool.h>

/*
 * Sets the ranks to placement number n, from 0, of a plan's stages; false if there is none, or it is
 * the same as an earlier one by symmetry.
 *
 *   0       on a line, the first stage at its beginning
 *   1       on a line, the last stage at its beginning
 *   2 + k   for each level k but the innermost where that is possible: strided, a whole
 *           pipeline in each component below it.  Minibatch n, which is at replica n mod r of a
 *           stage, thus stays in one component, and only all-reduces go out of it.
 */
bool pd_placement_set(struct pd_plan *plan, int n);
#define PD_PLACEMENTS (2 + PD_MAX_LEVELS)

/* Placements of one plan: for each, what is on each device; { 0 } are none. */
struct pd_placements {
	size_t count, capacity;
	int *list;                      /* [count][devices]: a replica's number, or 0 */
};

/* Adds the plan's placement; false if one was there that is the same but for equal components. */
bool pd_placements_add(struct pd_placements *seen, const struct pd_plan *plan);
void pd_placements_release(struct pd_placements *seen);

/*
 * Calls `found` with the plan's ranks at every placement: the stages along the line in every order,
 * and those above; of placements that are the same but for the order of equal components only one. 
 * With chunks it is the ranks that stand along the line in every order.  Returns false if there are
 * too many stages or devices for every order, and only those above were tried.
 */
bool pd_placement_each(struct pd_plan *plan, void (*found)(void *context, struct pd_plan *plan),
		       void *context);
