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

/* NEVER: neither does any longer stage from u on. */
enum pd_fewest_answer { PD_FEWEST_NO, PD_FEWEST_YES, PD_FEWEST_NEVER };

/*
 * Tells whether stage [u, v), u being the row's unit, keeps to a value, with so many stages behind it.
 * What holds with many stages behind holds with fewer, and what holds for a value for every greater
 * one.
 */
typedef enum pd_fewest_answer (*pd_fewest_holds)(const void *context, const struct pd_row *row, int v, int behind,
				int64_t value);

/*
 * Returns the pipeline with the fewest stages that keeps to the least value, from `low` on, to which one
 * of at most `most` stages keeps, found by bisection; cost_ns is that value.  NULL if there is none
 * below PD_COST_MAX.
 */
struct pd_partition *pd_fewest_stages(const struct pd_costs *costs, int most, int64_t low,
				      pd_fewest_holds holds, const void *context);

#endif
