/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests thousands of schedules that were changed at random: each that the checker accepts also runs, with
 * blocking transfers, to the weights that a serial program following the published rule ends with; each
 * that it refuses is explained.
 */
#include "made_lists.h"
#include "rendezvous.h"
#include "table.h"
#include "tap.h"

#include "base/mem.h"
#include "base/rng.h"
#include "predict/replay.h"
#include "schedule/check.h"
#include "schedule/file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define EDITS 10000

static uint32_t drawn;

static size_t draw(size_t below)
{
	return pd_random(42, 1, 0, drawn++).v[0] % below;
}

static bool has_number(const struct pd_op *op)
{
	return op->seq >= 0;
}

/* Swaps two exchanges that follow each other at a rank, and their numbers at all parties. */
static void swap_exchanges(struct pd_lists *lists, struct pd_list *list)
{
	size_t a = draw(list->count), b;
	int64_t x, y;

	while (a < list->count && !has_number(&list->ops[a]))
		a++;
	for (b = a + 1; b < list->count && !has_number(&list->ops[b]);)
		b++;
	if (b >= list->count)
		return;
	x = list->ops[a].seq;
	y = list->ops[b].seq;
	swap(list, a, b);
	for (int r = 0; r < lists->rank_count; r++)
		for (size_t i = 0; i < lists->ranks[r].count; i++) {
			struct pd_op *op = &lists->ranks[r].ops[i];

			op->seq = op->seq == x ? y : op->seq == y ? x : op->seq;
		}
}

static bool has_peer(const struct pd_op *op)
{
	return op->peer >= 0;
}

static bool has_version(const struct pd_op *op)
{
	return op->version >= 0;
}

static bool any(const struct pd_op *op)
{
	return op->rank >= 0;
}

static int64_t near(int64_t value)
{
	return value + (int64_t)draw(5) - 2;
}

enum change { SWAP_NEXT, SWAP, MOVE, MOVE_NEAR, DROP, TWICE, VERSION, PEER, MICROBATCH, NUMBER,
	      DROP_ALL, TWICE_ALL, LABELS, NO_RECOMPUTE, LATE_RECOMPUTE, RECOMPUTE_TWICE,
	      RECOMPUTE_VERSION, WHOLE_AND_PARTS, BUCKET, PARTS, WHOLE, MEETINGS, BOTH_VERSIONS,
	      CHANGES };

/* Makes all parties of an exchange leave it out, or do it twice. */
static void at_all(struct pd_lists *lists, int64_t seq, bool twice)
{
	for (int r = 0; r < lists->rank_count; r++) {
		struct pd_list *list = &lists->ranks[r];

		for (size_t n = 0; n < list->count; n++) {
			struct pd_op op = list->ops[n];

			if (op.seq != seq)
				continue;
			if (twice) {
				op.seq++;
				pd_lists_add(lists, &op, NULL);
				move(list, list->count - 1, n + 1);
			} else {
				move(list, n, list->count - 1);
				list->count--;
			}
			break;
		}
	}
}

static bool receives_activation(const struct pd_op *op)
{
	return op->kind == PD_OP_recv_activation;
}

static bool is_backward(const struct pd_op *op)
{
	return op->kind == PD_OP_backward;
}

static bool has_bucket(const struct pd_op *op)
{
	return op->bucket > 0;
}

static bool in_parts(const struct pd_op *op)
{
	return op->bucket == 1 && op->kind != PD_OP_allreduce;
}

/* Joins the parts of the backward whose first part is at `at`; all its buckets are summed behind it. */
static void join(struct pd_list *list, size_t at)
{
	struct pd_op first = list->ops[at];
	size_t to = at;

	for (size_t n = at; n < list->count; n++)
		if (list->ops[n].kind != first.kind || list->ops[n].bucket == 0 ||
		    list->ops[n].stage != first.stage ||
		    list->ops[n].microbatch != first.microbatch)
			list->ops[to++] = list->ops[n];
	list->count = to;
	first.bucket = 0;
	first.more = false;
	memmove(&list->ops[at + 1], &list->ops[at], (to - at) * sizeof(first));
	list->ops[at] = first;
	list->count++;
}

static bool is_recompute(const struct pd_op *op)
{
	return op->kind == PD_OP_recompute;
}

/* Drops the recompute at `at`, moves it behind its backward, doubles it, or changes its version. */
static void change_recompute(struct pd_lists *lists, struct pd_list *list, size_t at,
			     enum change kind)
{
	struct pd_op op = list->ops[at];
	size_t back = at;

	switch (kind) {
	case NO_RECOMPUTE:
		move(list, at, list->count - 1);
		list->count--;
		break;
	case LATE_RECOMPUTE:
		/* An earlier change may have dropped its backward. */
		while (back < list->count && ((list->ops[back].kind != PD_OP_backward &&
			list->ops[back].kind != PD_OP_backward_input) ||
		       list->ops[back].microbatch != op.microbatch ||
		       list->ops[back].stage != op.stage))
			back++;
		if (back < list->count)
			move(list, at, back);
		break;
	case RECOMPUTE_TWICE:
		pd_lists_add(lists, &op, NULL);
		move(list, list->count - 1, draw(list->count));
		break;
	default:
		list->ops[at].version += op.version > 0 && draw(2) ? -1 : 1;
		break;
	}
}

/* Splits the backward at `at` into two parts, or adds them beside it. */
static void split(struct pd_lists *lists, struct pd_list *list, size_t at, bool beside)
{
	struct pd_op op = list->ops[at];

	if (beside) {
		op.kind = PD_OP_backward_input;
		pd_lists_add(lists, &op, NULL);
		move(list, list->count - 1, ++at);
	} else {
		list->ops[at].kind = PD_OP_backward_input;
	}
	op.kind = PD_OP_backward_weight;
	pd_lists_add(lists, &op, NULL);
	move(list, list->count - 1, at + 1);
}

/* Makes a random change; returns true if no schedule can be right after it. */
static bool change(struct pd_lists *lists)
{
	struct pd_list *list = &lists->ranks[draw((size_t)lists->rank_count)];
	size_t a = draw(list->count), b = draw(list->count);
	enum change kind = (enum change)draw(CHANGES);
	struct pd_op op;

	switch (kind) {
	case SWAP_NEXT:
		if (a + 1 < list->count)
			swap(list, a, a + 1);
		break;
	case SWAP:
		swap(list, a, b);
		break;
	case MOVE:
		move(list, a, b);
		break;
	case MOVE_NEAR:
		b = a + draw(7);
		b = b < 3 ? 0 : b - 3;
		move(list, a, b < list->count ? b : list->count - 1);
		break;
	case DROP:
		move(list, a, list->count - 1);
		list->count--;
		break;
	case TWICE:
		op = list->ops[a];
		pd_lists_add(lists, &op, NULL);
		move(list, list->count - 1, b);
		break;
	case VERSION:
		a = pick(list, draw(list->count), has_version);
		/* The version stays non-negative: a backward_weight may have none. */
		list->ops[a].version = (int64_t)labs((long)near(list->ops[a].version));
		break;
	case PEER:
		a = pick(list, draw(list->count), has_peer);
		if (has_peer(&list->ops[a]))
			list->ops[a].peer = (int)draw((size_t)lists->rank_count);
		break;
	case MICROBATCH:
		a = pick(list, draw(list->count), any);
		list->ops[a].microbatch = near(list->ops[a].microbatch);
		break;
	case NUMBER:
		a = pick(list, draw(list->count), has_number);
		if (has_number(&list->ops[a]))
			list->ops[a].seq = near(list->ops[a].seq);
		break;
	case MEETINGS:
		swap_exchanges(lists, list);
		break;
	case DROP_ALL:
	case TWICE_ALL:
		a = pick(list, draw(list->count), has_number);
		if (has_number(&list->ops[a]))
			at_all(lists, list->ops[a].seq, kind == TWICE_ALL);
		break;
	case LABELS:
		a = pick(list, draw(list->count), receives_activation);
		b = pick(list, draw(list->count), receives_activation);
		if (receives_activation(&list->ops[a])) {
			op = list->ops[a];
			list->ops[a].microbatch = list->ops[b].microbatch;
			list->ops[b].microbatch = op.microbatch;
		}
		break;
	case NO_RECOMPUTE:
	case LATE_RECOMPUTE:
	case RECOMPUTE_TWICE:
	case RECOMPUTE_VERSION:
		a = pick(list, draw(list->count), is_recompute);
		if (is_recompute(&list->ops[a]))
			change_recompute(lists, list, a, kind);
		break;
	case BUCKET:
		a = pick(list, draw(list->count), has_bucket);
		if (!has_bucket(&list->ops[a]))
			return false;
		b = (size_t)pd_plan_bucket_count(lists->plan, list->ops[a].stage);
		list->ops[a].bucket = (int16_t)(1 + draw(b));
		list->ops[a].more = (size_t)list->ops[a].bucket < b;
		break;
	case WHOLE:
		a = pick(list, draw(list->count), in_parts);
		if (in_parts(&list->ops[a]))
			join(list, a);
		break;
	case PARTS:
	case WHOLE_AND_PARTS:
		a = pick(list, draw(list->count), is_backward);
		if (is_backward(&list->ops[a]))
			split(lists, list, a, kind == WHOLE_AND_PARTS);
		break;
	case BOTH_VERSIONS:     /* both the forward's and the backward's of a microbatch */
		a = pick(list, draw(list->count), has_version);
		op = list->ops[a];
		for (size_t i = 0; i < list->count; i++)
			if (list->ops[i].microbatch == op.microbatch &&
			    has_version(&list->ops[i]) && list->ops[i].kind != PD_OP_step &&
			    list->ops[i].stage == op.stage)
				list->ops[i].version = op.version + 1;
		break;
	case CHANGES:
		break;
	}
	return kind >= DROP && kind <= WHOLE_AND_PARTS;
}

static bool differs(const struct pd_lists *a, const struct pd_lists *b)
{
	for (int r = 0; r < a->rank_count; r++) {
		if (a->ranks[r].count != b->ranks[r].count)
			return true;
		for (size_t n = 0; n < a->ranks[r].count; n++)
			if (!same_op(&a->ranks[r].ops[n], &b->ranks[r].ops[n]))
				return true;
	}
	return false;
}

/* Tells whether the error is "edited:LINE: rank R, ..." with a line that exists. */
static bool is_explained(const struct pd_lists *lists, const struct pd_error *err)
{
	long long line;
	int rank, end = 0;

	return err->status == PD_EXIT_NO &&
	       sscanf(err->text, "edited:%lld: rank %d, %n", &line, &rank, &end) == 2 && end > 0 &&
	       line >= 1 && line <= 1 + pd_lists_count(lists) && strstr(err->text, ": ");
}

struct verdicts {
	int accepted, refused, wrong, unexplained, missed, stalled;
	int again;                      /* accepted, with recomputation */
	int buckets;                    /* accepted, with several buckets */
};

/* Tells whether workers can follow the lists to their end with the buffers that these need. */
static bool replays(struct pd_lists *lists)
{
	struct pd_replay_options options = { .lists = lists };
	struct pd_error err;

	pd_lists_end(lists);
	if (pd_replay_run(lists->plan, &options, &err) == 0)
		return true;
	diag("%s", err.text);
	return false;
}

static bool recomputes(const struct pd_plan *plan)
{
	for (int s = 0; s < plan->stage_count; s++)
		if (plan->stages[s].recompute)
			return true;
	return false;
}

/* Judges a changed schedule; returns false if the changes left it as it was. */
static bool try_edit(const struct pd_schedule *schedule, int64_t minibatches,
		     struct verdicts *verdicts)
{
	struct pd_error err = { 0 };
	struct pd_lists *original = made_lists("edited", schedule, minibatches, &err);
	struct pd_lists *lists = made_lists("edited", schedule, minibatches, &err);
	bool wrong = change(lists), other;

	if (draw(4) == 0) {             /* a second change can undo the first */
		change(lists);
		wrong = false;
	}
	other = differs(original, lists);
	if (other) {
		if (pd_check(lists, &err) < 0) {
			verdicts->refused++;
			if (!is_explained(lists, &err)) {
				diag("%s", err.text);
				verdicts->unexplained++;
			}
		} else {
			verdicts->accepted++;
			verdicts->again += recomputes(lists->plan);
			verdicts->buckets += lists->plan->bucket_bytes > 0;
			verdicts->missed += wrong;
			verdicts->wrong += !runs_right(lists);
			verdicts->stalled += !replays(lists);
		}
	}
	pd_lists_free(original);
	pd_lists_free(lists);
	return other;
}

static void check_edits(void)
{
	static const struct {
		int plan, positions;
		enum pd_schedule_kind kind;
		enum pd_weight_kind weights;
		int64_t microbatches, minibatches;
		bool skip, agree;
		unsigned again;         /* stages that recompute */
		int64_t bucket_bytes;
	} cases[] = {
		{ 3, 4, PD_SCHEDULE_1F1B, PD_WEIGHTS_STASH, 1, 7 },
		{ 11, 3, PD_SCHEDULE_1F1B, PD_WEIGHTS_STASH, 1, 10, true },
		{ 7, 2, PD_SCHEDULE_1F1B, PD_WEIGHTS_STASH, 1, 6 },
		{ 3, 4, PD_SCHEDULE_1F1B, PD_WEIGHTS_VERTICAL_SYNC, 1, 7, true },
		{ 3, 4, PD_SCHEDULE_1F1B, PD_WEIGHTS_2BW, 4, 3 },
		{ 7, 2, PD_SCHEDULE_1F1B, PD_WEIGHTS_FLUSH, 4, 2 },
		{ 2, 2, PD_SCHEDULE_1F1B, PD_WEIGHTS_LATEST, 1, 8 },
		{ 3, 4, PD_SCHEDULE_GPIPE, PD_WEIGHTS_FLUSH, 4, 2 },
		{ 3, 2, PD_SCHEDULE_INTERLEAVED, PD_WEIGHTS_FLUSH, 4, 2, true },
		{ 3, 4, PD_SCHEDULE_ZB_H1, PD_WEIGHTS_FLUSH, 4, 2, true },
		{ 2, 2, PD_SCHEDULE_NF1B, PD_WEIGHTS_VERTICAL_SYNC, 2, 4 },
		{ 3, 4, PD_SCHEDULE_1F1B, PD_WEIGHTS_2BW, 4, 3, false, true },
		{ 5, 2, PD_SCHEDULE_1F1B, PD_WEIGHTS_2BW, 6, 3, true, true },
		{ 3, 2, PD_SCHEDULE_INTERLEAVED, PD_WEIGHTS_FLUSH, 4, 2, true, true },
		{ 3, 4, PD_SCHEDULE_1F1B, PD_WEIGHTS_STASH, 1, 7, false, false, 0xf },
		{ 11, 3, PD_SCHEDULE_1F1B, PD_WEIGHTS_STASH, 1, 10, true, false, 3 },
		{ 3, 4, PD_SCHEDULE_1F1B, PD_WEIGHTS_VERTICAL_SYNC, 1, 7, true, false, 7 },
		{ 3, 4, PD_SCHEDULE_1F1B, PD_WEIGHTS_2BW, 4, 3, false, true, 5 },
		{ 7, 2, PD_SCHEDULE_1F1B, PD_WEIGHTS_FLUSH, 4, 2, false, false, 1 },
		{ 2, 2, PD_SCHEDULE_1F1B, PD_WEIGHTS_LATEST, 1, 8, false, false, 3 },
		{ 3, 4, PD_SCHEDULE_GPIPE, PD_WEIGHTS_FLUSH, 4, 2, true, false, 0xf },
		{ 3, 2, PD_SCHEDULE_INTERLEAVED, PD_WEIGHTS_FLUSH, 4, 2, true, false, 6 },
		{ 3, 4, PD_SCHEDULE_ZB_H1, PD_WEIGHTS_FLUSH, 4, 2, true, false, 0xf },
		{ 2, 2, PD_SCHEDULE_NF1B, PD_WEIGHTS_VERTICAL_SYNC, 2, 4, false, false, 3 },
		{ 7, 2, PD_SCHEDULE_1F1B, PD_WEIGHTS_STASH, 1, 6, false, false, 0, 1 },
		{ 11, 3, PD_SCHEDULE_1F1B, PD_WEIGHTS_STASH, 1, 10, true, false, 2, 4000 },
		{ 7, 2, PD_SCHEDULE_1F1B, PD_WEIGHTS_2BW, 4, 3, true, true, 0, 1 },
		{ 7, 2, PD_SCHEDULE_1F1B, PD_WEIGHTS_FLUSH, 4, 2, false, false, 1, 1 },
		{ 7, 2, PD_SCHEDULE_ZB_H1, PD_WEIGHTS_FLUSH, 4, 2, true, false, 0, 4000 },
	};
	struct pd_schedule *schedules[PD_COUNT(cases)];
	struct pd_plan *made[PD_COUNT(cases)];
	int64_t minibatches[PD_COUNT(cases)];
	struct verdicts verdicts = { 0 };
	size_t count = 0;

	for (size_t i = 0; i < PD_COUNT(cases); i++) {
		struct pd_error err;

		made[count] = make_plan(cases[i].skip ? skips : chain, &plans[cases[i].plan],
					cases[i].positions);
		use(made[count], cases[i].kind, cases[i].weights, cases[i].microbatches);
		made[count]->agree = cases[i].agree;
		made[count]->bucket_bytes = cases[i].bucket_bytes;
		recompute_in(made[count], cases[i].again);
		minibatches[count] = cases[i].minibatches;
		schedules[count] = pd_schedule_new(made[count], &err);
		if (schedules[count])
			count++;
		else
			pd_plan_free(made[count]);
	}
	for (size_t i = 0, edits = 0; edits < EDITS; i++)
		edits += try_edit(schedules[i % count], minibatches[i % count], &verdicts);
	ok(verdicts.accepted > EDITS / 50, "of the changed schedules %d are accepted",
	   verdicts.accepted);
	ok(verdicts.again > EDITS / 200, "%d of them with recomputation", verdicts.again);
	ok(verdicts.buckets > EDITS / 400, "%d with several buckets", verdicts.buckets);
	ok(verdicts.refused > EDITS / 2, "and %d refused", verdicts.refused);
	is_int(verdicts.wrong, 0, "all that are accepted run to the serial program's weights");
	is_int(verdicts.missed, 0, "none is that lacks an operation, or has one twice or another");
	is_int(verdicts.unexplained, 0, "all that are refused have a line and a reason");
	is_int(verdicts.stalled, 0, "all that are accepted can be replayed");
	for (size_t i = 0; i < count; i++) {
		pd_schedule_free(schedules[i]);
		pd_plan_free(made[i]);
	}
}

int main(void)
{
	check_edits();
	return done_testing();
}
