/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which layers may change places.
 *
 * The gradients of the n uses of a tensor are added from the last use to the first, by the
 * order of layers: stage by stage, and in a stage as in the profile (wiring.h).  So that a
 * partition changes no bit, uses may not change places: but for the last two, which are added
 * to each other, and a + b = b + a.
 *
 * A stage is any set of layers between two states of the network (planner/cut/states).  When a
 * plan is read, profile and model are brought into the order of its stages; in documents they keep
 * the order they had, random numbers are drawn by a layer's number in that one, and an order that
 * would add gradients differently is refused.
 */
#pragma once

#include "profile/profile.h"

#include <stdbool.h>

/*
 * Tells whether all sums of gradients stay the same when layer l is in stage[l].  If not, sets a
 * tensor, and a layer that uses it in an earlier stage than a layer before.  Always true without a
 * model, since such a plan does not run.
 */
bool pd_order_keeps_sums(const struct pd_profile *profile, const int *stage, int *tensor_p,
			 int *user_p);
