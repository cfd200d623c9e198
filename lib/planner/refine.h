/* SPDX-License-Identifier: Apache-2.0 */
/* Private to refine.c and refine_branches.c: small changes to a plan. */
#ifndef PD_PLANNER_REFINE_H
#define PD_PLANNER_REFINE_H

#include "planner/contest.h"

/* A plan as far as it is changed. */
struct shape {
	struct pd_profile *profile;     /* the task's or a view of it: stages are runs of its layers */
	int count;
	int *ends, *replicas;           /* room for one more than count; ends in layers */
};

/* On the way to better plans: the one that we are at, its best change so far, the one at hand. */
struct climb {
	struct pd_contest *contest;
	int64_t most_work;
	const struct pd_costs *costs;   /* of the profile of `at` */
	struct pd_costs own;            /* that, if it is not the task's */
	int devices;
	bool straight;
	struct shape at, best, trial;
	int64_t best_ns;
	size_t views;                   /* that were in use when that was looked at last */
};

/* What `trial` is expected to be; then it is what we are at again. */
void pd_refine_consider(struct climb *climb);
/* Over the cut behind stage s: what is not just the layers next to it. */
void pd_refine_branches(struct climb *climb, int s);

#endif
