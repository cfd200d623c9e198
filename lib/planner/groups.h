/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans whose ranks are groups of devices (profile/profile.h, struct pd_degrees): of several ways to put devices
 * together, for each of which profiles are estimated and the machine is that of the groups, the plan with most
 * samples per second, where one more device must bring what the request says.
 */
#pragma once

#include "planner/planner.h"

#define PD_GROUPS_MOST 64               /* ways that are tried */

/* What came of one way. */
struct pd_group_choice {
	struct pd_degrees group;
	bool shards_optimizer; /* replicas of a group share out what the optimizer keeps */
	double samples_per_s;           /* 0: there is no plan */
	int ranks;
	bool chosen;
	char why[256];                  /* there is none */
};

struct pd_group_request {
	int count;
	struct pd_group_choice choices[PD_GROUPS_MOST]; /* what is tried, and what comes of it */
	bool spans;                     /* a group may be of several components of the innermost level */
	bool asked;                     /* there are some */
};

/*
 * Returns the plan, or NULL.  Several profiles, or batch above 0, are as in pd_planner_batch, and so is batch_choices,
 * which are of the way that is taken.  The plan has a profile that was estimated for it.
 */
struct pd_plan *pd_planner_groups(struct pd_profile **profiles, int count, int64_t batch,
				  const struct pd_plan_request *request, struct pd_group_request *groups,
				  struct pd_batch_choice *batch_choices, struct pd_error *err);
