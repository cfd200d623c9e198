/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests compact documents of schedules, in which the steady state is written once.  Read again they are,
 * byte for byte, the plain ones, for every kind of schedule; their length does not grow with the
 * minibatches; and a compact document that was changed is judged as its plain form is.
 */
#include "table.h"
#include "tap.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "predict/replay.h"
#include "schedule/buffer_counts.h"
#include "schedule/check.h"
#include "schedule/file.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char *const six = "a<x b<a c<b d<c e<d f<e";
static const char *const six_skipping = "a<x b<a c<ab d<c e<da f<eb";

static const struct {
	struct table_plan plan;
	int positions;                  /* stages that have ranks of their own */
} shapes[] = {
	{ { "1", 1, { 6 }, { 1 } }, 1 }, { { "4", 1, { 6 }, { 4 } }, 1 },
	{ { "1-1", 2, { 3, 3 }, { 1, 1 } }, 2 }, { { "1-1-1", 3, { 2, 2, 2 }, { 1, 1, 1 } }, 3 },
	{ { "1-1-1-1", 4, { 1, 2, 2, 1 }, { 1, 1, 1, 1 } }, 4 },
	{ { "2-1", 2, { 3, 3 }, { 2, 1 } }, 2 }, { { "1-2", 2, { 3, 3 }, { 1, 2 } }, 2 },
	{ { "3-2", 2, { 3, 3 }, { 3, 2 } }, 2 }, { { "3-2-1", 3, { 2, 2, 2 }, { 3, 2, 1 } }, 3 },
	{ { "2-1-3-1", 4, { 1, 2, 2, 1 }, { 2, 1, 3, 1 } }, 4 },
	{ { "1-1-1-1", 4, { 1, 2, 2, 1 }, { 1, 1, 1, 1 } }, 2 },
	{ { "2-2-2-2", 4, { 1, 2, 2, 1 }, { 2, 2, 2, 2 } }, 2 },
};

struct text {
	char *bytes;
	size_t length;
};

static struct text written(const struct pd_schedule *schedule, const struct pd_lists *lists,
			   int64_t minibatches, bool compact)
{
	struct text text;
	FILE *out = open_memstream(&text.bytes, &text.length);
	struct pd_error err;
	int result = schedule ? pd_schedule_write(out, schedule, minibatches, compact, &err)
			      : pd_lists_write(out, lists, compact, &err);

	fclose(out);
	if (result < 0)
		pd_bug("%s", err.text);
	return text;
}

static struct pd_lists *read_again(const struct text *text, struct pd_error *err)
{
	FILE *in = fmemopen(text->bytes, text->length, "r");
	struct pd_place root = pd_place_root("again", NULL);
	struct pd_lists *lists = NULL;

	root.value = pd_json_load_stream(in, "again", true, err);
	if (root.value)
		lists = pd_lists_read_at(in, &root, err);
	json_decref(root.value);
	fclose(in);
	return lists;
}

static bool same(struct text a, struct text b)
{
	bool equal = a.length == b.length && memcmp(a.bytes, b.bytes, a.length) == 0;

	free(a.bytes);
	free(b.bytes);
	return equal;
}

static bool same_counts(const struct pd_schedule *schedule, const struct pd_lists *a,
			const struct pd_lists *b)
{
	int chunks = schedule->chunks;
	bool equal = true;

	for (int r = 0; r < a->rank_count; r++) {
		struct pd_buffer_counts x[chunks], y[chunks];

		pd_buffer_counts_of_list(schedule, a, r, false, x);
		pd_buffer_counts_of_list(schedule, b, r, false, y);
		for (int c = 0; c < chunks; c++)
			equal &= x[c].slots == y[c].slots && x[c].inboxes == y[c].inboxes &&
				 x[c].arriving == y[c].arriving &&
				 x[c].leaving == y[c].leaving && x[c].versions == y[c].versions &&
				 x[c].load_count == y[c].load_count;
		pd_buffer_counts_release(x, chunks);
		pd_buffer_counts_release(y, chunks);
	}
	return equal;
}

struct tally {
	int made, folded, plain, compact, right, counts;
};

static void try(const struct pd_schedule *schedule, int64_t minibatches, struct tally *tally)
{
	struct text plain = written(schedule, NULL, minibatches, false);
	struct text compact = written(schedule, NULL, minibatches, true);
	struct pd_error err = { 0 };
	struct pd_lists *again = read_again(&compact, &err), *from = read_again(&plain, &err);
	bool folded = false;

	tally->made++;
	if (!again || !from)
		pd_bug("%s", err.text);
	for (int r = 0; r < again->rank_count; r++)
		folded |= again->ranks[r].block_count > 0;
	tally->folded += folded;
	tally->counts += same_counts(schedule, again, from);
	tally->right += pd_check(again, &err) == 0 &&
			pd_lists_count(again) == pd_lists_count(from);
	tally->compact += same(compact, written(NULL, from, 0, true));
	tally->plain += same(plain, written(NULL, again, 0, false));
	pd_lists_free(again);
	pd_lists_free(from);
}

static bool quick;                      /* PD_TEST_QUICK is set: a fifth of the plans, fewer changes */

static void try_plan(struct pd_plan *plan, struct tally *tally)
{
	static const int64_t cuts[] = { 1, 6 }, lengths[] = { 1, 9, 60 };
	struct pd_error err;

	for (size_t c = 0; c < PD_COUNT(cuts); c++) {
		struct pd_schedule *schedule;

		plan->microbatches = cuts[c];
		schedule = pd_schedule_new(plan, &err);
		for (size_t l = 0; schedule && l < PD_COUNT(lengths); l++)
			try(schedule, lengths[l], tally);
		pd_schedule_free(schedule);
	}
}

static void check_kind(enum pd_schedule_kind kind, enum pd_weight_kind weights)
{
	struct tally tally = { 0 };

	for (size_t p = 0; p < PD_COUNT(shapes); p += quick ? 5 : 1)
		for (int graph = 0; graph < 2; graph++) {
			struct pd_plan *plan = make_plan(graph ? six_skipping : six,
							 &shapes[p].plan, shapes[p].positions);

			use(plan, kind, weights, 1);
			if (pd_schedule_has(kind, PD_FACT_SHARES) || shapes[p].positions == shapes[p].plan.stages)
				try_plan(plan, &tally);
			pd_plan_free(plan);
		}
	if (tally.made == 0)
		return;
	is_int(tally.plain, tally.made, "%s with %s: the plain form comes back",
	       pd_schedule_kind_name[kind], pd_weight_kind_name[weights]);
	is_int(tally.compact, tally.made, "and is folded to the same again");
	is_int(tally.right, tally.made, "it is right as it is stored");
	is_int(tally.counts, tally.made, "and needs the same room");
	ok(3 * tally.folded > tally.made, "%d of %d have something that repeats", tally.folded,
	   tally.made);
}

static void check_length(void)
{
	struct pd_error err;

	for (size_t p = 2; p < 8; p++) {
		struct pd_plan *plan = make_plan(six_skipping, &shapes[p].plan,
						 shapes[p].positions);
		struct pd_schedule *schedule = pd_schedule_new(plan, &err);
		struct text few = written(schedule, NULL, 300, true);
		struct text many = written(schedule, NULL, 30000000, true);

		ok(many.length < few.length + few.length / 8,
		   "%zu bytes for 300 minibatches, %zu for 30,000,000", few.length, many.length);
		free(few.bytes);
		free(many.bytes);
		pd_schedule_free(schedule);
		pd_plan_free(plan);
	}
}

/* ---- random changes ---- */

static uint32_t drawn;

static size_t draw(size_t below)
{
	return pd_random(43, 1, 0, drawn++).v[0] % below;
}

/* Returns the beginning of the line that has offset `at`; stores that of the next line in *end_p. */
static size_t line_of(const struct text *text, size_t at, size_t *end_p)
{
	char *end = memchr(text->bytes + at, '\n', text->length - at);

	while (at > 0 && text->bytes[at - 1] != '\n')
		at--;
	*end_p = end ? (size_t)(end - text->bytes) + 1 : text->length;
	return at;
}

static void splice(struct text *text, size_t from, size_t to, const char *with, size_t length)
{
	char *bytes = pd_zalloc(text->length - (to - from) + length + 1);

	memcpy(bytes, text->bytes, from);
	memcpy(bytes + from, with, length);
	memcpy(bytes + from + length, text->bytes + to, text->length - to);
	text->length += length - (to - from);
	free(text->bytes);
	text->bytes = bytes;
}

/* Makes a random change somewhere below the header. */
static void edit(struct text *text, size_t header)
{
	size_t at = header + draw(text->length - header), end, from = line_of(text, at, &end);
	char digit = (char)('0' + draw(10)), *copy;

	switch (draw(6)) {
	case 0:                         /* another digit */
	case 1:
		while (at < text->length && !isdigit((unsigned char)text->bytes[at]))
			at++;
		if (at < text->length)
			text->bytes[at] = digit;
		break;
	case 2:                         /* one more digit */
		while (at < text->length && !isdigit((unsigned char)text->bytes[at]))
			at++;
		if (at < text->length)
			splice(text, at, at, &digit, 1);
		break;
	case 3:                         /* a line is missing */
		splice(text, from, end, "", 0);
		break;
	case 4:                         /* a line is there twice */
		copy = strndup(text->bytes + from, end - from);
		splice(text, from, from, copy, strlen(copy));
		free(copy);
		break;
	default:                        /* any byte */
		text->bytes[at] = (char)(' ' + draw(95));
		break;
	}
}

struct verdicts {
	int unread, refused, accepted, differ, stalled;
};

static void judge(const struct text *text, struct verdicts *verdicts)
{
	struct pd_error err = { 0 }, other = { 0 };
	struct pd_lists *lists = read_again(text, &err), *plain;
	struct pd_replay_options options = { .lists = lists };
	struct text expanded;
	int verdict;

	if (!lists) {
		verdicts->unread++;
		return;
	}
	verdict = pd_check(lists, &err);
	expanded = written(NULL, lists, 0, false);
	plain = read_again(&expanded, &other);
	verdicts->differ += !plain || pd_check(plain, &other) != verdict;
	free(expanded.bytes);
	pd_lists_free(plain);
	if (verdict == 0) {
		verdicts->accepted++;
		verdicts->stalled += pd_replay_run(lists->plan, &options, &err) < 0;
	} else {
		verdicts->refused++;
	}
	pd_lists_free(lists);
}

static void check_edits(void)
{
	const int edits = quick ? 150 : 1500;
	struct verdicts verdicts = { 0 };
	struct pd_error err;
	struct pd_plan *plan = make_plan(six_skipping, &shapes[5].plan, shapes[5].positions);
	struct pd_schedule *schedule = pd_schedule_new(plan, &err);
	struct text good = written(schedule, NULL, 60, true);
	size_t header = (size_t)(strchr(good.bytes, '\n') - good.bytes) + 1;

	for (int i = 0; i < edits; i++) {
		struct text text = { .length = good.length };

		text.bytes = pd_zalloc(good.length + 1);
		memcpy(text.bytes, good.bytes, good.length);
		for (size_t n = draw(3) + 1; n > 0; n--)
			edit(&text, header);
		judge(&text, &verdicts);
		free(text.bytes);
	}
	ok(verdicts.unread > edits / 20 && verdicts.refused > edits / 20 &&
	   verdicts.accepted > edits / 50, "of %d changed, %d are not read, %d wrong, %d right",
	   edits, verdicts.unread, verdicts.refused, verdicts.accepted);
	is_int(verdicts.differ, 0, "of each the plain form is judged the same");
	is_int(verdicts.stalled, 0, "those that are right can be replayed");
	free(good.bytes);
	pd_schedule_free(schedule);
	pd_plan_free(plan);
}

int main(void)
{
	quick = getenv("PD_TEST_QUICK");
	for (int kind = 0; kind < PD_SCHEDULE_KINDS; kind++)
		for (int weights = 0; weights < PD_WEIGHT_KINDS; weights++)
			check_kind((enum pd_schedule_kind)kind, (enum pd_weight_kind)weights);
	check_length();
	check_edits();
	return done_testing();
}
