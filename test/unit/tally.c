/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that losses that arrive in any order are given out by microbatch, each when it is complete. */
#include "run/supervisor/tally.h"

#include "tap.h"

#define LOSSES 3

/* Adds losses `first` to `last` of a microbatch, each of which has another sum. */
static void add(struct pd_tally *tally, int64_t microbatch, int first, int last)
{
	for (int k = first; k <= last; k++)
		pd_tally_add(tally, microbatch, k,
			     &(struct pd_loss){ .sum = (double)(10 * microbatch + k),
						.correct = microbatch, .samples = 8 });
}

static bool gives(struct pd_tally *tally, int64_t microbatch)
{
	const struct pd_loss *values = pd_tally_take(tally);

	for (int k = 0; values && k < LOSSES; k++)
		if (values[k].sum != (double)(10 * microbatch + k) ||
		    values[k].correct != microbatch || values[k].samples != 8)
			return false;
	return values;
}

static void test_order(void)
{
	struct pd_tally tally;

	pd_tally_begin(&tally, LOSSES, 7);
	ok(!pd_tally_take(&tally), "nothing is there before anything came");
	add(&tally, 8, 0, 2);
	ok(!pd_tally_take(&tally), "a later microbatch waits for the first");
	add(&tally, 7, 2, 2);
	add(&tally, 7, 0, 0);
	ok(!pd_tally_take(&tally), "so it does until the first has all its losses");
	add(&tally, 7, 1, 1);
	ok(gives(&tally, 7) && gives(&tally, 8), "then both are given, in order, with their losses");
	ok(!pd_tally_take(&tally), "and no other");
	add(&tally, 9, 0, 2);
	ok(gives(&tally, 9), "the next one follows");
	pd_tally_release(&tally);
}

/* Tests a replica far ahead of another, for which the ring of microbatches grows twice in mid-turn. */
static void test_growth(void)
{
	enum { FIRST = 50, TURN = 100, AHEAD = 400 };
	struct pd_tally tally;
	bool good = true;

	pd_tally_begin(&tally, LOSSES, FIRST);
	for (int64_t b = FIRST; b < FIRST + TURN; b++) {
		good = good && !pd_tally_take(&tally);
		add(&tally, b, 0, 2);
		good = good && gives(&tally, b);
	}
	ok(good, "places are used again, and nothing is given that has not come");
	for (int64_t b = FIRST + TURN; b < FIRST + AHEAD; b++)
		if (b % 2)
			add(&tally, b, 0, 2);
		else
			add(&tally, b, 0, 0);
	ok(good && !pd_tally_take(&tally), "a replica that is ahead is remembered");
	for (int64_t b = FIRST + TURN; b < FIRST + AHEAD; b++) {
		if (b % 2 == 0)
			add(&tally, b, 1, 2);
		good = good && gives(&tally, b);
	}
	ok(good && !pd_tally_take(&tally), "nothing is lost while it grows");
	pd_tally_release(&tally);
}

int main(void)
{
	test_order();
	test_growth();
	return done_testing();
}
