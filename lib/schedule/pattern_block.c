/* SPDX-License-Identifier: Apache-2.0 */
/*
 * V-Half and V-Min (Qi et al., 2024): a rank has two stages, there and back again, and keeps about a half or a third
 * of what ZB-V does.  The slots of one microbatch are a block (order/made.h), which is repeated every `step` slots.
 * Where the pipeline drains, the lists that come of it are moved together, and their slots are a table.
 *
 * With 2bw it never drains, and no rank has an empty slot.  In ticks, of F, I and W with their 4, 8 and 12,
 *
 *     tick_s(n) = 64 (step n + r slot_s) + 4 ...
 *
 * The forward of n reads the version before that of its group, which is written in time if for every stage
 * (slot(W) - slot(F)) r < step (G + 1), and, if all ranks agree on updates, with the latest W of all stages.
 *
 * Nobody waits for sums that are not needed yet: a step of replicas is listed right before the next W of its stage,
 * which adds to the same gradients.  If all ranks agree there are two arenas of these, and a step is in the middle
 * between the sums and what may read the version.
 */
#include "schedule/slot_table.h"

#include "base/mem.h"
#include "order/made.h"
#include "schedule/count.h"

#include <inttypes.h>

static int64_t *slot_of(const struct pd_schedule *schedule, enum pd_order_pass pass, int s)
{
	return pd_order_time(&schedule->table->slots, pass, s, 0);
}

/* Returns the fewest microbatches of an update. */
static int64_t fewest(const struct pd_schedule *schedule)
{
	int64_t last = 0, most = 1;

	for (int s = 0; s < schedule->stage_count; s++)
		if (*slot_of(schedule, PD_ORDER_W, s) > last)
			last = *slot_of(schedule, PD_ORDER_W, s);
	for (int s = 0; s < schedule->stage_count; s++) {
		int64_t end = schedule->agrees ? last : *slot_of(schedule, PD_ORDER_W, s);
		int64_t need = (end - *slot_of(schedule, PD_ORDER_F, s)) * pd_pattern_replicas(schedule, s) /
			       schedule->table->step;

		most = need > most ? need : most;
	}
	return most;
}

/* Sets a table of one microbatch. */
static void take_block(struct pd_schedule *schedule, const struct pd_order_block *block)
{
	struct pd_slot_table *table = schedule->table = pd_zalloc(sizeof(*table));

	table->step = block->period;
	table->slots = (struct pd_order_times){ .stages = block->stages, .microbatches = 1 };
	table->slots.of = pd_calloc((size_t)PD_ORDER_SPLIT * (size_t)block->stages, sizeof(*table->slots.of));
	for (int k = 0; k < PD_ORDER_SPLIT * block->stages; k++)
		table->slots.of[k] = block->slot[k];
}

/* Returns the multiples of the step from a slot to the next one at most. */
static int64_t steps_to(const struct pd_schedule *schedule, int64_t slot)
{
	int64_t step = schedule->table->step;

	return slot >= 0 ? slot / step : -((-slot + step - 1) / step);
}

/* Returns how many microbatches of a stage have a slot of memory while its rank computes in slot t. */
static int64_t held_at(const struct pd_schedule *schedule, int s, int64_t t)
{
	bool again = schedule->plan->stages[s].recompute;
	int64_t forward = t - *slot_of(schedule, PD_ORDER_F, s);
	int64_t from = again ? t - *slot_of(schedule, PD_ORDER_I, s) : forward;

	return steps_to(schedule, from) - steps_to(schedule, t - 1 - *slot_of(schedule, PD_ORDER_W, s)) +
	       (again && forward % schedule->table->step == 0);
}

/* Returns the most that the two stages of a rank hold at once. */
static int pool_of(const struct pd_schedule *schedule, int s)
{
	int64_t most = 0;

	for (int64_t t = 0; t < schedule->table->step; t++) {
		int64_t held = held_at(schedule, s, t) + held_at(schedule, schedule->stage_count - 1 - s, t);

		most = held > most ? held : most;
	}
	return (int)most;
}

static int shape_open(struct pd_schedule *schedule, void (*make)(int positions, struct pd_order_block *block),
		      struct pd_error *err)
{
	int64_t enough = 4 * (int64_t)schedule->stage_count, late;
	struct pd_order_block block;

	make(schedule->positions, &block);
	take_block(schedule, &block);
	pd_order_block_release(&block);
	if (pd_pattern_group(schedule) < fewest(schedule))
		return pd_error_input(err, "%s: microbatches: 2bw needs at least the %" PRId64 " that are in flight, "
				      "found %" PRId64, pd_plan_name(schedule->plan), fewest(schedule),
				      schedule->plan->microbatches);
	schedule->round = 1;
	schedule->pitch = schedule->span = PD_SLOT_TICKS * schedule->table->step;
	late = (pd_pattern_group(schedule) - fewest(schedule)) / 2;     /* microbatches */
	for (int s = 0; s < schedule->stage_count; s++) {
		schedule->slots[s] = pd_count_in_flight(schedule, s, enough);
		schedule->kept[s] = pd_count_kept(schedule, s, enough);
		schedule->pool[s] = pool_of(schedule, s);
		schedule->warmup[s] = schedule->startup[s] = schedule->slots[s] - 1;
		if (schedule->agrees)
			schedule->delay[s] = late;
	}
	return 0;
}

static int shape_half(struct pd_schedule *schedule, struct pd_error *err)
{
	if (pd_pattern_check_v(schedule, err) < 0)
		return -1;
	return schedule->drains ? pd_slot_table_make(schedule, pd_order_v_half, err)
				: shape_open(schedule, pd_order_block_v_half, err);
}

static int shape_min(struct pd_schedule *schedule, struct pd_error *err)
{
	if (pd_pattern_check_v(schedule, err) < 0)
		return -1;
	return schedule->drains ? pd_slot_table_make(schedule, pd_order_v_min, err)
				: shape_open(schedule, pd_order_block_v_min, err);
}

static int64_t tick(const struct pd_schedule *schedule, enum pd_compute what, int s, int64_t n)
{
	static const enum pd_order_pass pass[] = {
		[PD_COMPUTE_FORWARD] = PD_ORDER_F, [PD_COMPUTE_BACKWARD] = PD_ORDER_I,
		[PD_COMPUTE_WEIGHTS] = PD_ORDER_W,
	};

	if (schedule->drains)
		return pd_slot_table_tick(schedule, what, s, n);
	return PD_SLOT_TICKS * (schedule->table->step * n + pd_pattern_replicas(schedule, s) *
				*slot_of(schedule, pass[what], s)) + 4 * ((int64_t)what + 1);
}

/* Right before the replica's next W of the stage, which adds to the same gradients. */
static int64_t defer(const struct pd_schedule *schedule, int s, int replica, int64_t u)
{
	return tick(schedule, PD_COMPUTE_WEIGHTS, s, (u + 1) * schedule->group[s] + replica) - 3;
}

const struct pd_pattern pd_pattern_V_HALF = { .shape = shape_half, .tick = tick, .crowds = true, .defer = defer };
const struct pd_pattern pd_pattern_V_MIN = { .shape = shape_min, .tick = tick, .crowds = true, .defer = defer };
