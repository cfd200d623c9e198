/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DualPipeV (DeepSeek, 2025): a rank has two stages, there and back again, and does a forward of one microbatch and
 * a backward of another side by side for most of the time.
 */
#include "order/made.h"
#include "schedule/slot_table.h"

static int shape(struct pd_schedule *schedule, struct pd_error *err)
{
	return pd_pattern_check_v(schedule, err) < 0 ? -1 : pd_slot_table_make(schedule, pd_order_dualpipe_v, err);
}

const struct pd_pattern pd_pattern_DUALPIPE_V = {
	.shape = shape, .tick = pd_slot_table_tick, .crowds = true,
	.beside = pd_slot_table_beside, .whole = pd_slot_table_whole,
};
