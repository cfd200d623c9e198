/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/search/plan_shape.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

void pd_plan_shape_init(struct pd_plan_shape *shape, int room)
{
	shape->count = 0;
	shape->ends = pd_calloc((size_t)room + 1, sizeof(int));
	shape->replicas = pd_calloc((size_t)room + 1, sizeof(int));
}

void pd_plan_shape_release(struct pd_plan_shape *shape)
{
	free(shape->ends);
	free(shape->replicas);
}

void pd_plan_shape_copy(struct pd_plan_shape *to, const struct pd_plan_shape *from)
{
	to->profile = from->profile;
	to->count = from->count;
	memcpy(to->ends, from->ends, (size_t)from->count * sizeof(int));
	memcpy(to->replicas, from->replicas, (size_t)from->count * sizeof(int));
}

void pd_plan_shape_of(struct pd_plan_shape *shape, const struct pd_plan *plan)
{
	shape->profile = plan->profile;
	shape->count = plan->stage_count;
	for (int s = 0; s < plan->stage_count; s++) {
		const struct pd_stage *stage = &plan->stages[s];

		shape->ends[s] = stage->first_layer + stage->layer_count;
		shape->replicas[s] = stage->replicas;
	}
}

struct pd_partition *pd_plan_shape_partition(const struct pd_plan_shape *shape,
					     const struct pd_task *task)
{
	struct pd_partition *partition = pd_partition_new(shape->count);

	if (shape->profile != task->profile)
		partition->order = pd_views_order(task->views, shape->profile);
	for (int s = 0, l = 0; s < shape->count; l = shape->ends[s++]) {
		partition->layers[s] = shape->ends[s] - l;
		partition->replicas[s] = shape->replicas[s];
	}
	return partition;
}

int64_t pd_passes_ns(const struct pd_profile *profile, int l)
{
	int64_t ns = profile->layers[l].forward_ns + profile->layers[l].backward_ns;

	for (int k = 0; k < profile->other_count; k++)
		ns = pd_min(ns, pd_passes_ns(profile->others[k], l));
	return ns;
}

bool pd_plan_shape_is_of(const struct pd_plan_shape *shape, const struct pd_plan *plan)
{
	bool same = plan->profile == shape->profile && plan->stage_count == shape->count;

	for (int s = 0; s < shape->count && same; s++)
		same = plan->stages[s].first_layer + plan->stages[s].layer_count == shape->ends[s] &&
		       plan->stages[s].replicas == shape->replicas[s];
	return same;
}

/* Moves the stages from one place on to another. */
static void shape_move_stages(struct pd_plan_shape *shape, int from, int to)
{
	size_t bytes = (size_t)(shape->count - from) * sizeof(int);

	memmove(&shape->ends[to], &shape->ends[from], bytes);
	memmove(&shape->replicas[to], &shape->replicas[from], bytes);
	shape->count += to - from;
}

void pd_plan_shape_move_replica(struct pd_plan_shape *shape, int from, int to)
{
	shape->replicas[from]--;
	shape->replicas[to]++;
}

void pd_plan_shape_join(struct pd_plan_shape *shape, int s, int less, bool straight)
{
	int replicas = shape->replicas[s] + shape->replicas[s + 1] - less;

	shape_move_stages(shape, s + 1, s);
	shape->replicas[s] = straight ? 1 : replicas;
}

void pd_plan_shape_split(struct pd_plan_shape *shape, int s, int end, int left, int right)
{
	shape_move_stages(shape, s, s + 1);
	shape->ends[s] = end;
	shape->replicas[s] = left;
	shape->replicas[s + 1] = right;
}

int pd_plan_shape_state(const struct pd_states *states, const struct pd_profile *view, int layers)
{
	for (int i = 0; i < states->count; i++) {
		int l = 0;

		if (states->layer_count[i] != layers)
			continue;
		while (l < layers && pd_states_has(states, i, pd_profile_number(view, l)))
			l++;
		if (l == layers)
			return i;
	}
	return -1;
}

bool pd_plan_shape_same(const struct pd_plan *a, const struct pd_plan *b)
{
	if (a->profile != b->profile || a->stage_count != b->stage_count)
		return false;
	for (int s = 0; s < a->stage_count; s++)
		if (a->stages[s].layer_count != b->stages[s].layer_count ||
		    a->stages[s].replicas != b->stages[s].replicas)
			return false;
	return true;
}
