/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that schedules compute in the order that lib/order lists, which knows no ticks, and certifies. */
#include "small_profile.h"
#include "table.h"
#include "tap.h"

#include "order/made.h"
#include "schedule/cursor.h"

#include <string.h>

/* Tells whether a rank computes what its position's list has, in that order. */
static bool computes(const struct pd_schedule *schedule, int rank, const struct pd_order_list *list)
{
	static const enum pd_op_kind kinds[] = { PD_OP_forward, PD_OP_backward_input, PD_OP_backward_weight,
						 PD_OP_backward };
	struct pd_phase phase = { .last = schedule->plan->microbatches };
	struct pd_cursor cursor;
	struct pd_op op;
	size_t k = 0;
	bool same = true;

	pd_cursor_init(&cursor, schedule, rank, &phase, 0);
	while (pd_cursor_next(&cursor, &op))
		if (op.kind == PD_OP_forward || op.kind == PD_OP_backward || op.kind == PD_OP_backward_input ||
		    op.kind == PD_OP_backward_weight) {
			const struct pd_order_op *at = &list->ops[k < list->count ? k : 0];

			same = same && k++ < list->count && op.kind == kinds[at->pass] && op.stage == at->stage &&
			       op.microbatch == at->microbatch && op.beside == at->beside;
		}
	pd_cursor_release(&cursor);
	return same && k == list->count;
}

/*
 * Tells whether the ranks of a plan with so many stages on p positions, in rounds (0: as the kind has them),
 * compute as listed; frees the order.
 */
static bool is_listed(struct pd_order *order, enum pd_schedule_kind kind, int p, int stages, int microbatches, int round)
{
	static const int ones[16] = { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 };
	int layers[16] = { 0 };
	struct pd_schedule *schedule;
	struct pd_plan *plan;
	struct pd_error err;
	bool same;

	for (int l = 0; l < 16; l++)
		layers[l < stages ? l : stages - 1]++;
	plan = plan_of(sixteen, stages, layers, ones);
	plan->rank_count = p;
	plan->round = round;
	use(plan, kind, PD_WEIGHTS_FLUSH, microbatches);
	schedule = pd_schedule_new(plan, &err);
	same = schedule && pd_order_certify(order, NULL, &err) == 0;
	for (int q = 0; q < p && same; q++)
		same = computes(schedule, q, &order->lists[q]);
	if (!same)
		diag("%d ranks, rounds of %d, %d microbatches", p, round, microbatches);
	pd_schedule_free(schedule);
	pd_plan_free(plan);
	pd_order_free(order);
	return same;
}

/* Checks rounds of all lengths, those longer than a group too. */
static void check_rounds(int p, int chunks)
{
	int wrong = 0, count = 0;

	for (int g = p; g <= 2 * p + 1; g++)
		for (int m = 1; m <= 3 * g + 1; m++, count++)
			wrong += !is_listed(pd_order_interleaved(p, chunks, m, g < m ? g : m > p ? m : p),
					    PD_SCHEDULE_INTERLEAVED, p, chunks * p, m, g);
	is_int(wrong, 0, "interleaved, %d chunks on %d ranks: in rounds as listed, in %d cases", chunks, p, count);
}

static void check_round_refused(void)
{
	struct pd_plan *plan = plan_of("a<x b<a c<b d<c", 4, (int[]){ 1, 1, 1, 1 }, (int[]){ 1, 1, 1, 1 });
	struct pd_error err;

	plan->rank_count = 2;
	use(plan, PD_SCHEDULE_INTERLEAVED, PD_WEIGHTS_FLUSH, 8);
	plan->round = 1;
	ok(!pd_schedule_new(plan, &err) && strstr(err.text, "round: expected at least 2, the ranks of a path, found 1"),
	   "a round shorter than a path is refused: %s", err.text);
	pd_plan_free(plan);
	plan = plan_of("a<x b<a", 2, (int[]){ 1, 1 }, (int[]){ 1, 1 });
	plan->round = 2;
	ok(!pd_schedule_new(plan, &err) && strstr(err.text, "round: schedule \"1f1b\" has no rounds"),
	   "rounds of 1f1b are refused: %s", err.text);
	pd_plan_free(plan);
}

static void check_kind(enum pd_schedule_kind kind, struct pd_order *(*make)(int positions, int microbatches))
{
	int wrong = 0, count = 0;

	for (int p = 1; p <= 8; p++)
		/* Orders of more than 10 p microbatches repeat the middle of one of 10 p. */
		for (int m = 1; m <= 15 * p; m += m == 4 * p + 2 ? 5 * p : 1, count++)
			wrong += !is_listed(make(p, m), kind, p, 2 * p, m, 0);
	is_int(wrong, 0, "%s: computes as listed, in %d cases", pd_schedule_kind_name[kind], count);
}

int main(void)
{
	check_rounds(2, 3);
	check_rounds(4, 2);
	check_rounds(1, 3);
	check_round_refused();
	check_kind(PD_SCHEDULE_ZB_V, pd_order_zb_v);
	check_kind(PD_SCHEDULE_V_HALF, pd_order_v_half);
	check_kind(PD_SCHEDULE_V_MIN, pd_order_v_min);
	check_kind(PD_SCHEDULE_DUALPIPE_V, pd_order_dualpipe_v);
	return done_testing();
}
