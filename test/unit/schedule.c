/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The generator's promises, checked from outside on many plans: every list complete, in an
 * order that works even when every transfer blocks both its parties, sequence numbers
 * equal at all parties and ascending, no more in flight than slots, versions as published.
 */
#include "small_profile.h"
#include "tap.h"

#include "base/mem.h"
#include "schedule/schedule.h"

#include <stdlib.h>
#include <string.h>

#define MOST_RANKS 32

/* A chain with skips: "a<x b<a c<ba d<c ..." so that links leave out stages. */
static struct pd_plan *make_plan(const char *graph, int stages, const int *layers,
				 const int *replicas)
{
	struct pd_topology topology;
	struct pd_plan *plan;
	struct pd_error err;

	pd_topology_flat(MOST_RANKS, 1000000000, 1000, &topology, &err);
	plan = pd_plan_new(small_profile(graph), &topology, stages, layers, replicas, &err);
	if (!plan)
		diag("%s", err.text);
	return plan;
}

struct list {
	struct pd_op *ops;
	size_t count, capacity;
};

static void make_lists(const struct pd_schedule *schedule, const struct pd_phase *phase,
		       struct list *lists)
{
	for (int r = 0; r < schedule->plan->rank_count; r++) {
		struct pd_cursor cursor;
		struct pd_op op;

		lists[r] = (struct list){ 0 };
		pd_cursor_init(&cursor, schedule, r, phase, phase->first);
		while (pd_cursor_next(&cursor, &op)) {
			lists[r].ops = pd_grow(lists[r].ops, &lists[r].capacity, lists[r].count + 1,
					       sizeof(op));
			lists[r].ops[lists[r].count++] = op;
		}
		pd_cursor_release(&cursor);
	}
}

static void free_lists(struct list *lists, int n)
{
	for (int r = 0; r < n; r++)
		free(lists[r].ops);
}

static bool is_transfer(const struct pd_op *op)
{
	return op->peer >= 0;
}

static bool matches(const struct pd_op *a, const struct pd_op *b)
{
	static const enum pd_op_kind other[PD_OP_KINDS] = {
		[PD_OP_send_activation] = PD_OP_recv_activation,
		[PD_OP_recv_activation] = PD_OP_send_activation,
		[PD_OP_send_gradient] = PD_OP_recv_gradient,
		[PD_OP_recv_gradient] = PD_OP_send_gradient,
	};

	return b->kind == other[a->kind] && b->seq == a->seq && b->peer == a->rank &&
	       a->peer == b->rank && a->link == b->link && a->microbatch == b->microbatch;
}

/*
 * Every rank executes its list in order and every operation of several ranks blocks all of
 * them until all are at it.  True when all lists come to their ends.
 */
static bool runs_blocking(const struct pd_schedule *schedule, const struct list *lists)
{
	const struct pd_plan *plan = schedule->plan;
	size_t at[MOST_RANKS] = { 0 };
	bool moved = true, ended = true;

	while (moved) {
		moved = false;
		for (int r = 0; r < plan->rank_count; r++) {
			const struct pd_stage *stage;
			const struct pd_op *op;
			bool all = true;

			if (at[r] == lists[r].count)
				continue;
			op = &lists[r].ops[at[r]];
			stage = &plan->stages[op->stage];
			if (is_transfer(op)) {
				const struct list *peer = &lists[op->peer];

				if (at[op->peer] == peer->count ||
				    !matches(op, &peer->ops[at[op->peer]]))
					continue;
				at[op->peer]++;
				at[r]++;
			} else if (op->kind == PD_OP_allreduce) {
				for (int i = 0; i < stage->replicas; i++) {
					int m = stage->ranks[i];

					all = all && at[m] < lists[m].count &&
					      lists[m].ops[at[m]].kind == PD_OP_allreduce &&
					      lists[m].ops[at[m]].seq == op->seq;
				}
				if (!all)
					continue;
				for (int i = 0; i < stage->replicas; i++)
					at[stage->ranks[i]]++;
			} else {
				at[r]++;
			}
			moved = true;
		}
	}
	for (int r = 0; r < plan->rank_count; r++)
		ended = ended && at[r] == lists[r].count;
	return ended;
}

static bool seq_ascends(const struct list *list)
{
	int64_t last = -1;

	for (size_t i = 0; i < list->count; i++) {
		if (list->ops[i].seq < 0)
			continue;
		if (list->ops[i].seq <= last)
			return false;
		last = list->ops[i].seq;
	}
	return true;
}

/*
 * What one rank's list must hold by itself: forward and backward of each of its minibatches
 * once, in this order, with what comes before and after; the published versions; slots.
 */
static bool list_is_right(const struct pd_schedule *schedule, const struct list *list, int rank,
			  const struct pd_phase *phase, const char **why)
{
	int replica, s = pd_plan_stage_of_rank(schedule->plan, rank, &replica), flying = 0;
	const struct pd_stage *stage = &schedule->plan->stages[s];
	int64_t n = phase->last - phase->first, steps = 0, next_f = replica, next_b = replica;
	int64_t newest = phase->first;
	int64_t ins = 0, outs = 0, forwards = 0, backwards = 0;
	int most = 0;

	for (size_t i = 0; i < list->count; i++) {
		const struct pd_op *op = &list->ops[i];
		int64_t b = op->microbatch - phase->first, v;

		v = phase->first + (b / stage->replicas - stage->warmup) * stage->replicas;
		if (v < phase->first)
			v = phase->first;
		*why = pd_op_kind_name[op->kind];
		switch (op->kind) {
		case PD_OP_load:
		case PD_OP_recv_activation:
			/* into a slot: one more in flight, unless its minibatch has one */
			if (b < next_f || b > next_f + stage->replicas * (stage->warmup + 2))
				return false;
			ins += op->kind == PD_OP_recv_activation;
			break;
		case PD_OP_forward:
			/* what it takes is there, and no more than what fits the inboxes */
			forwards++;
			if (b != next_f || op->version != v || v > newest ||
			    ins < schedule->wiring->in_count[s] * forwards ||
			    ins > schedule->wiring->in_count[s] * (forwards + stage->warmup + 2))
				return false;
			next_f += stage->replicas;
			flying++;
			most = flying > most ? flying : most;
			break;
		case PD_OP_recv_gradient:
			outs++;
			break;
		case PD_OP_backward:
			backwards++;
			if (b != next_b || op->version != v || b >= next_f ||
			    outs != schedule->wiring->out_count[s] * backwards)
				return false;
			next_b += stage->replicas;
			flying--;
			break;
		case PD_OP_allreduce:
			if (stage->replicas == 1)
				return false;
			break;
		case PD_OP_step:
			/* after the backward of its group, before anything that reads it */
			if (op->version != (phase->first + (steps + 1) * stage->replicas < phase->last
					    ? phase->first + (steps + 1) * stage->replicas
					    : phase->last) ||
			    next_b < (steps + 1) * stage->replicas + replica ? next_b < n : false)
				return false;
			newest = op->version;
			steps++;
			break;
		default:
			break;
		}
	}
	*why = "the whole";
	return next_f >= n && next_b >= n && flying == 0 &&
	       steps == (n + stage->replicas - 1) / stage->replicas && most <= stage->warmup + 1;
}

static void check_plan(const char *graph, int stages, const int *layers, const int *replicas,
		       int64_t minibatches, const char *name)
{
	struct pd_plan *plan = make_plan(graph, stages, layers, replicas);
	struct pd_error err;
	struct pd_schedule *schedule = pd_schedule_new(plan, &err);
	struct pd_phase phase = { .first = 100, .last = 100 + minibatches, .base = 5 };
	struct list lists[MOST_RANKS];
	bool right = true, ascending = true;
	const char *why = "";

	make_lists(schedule, &phase, lists);
	for (int r = 0; r < plan->rank_count && right; r++) {
		right = list_is_right(schedule, &lists[r], r, &phase, &why);
		ascending = ascending && seq_ascends(&lists[r]);
		if (!right)
			diag("rank %d: %s", r, why);
	}
	ok(right, "%s, %d minibatches: lists are complete and versions right", name,
	   (int)minibatches);
	ok(ascending, "%s, %d minibatches: sequence numbers ascend", name, (int)minibatches);
	ok(runs_blocking(schedule, lists), "%s, %d minibatches: no deadlock when all blocks", name,
	   (int)minibatches);
	free_lists(lists, plan->rank_count);

	phase.evaluate = true;
	make_lists(schedule, &phase, lists);
	ok(runs_blocking(schedule, lists), "%s, %d minibatches: evaluation does not deadlock", name,
	   (int)minibatches);
	free_lists(lists, plan->rank_count);
	pd_schedule_free(schedule);
	pd_plan_free(plan);
}

/* "F0 F1 B0 ..." of one rank's computation. */
static char *order(const struct pd_schedule *schedule, int rank, int64_t minibatches)
{
	struct pd_phase phase = { .last = minibatches };
	char *text = pd_zalloc(4096);
	struct pd_cursor cursor;
	struct pd_op op;

	pd_cursor_init(&cursor, schedule, rank, &phase, 0);
	while (pd_cursor_next(&cursor, &op))
		if (op.kind == PD_OP_forward || op.kind == PD_OP_backward)
			snprintf(text + strlen(text), 16, "%s%c%d", *text ? " " : "",
				 pd_op_kind_letter[op.kind], (int)op.microbatch);
	pd_cursor_release(&cursor);
	return text;
}

static void check_order(const struct pd_schedule *schedule, int rank, int64_t n, const char *expected)
{
	char *got = order(schedule, rank, n);

	is_str(got, expected, "rank %d's order of computation", rank);
	free(got);
}

/* SOSP 2019, figures 4 (four straight stages) and 8 (2-1), with the frugal start-up. */
static void check_figures(void)
{
	struct pd_error err;
	struct pd_plan *plan = make_plan("a<x b<a c<b d<c", 4, (int[]){ 1, 1, 1, 1 },
					 (int[]){ 1, 1, 1, 1 });
	struct pd_schedule *schedule = pd_schedule_new(plan, &err);

	check_order(schedule, 0, 6, "F0 F1 F2 F3 B0 F4 B1 F5 B2 B3 B4 B5");
	check_order(schedule, 1, 6, "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 B4 B5");
	check_order(schedule, 2, 6, "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 B5");
	check_order(schedule, 3, 6, "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5");
	pd_schedule_free(schedule);
	pd_plan_free(plan);

	plan = make_plan("a<x b<a", 2, (int[]){ 1, 1 }, (int[]){ 2, 1 });
	schedule = pd_schedule_new(plan, &err);
	check_order(schedule, 0, 8, "F0 F2 B0 F4 B2 F6 B4 B6");
	check_order(schedule, 1, 8, "F1 F3 B1 F5 B3 F7 B5 B7");
	check_order(schedule, 2, 8, "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7");
	is_int(pd_schedule_unit(schedule), 2, "2-1 can be cut short at multiples of 2");
	pd_schedule_free(schedule);
	pd_plan_free(plan);
}

static bool same_op(const struct pd_op *a, const struct pd_op *b)
{
	return a->kind == b->kind && a->peer == b->peer && a->link == b->link &&
	       a->microbatch == b->microbatch && a->version == b->version && a->seq == b->seq;
}

/* A limit set on the way gives the list of a phase that was as short from the start. */
static void check_limit(void)
{
	struct pd_error err;
	struct pd_plan *plan = make_plan("a<x b<a c<b", 3, (int[]){ 1, 1, 1 }, (int[]){ 1, 2, 1 });
	struct pd_schedule *schedule = pd_schedule_new(plan, &err);
	struct pd_phase long_phase = { .last = 40 }, short_phase = { .last = 12 };
	bool same = true;

	for (int r = 0; r < plan->rank_count; r++) {
		struct pd_cursor a, b;
		struct pd_op x, y;
		bool more = true;

		pd_cursor_init(&a, schedule, r, &long_phase, 0);
		pd_cursor_init(&b, schedule, r, &short_phase, 0);
		while (more && pd_cursor_highest(&a) < 9) {
			more = pd_cursor_next(&a, &x) && pd_cursor_next(&b, &y);
			same = same && more && same_op(&x, &y);
		}
		pd_cursor_limit(&a, 12);
		do {
			more = pd_cursor_next(&a, &x);
			same = same && more == pd_cursor_next(&b, &y) &&
			       (!more || same_op(&x, &y));
		} while (more);
		pd_cursor_release(&a);
		pd_cursor_release(&b);
	}
	ok(same, "a phase cut short goes on as one that was short from the start");
	pd_schedule_free(schedule);
	pd_plan_free(plan);
}

/* Goes on after a checkpoint inside an epoch: forwards read the versions held. */
static void check_floor(void)
{
	struct pd_error err;
	struct pd_plan *plan = make_plan("a<x b<a c<b", 3, (int[]){ 1, 1, 1 }, (int[]){ 1, 1, 1 });
	struct pd_schedule *schedule = pd_schedule_new(plan, &err);
	struct pd_phase phase = { .first = 10, .last = 20 };
	int64_t expected[] = { 8, 9, 10, 11 };
	struct pd_cursor cursor;
	bool right = true;
	struct pd_op op;
	int n = 0;

	pd_cursor_init(&cursor, schedule, 0, &phase, 8);
	while (pd_cursor_next(&cursor, &op) && n < 4)
		if (op.kind == PD_OP_forward)
			right = right && op.version == expected[n++];
	ok(right && n == 4, "a resumed phase reads the versions that an uninterrupted one would");
	pd_cursor_release(&cursor);
	pd_schedule_free(schedule);
	pd_plan_free(plan);
}

static void check_refusals(void)
{
	struct pd_error err = { 0 };
	struct pd_plan *plan = make_plan("a<x b<a", 2, (int[]){ 1, 1 }, (int[]){ 1, 1 });

	plan->stages[0].warmup = 0;
	plan->stages[1].warmup = 1;
	ok(!pd_schedule_new(plan, &err) && strstr(err.text, "stages[1].warmup") &&
	   strstr(err.text, "deadlock"), "warm-ups that would deadlock are refused: %s", err.text);
	plan->stages[1].warmup = 0;
	plan->weights = PD_WEIGHTS_2BW;
	ok(!pd_schedule_new(plan, &err) && err.status == PD_EXIT_USAGE,
	   "what is not known is refused: %s", err.text);
	pd_plan_free(plan);
}

int main(void)
{
	static const char *const graph = "a<x b<a c<b d<c e<d f<e g<f h<g";
	static const char *const skips = "a<x b<a c<ab d<c e<da f<eb g<fa h<gac";
	static const struct {
		const char *name;
		int stages, layers[8], replicas[8];
	} plans[] = {
		{ "1", 1, { 8 }, { 1 } },
		{ "4 (data parallel)", 1, { 8 }, { 4 } },
		{ "1-1", 2, { 4, 4 }, { 1, 1 } },
		{ "1-1-1-1", 4, { 2, 2, 2, 2 }, { 1, 1, 1, 1 } },
		{ "8 straight", 8, { 1, 1, 1, 1, 1, 1, 1, 1 }, { 1, 1, 1, 1, 1, 1, 1, 1 } },
		{ "2-1", 2, { 4, 4 }, { 2, 1 } },
		{ "1-2", 2, { 4, 4 }, { 1, 2 } },
		{ "2-2", 2, { 4, 4 }, { 2, 2 } },
		{ "3-1", 2, { 5, 3 }, { 3, 1 } },
		{ "1-3", 2, { 3, 5 }, { 1, 3 } },
		{ "3-2", 2, { 5, 3 }, { 3, 2 } },
		{ "3-2-1", 3, { 3, 3, 2 }, { 3, 2, 1 } },
		{ "1-2-3", 3, { 3, 3, 2 }, { 1, 2, 3 } },
		{ "15-1", 2, { 7, 1 }, { 15, 1 } },
		{ "1-15", 2, { 1, 7 }, { 1, 15 } },
		{ "5-3-7", 3, { 2, 3, 3 }, { 5, 3, 7 } },
		{ "1-8-3-1", 4, { 1, 3, 3, 1 }, { 1, 8, 3, 1 } },
	};
	static const int64_t lengths[] = { 1, 2, 7, 30, 61 };

	check_figures();
	for (size_t p = 0; p < PD_COUNT(plans); p++)
		for (size_t i = 0; i < PD_COUNT(lengths); i++) {
			check_plan(graph, plans[p].stages, plans[p].layers, plans[p].replicas,
				   lengths[i], plans[p].name);
			check_plan(skips, plans[p].stages, plans[p].layers, plans[p].replicas,
				   lengths[i], plans[p].name);
		}
	check_limit();
	check_floor();
	check_refusals();
	return done_testing();
}
