/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checker against the generator, which it does not know, and against a simulator: every
 * schedule that can be made is accepted, and whatever is accepted of thousands that were
 * changed at random also runs, with blocking transfers, to the weights that a serial
 * program following the published rule ends with.
 */
#include "rendezvous.h"
#include "small_profile.h"
#include "tap.h"

#include "base/mem.h"
#include "base/rng.h"
#include "plan/memory.h"
#include "replay/replay.h"
#include "schedule/check.h"
#include "schedule/file.h"
#include "schedule/price.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MOST_RANKS 32
#define EDITS 10000

static const char *const chain = "a<x b<a c<b d<c e<d f<e g<f h<g";
static const char *const sixteen =
	"a<x b<a c<b d<c e<d f<e g<f h<g i<h j<i k<j l<k m<l n<m o<n p<o";
static const char *const skips = "a<x b<a c<ab d<c e<da f<eb g<fa h<gac";

struct table_plan {
	const char *name;
	int stages, layers[8], replicas[8];
};

static const struct table_plan plans[] = {
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

/* Stages s and s + positions on the same ranks; positions = stages: none are. */
static struct pd_plan *make_plan(const char *graph, const struct table_plan *from, int positions)
{
	struct pd_topology topology;
	struct pd_plan *plan;
	struct pd_error err;

	pd_topology_flat(MOST_RANKS, 1000000000, 1000, &topology, &err);
	plan = pd_plan_new(small_profile(graph), &topology, from->stages, from->layers,
			   from->replicas, &err);
	if (!plan) {
		diag("%s", err.text);
		return NULL;
	}
	for (int s = positions; s < plan->stage_count; s++) {
		for (int r = 0; r < plan->stages[s].replicas; r++)
			plan->stages[s].ranks[r] = plan->stages[s % positions].ranks[r];
		plan->rank_count -= plan->stages[s].replicas;
	}
	return plan;
}

static void use(struct pd_plan *plan, enum pd_schedule_kind schedule, enum pd_weight_kind weights,
		int64_t microbatches)
{
	plan->schedule = schedule;
	plan->weights = weights;
	plan->microbatches = microbatches;
}

/* ---- whatever can be made ---- */

struct tally {
	int made, accepted, right;
};

/* A rank is as many replicas of each of its stages: those of other stages are the same. */
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
	lists = pd_lists_make(name, schedule, minibatches, &err);
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

static void check_kind(enum pd_schedule_kind kind, enum pd_weight_kind weights,
		       enum pd_startup_kind startup, bool agree)
{
	static const int64_t cuts[] = { 1, 2, 4, 6, 8, 12 };
	struct tally tally = { 0 };

	for (size_t p = 0; p < PD_COUNT(plans); p++)
		for (int graph = 0; graph < 2; graph++)
			for (int chunks = 1; chunks <= 4; chunks *= 2) {
				int positions = plans[p].stages / chunks;
				struct pd_plan *plan;

				if (chunks > 1 && (kind != PD_SCHEDULE_INTERLEAVED ||
						   !can_chunk(&plans[p], chunks)))
					continue;
				plan = make_plan(graph ? skips : chain, &plans[p], positions);
				plan->startup = startup;
				for (size_t i = 0; i < PD_COUNT(cuts); i++) {
					use(plan, kind, weights, cuts[i]);
					plan->agree = agree;
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

/* And, where that can be, with updates that all ranks agree on. */
static void check_both(enum pd_schedule_kind kind, enum pd_weight_kind weights,
		       enum pd_startup_kind startup)
{
	check_kind(kind, weights, startup, false);
	if (weights == PD_WEIGHTS_2BW || weights == PD_WEIGHTS_FLUSH)
		check_kind(kind, weights, startup, true);
}

/*
 * Gradients of a tensor that skips chunks wait for those of stages between: a run has more
 * than two buffers for them where its schedule says so, and no more than it says.
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
	lists = pd_lists_make("skipped", schedule, 1, &err);
	for (s = plan->stage_count - 1; s > 0 && pd_schedule_leaving(schedule, s) == 2;)
		s--;
	ok(s > 0 && pd_check(lists, &err) == 0,
	   "stage %d has %d gradients on their way out, and may", s,
	   pd_schedule_leaving(schedule, s));
	/* one that has furthest to go stays until the end */
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

/* ---- random changes ---- */

static uint32_t drawn;

static size_t draw(size_t below)
{
	return pd_random(42, 1, 0, drawn++).v[0] % below;
}

static void swap(struct pd_list *list, size_t a, size_t b)
{
	struct pd_op op = list->ops[a];

	list->ops[a] = list->ops[b];
	list->ops[b] = op;
}

static void move(struct pd_list *list, size_t from, size_t to)
{
	struct pd_op op = list->ops[from];

	if (from < to)
		memmove(&list->ops[from], &list->ops[from + 1], (to - from) * sizeof(op));
	else
		memmove(&list->ops[to + 1], &list->ops[to], (from - to) * sizeof(op));
	list->ops[to] = op;
}

static bool has_number(const struct pd_op *op)
{
	return op->seq >= 0;
}

/* Two meetings that follow each other at a rank change places, and all parties know. */
static void swap_meetings(struct pd_lists *lists, struct pd_list *list)
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

static size_t pick(const struct pd_list *list, bool (*wanted)(const struct pd_op *))
{
	size_t at = draw(list->count), i;

	for (i = 0; i < list->count && !wanted(&list->ops[(at + i) % list->count]);)
		i++;
	return (at + i) % list->count;
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
	      DROP_ALL, TWICE_ALL, LABELS, PARTS, WHOLE_AND_PARTS, MEETINGS, BOTH_VERSIONS,
	      CHANGES };

/* All parties of a meeting leave it out, or do it twice. */
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

/* The backward at `at` becomes two parts, or has them beside it. */
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

/* Makes one; true where no schedule can be right after it. */
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
		a = pick(list, has_version);
		/* none at all, which a backward_weight may have, is another matter */
		list->ops[a].version = (int64_t)labs((long)near(list->ops[a].version));
		break;
	case PEER:
		a = pick(list, has_peer);
		if (has_peer(&list->ops[a]))
			list->ops[a].peer = (int)draw((size_t)lists->rank_count);
		break;
	case MICROBATCH:
		a = pick(list, any);
		list->ops[a].microbatch = near(list->ops[a].microbatch);
		break;
	case NUMBER:
		a = pick(list, has_number);
		if (has_number(&list->ops[a]))
			list->ops[a].seq = near(list->ops[a].seq);
		break;
	case MEETINGS:
		swap_meetings(lists, list);
		break;
	case DROP_ALL:
	case TWICE_ALL:
		a = pick(list, has_number);
		if (has_number(&list->ops[a]))
			at_all(lists, list->ops[a].seq, kind == TWICE_ALL);
		break;
	case LABELS:
		a = pick(list, receives_activation);
		b = pick(list, receives_activation);
		if (receives_activation(&list->ops[a])) {
			op = list->ops[a];
			list->ops[a].microbatch = list->ops[b].microbatch;
			list->ops[b].microbatch = op.microbatch;
		}
		break;
	case PARTS:
	case WHOLE_AND_PARTS:
		a = pick(list, is_backward);
		if (is_backward(&list->ops[a]))
			split(lists, list, a, kind == WHOLE_AND_PARTS);
		break;
	case BOTH_VERSIONS:     /* a microbatch's forward and backward alike */
		a = pick(list, has_version);
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
	return (kind >= DROP && kind <= LABELS) || kind == WHOLE_AND_PARTS;
}

static bool same_op(const struct pd_op *a, const struct pd_op *b)
{
	return a->kind == b->kind && a->rank == b->rank && a->stage == b->stage &&
	       a->peer == b->peer && a->link == b->link && a->microbatch == b->microbatch &&
	       a->version == b->version && a->keep == b->keep && a->seq == b->seq;
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

/* "edited:LINE: rank R, ..." with a line that there is. */
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
};

/* Workers follow the lists to their end, in the room that these need. */
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

static void try_edit(const struct pd_schedule *schedule, int64_t minibatches,
		     struct verdicts *verdicts)
{
	struct pd_error err = { 0 };
	struct pd_lists *original = pd_lists_make("edited", schedule, minibatches, &err);
	struct pd_lists *lists = pd_lists_make("edited", schedule, minibatches, &err);
	bool wrong = change(lists);

	if (draw(4) == 0) {             /* two can undo each other */
		change(lists);
		wrong = false;
	}
	if (differs(original, lists)) {
		if (pd_check(lists, &err) < 0) {
			verdicts->refused++;
			if (!is_explained(lists, &err)) {
				diag("%s", err.text);
				verdicts->unexplained++;
			}
		} else {
			verdicts->accepted++;
			verdicts->missed += wrong;
			verdicts->wrong += !runs_right(lists);
			verdicts->stalled += !replays(lists);
		}
	}
	pd_lists_free(original);
	pd_lists_free(lists);
}

static void check_edits(void)
{
	static const struct {
		int plan, positions;
		enum pd_schedule_kind kind;
		enum pd_weight_kind weights;
		int64_t microbatches, minibatches;
		bool skip, agree;
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
		minibatches[count] = cases[i].minibatches;
		schedules[count] = pd_schedule_new(made[count], &err);
		if (schedules[count])
			count++;
		else
			pd_plan_free(made[count]);
	}
	for (int i = 0; i < EDITS; i++)
		try_edit(schedules[(size_t)i % count], minibatches[(size_t)i % count], &verdicts);
	ok(verdicts.accepted > EDITS / 50, "of the changed schedules %d are accepted",
	   verdicts.accepted);
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

/* ---- what the generator does not make ---- */

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

/* Inserts behind the n-th operation of rank 0 one like it, of another kind. */
static void insert(struct pd_lists *lists, size_t n, enum pd_op_kind kind, int64_t seq)
{
	struct pd_op op = lists->ranks[0].ops[n];

	op.kind = kind;
	op.seq = seq;
	pd_lists_add(lists, &op, NULL);
	move(&lists->ranks[0], lists->ranks[0].count - 1, n + 1);
}

/* Two updates of two microbatches, the middle two in each other's place. */
static void check_groups(void)
{
	struct pd_plan *plan = make_plan(chain, &plans[0], 1);
	struct pd_schedule *schedule;
	struct pd_lists *lists;
	struct pd_error err;

	use(plan, PD_SCHEDULE_1F1B, PD_WEIGHTS_2BW, 2);
	schedule = pd_schedule_new(plan, &err);
	lists = pd_lists_make("groups", schedule, 2, &err);
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

/* What all ranks agree on: where the plan says so, after all gradients, before the update. */
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
	lists = pd_lists_make("agreed", schedule, 1, &err);
	n = pick(&lists->ranks[0], is_agree);
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
	struct pd_lists *lists = pd_lists_make("hand", schedule, 1, &err);
	size_t f = pick(&lists->ranks[0], is_forward);

	plan->stages[0].recompute = true;
	ok(refuses(lists, "its recompute does not stand before it"),
	   "recomputing is not forgotten");
	insert(lists, f, PD_OP_recompute, -1);
	ok(pd_check(lists, &err) == 0, "a recompute between forward and backward is right");
	lists->ranks[0].ops[f + 1].version = 1;
	ok(refuses(lists, "as its forward"), "a recompute reads what its forward read");
	lists->ranks[0].ops[f + 1].version = 0;
	swap(&lists->ranks[0], f, f + 1);
	ok(refuses(lists, "recompute of microbatch 0 at stage 0: its forward"),
	   "a recompute comes after its forward");
	swap(&lists->ranks[0], f, f + 1);
	plan->stages[0].recompute = false;
	ok(refuses(lists, "does not have stage 0 recompute"), "nothing is recomputed without need");
	pd_lists_free(lists);

	lists = pd_lists_make("hand", schedule, 1, &err);
	insert(lists, lists->ranks[0].count - 2, PD_OP_allreduce, 1);
	ok(refuses(lists, "nothing to sum"), "one replica has nothing to sum");
	pd_lists_free(lists);
	lists = pd_lists_make("hand", schedule, 1, &err);
	lists->ranks[0].count = 0;
	ok(refuses(lists, "hand:2: rank 0, at its end: the list ends"), "no list is none");
	pd_lists_free(lists);
	pd_schedule_free(schedule);
	pd_plan_free(plan);
}

/* ---- memory ---- */

/* The plan's bytes are enough, and the most that is held is exactly they. */
static void check_memory(void)
{
	for (size_t p = 0; p < PD_COUNT(plans); p++) {
		struct pd_plan *plan = make_plan(skips, &plans[p], plans[p].stages);
		struct pd_error err = { 0 };
		struct pd_schedule *schedule = pd_schedule_new(plan, &err);
		struct pd_lists *lists = pd_lists_make("memory", schedule, 40, &err);
		struct pd_prices prices;
		bool fits;

		for (int s = 0; s < plan->stage_count; s++) {
			int64_t in = 0, out = 0;
			struct pd_memory memory;

			for (int i = 0; i < lists->wiring->in_count[s]; i++)
				in += lists->wiring->links[lists->wiring->in[s][i]].bytes;
			for (int i = 0; i < lists->wiring->out_count[s]; i++)
				out += lists->wiring->links[lists->wiring->out[s][i]].bytes;
			pd_memory_of(plan->profile, plan->stages[s].first_layer,
				     plan->stages[s].layer_count, plan->stages[s].replicas,
				     plan->stages[s].warmup, in, out, &memory);
			plan->stages[s].memory_bytes = memory.total_bytes;
		}
		fits = pd_check(lists, &err) == 0;
		pd_prices_init(&prices, plan, lists->wiring);
		plan->stages[0].memory_bytes = prices.stages[0].fixed_bytes +
			prices.stages[0].slot_bytes - 1;
		ok(fits && pd_check(lists, &err) < 0 && strstr(err.text, "bytes"),
		   "%s: the plan's memory is enough, less than one minibatch's is not%s%s",
		   plans[p].name, fits ? "" : ": ", fits ? "" : err.text);
		pd_prices_release(&prices);
		pd_lists_free(lists);
		pd_schedule_free(schedule);
		pd_plan_free(plan);
	}
}

/* ---- what is in flight, how many versions ---- */

/* The most that one rank holds, of what the prices count. */
static int most_held(const struct pd_lists *lists, const struct pd_prices *prices, int rank)
{
	const struct pd_list *list = &lists->ranks[rank];
	struct pd_account account;
	int most = 0;

	pd_account_init(&account, prices, lists->microbatches);
	for (size_t n = 0; n < list->count; n++)
		pd_account_expect(&account, &list->ops[n]);
	for (size_t n = 0; n < list->count; n++) {
		pd_account_enter(&account, &list->ops[n]);
		most = account.held_bytes > most ? (int)account.held_bytes : most;
	}
	pd_account_release(&account);
	return most;
}

/* A byte per version of weights, or a byte per microbatch in flight, and nothing else. */
static void count_only(struct pd_prices *prices, bool versions)
{
	for (int s = 0; s < prices->plan->stage_count; s++)
		prices->stages[s] = (struct pd_stage_price){
			.weights_bytes = versions,
			.fixed_bytes = versions, .slot_bytes = !versions };
}

static int lower(int a, int b)
{
	return a < b ? a : b;
}

/* The published peaks, for straight pipelines of p stages with m microbatches an update. */
static int published_flying(const struct pd_plan *plan, int p, int s, int m)
{
	switch (plan->schedule) {
	case PD_SCHEDULE_GPIPE:
		return m;
	case PD_SCHEDULE_ZB_H1:
		return lower(p, m);
	default:
		return plan->weights == PD_WEIGHTS_FLUSH ? lower(p - s, m) : p - s;
	}
}

static int published_versions(const struct pd_plan *plan, int p, int s)
{
	switch (plan->weights) {
	case PD_WEIGHTS_STASH:
		return p - s;
	case PD_WEIGHTS_VERTICAL_SYNC:
		return p;
	case PD_WEIGHTS_2BW:
		return 2;
	default:
		return 1;
	}
}

static bool peaks_are_published(int p, enum pd_schedule_kind kind, enum pd_weight_kind weights,
				int m)
{
	struct pd_topology topology;
	struct pd_error err;
	struct pd_plan *plan;
	struct pd_schedule *schedule;
	struct pd_lists *lists;
	struct pd_prices prices;
	int layers[16], ones[16];
	bool right = true;

	for (int s = 0; s < 16; s++)
		layers[s] = ones[s] = 1;
	layers[p - 1] = 16 - (p - 1);   /* all that is left in the last stage */
	pd_topology_flat(MOST_RANKS, 1000000000, 1000, &topology, &err);
	plan = pd_plan_new(small_profile(sixteen), &topology, p, layers, ones, &err);
	use(plan, kind, weights, m);
	schedule = pd_schedule_new(plan, &err);
	lists = schedule ? pd_lists_make("peaks", schedule, m > 1 ? 4 : 50, &err) : NULL;
	for (int l = 0; lists && l < lists->wiring->link_count; l++)
		lists->wiring->links[l].bytes = 0;
	for (int versions = 0; lists && versions < 2; versions++) {
		pd_prices_init(&prices, plan, lists->wiring);
		count_only(&prices, versions);
		for (int s = 0; s < p; s++) {
			int got = most_held(lists, &prices, s);
			int expected = versions ? published_versions(plan, p, s)
						: published_flying(plan, p, s, m);

			if (got != expected)
				diag("%s, %s, stage %d of %d, %d microbatches: %d %s, expected %d",
				     pd_schedule_kind_name[kind], pd_weight_kind_name[weights],
				     s, p, m, got, versions ? "versions" : "in flight", expected);
			right = right && got == expected;
		}
		pd_prices_release(&prices);
	}
	right = right && lists;
	pd_lists_free(lists);
	pd_schedule_free(schedule);
	pd_plan_free(plan);
	return right;
}

static void check_peaks(void)
{
	static const struct {
		enum pd_schedule_kind kind;
		enum pd_weight_kind weights;
		int microbatches[3];
	} rows[] = {
		{ PD_SCHEDULE_1F1B, PD_WEIGHTS_STASH, { 1 } },
		{ PD_SCHEDULE_1F1B, PD_WEIGHTS_VERTICAL_SYNC, { 1 } },
		{ PD_SCHEDULE_1F1B, PD_WEIGHTS_2BW, { 16, 20 } },
		{ PD_SCHEDULE_1F1B, PD_WEIGHTS_FLUSH, { 2, 8, 24 } },
		{ PD_SCHEDULE_GPIPE, PD_WEIGHTS_FLUSH, { 2, 8, 24 } },
		{ PD_SCHEDULE_ZB_H1, PD_WEIGHTS_FLUSH, { 2, 8, 24 } },
	};

	for (size_t r = 0; r < PD_COUNT(rows); r++) {
		bool right = true;

		for (int p = 2; p <= 16; p++)
			for (int i = 0; i < 3 && rows[r].microbatches[i]; i++)
				right &= peaks_are_published(p, rows[r].kind, rows[r].weights,
							     rows[r].microbatches[i]);
		ok(right, "%s with %s: in flight and versions as published, 2 to 16 stages",
		   pd_schedule_kind_name[rows[r].kind], pd_weight_kind_name[rows[r].weights]);
	}
}

/* ---- the list as a cursor ---- */

static void check_list_cursor(void)
{
	struct pd_plan *plan = make_plan(skips, &plans[11], 3);
	struct pd_error err;
	struct pd_schedule *schedule = pd_schedule_new(plan, &err);
	struct pd_lists *lists = pd_lists_make("list", schedule, 20, &err);
	struct pd_phase phase = { .first = 120, .last = 140, .base = 1000 };
	bool same = true;

	for (int r = 0; r < lists->rank_count; r++) {
		struct pd_cursor cursor;
		struct pd_list_cursor list;
		struct pd_op a, b;
		bool more;

		pd_cursor_init(&cursor, schedule, r, &phase, phase.first);
		pd_list_begin(&list, &lists->ranks[r], &phase);
		same = same && pd_list_highest(&list) == pd_cursor_highest(&cursor);
		do {
			more = pd_cursor_next(&cursor, &a);
			same = same && more == pd_list_next(&list, &b) &&
			       (!more || same_op(&a, &b)) &&
			       pd_list_highest(&list) == pd_cursor_highest(&cursor);
		} while (more && same);
		pd_cursor_release(&cursor);
	}
	ok(same, "a list gives what the cursor gives, in any phase");
	pd_lists_free(lists);
	pd_schedule_free(schedule);
	pd_plan_free(plan);
}

/* ---- eager start-ups ---- */

/*
 * Do two lists do the same from the first forward of a microbatch >= from on, and with the same
 * versions (backwards of the microbatches before read what their forwards did)?
 * Of computation alone: what arrives may arrive earlier where there is more room.
 */
static bool same_from(const struct pd_list *a, const struct pd_list *b, int64_t from)
{
	const struct pd_list *lists[] = { a, b };
	size_t at[2] = { 0, 0 };
	bool inside[2] = { false, false };

	for (;;) {
		const struct pd_op *op[2] = { NULL, NULL };

		for (int i = 0; i < 2; i++)
			while (at[i] < lists[i]->count && !op[i]) {
				const struct pd_op *next = &lists[i]->ops[at[i]++];

				inside[i] |= next->kind == PD_OP_forward && next->microbatch >= from;
				if (inside[i] && (next->kind == PD_OP_forward ||
						  next->kind == PD_OP_backward ||
						  next->kind == PD_OP_step))
					op[i] = next;
			}
		if (!op[0] || !op[1])
			return op[0] == op[1] && inside[0];
		if (op[0]->kind != op[1]->kind || op[0]->microbatch != op[1]->microbatch ||
		    op[0]->keep != op[1]->keep ||
		    (op[0]->version != op[1]->version &&
		     (op[0]->kind == PD_OP_step || op[0]->microbatch >= from)))
			return false;
	}
}

/* What the memory is made for is what the lists come to hold, and no less is enough. */
static bool room_is_used(const struct pd_schedule *schedule, const struct pd_lists *lists)
{
	struct pd_prices prices;
	bool right = true;

	for (int versions = 0; versions < 2; versions++) {
		pd_prices_init(&prices, schedule->plan, lists->wiring);
		for (int l = 0; l < lists->wiring->link_count; l++)
			lists->wiring->links[l].bytes = 0;
		count_only(&prices, versions);
		for (int s = 0; s < schedule->stage_count; s++) {
			const struct pd_stage *stage = &schedule->plan->stages[s];
			int most = 0, made = versions ? pd_schedule_versions(schedule, s)
						      : pd_schedule_slots(schedule, s, false);

			for (int r = 0; r < stage->replicas; r++) {
				int held = most_held(lists, &prices, stage->ranks[r]);

				most = held > most ? held : most;
			}
			if (most != made)
				diag("%s: stage %d has room for %d %s, and uses %d", lists->name, s,
				     made, versions ? "versions" : "microbatches", most);
			right = right && most == made;
		}
		pd_prices_release(&prices);
	}
	return right;
}

static void check_eager_plan(struct pd_plan *plan, const char *name)
{
	struct pd_lists *lists[2];
	struct pd_schedule *schedules[2];
	struct pd_error err;
	int64_t admitted, most = 0;
	bool same = true;

	for (int i = 0; i < 2; i++) {
		plan->startup = i ? PD_STARTUP_EAGER : PD_STARTUP_FRUGAL;
		schedules[i] = pd_schedule_new(plan, &err);
		lists[i] = pd_lists_make(name, schedules[i], 120 / plan->microbatches, &err);
	}
	admitted = pd_plan_admitted(plan);
	for (int s = 0; s < plan->stage_count; s++)
		most = schedules[1]->first[s] - plan->stages[s].warmup > most
			? schedules[1]->first[s] - plan->stages[s].warmup : most;
	for (int r = 0; r < plan->rank_count; r++)
		same = same && same_from(&lists[0]->ranks[r], &lists[1]->ranks[r], admitted);
	ok(same, "%s, %d at a time: the same steady state after %d more forwards at first", name,
	   (int)plan->microbatches, (int)most);
	ok(room_is_used(schedules[1], lists[1]), "%s, %d at a time: room for what is in flight",
	   name, (int)plan->microbatches);
	for (int i = 0; i < 2; i++) {
		pd_lists_free(lists[i]);
		pd_schedule_free(schedules[i]);
	}
}

static void check_eager(void)
{
	struct pd_topology topology;
	struct pd_error err;
	int ones[16];

	for (size_t p = 0; p < PD_COUNT(plans); p++) {
		struct pd_plan *plan = make_plan(chain, &plans[p], plans[p].stages);

		check_eager_plan(plan, plans[p].name);
		pd_plan_free(plan);
	}
	pd_topology_flat(MOST_RANKS, 1000000000, 1000, &topology, &err);
	for (int s = 0; s < 16; s++)
		ones[s] = 1;
	for (int cut = 1; cut <= 4; cut++) {
		struct pd_plan *plan = pd_plan_new(small_profile(sixteen), &topology, 16, ones, ones,
						   &err);

		plan->microbatches = cut;
		check_eager_plan(plan, "16 straight");
		pd_plan_free(plan);
	}
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
	check_edits();
	check_by_hand();
	check_agreed();
	check_groups();
	check_memory();
	check_peaks();
	check_eager();
	check_list_cursor();
	return done_testing();
}
