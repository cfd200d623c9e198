/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses how the replicas of a plan sum their gradients. */
#pragma once

#include "planner/cut/task.h"

/* Returns above how many bytes buckets are closed (memory/buckets.h) before the best plan is known. */
int64_t pd_bucket_usual(const struct pd_profile *profile);

/*
 * Gives the plan, which was found for what is asked for and takes *period_ns_p, the reducer and the
 * buckets with which a replay is fastest, where any may be taken.  Lowers *bound_ns_p, which is that
 * of dense sums, for other ones.  Returns 0, or -1 if a replay fails.
 */
int pd_sums_choose(const struct pd_task *task, struct pd_plan *plan, int64_t *period_ns_p,
		   int64_t *bound_ns_p, struct pd_error *err);

/* Returns how many sums of gradients an update has. */
int64_t pd_sums_of(const struct pd_plan *plan);

/*
 * Lists thresholds that differ in the number of sums: 0, for one of each stage, and then from half
 * the gradients of the largest replicated stage down.  Leaves the plan's threshold as it was.
 */
#define PD_SUMS_THRESHOLDS 12
int pd_sums_thresholds(struct pd_plan *plan, int64_t list[PD_SUMS_THRESHOLDS]);

/* Sets the period with a threshold, or 0 if a replay cannot tell.  Leaves the plan's as it was. */
int pd_sums_period(struct pd_plan *plan, int64_t bytes, int64_t *period_ns_p, struct pd_error *err);
