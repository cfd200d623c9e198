/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/memory.h"

#include "base/mem.h"
#include "memory/shared_gradients.h"
#include "plan/recompute.h"

const struct pd_moments pd_momentum = { .count = 1 };

static struct pd_arena_counts counts_of(const struct pd_schedule *schedule, int s,
					const struct pd_buffer_counts *buffer_counts,
					const struct pd_moments *moments)
{
	return pd_arena_counts_of(schedule->plan, s, (struct pd_arena_counts){
		.versions = buffer_counts->versions, .slots = buffer_counts->slots, .kept = buffer_counts->kept,
		.inboxes = buffer_counts->inboxes, .outboxes = buffer_counts->outboxes,
		.arriving = buffer_counts->arriving, .leaving = buffer_counts->leaving,
		.moments = moments->count, .corrects = moments->corrects &&
		pd_schedule_delay(schedule, s) > 0,
	});
}

void pd_schedule_arenas(const struct pd_schedule *schedule, int s,
			const struct pd_buffer_counts *buffer_counts,
			const struct pd_moments *moments, const struct pd_stage_memory *sizes,
			struct pd_arena_need needs[PD_ARENAS])
{
	struct pd_arena_counts counts = counts_of(schedule, s, buffer_counts, moments);

	pd_arenas_need(&counts, sizes, needs);
}

/* Returns the bytes of gradients of copies that arrive at a rank (engine/worker/tied_weights.c). */
static int64_t arriving_copies(const struct pd_plan *plan, int rank)
{
	struct pd_copy_transfer *list;
	size_t count = pd_plan_copy_transfers(plan, &list);
	int64_t bytes = 0;

	for (size_t i = 0; i < count; i++)
		if (list[i].to == rank)
			bytes = pd_plus(bytes, (int64_t)pd_align((size_t)list[i].bytes));
	free(list);
	return bytes;
}

/* Returns the bytes of the vector of an agree, and of those that arrive in its rounds. */
static int64_t vectors(const struct pd_plan *plan)
{
	return (1 + pd_schedule_norm_rounds(plan)) *
	       (int64_t)pd_align((size_t)pd_schedule_norm_bytes(plan));
}

bool pd_schedule_memory_in(const struct pd_schedule *schedule, int rank,
			   const struct pd_buffer_counts *buffer_counts,
			   const struct pd_moments *moments, struct pd_memory *out_p)
{
	struct pd_memory memory = { .total_bytes = 0 };
	const struct pd_profile *profile = pd_plan_profile_of(schedule->plan, rank);
	int chunks = pd_schedule_chunks(schedule, rank), stages[chunks];
	struct pd_arena_need needs[chunks][PD_ARENAS], *slots[chunks];
	int64_t rank_bytes = 0;
	bool exact = true;

	pd_schedule_stages(schedule, rank, stages);
	for (int i = 0; i < chunks; i++) {
		struct pd_arena_counts counts = counts_of(schedule, stages[i], &buffer_counts[i], moments);
		struct pd_stage_memory sizes;

		if (profile->memory.model != PD_MEMORY_OWN)
			counts = pd_arena_counts_elsewhere(&counts);
		pd_memory_of_stage(schedule->plan, profile, schedule->wiring, stages[i], &sizes);
		pd_arenas_need(&counts, &sizes, needs[i]);
		slots[i] = &needs[i][PD_ARENA_slot];
		exact &= sizes.exact;
	}
	pd_arenas_share(slots, chunks, buffer_counts[0].pool);
	for (int i = 0; i < chunks; i++)
		pd_arenas_add(needs[i], &memory);
	pd_memory_margin(profile, &memory);
	if (pd_plan_agrees(schedule->plan))
		rank_bytes = vectors(schedule->plan);
	rank_bytes = pd_plus(rank_bytes, arriving_copies(schedule->plan,
							 schedule->plan->stages[stages[0]].ranks[0]));
	memory.transfer_bytes = pd_plus(memory.transfer_bytes, rank_bytes);
	memory.total_bytes = pd_plus(memory.total_bytes, rank_bytes);
	*out_p = memory;
	return exact;
}

bool pd_schedule_memory(const struct pd_schedule *schedule, int rank,
			const struct pd_moments *moments, struct pd_memory *out_p)
{
	int chunks = pd_schedule_chunks(schedule, rank), stages[chunks];
	struct pd_buffer_counts buffer_counts[chunks];

	pd_schedule_stages(schedule, rank, stages);
	for (int i = 0; i < chunks; i++)
		pd_buffer_counts_of_stage(schedule, stages[i], &buffer_counts[i]);
	return pd_schedule_memory_in(schedule, rank, buffer_counts, moments, out_p);
}

bool pd_schedule_stage_memory(const struct pd_schedule *schedule, int stage,
			      const struct pd_moments *moments, struct pd_memory *out_p)
{
	const struct pd_plan *plan = schedule->plan;
	bool exact = pd_schedule_memory(schedule, plan->stages[stage].ranks[0], moments, out_p);

	for (int k = 0; k < pd_plan_kinds(plan) && pd_plan_kinds(plan) > 1; k++) {
		int rank = pd_plan_rank_of_kind(plan, stage, k);
		struct pd_memory memory;

		if (rank < 0)
			continue;
		exact &= pd_schedule_memory(schedule, rank, moments, &memory);
		if (memory.total_bytes > out_p->total_bytes)
			*out_p = memory;
	}
	return exact;
}
