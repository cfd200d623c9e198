/* SPDX-License-Identifier: Apache-2.0 */
#include "memory/shared_gradients.h"

#include "base/mem.h"
#include "memory/memory.h"

#include <stdlib.h>

struct list {
	struct pd_copy_transfer *transfers;
	size_t count, capacity;
	int *told;                      /* per rank: the last layer whose gradients it gets, plus 1 */
};

/* Adds the transfers of a layer's gradients to those ranks of a stage that do not get them yet. */
static void add_stage(struct list *list, const struct pd_plan *plan, int layer, int stage)
{
	const struct pd_stage *own = &plan->stages[pd_plan_stage_of_layer(plan, layer)];
	const struct pd_stage *other = &plan->stages[stage];

	for (int j = 0; j < other->replicas && own != other; j++) {
		int from = own->ranks[j % own->replicas], to = other->ranks[j];

		if (from == to || list->told[to] == layer + 1)
			continue;
		list->told[to] = layer + 1;
		list->transfers = pd_grow(list->transfers, &list->capacity, list->count + 1,
					  sizeof(*list->transfers));
		list->transfers[list->count++] = (struct pd_copy_transfer){
			layer, from, to, pd_memory_shared(plan->profile, layer) };
	}
}

size_t pd_plan_copy_transfers(const struct pd_plan *plan, struct pd_copy_transfer **list_p)
{
	const struct pd_profile *profile = plan->profile;
	struct list list = { 0 };

	*list_p = NULL;
	if (!pd_plan_has_tied_weights(plan))
		return 0;
	list.told = pd_calloc((size_t)plan->rank_count, sizeof(*list.told));
	for (int from = 0; from < profile->layer_count; from++)
		for (int to = 0; profile->layers[from].shared && to < profile->layer_count; to++)
			if (pd_profile_owner(profile, from) == pd_profile_owner(profile, to))
				add_stage(&list, plan, from, pd_plan_stage_of_layer(plan, to));
	free(list.told);
	*list_p = list.transfers;
	return list.count;
}
