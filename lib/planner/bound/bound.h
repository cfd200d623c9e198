/* SPDX-License-Identifier: Apache-2.0 */
/* A lower bound of all plans. */
#pragma once

#include "planner/planner.h"

/* A bound cannot be lower by more than one part in so many, where the effort lasts. */
#define PD_BOUND_ROUGH 5000

/*
 * Returns a lower bound of the time between two minibatches in a replay of any plan of
 * costs->profile that the request allows, whatever its stages, replicas, ranks, warm-ups,
 * recomputation and memory; or most_ns, if the bound is no less.  It takes at most a part of the
 * request's effort.
 */
int64_t pd_bound_ns(const struct pd_costs *costs, const struct pd_plan_request *request,
		    int64_t most_ns);

struct pd_bound;

/* Borrows costs and request. */
struct pd_bound *pd_bound_new(const struct pd_costs *costs, const struct pd_plan_request *request);
void pd_bound_free(struct pd_bound *bound);
/*
 * Returns the fewest devices of a plan whose replay has at most this period; more than there are if
 * there is no such plan.  1 with chunks, and where the request's effort is spent.
 */
int pd_bound_devices(struct pd_bound *bound, int64_t period_ns);
