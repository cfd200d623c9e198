/* SPDX-License-Identifier: Apache-2.0 */
/* Pipelines with one rank for each stage: even ones, and fast ones. */
#ifndef PD_PLANNER_EVEN_H
#define PD_PLANNER_EVEN_H

#include "planner/cut/partition.h"

/*
 * Returns the stages of GPipe (2018): count of them, one rank each, whose computing times have the
 * least variance.  NULL if its tables would be too large.
 */
struct pd_partition *pd_even_partition(const struct pd_costs *costs, int count);

/* Does the same with the least time of the slowest stage or link; every link has this bandwidth. */
struct pd_partition *pd_straight_partition(const struct pd_costs *costs, int count,
					   int64_t bandwidth_bytes_per_s);

/*
 * Does the same for at most so many stages, the fewest that are as fast, if they fit with the usual
 * warm-ups into costs' memory limit; NULL if none do.
 */
struct pd_partition *pd_straight_most(const struct pd_costs *costs, int count,
				      int64_t bandwidth_bytes_per_s);

#endif
