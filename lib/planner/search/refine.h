/* SPDX-License-Identifier: Apache-2.0 */
/* Small changes to a plan; private to refine.c and refine_branches.c. */
#ifndef PD_PLANNER_REFINE_H
#define PD_PLANNER_REFINE_H

#include "planner/search/contest.h"

/* The parts of a plan that are changed. */
struct shape {
	struct pd_profile *profile;     /* the task's or a view of it: stages are runs of its layers */
	int count;
	int *ends, *replicas;           /* one entry more than count; ends in layers */
};

/* A climb to better plans: the current one, its best change so far, the one being tried. */
struct climb {
	struct pd_contest *contest;
	int64_t most_work;
	const struct pd_costs *costs;   /* those of the profile of `at` */
	struct pd_costs own;            /* the same, if they are not the task's */
	int devices;
	bool straight;
	struct shape at, best, trial;
	int64_t best_ns;
	size_t views;                   /* views in use when this was last checked */
};

/* Estimates `trial`, and resets it to the current plan. */
void pd_refine_consider(struct climb *climb);
/* Tries to move more than the adjacent layers over the cut behind stage s. */
void pd_refine_branches(struct climb *climb, int s);

#endif
