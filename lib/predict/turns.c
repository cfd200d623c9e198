/* SPDX-License-Identifier: Apache-2.0 */
#include "predict/turns.h"

#include "base/cost.h"
#include "base/minmax.h"

struct pd_turns pd_turns_of(const struct pd_plan *plan, const struct pd_link *link)
{
	const struct pd_topology *topology = &plan->topology;
	const int *from = plan->stages[link->from].ranks, *to = plan->stages[link->to].ranks;
	struct pd_turns turns = { .count = 1 };
	int64_t size = 1;
	int level;

	if (from[0] == to[0])
		return turns;
	level = pd_topology_level(topology, from[0], to[0]);
	turns.way_ns = pd_min(pd_topology_transfer_ns(topology, from[0], to[0], link->bytes), PD_COST_MAX);
	turns.own_ns = pd_bytes_ns(link->bytes, topology->level[level].bandwidth_bytes_per_s);
	for (int k = 0; k < level; k++)
		size *= topology->level[k].count;
	for (int i = 1; i < plan->stages[link->from].replicas && topology->link_runs == 0; i++)
		turns.count += from[i] / size == from[0] / size &&
			       pd_topology_level(topology, from[i], to[i]) == level;
	return turns;
}
