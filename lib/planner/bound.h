/* SPDX-License-Identifier: Apache-2.0 */
/* What no plan can beat. */
#ifndef PD_PLANNER_BOUND_H
#define PD_PLANNER_BOUND_H

#include "plan/plan.h"
#include "planner/cost.h"

#include <stdbool.h>

/* The options that every plan in question has in common. */
struct pd_bound {
	const struct pd_topology *topology;
	enum pd_schedule_kind schedule;
	enum pd_weight_kind weights;
	int64_t microbatches;           /* as in a plan; 0: any number */
	bool fewer;                     /* it is only the most there can be */
	int chunks;                     /* interleaved */
	bool straight;                  /* no stage has replicas */
};

/*
 * A time between two minibatches that no plan of costs->profile goes below in a replay:
 * whatever its stages, replicas, ranks, warm-ups, recomputation and memory.  costs->kind and
 * costs->memory_limit_bytes do not matter.  Where several schedules or weights are allowed the
 * bound is the least of theirs.
 */
int64_t pd_bound_ns(const struct pd_costs *costs, const struct pd_bound *bound);

/* The fewest devices that such a plan may have whose replay takes no longer than that between two
 * minibatches; more than there are where none does.  1 with chunks. */
int pd_bound_devices(const struct pd_costs *costs, const struct pd_bound *bound, int64_t period_ns);

#endif
