/* SPDX-License-Identifier: Apache-2.0 */
/* What is planned: a profile on a machine, as a request asks for it. */
#pragma once

#include "planner/planner.h"
#include "planner/cut/views.h"

#define PD_TASK_LARGE 16384     /* units times devices */

/* The task of planning. */
struct pd_task {
	struct pd_profile *profile;     /* borrowed, also by its plans */
	struct pd_profile *fastest;     /* pd_profile_fastest() of it, or itself where devices are alike */
	struct pd_views *views;         /* borrowed; NULL: stages are runs of its layers */
	/* Layers that share parameters have a copy each in this one; NULL: no layers share. */
	struct pd_task *copied;
	const struct pd_plan_request *request;
	const struct pd_topology *topology;
	struct pd_costs costs;          /* of the fastest */
	int64_t limit_bytes;            /* memory of a device, of the kind that has most (pd_stage_limit) */
	bool straight;                  /* no stage has replicas */
	int64_t bound_ns;               /* of every plan with these options; 0: not known yet */
	int64_t *closest_bytes;         /* set where no plan fits: what the closest needs */
};

/* Returns how many stages a plan can have on so many devices: with chunks, several on each. */
static inline int64_t pd_task_stages(const struct pd_task *task, int64_t devices)
{
	return devices * (task->request->chunks ? task->request->chunks : 1);
}

/* Tells whether a search takes so long that it is limited, and goes by estimates. */
static inline bool pd_task_is_large(const struct pd_task *task)
{
	return (int64_t)task->costs.unit_count * task->topology->devices > PD_TASK_LARGE;
}

/*
 * Returns the memory of a device: the request's, else the topology's, else the profile's; INT64_MAX
 * if none is known.  For published formulas, which ignore memory, the profile's is no limit.
 */
int64_t pd_task_limit_bytes(const struct pd_profile *profile,
			    const struct pd_plan_request *request);
/*
 * Returns the usual number of microbatches of an update.  If all replicas of a stage share a group,
 * it is one per rank (dualpipe-v: two), or slightly more so that all have the same number; else 1.
 */
int64_t pd_planner_microbatches(const struct pd_plan *plan);
/* Tells whether a plan with these weights agrees on updates: as requested, and always for f16. */
bool pd_planner_agrees(const struct pd_plan_request *request, const struct pd_profile *profile,
		       enum pd_weight_kind weights);
/* Tells whether no stage may have replicas.  With several stages on a rank all stages have as many. */
static inline bool pd_planner_straight(const struct pd_plan_request *request)
{
	return request->straight || pd_schedule_has(request->schedule, PD_FACT_STRAIGHT);
}
/* Tells whether this is 1f1b with stashing and one minibatch of each replica per update. */
bool pd_planner_plain(const struct pd_plan_request *request);
