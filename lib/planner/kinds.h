/* SPDX-License-Identifier: Apache-2.0 */
/* Profiles of one network on several kinds of devices, brought together as a machine has them. */
#pragma once

#include "planner/planner.h"

/*
 * Joins profiles of one batch size each: of every batch size one is left, which has the others
 * (pd_profile_add_kind) in the order of the topology's kinds.  files are their names, for messages.  A kind whose
 * name is only a part of a profile's device name gets all of it, and the memory that the profile says where the
 * topology says none.  Where the topology has no kinds all profiles must be of one device.
 */
int pd_planner_join_kinds(struct pd_profile **profiles, const char **files, int *count_p,
			  struct pd_topology *topology, struct pd_error *err);

/* An order of the kinds on the line of devices. */
struct pd_kinds_order {
	struct pd_topology topology;
	int *was;                       /* the rank that each had before; NULL: the same; owned */
};

struct pd_kinds_orders {
	int count;
	struct pd_kinds_order *list;    /* the machine's own first; owned */
};

/* Lists the orders that are worth trying, which is one where all devices are alike, or with `all` false. */
void pd_kinds_orders_init(struct pd_kinds_orders *orders, const struct pd_topology *machine, bool all);
void pd_kinds_orders_release(struct pd_kinds_orders *orders);
/*
 * Returns a copy of a plan (pd_candidate_copy) for a machine in such an order, with the ranks that the machine's own
 * order has, ascending in each stage; NULL where a rank before the last would have nothing to do.
 */
struct pd_plan *pd_kinds_restore(const struct pd_plan *plan, const struct pd_kinds_order *order,
				 const struct pd_topology *machine);
/* Returns pd_costs.worth. */
double pd_kinds_worth(const struct pd_profile *profile, const struct pd_profile *fastest,
		      const struct pd_topology *topology);
