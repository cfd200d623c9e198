/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses above how many bytes buckets of gradients are closed (plan/buckets.h). */
#ifndef PD_PLANNER_BUCKET_H
#define PD_PLANNER_BUCKET_H

#include "base/error.h"
#include "plan/plan.h"

#include <stdio.h>

/* Returns the threshold with which plans are looked for before the best one is known. */
int64_t pd_bucket_usual(const struct pd_profile *profile);

/*
 * Gives the plan, whose period is *period_ns_p, the threshold with which a replay is fastest, or
 * none; of equal ones that with the fewest sums.  Ranks keep to limit_bytes.  Returns 0, or -1 if a
 * replay fails.
 */
int pd_bucket_choose(struct pd_plan *plan, int64_t limit_bytes, int64_t *period_ns_p,
		     struct pd_error *err);

/* Prints a table of thresholds with their sums and periods, if the plan has one. */
void pd_bucket_explain(const struct pd_plan *plan, FILE *out);

#endif
