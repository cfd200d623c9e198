/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests the checker against the generator, which it does not know, and against a simulator: every
 * schedule that can be generated is accepted, and runs, with blocking transfers, to the weights that a
 * serial program following the published rule ends with.  Schedules that the generator does not make are
 * tested, too.
 */
#include "made_lists.h"
#include "rendezvous.h"
#include "table.h"
#include "tap.h"

#include "base/mem.h"
#include "schedule/check.h"
#include "schedule/cursor.h"
#include "schedule/file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- schedules that can be generated ---- */

struct tally {
	int made, accepted, right;
};

/* Tells whether ranks can have several stages each: all stages have as many replicas as the first. */
static bool can_chunk(const struct table_plan *plan, int chunks)
{
	for (int s = 1; s < plan->stages; s++)
		if (plan->replicas[s] != plan->replicas[0])
			return false;
	return plan->stages % chunks == 0 && plan->stages / chunks > 1;
}

static void try(const struct pd_plan *plan, int64_t minibatches, const char *name,
		struct tally *tally)
{
	struct pd_error err;
	struct pd_schedule *schedule = pd_schedule_new(plan, &err);
	struct pd_lists *lists;
	int64_t count = 0;

	if (!schedule)
		return;
	lists = made_lists(name, schedule, minibatches, &err);
	tally->made++;
	if (pd_check(lists, &err) == 0 &&
	    pd_check_schedule(name, schedule, minibatches, &count, &err) == 0 &&
	    count == pd_lists_count(lists))
		tally->accepted++;
	else
		diag("%s, %s, %s, %" PRId64 ": %s", name, pd_schedule_kind_name[plan->schedule],
		     pd_weight_kind_name[plan->weights], plan->microbatches, err.text);
	if (runs_right(lists))
		tally->right++;
	else
		diag("%s, %s, %s, %" PRId64, name, pd_schedule_kind_name[plan->schedule],
		     pd_weight_kind_name[plan->weights], plan->microbatches);
	pd_lists_free(lists);
	pd_schedule_free(schedule);
}

static void try_lengths(const struct pd_plan *plan, const char *name, struct tally *tally)
{
	static const int64_t lengths[] = { 1, 2, 7, 30, 61 };

	for (size_t i = 0; i < PD_COUNT(lengths); i++)
		if (plan->microbatches == 1 || lengths[i] <= 7)
			try(plan, lengths[i], name, tally);
}

/* The sets of stages that recompute: none, every stage, every other stage. */
static const unsigned again[] = { 0, ~0u, 0x5555 };

/* The bytes of buckets of gradients: the whole stage, one layer each, something between. */
static const int64_t buckets[] = { 0, 1, 4000 };

static void check_kind(enum pd_schedule_kind kind, enum pd_weight_kind weights,
		       enum pd_startup_kind startup, bool agree)
{
	static const int64_t cuts[] = { 1, 2, 4, 6, 8, 12 };
	const size_t step = test_quick() ? 5 : 1;       /* from pair to pair, so that each again[] occurs */
	struct tally tally = { 0 };

	for (size_t p = 0; p < PD_COUNT(plans); p += test_quick() ? 4 : 1)
		for (int graph = 0; graph < 2; graph++)
			for (int chunks = 1; chunks <= 4; chunks *= 2) {
				int positions = plans[p].stages / chunks;
				struct pd_plan *plan;

				if (chunks > 1 && (!pd_schedule_has(kind, PD_FACT_SHARES) ||
						   !can_chunk(&plans[p], chunks)))
					continue;
				plan = make_plan(graph ? skips : chain, &plans[p], positions);
				plan->startup = startup;
				for (size_t i = 0; i < PD_COUNT(cuts) * PD_COUNT(again); i += step) {
					use(plan, kind, weights, cuts[i / PD_COUNT(again)]);
					plan->agree = agree;
					recompute_in(plan, again[i % PD_COUNT(again)]);
					plan->bucket_bytes = 0;
					try_lengths(plan, plans[p].name, &tally);
					plan->bucket_bytes = buckets[(i + p) % PD_COUNT(buckets)];
					if (plan->bucket_bytes > 0)
						try_lengths(plan, plans[p].name, &tally);
				}
				pd_plan_free(plan);
			}
	if (tally.made == 0) {
		skip("the generator makes none", pd_schedule_kind_name[kind]);
		return;
	}
	is_int(tally.accepted, tally.made, "%s with %s, %s%s: all are accepted",
	       pd_schedule_kind_name[kind], pd_weight_kind_name[weights],
	       pd_startup_kind_name[startup], agree ? ", agreed on" : "");
	is_int(tally.right, tally.made, "%s with %s, %s%s: all end with the serial program's weights",
	       pd_schedule_kind_name[kind], pd_weight_kind_name[weights],
	       pd_startup_kind_name[startup], agree ? ", agreed on" : "");
}

/* Checks a kind of schedule, and, if possible, also with updates that all ranks agree on. */
static void check_both(enum pd_schedule_kind kind, enum pd_weight_kind weights,
		       enum pd_startup_kind startup)
{
	check_kind(kind, weights, startup, false);
	if (weights == PD_WEIGHTS_2BW || weights == PD_WEIGHTS_FLUSH)
		check_kind(kind, weights, startup, true);
}

/*
 * Checks that a run has more than two buffers for the gradients of a tensor that skips chunks, which
 * wait for those of the stages between, if its schedule says so, and no more than it says.
 */
static void check_skipped_chunks(void)
{
	struct pd_plan *plan = make_plan(skips, &plans[4], 4);
	struct pd_error err = { 0 };
	struct pd_schedule *schedule;
	struct pd_lists *lists;
	struct pd_list *list = NULL;
	size_t sent = 0;
	int s;

	use(plan, PD_SCHEDULE_INTERLEAVED, PD_WEIGHTS_FLUSH, 8);
	schedule = pd_schedule_new(plan, &err);
	lists = made_lists("skipped", schedule, 1, &err);
	for (s = plan->stage_count - 1; s > 0 && pd_schedule_leaving(schedule, s) == 2;)
		s--;
	ok(s > 0 && pd_check(lists, &err) == 0,
	   "stage %d has %d gradients on their way out, and may", s,
	   pd_schedule_leaving(schedule, s));
	/* The gradient that has the longest way to go is sent at the end of the list. */
	list = &lists->ranks[plan->stages[s].ranks[0]];
	while (list->ops[sent].kind != PD_OP_send_gradient ||
	       list->ops[sent].link != lists->wiring->in[s][0])
		sent++;
	for (; sent + 1 < list->count; sent++) {
		struct pd_op op = list->ops[sent];

		list->ops[sent] = list->ops[sent + 1];
		list->ops[sent + 1] = op;
	}
	ok(pd_check(lists, &err) < 0 && strstr(err.text, "gradients wait to go"),
	   "one more is refused: %s", err.text);
	pd_lists_free(lists);
	pd_schedule_free(schedule);
	pd_plan_free(plan);
}

/* ---- schedules that the generator does not make ---- */

static bool is_forward(const struct pd_op *op)
{
	return op->kind == PD_OP_forward;
}

static bool refuses(const struct pd_lists *lists, const char *why)
{
	struct pd_error err = { 0 };
	bool refused = pd_check(lists, &err) < 0;

	if (!refused || !strstr(err.text, why))
		diag("expected \"%s\", found \"%s\"", why, err.text);
	return refused && strstr(err.text, why);
}

/* Inserts a copy of rank 0's n-th operation behind it, with another kind and number. */
static void insert(struct pd_lists *lists, size_t n, enum pd_op_kind kind, int64_t seq)
{
	struct pd_op op = lists->ranks[0].ops[n];

	op.kind = kind;
	op.seq = seq;
	pd_lists_add(lists, &op, NULL);
	move(&lists->ranks[0], lists->ranks[0].count - 1, n + 1);
}

/* Checks two updates of two microbatches each, of which the middle two have changed places. */
static void check_groups(void)
{
	struct pd_plan *plan = make_plan(chain, &plans[0], 1);
	struct pd_schedule *schedule;
	struct pd_lists *lists;
	struct pd_error err;

	use(plan, PD_SCHEDULE_1F1B, PD_WEIGHTS_2BW, 2);
	schedule = pd_schedule_new(plan, &err);
	lists = made_lists("groups", schedule, 2, &err);
	for (size_t n = 0; n < lists->ranks[0].count; n++) {
		struct pd_op *op = &lists->ranks[0].ops[n];

		if (op->kind != PD_OP_step && (op->microbatch == 1 || op->microbatch == 2))
			op->microbatch = 3 - op->microbatch;
	}
	ok(refuses(lists, "the step of the group before"), "gradients do not mix with the next "
	   "group's");
	pd_lists_free(lists);
	pd_schedule_free(schedule);
	pd_plan_free(plan);
}

static bool is_agree(const struct pd_op *op)
{
	return op->kind == PD_OP_agree;
}

/* Checks that all ranks agree only if the plan says so, after all gradients, and before the update. */
static void check_agreed(void)
{
	struct pd_plan *plan = make_plan(chain, &plans[2], 2);
	struct pd_schedule *schedule;
	struct pd_lists *lists;
	struct pd_error err = { 0 };
	size_t n;

	use(plan, PD_SCHEDULE_1F1B, PD_WEIGHTS_2BW, 2);
	plan->agree = true;
	schedule = pd_schedule_new(plan, &err);
	lists = made_lists("agreed", schedule, 1, &err);
	n = pick(&lists->ranks[0], 0, is_agree);
	lists->ranks[0].ops[n].stage = 1;
	ok(refuses(lists, "expected it at stage 0"), "it is about a rank's first stage");
	lists->ranks[0].ops[n].stage = 0;
	lists->ranks[0].ops[n].seq++;
	ok(refuses(lists, "not at an agree with its seq"), "all ranks are at it");
	lists->ranks[0].ops[n].seq--;
	swap(&lists->ranks[0], n, n + 1);
	ok(refuses(lists, "its agree does not stand before it"), "no update is before it");
	swap(&lists->ranks[0], n, n + 1);
	plan->agree = false;
	ok(refuses(lists, "the plan does not have its ranks agree"), "nor without need");
	pd_lists_free(lists);
	pd_schedule_free(schedule);
	use(plan, PD_SCHEDULE_1F1B, PD_WEIGHTS_STASH, 1);
	plan->agree = true;
	ok(!pd_schedule_new(plan, &err) && strstr(err.text, "\"stash\" update after every"),
	   "weights that are updated after every minibatch are refused: %s", err.text);
	pd_plan_free(plan);
}

static void check_by_hand(void)
{
	struct pd_plan *plan = make_plan(chain, &plans[0], 1);
	struct pd_error err;
	struct pd_schedule *schedule = pd_schedule_new(plan, &err);
	struct pd_lists *lists = made_lists("hand", schedule, 1, &err);
	size_t f = pick(&lists->ranks[0], 0, is_forward);

	plan->stages[0].recompute = true;
	ok(refuses(lists, "hand:4: rank 0, backward of microbatch 0 at stage 0: its recompute does "
		   "not stand before it"), "recomputing is not forgotten");
	insert(lists, f, PD_OP_recompute, -1);
	ok(pd_check(lists, &err) == 0, "a recompute between forward and backward is right");
	swap(&lists->ranks[0], f + 1, f + 2);
	ok(refuses(lists, "hand:4: rank 0, backward of microbatch 0 at stage 0: its recompute does "
		   "not stand before it"), "nor too late");
	swap(&lists->ranks[0], f + 1, f + 2);
	insert(lists, f + 1, PD_OP_recompute, -1);
	ok(refuses(lists, "hand:5: rank 0, recompute of microbatch 0 at stage 0: a second time"),
	   "nor done twice");
	move(&lists->ranks[0], f + 2, lists->ranks[0].count - 1);
	lists->ranks[0].count--;
	lists->ranks[0].ops[f + 1].version = 1;
	ok(refuses(lists, "hand:4: rank 0, recompute of microbatch 0 at stage 0: reads version 1; "
		   "expected 0, as its forward"), "a recompute reads what its forward read");
	lists->ranks[0].ops[f + 1].version = 0;
	swap(&lists->ranks[0], f, f + 1);
	ok(refuses(lists, "recompute of microbatch 0 at stage 0: its forward"),
	   "a recompute comes after its forward");
	swap(&lists->ranks[0], f, f + 1);
	plan->stages[0].recompute = false;
	ok(refuses(lists, "does not have stage 0 recompute"), "nothing is recomputed without need");
	pd_lists_free(lists);

	lists = made_lists("hand", schedule, 1, &err);
	insert(lists, lists->ranks[0].count - 2, PD_OP_allreduce, 1);
	ok(refuses(lists, "nothing to sum"), "one replica has nothing to sum");
	pd_lists_free(lists);
	lists = made_lists("hand", schedule, 1, &err);
	lists->ranks[0].count = 0;
	ok(refuses(lists, "hand:2: rank 0, at its end: the list ends"), "no list is none");
	pd_lists_free(lists);
	pd_schedule_free(schedule);
	pd_plan_free(plan);
}

/* ---- the list as a cursor ---- */

static void check_list_cursor(void)
{
	struct pd_plan *plan = make_plan(skips, &plans[11], 3);
	struct pd_error err;
	struct pd_schedule *schedule = pd_schedule_new(plan, &err);
	struct pd_lists *lists = made_lists("list", schedule, 20, &err);
	struct pd_phase phase = { .first = 120, .last = 140, .base = 1000 };
	bool same = true;

	for (int r = 0; r < lists->rank_count; r++) {
		struct pd_cursor cursor;
		struct pd_list_cursor list;
		struct pd_op a, b;
		bool more;

		pd_cursor_init(&cursor, schedule, r, &phase, phase.first);
		pd_list_begin(&list, &lists->ranks[r], &phase);
		same = same && list.highest == pd_cursor_highest(&cursor);
		do {
			more = pd_cursor_next(&cursor, &a);
			same = same && more == pd_list_next(&list, &b) &&
			       (!more || same_op(&a, &b)) &&
			       list.highest == pd_cursor_highest(&cursor);
		} while (more && same);
		pd_cursor_release(&cursor);
	}
	ok(same, "a list gives what the cursor gives, in any phase");
	pd_lists_free(lists);
	pd_schedule_free(schedule);
	pd_plan_free(plan);
}

int main(void)
{
	for (int kind = 0; kind < PD_SCHEDULE_KINDS; kind++)
		for (int weights = 0; weights < PD_WEIGHT_KINDS; weights++)
			check_both((enum pd_schedule_kind)kind, (enum pd_weight_kind)weights,
				   PD_STARTUP_FRUGAL);
	for (int weights = 0; weights < PD_WEIGHT_KINDS; weights++)
		check_both(PD_SCHEDULE_1F1B, (enum pd_weight_kind)weights, PD_STARTUP_EAGER);
	check_skipped_chunks();
	check_by_hand();
	check_agreed();
	check_groups();
	check_list_cursor();
	return done_testing();
}
