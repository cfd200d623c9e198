/* SPDX-License-Identifier: Apache-2.0 */
/* lib/worker/memory.c allocates what is counted here; test/t4005-memory.sh compares. */
#include "schedule/memory.h"

#include "base/mem.h"

static void add_stage(const struct pd_schedule *schedule, int s, const struct pd_room *room,
		      int moments, const struct pd_stage_memory *stage, struct pd_memory *memory)
{
	bool accumulates = schedule->group[s] > schedule->plan->stages[s].replicas;
	int64_t weights = stage->weights_bytes, full = stage->full_bytes, arenas;
	int64_t scale = pd_plan_agrees(schedule->plan) ? PD_ALIGN : 0;   /* of a version */

	/* a stage without parameters still counts its versions */
	memory->weights_bytes = pd_plus(memory->weights_bytes,
				pd_times(room->versions, (weights ? weights : PD_ALIGN) + scale));
	arenas = pd_plan_open_groups(schedule->plan, s) + accumulates;
	memory->gradient_bytes = pd_plus(memory->gradient_bytes, pd_times(arenas, full));
	if (pd_plan_agrees(schedule->plan))      /* with a sum, too; one of nothing has a place for it */
		memory->gradient_bytes = pd_plus(memory->gradient_bytes,
						 pd_plan_open_groups(schedule->plan, s) *
						 (scale + (full ? 0 : PD_ALIGN)));
	memory->optimizer_bytes = pd_plus(memory->optimizer_bytes,
				      pd_plus(pd_times(moments, full), stage->master_bytes));
	memory->state_bytes = pd_plus(memory->state_bytes, stage->state_bytes);
	memory->stash_bytes = pd_plus(memory->stash_bytes,
				   pd_plus(pd_times(room->slots, stage->slot_bytes),
					pd_times(room->inboxes, stage->inbox_bytes)));
	memory->stash_bytes = pd_plus(memory->stash_bytes,
				   pd_times(room->outboxes, stage->outbox_bytes));
	memory->transfer_bytes = pd_plus(memory->transfer_bytes,
				      pd_plus(pd_plus(pd_times(room->arriving, stage->gradient_in_bytes),
						pd_times(room->leaving, stage->gradient_out_bytes)),
					   stage->staging_bytes));
	/* its stages compute one after the other */
	if (stage->scratch_bytes > memory->scratch_bytes)
		memory->scratch_bytes = stage->scratch_bytes;
}

static bool has_stage(const struct pd_schedule *schedule, const int *stages, int layer)
{
	for (int i = 0; i < schedule->chunks; i++)
		if (stages[i] == pd_plan_stage_of_layer(schedule->plan, layer))
			return true;
	return false;
}

/* Gradients of layers elsewhere that share parameters with one of these stages' (worker/tie.c). */
static int64_t arriving_copies(const struct pd_schedule *schedule, const int *stages)
{
	const struct pd_profile *profile = schedule->plan->profile;
	const struct pd_layer *layers = profile->model->layers;
	int64_t bytes = 0;

	for (int l = 0; l < profile->layer_count; l++) {
		int owner = layers[l].shares >= 0 ? layers[l].shares : l;
		bool wanted = false;

		for (int m = 0; m < profile->layer_count && !has_stage(schedule, stages, l); m++)
			wanted |= (m == owner || layers[m].shares == owner) &&
				  has_stage(schedule, stages, m);
		if (wanted)
			bytes = pd_plus(bytes, (int64_t)pd_align((size_t)pd_memory_copy(profile, l)));
	}
	return bytes;
}

/* What is agreed on, and what comes in each round of that. */
static int64_t vectors(const struct pd_plan *plan)
{
	return (1 + pd_schedule_agree_rounds(plan)) *
	       (int64_t)pd_align((size_t)pd_schedule_agreed_bytes(plan));
}

bool pd_schedule_memory_in(const struct pd_schedule *schedule, int rank,
			   const struct pd_room *rooms, int moments, struct pd_memory *out_p)
{
	struct pd_memory memory = { .total_bytes = 0 };
	int stages[schedule->chunks];
	bool exact = true;

	pd_schedule_stages(schedule, rank, stages);
	for (int i = 0; i < schedule->chunks; i++) {
		struct pd_stage_memory stage;

		pd_memory_of_stage(schedule->plan, schedule->wiring, stages[i], &stage);
		add_stage(schedule, stages[i], &rooms[i], moments, &stage, &memory);
		exact &= stage.exact;
	}
	if (pd_plan_agrees(schedule->plan))
		memory.transfer_bytes = pd_plus(memory.transfer_bytes, vectors(schedule->plan));
	if (pd_plan_ties(schedule->plan))
		memory.transfer_bytes = pd_plus(memory.transfer_bytes,
						arriving_copies(schedule, stages));
	memory.total_bytes = pd_plus(pd_plus(pd_plus(memory.weights_bytes, memory.gradient_bytes),
				       pd_plus(memory.optimizer_bytes, memory.state_bytes)),
				  pd_plus(pd_plus(memory.stash_bytes, memory.transfer_bytes),
				       memory.scratch_bytes));
	*out_p = memory;
	return exact;
}

bool pd_schedule_memory(const struct pd_schedule *schedule, int rank, int moments,
			struct pd_memory *out_p)
{
	struct pd_room rooms[schedule->chunks];
	int stages[schedule->chunks];

	pd_schedule_stages(schedule, rank, stages);
	for (int i = 0; i < schedule->chunks; i++)
		pd_room_of_stage(schedule, stages[i], &rooms[i]);
	return pd_schedule_memory_in(schedule, rank, rooms, moments, out_p);
}
