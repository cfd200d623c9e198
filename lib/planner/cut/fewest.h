/* SPDX-License-Identifier: Apache-2.0 */
/* Pipelines of as few stages as can be, one rank each; private to this folder. */
#ifndef PD_PLANNER_FEWEST_H
#define PD_PLANNER_FEWEST_H

#include "planner/cut/partition.h"

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
