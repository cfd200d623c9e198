/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses how the replicas of a plan sum their gradients. */
#ifndef PD_PLANNER_SUMS_H
#define PD_PLANNER_SUMS_H

#include "planner/search/candidate.h"

#include <stdio.h>

/* Returns above how many bytes buckets are closed (plan/buckets.h) before the best plan is known. */
int64_t pd_bucket_usual(const struct pd_profile *profile);

/*
 * Gives the plan, which was found for what is asked for and takes *period_ns_p, the reducer and the
 * buckets with which a replay is fastest, where any may be taken.  Lowers *bound_ns_p, which is that
 * of dense sums, for other ones.  Returns 0, or -1 if a replay fails.
 */
int pd_sums_choose(const struct pd_task *task, struct pd_plan *plan, int64_t *period_ns_p,
		   int64_t *bound_ns_p, struct pd_error *err);

/* Prints a table of the reducers that were tried, if replicas sum. */
void pd_reducers_explain(const struct pd_plan *plan, FILE *out);
/* Prints a table of thresholds with their sums and periods, if the plan has one. */
void pd_bucket_explain(const struct pd_plan *plan, FILE *out);

#endif
