/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The orders in which a search has looked at a profile; private to this folder.
 *
 * A plan's stages are runs of its profile's layers.  A plan whose stages are others has a copy
 * of the profile in their order, one for each order, so that two plans with the same copy have
 * the same order; the one that is taken brings the profile itself into it.
 */
#pragma once

#include "planner/cut/points.h"

struct pd_ordered {
	int *order;
	struct pd_profile *profile;     /* in this order */
};

struct pd_views {
	struct pd_profile *profile;     /* borrowed */
	struct pd_states states;        /* none if there is only one order */
	struct pd_points points;        /* of these states */
	size_t count, capacity;
	struct pd_ordered *list;
};

/*
 * rule: which states there are.  fastest, which is borrowed for them, is pd_profile_fastest() of the profile, or
 * itself.
 */
void pd_views_init(struct pd_views *views, struct pd_profile *profile, const struct pd_profile *fastest,
		   enum pd_states_rule rule);
void pd_views_release(struct pd_views *views);
/* Returns the profile in an order, or NULL: its own; borrowed from views. */
struct pd_profile *pd_views_get(struct pd_views *views, const int *order);
/*
 * Returns the order that makes a view of the profile, which the caller frees; NULL for the profile
 * itself.
 */
int *pd_views_order(const struct pd_views *views, const struct pd_profile *view);
