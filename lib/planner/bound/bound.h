/* SPDX-License-Identifier: Apache-2.0 */
/* A lower bound of all plans. */
#pragma once

#include "planner/planner.h"

/*
 * Returns a lower bound of the time between two minibatches in a replay of any plan of
 * costs->profile that the request allows, whatever its stages, replicas, ranks, warm-ups,
 * recomputation and memory.  It takes at most a part of the request's effort.
 */
int64_t pd_bound_ns(const struct pd_costs *costs, const struct pd_plan_request *request);

/*
 * Returns the fewest devices of a plan whose replay has at most this period; more than there are if
 * there is no such plan.  1 with chunks, and where the request's effort is spent.
 */
int pd_bound_devices(const struct pd_costs *costs, const struct pd_plan_request *request,
		     int64_t period_ns);
