/* SPDX-License-Identifier: Apache-2.0 */
/* A lower bound of all plans. */
#ifndef PD_PLANNER_BOUND_H
#define PD_PLANNER_BOUND_H

#include "plan/plan.h"
#include "planner/price/cost.h"

#include <stdbool.h>

/* The options that all plans in question share. */
struct pd_bound {
	const struct pd_topology *topology;
	enum pd_schedule_kind schedule;
	enum pd_weight_kind weights;
	int64_t microbatches;           /* as in a plan; 0: any number */
	int chunks;                     /* interleaved chunks per rank */
	bool straight;                  /* no stage has replicas */
	bool agree;                     /* all stages agree on an update */
	enum pd_dtype gradient_dtype;   /* as in a plan */
	bool overlaps;                  /* gradients are summed in buckets, under backward */
	double sparsity;                /* as in a plan; 0: all of them are */
	enum pd_reducer_kind reducer;   /* only dense sums are known to take any time */
};

/*
 * Returns a lower bound of the time between two minibatches in a replay of any plan of
 * costs->profile, whatever its stages, replicas, ranks, warm-ups, recomputation and memory.
 */
int64_t pd_bound_ns(const struct pd_costs *costs, const struct pd_bound *bound);

/*
 * Returns the fewest devices of a plan whose replay has at most this period; more than there are if
 * there is no such plan.  1 with chunks.
 */
int pd_bound_devices(const struct pd_costs *costs, const struct pd_bound *bound, int64_t period_ns);

#endif
