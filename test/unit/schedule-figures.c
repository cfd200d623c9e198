/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests the orders of the papers' figures, of buckets and of Megatron's interleaving, and what a phase does
 * that is cut short, resumed or very long.
 */
#include "small_profile.h"
#include "table.h"
#include "tap.h"

#include "base/mem.h"
#include "schedule/cursor.h"
#include "schedule/pattern.h"

#include <stdlib.h>
#include <string.h>

/* Returns one rank's computation, with the sums of several buckets, as "F0 F1 B0 ...". */
static char *order(const struct pd_schedule *schedule, int rank, int64_t minibatches)
{
	struct pd_phase phase = { .last = minibatches };
	char *text = pd_zalloc(4096), name[40];
	struct pd_cursor cursor;
	struct pd_op op;

	pd_cursor_init(&cursor, schedule, rank, &phase, 0);
	while (pd_cursor_next(&cursor, &op))
		if (op.kind == PD_OP_forward || op.kind == PD_OP_backward ||
		    op.kind == PD_OP_backward_input || op.kind == PD_OP_backward_weight ||
		    (op.kind == PD_OP_allreduce && op.bucket > 0) ||
		    (op.kind == PD_OP_step && schedule->plan->bucket_bytes > 0)) {
			const char *short_name = pd_op_short(&op, name);

			snprintf(text + strlen(text), 40, "%s%s", *text ? " " : "",
				 short_name + strspn(short_name, "0123456789"));
		}
	pd_cursor_release(&cursor);
	return text;
}

static void check_order(const struct pd_plan *plan, int rank, int64_t n, const char *expected)
{
	struct pd_schedule *schedule = pd_schedule_new(plan, NULL);
	char *got = order(schedule, rank, n);

	is_str(got, expected, "rank %d's order of computation", rank);
	free(got);
	pd_schedule_free(schedule);
}

/* Checks the orders in figures of papers, first SOSP 2019's 4 (four straight stages) and 8 (2-1). */
static void check_figures(void)
{
	struct pd_error err;
	struct pd_plan *plan = plan_of("a<x b<a c<b d<c", 4, (int[]){ 1, 1, 1, 1 },
					 (int[]){ 1, 1, 1, 1 });
	struct pd_schedule *schedule;

	check_order(plan, 0, 6, "F0 F1 F2 F3 B0 F4 B1 F5 B2 B3 B4 B5");
	check_order(plan, 1, 6, "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 B4 B5");
	check_order(plan, 2, 6, "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 B5");
	check_order(plan, 3, 6, "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5");
	/* As printed, a stage runs every forward that arrives until the first backward. */
	plan->startup = PD_STARTUP_EAGER;
	check_order(plan, 0, 6, "F0 F1 F2 F3 B0 F4 B1 F5 B2 B3 B4 B5");
	check_order(plan, 1, 6, "F0 F1 F2 F3 B0 B1 F4 B2 F5 B3 B4 B5");
	check_order(plan, 2, 6, "F0 F1 F2 F3 B0 B1 B2 F4 B3 F5 B4 B5");
	check_order(plan, 3, 6, "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5");
	pd_plan_free(plan);

	/* Figure 2 of ICML 2021 has 2BW, in the same order as 1F1B, and PipeDream-Flush. */
	plan = plan_of("a<x b<a c<b d<c", 4, (int[]){ 1, 1, 1, 1 }, (int[]){ 1, 1, 1, 1 });
	plan->weights = PD_WEIGHTS_2BW;
	plan->microbatches = 4;
	check_order(plan, 0, 12, "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 F8 B5 F9 B6 F10 B7 F11"
		    " B8 B9 B10 B11");
	check_order(plan, 1, 8, "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 B6 B7");
	check_order(plan, 2, 8, "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 B7");
	check_order(plan, 3, 8, "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7");
	plan->weights = PD_WEIGHTS_FLUSH;
	check_order(plan, 0, 8, "F0 F1 F2 F3 B0 B1 B2 B3 F4 F5 F6 F7 B4 B5 B6 B7");
	check_order(plan, 2, 8, "F0 F1 B0 F2 B1 F3 B2 B3 F4 F5 B4 F6 B5 F7 B6 B7");
	plan->schedule = PD_SCHEDULE_GPIPE;
	check_order(plan, 3, 4, "F0 F1 F2 F3 B0 B1 B2 B3");
	plan->schedule = PD_SCHEDULE_ZB_H1;
	check_order(plan, 0, 4, "F0 F1 F2 F3 I0 W0 I1 W1 I2 W2 I3 W3");
	check_order(plan, 2, 4, "F0 F1 I0 F2 I1 F3 I2 W0 I3 W1 W2 W3");
	pd_plan_free(plan);

	/* TiMePReSt's figure 2c has three stages, and two microbatches per minibatch. */
	plan = plan_of("a<x b<a c<b", 3, (int[]){ 1, 1, 1 }, (int[]){ 1, 1, 1 });
	plan->schedule = PD_SCHEDULE_NF1B;
	plan->weights = PD_WEIGHTS_VERTICAL_SYNC;
	plan->microbatches = 2;
	check_order(plan, 0, 8, "F0 F1 F2 F3 F4 F5 B0 B1 F6 F7 B2 B3 B4 B5 B6 B7");
	check_order(plan, 1, 8, "F0 F1 F2 F3 B0 B1 F4 F5 B2 B3 F6 F7 B4 B5 B6 B7");
	check_order(plan, 2, 8, "F0 F1 B0 B1 F2 F3 B2 B3 F4 F5 B4 B5 F6 F7 B6 B7");
	pd_plan_free(plan);

	plan = plan_of("a<x b<a", 2, (int[]){ 1, 1 }, (int[]){ 2, 1 });
	plan->startup = PD_STARTUP_EAGER;       /* no change here, as only one forward arrives */
	schedule = pd_schedule_new(plan, &err);
	check_order(plan, 0, 8, "F0 F2 B0 F4 B2 F6 B4 B6");
	check_order(plan, 1, 8, "F1 F3 B1 F5 B3 F7 B5 B7");
	check_order(plan, 2, 8, "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7");
	is_int(pd_schedule_unit(schedule), 2, "2-1 can be cut short at multiples of 2");
	pd_schedule_free(schedule);
	pd_plan_free(plan);
}

/*
 * Checks the sums of buckets.  Layers c, b and a have gradients of 3000, 2000 and 1000 bytes (in the
 * arena 3008, 2048, 1024).  The replica that has the last microbatch of a group sums a bucket behind its
 * part of the backward, the other replicas at the end of their own backward.
 */
static void check_buckets(void)
{
	struct pd_error err;
	struct pd_plan *plan = plan_of("a<x b<a c<b", 1, (int[]){ 3 }, (int[]){ 2 });
	struct pd_schedule *schedule;

	plan->bucket_bytes = 1;
	check_order(plan, 0, 3, "F0 B0.1 B0.2 B0.3 A0.1 A0.2 A0.3 U0 "
		    "F2 B2.1 B2.2 B2.3 A2.1 A2.2 A2.3 U2");
	check_order(plan, 1, 3, "F1 B1.1 A0.1 B1.2 A0.2 B1.3 A0.3 U0 A2.1 A2.2 A2.3 U2");
	plan->bucket_bytes = 3008;
	schedule = pd_schedule_new(plan, &err);
	check_order(plan, 1, 2, "F1 B1.1 A0.1 B1.2 A0.2 U0");
	is_int(schedule->buckets[0], 2, "a bucket is closed when it has more than the threshold");
	pd_schedule_free(schedule);
	plan->bucket_bytes = 5056;
	check_order(plan, 1, 2, "F1 B1 U0");

	/* With several microbatches per update only the last backward is in parts. */
	plan->bucket_bytes = 1;
	plan->microbatches = 4;
	plan->weights = PD_WEIGHTS_FLUSH;
	check_order(plan, 0, 4, "F0 B0 F2 B2.1 B2.2 B2.3 A0.1 A0.2 A0.3 U0");
	check_order(plan, 1, 4, "F1 B1 F3 B3.1 A0.1 B3.2 A0.2 B3.3 A0.3 U0");
	plan->schedule = PD_SCHEDULE_ZB_H1;
	check_order(plan, 1, 4, "F1 I1 W1 F3 I3 W3.1 A0.1 W3.2 A0.2 W3.3 A0.3 U0");
	pd_plan_free(plan);
}

/*
 * Checks the buffers of a skip: of eight stages the third is two microbatches behind the last, whose
 * gradients for the second wait as long: three at once, and one more buffer is needed.
 */
static void check_leaving(void)
{
	static const int ones[8] = { 1, 1, 1, 1, 1, 1, 1, 1 };
	static const char *const graphs[] = {
		"a<x b<a c<b d<c e<d f<e g<f h<g", "a<x b<a c<b d<c e<d f<e g<f h<ga",
	};

	for (int i = 0; i < 2; i++) {
		struct pd_error err;
		struct pd_plan *plan = plan_of(graphs[i], 8, ones, ones);
		struct pd_schedule *schedule = pd_schedule_new(plan, &err);
		int most = 0;

		for (int s = 0; s < 7; s++)
			most = pd_schedule_leaving(schedule, s) > most
				? pd_schedule_leaving(schedule, s) : most;
		is_int(pd_schedule_leaving(schedule, 7), i ? 4 : 2, "gradients that leave, %s a skip",
		       i ? "with" : "without");
		is_int(most, 2, "two between neighbours");
		pd_schedule_free(schedule);
		pd_plan_free(plan);
	}
}

/* Checks that a limit set on the way gives the list of a phase that was as short from the start. */
static void check_limit(void)
{
	struct pd_error err;
	struct pd_plan *plan = plan_of("a<x b<a c<b", 3, (int[]){ 1, 1, 1 }, (int[]){ 1, 2, 1 });
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

/* Checks that after a checkpoint inside an epoch forwards read the versions that are held. */
static void check_floor(void)
{
	struct pd_error err;
	struct pd_plan *plan = plan_of("a<x b<a c<b", 3, (int[]){ 1, 1, 1 }, (int[]){ 1, 1, 1 });
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
	struct pd_plan *plan = plan_of("a<x b<a", 2, (int[]){ 1, 1 }, (int[]){ 1, 1 });

	plan->stages[0].warmup = 0;
	plan->stages[1].warmup = 1;
	ok(!pd_schedule_new(plan, &err) && strstr(err.text, "stages[1].warmup") &&
	   strstr(err.text, "deadlock"), "warm-ups that would deadlock are refused: %s", err.text);
	plan->stages[1].warmup = 0;
	plan->schedule = PD_SCHEDULE_GPIPE;
	ok(!pd_schedule_new(plan, &err) && err.status == PD_EXIT_USAGE,
	   "what does not go together is refused: %s", err.text);
	plan->startup = PD_STARTUP_EAGER;
	ok(!pd_schedule_new(plan, &err) && strstr(err.text, "startup \"eager\" goes with"),
	   "a start-up too: %s", err.text);
	plan->startup = PD_STARTUP_FRUGAL;
	plan->schedule = PD_SCHEDULE_1F1B;
	plan->weights = PD_WEIGHTS_2BW;
	plan->stages[0].warmup = 3;
	plan->microbatches = 2;
	ok(!pd_schedule_new(plan, &err) && strstr(err.text, "2bw needs at least the 3"),
	   "a 2bw batch smaller than what is ahead is refused: %s", err.text);
	pd_plan_free(plan);
}

/* Checks that a group of a thousand million microbatches has as many in flight as one of a few rounds. */
static void check_long_group(void)
{
	static const int layers[8] = { 1, 1, 1, 1, 1, 1, 1, 1 };
	struct pd_schedule *schedules[2];
	struct pd_plan *plans_of[2];
	struct pd_error err;
	bool same = true;

	for (int i = 0; i < 2; i++) {
		struct pd_plan *plan = plans_of[i] = plan_of(chain, 8, layers, layers);

		plan->schedule = PD_SCHEDULE_INTERLEAVED;
		plan->weights = PD_WEIGHTS_FLUSH;
		plan->microbatches = i == 0 ? 28 : 1 << 30;
		plan->rank_count = 4;
		for (int s = 0; s < 8; s++)
			plan->stages[s].ranks[0] = s % 4;
		schedules[i] = pd_schedule_new(plan, &err);
	}
	for (int s = 0; s < 8; s++)
		same = same && schedules[0]->slots[s] == schedules[1]->slots[s];
	ok(same, "interleaved: as many in flight, however long a group is");
	for (int i = 0; i < 2; i++) {
		pd_schedule_free(schedules[i]);
		pd_plan_free(plans_of[i]);
	}
}

/* Checks Megatron's order: rank q of p with v chunks does 2 (p - 1 - q) + (v - 1) p forwards first. */
static void check_interleaved(void)
{
	struct pd_plan *plan = plan_of("a<x b<a c<b d<c", 4, (int[]){ 1, 1, 1, 1 },
					 (int[]){ 1, 1, 1, 1 });

	plan->schedule = PD_SCHEDULE_INTERLEAVED;
	plan->weights = PD_WEIGHTS_FLUSH;
	plan->microbatches = 4;
	plan->rank_count = 2;
	for (int s = 0; s < 4; s++)
		plan->stages[s].ranks[0] = s % 2;
	check_order(plan, 0, 4, "F0 F1 F0 F1 F2 B0 F3 B1 F2 B0 F3 B1 B2 B3 B2 B3");
	check_order(plan, 1, 4, "F0 F1 F0 B0 F1 B1 F2 B0 F3 B1 F2 B2 F3 B3 B2 B3");
	/* Position 1 of 2 begins its backwards before its last forward even where there is one round. */
	plan->microbatches = 2;
	check_order(plan, 0, 2, "F0 F1 F0 F1 B0 B1 B0 B1");
	check_order(plan, 1, 2, "F0 F1 F0 B0 F1 B1 B0 B1");
	plan->microbatches = 3;
	check_order(plan, 1, 3, "F0 F1 F0 B0 F1 B1 F2 B0 B1 F2 B2 B2");
	pd_plan_free(plan);
}

int main(void)
{
	check_figures();
	check_buckets();
	check_interleaved();
	check_long_group();
	check_leaving();
	check_limit();
	check_floor();
	check_refusals();
	return done_testing();
}
