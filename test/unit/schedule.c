/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests the generator's promises from outside on many plans: every list is complete, in an order that
 * works even if every transfer blocks both its parties, sequence numbers are equal at all parties and
 * ascend, no more microbatches are in flight than there are slots, and versions are as published.
 */
#include "small_profile.h"
#include "table.h"
#include "tap.h"

#include "base/mem.h"
#include "schedule/cursor.h"
#include "schedule/memory.h"
#include "schedule/pattern.h"
#include "schedule/peers.h"

#include <stdlib.h>
#include <string.h>

#define MOST_LINKS 64

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
 * Runs the lists: every rank executes its list in order, and an operation of several ranks blocks all
 * of them until all are at it.  Returns true if all lists come to their ends.
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
			if (is_transfer(op) && op->peer == r) {
				at[r]++;        /* a transfer from one chunk of the rank to another */
			} else if (is_transfer(op)) {
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
			} else if (op->kind == PD_OP_agree) {
				for (int m = 0; m < plan->rank_count; m++)
					all = all && at[m] < lists[m].count &&
					      lists[m].ops[at[m]].kind == PD_OP_agree &&
					      lists[m].ops[at[m]].seq == op->seq;
				if (!all)
					continue;
				for (int m = 0; m < plan->rank_count; m++)
					at[m]++;
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
		bool itself = list->ops[i].peer == list->ops[i].rank;

		if (list->ops[i].seq < last || (list->ops[i].seq == last && !itself)) {
			char name[40];

			diag("rank %d: %s: %d after %d", list->ops[i].rank,
			     pd_op_short(&list->ops[i], name), (int)list->ops[i].seq, (int)last);
			return false;
		}
		last = list->ops[i].seq;
	}
	return true;
}

/* Returns the version that a forward or backward of microbatch b must read by the papers' rules. */
static int64_t rule(const struct pd_plan *plan, int s, int64_t b, bool backward, int64_t newest)
{
	bool minibatches = plan->schedule == PD_SCHEDULE_NF1B;
	int64_t r = plan->stages[s].replicas, m = plan->microbatches, w = plan->stages[s].warmup;
	int64_t group = m > 1 ? m : r, i = b / r, own, tag;

	own = minibatches ? b / m - w : (i - w) / (group / r) - ((i - w) % (group / r) < 0);
	own = own > 0 ? own * group : 0;
	switch (plan->weights) {
	case PD_WEIGHTS_STASH:
		/* Without pipelining the newest version is read, whatever the plan's warm-up. */
		return plan->schedule == PD_SCHEDULE_NONE ? b / group * group : own;
	case PD_WEIGHTS_VERTICAL_SYNC:
		tag = s == 0 ? own : rule(plan, 0, b, backward, newest) / group * group;
		return tag < own ? tag : own;
	case PD_WEIGHTS_2BW:
		return b / m > 1 ? (b / m - 1) * m : 0;
	case PD_WEIGHTS_FLUSH:
		return b / group * group;
	default:
		return newest;
	}
}

/*
 * Tells whether the gradients for so many backwards have arrived, and no others; those for one more may have
 * arrived if tensors skip stages, and for as many as there are buffers if the schedule crowds them.
 */
static bool arrived(const struct pd_schedule *schedule, int s, int64_t gradients, int64_t backwards)
{
	int64_t each = schedule->wiring->out_count[s];
	int64_t more = schedule->pattern->crowds ? 2 * each : schedule->backwards_behind[0] > 0 ? each : 0;

	return gradients >= each * backwards && gradients <= each * backwards + more;
}

/*
 * Tells whether one rank's list has the right operations of one stage: forward and backward of each of
 * its microbatches once, in this order, with transfers before and after; the published versions, none of
 * which earlier updates had dropped; no more than there are slots and, with recomputation, outboxes.
 */
static bool list_is_right(const struct pd_schedule *schedule, const struct list *list, int rank,
			  int s, const struct pd_phase *phase, const char **why)
{
	const struct pd_plan *plan = schedule->plan;
	const struct pd_stage *stage = &plan->stages[s];
	int64_t n = phase->last - phase->first, steps = 0, next_f, next_b, next_w, group;
	int64_t newest = phase->first, keep = phase->first;
	int64_t ins = 0, outs = 0, forwards = 0, backwards = 0, next_r;
	int64_t sent[MOST_LINKS] = { 0 }, kept = pd_schedule_outboxes(schedule, s);
	int stages[8], replica = pd_schedule_stages(schedule, rank, stages), most = 0;

	group = plan->microbatches > 1 ? plan->microbatches : stage->replicas;
	next_f = next_b = next_w = next_r = replica;
	for (size_t i = 0; i < list->count; i++) {
		const struct pd_op *op = &list->ops[i];
		int64_t b = op->microbatch - phase->first, v, last;
		bool backward = op->kind != PD_OP_forward;

		if (op->stage != s)
			continue;
		v = phase->first + rule(plan, s, b, backward, newest - phase->first);
		*why = pd_op_kind_name[op->kind];
		switch (op->kind) {
		case PD_OP_load:
		case PD_OP_recv_activation:
			ins += op->kind == PD_OP_recv_activation;
			break;
		case PD_OP_forward:
			/* The forward's inputs have arrived, and no more inputs than the inboxes hold. */
			forwards++;
			if (b != next_f || op->version != v || v > newest || v < keep ||
			    ins < schedule->wiring->in_count[s] * forwards ||
			    ins > schedule->wiring->in_count[s] *
				  (forwards + pd_schedule_inboxes(schedule, s, false)))
				return false;
			/* The outbox's contents have been sent before. */
			for (int l = 0; l < schedule->wiring->out_count[s] && stage->recompute; l++)
				if (sent[schedule->wiring->out[s][l]] < forwards - kept)
					return false;
			next_f += stage->replicas;
			break;
		case PD_OP_send_activation:
			sent[op->link]++;
			break;
		case PD_OP_recompute:
			/* The gradients for its backward have arrived: nothing is between the two. */
			if (!stage->recompute || b != next_r || op->version != v || b >= next_f ||
			    b != next_b || !arrived(schedule, s, outs, backwards + 1))
				return false;
			next_r += stage->replicas;
			break;
		case PD_OP_recv_gradient:
			outs++;
			break;
		case PD_OP_backward:
		case PD_OP_backward_input:
			backwards++;
			if (b != next_b || op->version != v || b >= next_f ||
			    (stage->recompute && b >= next_r) ||
			    !arrived(schedule, s, outs, backwards))
				return false;
			next_b += stage->replicas;
			if (op->kind == PD_OP_backward_input)
				break;
			if (b != next_w)
				return false;
			next_w += stage->replicas;
			break;
		case PD_OP_backward_weight:
			if (b != next_w || op->version != v || b >= next_b)
				return false;
			next_w += stage->replicas;
			break;
		case PD_OP_allreduce:
			if (stage->replicas == 1)
				return false;
			break;
		case PD_OP_step:
			/* A step comes after its group's backwards, before any reader of its version. */
			last = (steps + 1) * group < n ? (steps + 1) * group : n;
			if (op->version != phase->first + last || next_w < last || op->keep > op->version)
				return false;
			newest = op->version;
			keep = op->keep;
			steps++;
			break;
		default:
			break;
		}
		if ((next_f - next_w) / stage->replicas > most)
			most = (int)((next_f - next_w) / stage->replicas);
		if (stage->recompute &&
		    (next_r - next_w) / stage->replicas > pd_schedule_slots(schedule, s, false))
			return false;
	}
	*why = "the whole";
	return next_f >= n && next_b >= n && next_w >= n &&
	       steps == (n + group - 1) / group &&
	       (!stage->recompute || next_r == next_b) &&
	       most <= pd_schedule_in_flight(schedule, s, false);
}

/*
 * Tells whether ranks that exchange something are peers, and, if `exactly`, no others: in a long phase
 * with links and all-reduces alone.
 */
static bool peers_are_right(const struct pd_schedule *schedule, const struct list *lists,
			    bool exactly)
{
	static bool seen[MOST_RANKS][MOST_RANKS];
	int ranks = schedule->plan->rank_count;
	bool good = true;

	memset(seen, 0, sizeof(seen));
	for (int r = 0; r < ranks; r++)
		for (size_t i = 0; i < lists[r].count; i++) {
			const struct pd_op *op = &lists[r].ops[i];
			const struct pd_stage *stage = &schedule->plan->stages[op->stage];

			if (op->peer >= 0)
				seen[r][op->peer] = seen[op->peer][r] = true;
			for (int k = 0; op->kind == PD_OP_allreduce && k < stage->replicas; k++)
				seen[r][stage->ranks[k]] |= stage->ranks[k] != r;
		}
	for (int a = 0; a < ranks; a++) {
		bool peers[MOST_RANKS];

		pd_schedule_peers(schedule, a, peers);
		for (int b = 0; b < ranks; b++)
			good = good && (exactly ? seen[a][b] == peers[b] : !seen[a][b] || peers[b]);
	}
	return good;
}

/* Returns the most slots that the stages of a rank use at once if they follow its list. */
static int most_in_use(const struct pd_schedule *schedule, const struct list *list)
{
	int in_use = 0, most = 0;

	for (const struct pd_op *op = list->ops; op < list->ops + list->count; op++) {
		bool again = schedule->plan->stages[op->stage].recompute;

		in_use += op->kind == PD_OP_forward || op->kind == PD_OP_recompute;
		most = in_use > most ? in_use : most;
		in_use -= (op->kind == PD_OP_forward && again) ||
			  ((op->kind == PD_OP_backward || op->kind == PD_OP_backward_weight) && !op->more);
	}
	return most;
}

static void check_schedule(const struct pd_plan *plan, int64_t minibatches, const char *name)
{
	struct pd_error err;
	struct pd_schedule *schedule = pd_schedule_new(plan, &err);
	struct pd_phase phase = { .first = 100, .last = 100 + minibatches, .base = 5 };
	struct list lists[MOST_RANKS];
	bool right = true, ascending = true, enough = true, evaluates;
	const char *why = "";

	if (!schedule) {
		ok(false, "%s: %s", name, err.text);
		return;
	}
	make_lists(schedule, &phase, lists);
	for (int r = 0; r < plan->rank_count && right; r++) {
		int stages[8];

		pd_schedule_stages(schedule, r, stages);
		for (int c = 0; c < schedule->chunks && right; c++)
			right = list_is_right(schedule, &lists[r], r, stages[c], &phase, &why);
		ascending = ascending && seq_ascends(&lists[r]);
		enough = enough && most_in_use(schedule, &lists[r]) <= pd_schedule_pool(schedule, stages[0]);
		if (!right)
			diag("rank %d: %s", r, why);
	}
	ok(right, "%s, %d minibatches: lists are complete and versions right", name,
	   (int)minibatches);
	ok(ascending, "%s, %d minibatches: sequence numbers ascend", name, (int)minibatches);
	ok(enough, "%s, %d minibatches: stages of a rank have slots enough", name, (int)minibatches);
	ok(runs_blocking(schedule, lists), "%s, %d minibatches: no deadlock when all blocks", name,
	   (int)minibatches);
	ok(peers_are_right(schedule, lists, minibatches > 35 && !pd_plan_agrees(plan)),
	   "%s, %d minibatches: who meets whom", name, (int)minibatches);
	free_lists(lists, plan->rank_count);

	phase.evaluate = true;
	make_lists(schedule, &phase, lists);
	evaluates = runs_blocking(schedule, lists);
	ok(evaluates, "%s, %d minibatches: evaluation does not deadlock", name, (int)minibatches);
	free_lists(lists, plan->rank_count);
	pd_schedule_free(schedule);
}

static void check_plan(const char *graph, int stages, const int *layers, const int *replicas,
		       int64_t minibatches, const char *name)
{
	struct pd_plan *plan = plan_of(graph, stages, layers, replicas);

	check_schedule(plan, minibatches, name);
	pd_plan_free(plan);
}

/* Checks every schedule with the weights that go with it, on straight and replicated stages. */
static void check_kinds(const char *graph, bool agree, bool recompute)
{
	static const struct {
		enum pd_schedule_kind schedule;
		enum pd_weight_kind weights;
		int microbatches, positions, round;
	} kinds[] = {
		{ PD_SCHEDULE_1F1B, PD_WEIGHTS_STASH, 6 }, { PD_SCHEDULE_1F1B, PD_WEIGHTS_STASH, 12 },
		{ PD_SCHEDULE_1F1B, PD_WEIGHTS_VERTICAL_SYNC, 1 },
		{ PD_SCHEDULE_1F1B, PD_WEIGHTS_VERTICAL_SYNC, 6 },
		{ PD_SCHEDULE_1F1B, PD_WEIGHTS_2BW, 6 }, { PD_SCHEDULE_1F1B, PD_WEIGHTS_2BW, 12 },
		{ PD_SCHEDULE_1F1B, PD_WEIGHTS_FLUSH, 6 }, { PD_SCHEDULE_1F1B, PD_WEIGHTS_FLUSH, 12 },
		{ PD_SCHEDULE_1F1B, PD_WEIGHTS_LATEST, 1 }, { PD_SCHEDULE_1F1B, PD_WEIGHTS_LATEST, 6 },
		{ PD_SCHEDULE_GPIPE, PD_WEIGHTS_FLUSH, 6 }, { PD_SCHEDULE_GPIPE, PD_WEIGHTS_FLUSH, 12 },
		{ PD_SCHEDULE_NONE, PD_WEIGHTS_FLUSH, 6 }, { PD_SCHEDULE_NONE, PD_WEIGHTS_STASH, 6 },
		{ PD_SCHEDULE_ZB_H1, PD_WEIGHTS_FLUSH, 6 }, { PD_SCHEDULE_ZB_H1, PD_WEIGHTS_FLUSH, 12 },
		{ PD_SCHEDULE_NF1B, PD_WEIGHTS_VERTICAL_SYNC, 2 },
		{ PD_SCHEDULE_NF1B, PD_WEIGHTS_STASH, 3 }, { PD_SCHEDULE_NF1B, PD_WEIGHTS_LATEST, 3 },
		{ PD_SCHEDULE_INTERLEAVED, PD_WEIGHTS_FLUSH, 4, 2 },
		{ PD_SCHEDULE_INTERLEAVED, PD_WEIGHTS_FLUSH, 2, 2 },
		{ PD_SCHEDULE_INTERLEAVED, PD_WEIGHTS_FLUSH, 8, 4 },
		{ PD_SCHEDULE_INTERLEAVED, PD_WEIGHTS_FLUSH, 4, 4 },
		{ PD_SCHEDULE_INTERLEAVED, PD_WEIGHTS_FLUSH, 24, 4 },
		{ PD_SCHEDULE_INTERLEAVED, PD_WEIGHTS_FLUSH, 16, 8 },
		{ PD_SCHEDULE_INTERLEAVED, PD_WEIGHTS_FLUSH, 40, 4 },
		{ PD_SCHEDULE_INTERLEAVED, PD_WEIGHTS_FLUSH, 3, 2 }, { PD_SCHEDULE_INTERLEAVED, PD_WEIGHTS_FLUSH, 9, 4 },
		{ PD_SCHEDULE_INTERLEAVED, PD_WEIGHTS_FLUSH, 13, 4, 6 }, { PD_SCHEDULE_INTERLEAVED, PD_WEIGHTS_FLUSH, 7, 2, 5 },
		{ PD_SCHEDULE_ZB_H2, PD_WEIGHTS_FLUSH, 6 }, { PD_SCHEDULE_ZB_H2, PD_WEIGHTS_FLUSH, 12 },
		{ PD_SCHEDULE_ZB_V, PD_WEIGHTS_FLUSH, 2, 1 }, { PD_SCHEDULE_ZB_V, PD_WEIGHTS_FLUSH, 3, 2 },
		{ PD_SCHEDULE_ZB_V, PD_WEIGHTS_FLUSH, 6, 4 }, { PD_SCHEDULE_ZB_V, PD_WEIGHTS_FLUSH, 8, 4 },
		{ PD_SCHEDULE_ZB_V, PD_WEIGHTS_FLUSH, 40, 4 },
		{ PD_SCHEDULE_V_HALF, PD_WEIGHTS_FLUSH, 3, 2 }, { PD_SCHEDULE_V_HALF, PD_WEIGHTS_FLUSH, 50, 4 },
		{ PD_SCHEDULE_V_MIN, PD_WEIGHTS_FLUSH, 5, 2 }, { PD_SCHEDULE_V_MIN, PD_WEIGHTS_FLUSH, 8, 4 },
		{ PD_SCHEDULE_V_HALF, PD_WEIGHTS_2BW, 6, 2 }, { PD_SCHEDULE_V_HALF, PD_WEIGHTS_2BW, 12, 4 },
		{ PD_SCHEDULE_V_MIN, PD_WEIGHTS_2BW, 6, 2 }, { PD_SCHEDULE_V_MIN, PD_WEIGHTS_2BW, 12, 4 },
		{ PD_SCHEDULE_DUALPIPE_V, PD_WEIGHTS_FLUSH, 4, 2 }, { PD_SCHEDULE_DUALPIPE_V, PD_WEIGHTS_FLUSH, 10, 4 },
	};
	static const struct {
		const char *name;
		int stages, layers[8], replicas[8];
	} shapes[] = {
		{ "1", 1, { 8 }, { 1 } },
		{ "1-1", 2, { 4, 4 }, { 1, 1 } },
		{ "1-1-1-1", 4, { 2, 2, 2, 2 }, { 1, 1, 1, 1 } },
		{ "2-1", 2, { 4, 4 }, { 2, 1 } },
		{ "2-2", 2, { 4, 4 }, { 2, 2 } },
		{ "2-2-2-2", 4, { 2, 2, 2, 2 }, { 2, 2, 2, 2 } },
		{ "3-3-3-3", 4, { 2, 2, 2, 2 }, { 3, 3, 3, 3 } },
		{ "3-2-1", 3, { 3, 3, 2 }, { 3, 2, 1 } },
		{ "8 straight", 8, { 1, 1, 1, 1, 1, 1, 1, 1 }, { 1, 1, 1, 1, 1, 1, 1, 1 } },
	};

	for (size_t k = 0; k < PD_COUNT(kinds); k++)
		for (size_t i = 0; i < PD_COUNT(shapes); i++) {
			struct pd_plan *plan = plan_of(graph, shapes[i].stages, shapes[i].layers,
							 shapes[i].replicas);
			int p = kinds[k].positions;
			bool fits = p == 0 || (shapes[i].stages % p == 0 && shapes[i].stages > p);

			if (pd_schedule_has(kinds[k].schedule, PD_FACT_V) && shapes[i].stages != 2 * p)
				fits = false;

			if (agree && kinds[k].weights != PD_WEIGHTS_2BW &&
			    kinds[k].weights != PD_WEIGHTS_FLUSH)
				fits = false;
			plan->agree = agree && fits;
			char name[96];

			plan->schedule = kinds[k].schedule;
			plan->weights = kinds[k].weights;
			plan->microbatches = kinds[k].microbatches;
			plan->round = kinds[k].round;
			for (int s = 0; s < plan->stage_count && fits; s++) {
				plan->stages[s].recompute = recompute;
				/* 2bw admits no more ahead than a batch, nf1b has no replicas. */
				if (plan->weights == PD_WEIGHTS_2BW && plan->stages[s].warmup *
				    plan->stages[s].replicas > plan->microbatches)
					fits = false;
				if (plan->schedule == PD_SCHEDULE_NF1B && plan->stages[s].replicas > 1)
					fits = false;
				if (p && (plan->stages[s].replicas != plan->stages[0].replicas ||
					  plan->microbatches % plan->stages[s].replicas != 0))
					fits = false;
			}
			if (p && fits) {
				plan->rank_count = p * plan->stages[0].replicas;
				share(plan, p);
			}
			snprintf(name, sizeof(name), "%s, %s, %s, %d microbatches%s%s",
				 pd_schedule_kind_name[plan->schedule],
				 pd_weight_kind_name[plan->weights], shapes[i].name,
				 kinds[k].microbatches, agree ? ", agreed on" : "",
				 recompute ? ", recomputed" : "");
			for (int groups = 1; fits && groups <= 4; groups += 3)
				check_schedule(plan, groups * (kinds[k].microbatches > 1
							       ? kinds[k].microbatches : 6), name);
			pd_plan_free(plan);
		}
}

/*
 * Tells whether a rank's memory has as many slots as its stages need together, each as large as the largest, if that
 * is less than slots of their own.
 */
static bool shares(const struct pd_schedule *schedule, int rank)
{
	int stages[2];
	int64_t apart = 0, largest = 0, inboxes = 0, together;
	struct pd_memory memory;

	pd_schedule_stages(schedule, rank, stages);
	pd_schedule_memory(schedule, rank, &pd_momentum, &memory);
	for (int c = 0; c < 2; c++) {
		struct pd_stage_memory one;

		pd_memory_of_stage(schedule->plan, schedule->plan->profile, schedule->wiring, stages[c], &one);
		apart += pd_schedule_slots(schedule, stages[c], false) * one.slot_bytes;
		largest = one.slot_bytes > largest ? one.slot_bytes : largest;
		inboxes += pd_schedule_inboxes(schedule, stages[c], false) * one.inbox_bytes +
			   pd_schedule_outboxes(schedule, stages[c]) * one.outbox_bytes;
	}
	together = pd_schedule_pool(schedule, stages[0]) * largest;
	return memory.stash_bytes == inboxes + (together < apart ? together : apart);
}

/* Checks how many slots a rank's stages need together: as published, and as its list uses. */
static void check_pools(void)
{
	static const int ones[16] = { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 };
	static const struct {
		enum pd_schedule_kind kind;
		enum pd_weight_kind weights;
		int ranks, microbatches;
		bool recompute;
		int pools[8];
	} rows[] = {
		{ PD_SCHEDULE_ZB_V, PD_WEIGHTS_FLUSH, 4, 8, false, { 8, 8, 8, 8 } },
		{ PD_SCHEDULE_ZB_V, PD_WEIGHTS_FLUSH, 4, 3, false, { 4, 5, 6, 6 } },
		{ PD_SCHEDULE_V_HALF, PD_WEIGHTS_FLUSH, 4, 8, false, { 6, 6, 6, 6 } },
		{ PD_SCHEDULE_V_MIN, PD_WEIGHTS_FLUSH, 4, 8, false, { 4, 4, 4, 4 } },
		{ PD_SCHEDULE_V_HALF, PD_WEIGHTS_FLUSH, 8, 32, false, { 10, 10, 10, 10, 10, 10, 10, 10 } },
		{ PD_SCHEDULE_V_MIN, PD_WEIGHTS_FLUSH, 8, 32, false, { 8, 8, 8, 8, 8, 8, 8, 8 } },
		{ PD_SCHEDULE_V_MIN, PD_WEIGHTS_FLUSH, 8, 500, false, { 8, 8, 8, 8, 8, 8, 8, 8 } },
		{ PD_SCHEDULE_V_HALF, PD_WEIGHTS_2BW, 4, 8, false, { 6, 6, 6, 6 } },
		{ PD_SCHEDULE_V_MIN, PD_WEIGHTS_2BW, 4, 8, false, { 4, 4, 4, 4 } },
		{ PD_SCHEDULE_DUALPIPE_V, PD_WEIGHTS_FLUSH, 4, 16, false, { 9, 9, 9, 9 } },
		{ PD_SCHEDULE_INTERLEAVED, PD_WEIGHTS_FLUSH, 8, 32, false, { 23, 21, 19, 17, 15, 13, 11, 9 } },
		{ PD_SCHEDULE_INTERLEAVED, PD_WEIGHTS_FLUSH, 4, 8, true, { 1, 1, 1, 1 } },
	};

	for (size_t i = 0; i < PD_COUNT(rows); i++) {
		int p = rows[i].ranks, layers[16] = { 0 };
		struct pd_phase phase = { .last = 3 * rows[i].microbatches };
		struct pd_schedule *schedule;
		struct list lists[MOST_RANKS];
		struct pd_plan *plan;
		struct pd_error err;
		bool same = true;

		for (int l = 0; l < 16; l++)
			layers[l < 2 * p ? l : 2 * p - 1]++;
		plan = plan_of(sixteen, 2 * p, layers, ones);
		plan->rank_count = p;
		use(plan, rows[i].kind, rows[i].weights, rows[i].microbatches);
		for (int s = 0; s < 2 * p; s++)
			plan->stages[s].recompute = rows[i].recompute;
		schedule = pd_schedule_new(plan, &err);
		make_lists(schedule, &phase, lists);
		for (int q = 0; q < p; q++) {
			int pool = pd_schedule_pool(schedule, q), used = most_in_use(schedule, &lists[q]);

			same = same && pool == rows[i].pools[q] && used == pool && shares(schedule, q);
			if (pool != rows[i].pools[q] || used != pool)
				diag("rank %d has %d, uses %d", q, pool, used);
		}
		ok(same, "%s, %d microbatches on %d ranks%s: slots of a rank", pd_schedule_kind_name[rows[i].kind],
		   rows[i].microbatches, p, rows[i].recompute ? ", recomputing" : "");
		free_lists(lists, p);
		pd_schedule_free(schedule);
		pd_plan_free(plan);
	}
}

int main(void)
{
	static const int64_t lengths[] = { 1, 2, 7, 30, 61 };

	for (size_t p = 0; p < PD_COUNT(plans); p++)
		for (size_t i = 0; i < PD_COUNT(lengths); i++) {
			check_plan(chain, plans[p].stages, plans[p].layers, plans[p].replicas,
				   lengths[i], plans[p].name);
			check_plan(skips, plans[p].stages, plans[p].layers, plans[p].replicas,
				   lengths[i], plans[p].name);
		}
	for (int i = 0; i < 4; i++) {
		check_kinds(chain, i & 1, i & 2);
		check_kinds(skips, i & 1, i & 2);
	}
	check_pools();
	return done_testing();
}
