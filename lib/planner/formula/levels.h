/* SPDX-License-Identifier: Apache-2.0 */
/* Plans by levels, the best by a published formula; private to this folder. */
#pragma once

#include "planner/cut/partition.h"
#include "planner/cut/states.h"
#include "planner/formula/terms.h"

/*
 * Returns a plan of least time, or NULL if there is none: without replicas, or with all components
 * used, a network may have too few layers.  It ignores memory.  Unless all components must be used,
 * it uses the fewest of the outermost level.  Sets *time_p, if not NULL, to the unrounded time.
 */
struct pd_partition *pd_levels_search(const struct pd_states *states, const struct pd_topology *topology,
				      enum pd_cost_kind kind, bool straight, double *time_p);
