/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/placement.h"

static void in_line(struct pd_plan *plan, bool reversed)
{
	int next = 0;

	for (int i = 0; i < plan->stage_count; i++) {
		struct pd_stage *stage = &plan->stages[reversed ? plan->stage_count - 1 - i : i];

		for (int r = 0; r < stage->replicas; r++)
			stage->ranks[r] = next++;
	}
}

/* Returns the devices of a component below level k. */
static int64_t size_of(const struct pd_topology *topology, int k)
{
	int64_t size = 1;

	for (int l = 0; l < k; l++)
		size *= topology->level[l].count;
	return size;
}

/*
 * Returns how many components below level k the plan fills if each has its part of every stage; or
 * 0.
 */
static int components(const struct pd_plan *plan, int k)
{
	int64_t size = size_of(&plan->topology, k), count = plan->rank_count / size;

	if (size < 2 || count < 2 || plan->rank_count % size != 0)
		return 0;
	for (int s = 0; s < plan->stage_count; s++)
		if (plan->stages[s].replicas % count != 0)
			return 0;
	return (int)count;
}

static void strided(struct pd_plan *plan, int k)
{
	int size = (int)size_of(&plan->topology, k), count = components(plan, k), offset = 0;

	for (int s = 0; s < plan->stage_count; s++) {
		struct pd_stage *stage = &plan->stages[s];

		for (int r = 0; r < stage->replicas; r++)
			stage->ranks[r] = r % count * size + offset + r / count;
		offset += stage->replicas / count;
	}
}

bool pd_placement_differs(const struct pd_plan *plan, int n)
{
	int k = n - 1;                  /* n = 2 is below level 1 */

	if (n == 0)
		return true;
	if (plan->topology.levels == 1 || k >= plan->topology.levels)
		return false;
	if (n == 1)
		return plan->stage_count > 1;
	return components(plan, k) > 0;
}

bool pd_placement_set(struct pd_plan *plan, int n)
{
	if (n > 1 && n - 1 >= plan->topology.levels)
		return false;
	if (!pd_placement_differs(plan, n))
		return n == 0;
	if (n > 1)
		strided(plan, n - 1);
	else
		in_line(plan, n == 1);
	return true;
}
