/* SPDX-License-Identifier: Apache-2.0 */
#include "memory/arenas.h"

#include "base/mem.h"
#include "base/minmax.h"
#include "plan/sparse.h"

const enum pd_arena_owner pd_arena_owner[PD_ARENAS] = {
#define PD_ARENA(name, part, owner, saved, each, count) PD_ARENA_OF_##owner,
#include "memory/arenas.def"
#undef PD_ARENA
};

const bool pd_arena_saved[PD_ARENAS] = {
#define PD_ARENA(name, part, owner, saved, each, count) saved,
#include "memory/arenas.def"
#undef PD_ARENA
};

const char *const pd_arena_name[PD_ARENAS] = {
#define PD_ARENA(name, part, owner, saved, each, count) #name,
#include "memory/arenas.def"
#undef PD_ARENA
};

struct pd_arena_counts pd_arena_counts_of(const struct pd_plan *plan, int stage, struct pd_arena_counts counts)
{
	counts.sums = (int)pd_plan_open_groups(plan, stage);
	counts.accumulates = plan->microbatches > plan->stages[stage].replicas;
	counts.sparse = pd_plan_is_sparse(plan, stage);
	counts.scale_bytes = pd_plan_agrees(plan) ? PD_ALIGN : 0;
	counts.least_bytes = PD_ALIGN;
	return counts;
}

struct pd_arena_counts pd_arena_counts_elsewhere(const struct pd_arena_counts *counts)
{
	return (struct pd_arena_counts){
		.versions = 1, .sums = 1, .slots = counts->slots, .kept = counts->kept,
		.inboxes = counts->inboxes > 0 ? counts->inboxes - 1 : 0, .arriving = 2, .leaving = 2,
	};
}

static int64_t at_least(int64_t bytes, int64_t least)
{
	return bytes > 0 ? bytes : least;
}

void pd_arenas_need(const struct pd_arena_counts *has, const struct pd_stage_memory *sizes,
		    struct pd_arena_need needs[PD_ARENAS])
{
#define PD_ARENA(name, part, owner, saved, each, count) \
	needs[PD_ARENA_##name] = (struct pd_arena_need){ (count), (each) };
#include "memory/arenas.def"
#undef PD_ARENA
}

bool pd_arenas_share(struct pd_arena_need *const *slots, int stages, int64_t count)
{
	int64_t apart = 0, largest = 0;

	for (int i = 0; i < stages; i++) {
		apart = pd_plus(apart, pd_times(slots[i]->count, slots[i]->each_bytes));
		largest = pd_max(largest, slots[i]->each_bytes);
	}
	if (pd_times(count, largest) >= apart)
		return false;
	for (int i = 0; i < stages; i++)
		slots[i]->count = 0;
	*slots[0] = (struct pd_arena_need){ count, largest };
	return true;
}

void pd_arenas_add(const struct pd_arena_need needs[PD_ARENAS], struct pd_memory *memory)
{
	int64_t *const parts[PD_ARENAS] = {
#define PD_ARENA(name, part, owner, saved, each, count) &memory->part##_bytes,
#include "memory/arenas.def"
#undef PD_ARENA
	};

	for (int k = 0; k < PD_ARENAS; k++) {
		int64_t bytes = pd_times(needs[k].count, needs[k].each_bytes), more = bytes;

		if (pd_arena_owner[k] == PD_ARENA_OF_RANK)
			more = bytes > *parts[k] ? bytes - *parts[k] : 0;
		*parts[k] = pd_plus(*parts[k], more);
		memory->total_bytes = pd_plus(memory->total_bytes, more);
	}
}
