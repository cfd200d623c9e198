/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/cut/task.h"

#include "base/mem.h"

/* Returns the memory of the kind of device that has most. */
static int64_t most_memory(const struct pd_topology *topology)
{
	int64_t most = 0;

	for (int k = 0; k < topology->kinds; k++)
		most = pd_max(most, topology->kind[k].memory_bytes > 0 ? topology->kind[k].memory_bytes
									 : INT64_MAX);
	return most;
}

int64_t pd_task_limit_bytes(const struct pd_profile *profile, const struct pd_plan_request *request)
{
	bool known = profile->device_memory_bytes > 0 && request->cost == PD_COST_SIMULATED;

	if (request->memory_bytes > 0)
		return request->memory_bytes;
	if (pd_topology_mixed(request->topology))
		return most_memory(request->topology);
	if (pd_topology_memory_of(request->topology, 0) > 0)
		return pd_topology_memory_of(request->topology, 0);
	return known ? profile->device_memory_bytes : INT64_MAX;
}

bool pd_planner_agrees(const struct pd_plan_request *request, const struct pd_profile *profile,
		       enum pd_weight_kind weights)
{
	return (request->agree || profile->dtype == PD_F16) &&
	       pd_weights_have(weights, PD_WEIGHTS_GROUPS);
}

bool pd_planner_plain(const struct pd_plan_request *request)
{
	return pd_schedule_has(request->schedule, PD_FACT_LEADS) &&
	       pd_weights_stash_alone(request->weights) && request->microbatches <= 1;
}

int64_t pd_planner_microbatches(const struct pd_plan *plan)
{
	int64_t unit = 1, usual = (int64_t)plan->rank_count *
				  (plan->schedule == PD_SCHEDULE_DUALPIPE_V ? 2 : 1);

	if (!pd_updates_in_groups(plan->schedule, plan->weights))
		return 1;
	for (int s = 0; s < plan->stage_count; s++)
		unit = pd_lcm(unit, plan->stages[s].replicas, PD_MAX_EXTENT);
	if (!unit)                              /* too many: the schedule reports what it needs */
		return usual;
	return (usual + unit - 1) / unit * unit;
}
