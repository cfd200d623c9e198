/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search of orders against the best of all, and against itself with less memory: random requests, of which the
 * first argument says how many.
 */
#include "exact_order.h"
#include "order/search.h"

#include "base/mem.h"
#include "tap.h"

#include <inttypes.h>
#include <stdlib.h>

#define STAGES 16
#define STATES 3000000          /* that are looked at for one request */
#define UNIT 1000               /* bytes that a microbatch keeps of a stage */

static int64_t between(uint64_t *state, int64_t low, int64_t high)
{
	*state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return low + (int64_t)((*state >> 33) % (uint64_t)(high - low + 1));
}

struct random_chain {
	struct pd_order_request request;
	struct pd_order_stage stage[STAGES];
	int position_of[STAGES];
	int64_t cap_bytes[STAGES];
};

/* Makes a request of a stage for each position, all of which keep as much of a microbatch; `even` take as long, too. */
static void make_chain(struct random_chain *c, uint64_t *state, int positions, int microbatches, bool even)
{
	int64_t way_ns = 1000 * between(state, 0, 20);

	for (int s = 0; s < positions; s++) {
		c->stage[s] = even && s > 0 ? c->stage[0] : (struct pd_order_stage){
			.f_ns = 1000 * between(state, 20, 60), .b_ns = 1000 * between(state, 20, 60),
			.w_ns = 1000 * between(state, 10, 50), .transfer_ns = way_ns, .f_bytes = UNIT,
			.w_bytes = -UNIT, .slot_bytes = UNIT };
		c->position_of[s] = s;
	}
	c->request = (struct pd_order_request){
		.positions = positions, .stages = positions, .microbatches = microbatches, .stage = c->stage,
		.position_of = c->position_of, .cap_bytes = c->cap_bytes, .agrees = between(state, 0, 1) };
}

static void set_cap(struct random_chain *c, int64_t microbatches)
{
	for (int q = 0; q < c->request.positions; q++)
		c->cap_bytes[q] = microbatches * UNIT;
}

/* Returns the time of the best order that is found, or -1. */
static int64_t search_time(const struct random_chain *c)
{
	struct pd_order_found found = pd_order_search(&c->request);
	int64_t value_ns = found.count > 0 ? pd_order_value(&found.best[0].price, &c->request) : -1;

	if (found.count > 0 && !pd_order_fits(&found.best[0].price, &c->request))
		value_ns = -1;
	pd_order_found_release(&found);
	return value_ns;
}

/* Whether the judge finds what is known: ZB-H1 without a bubble in its middle; one microbatch; one at a time. */
static void test_judge(void)
{
	static const struct {
		int positions, microbatches, cap;
		int64_t makespan_ns;
	} rows[] = { { 4, 1, 1, 9 }, { 2, 2, 2, 7 }, { 1, 5, 1, 15 }, { 3, 3, 1, 21 }, { 2, 6, 4, 19 } };

	for (size_t i = 0; i < PD_COUNT(rows); i++) {
		struct random_chain c;
		uint64_t state = 1;

		make_chain(&c, &state, rows[i].positions, rows[i].microbatches, true);
		set_cap(&c, rows[i].cap);
		c.request.agrees = true;
		for (int s = 0; s < rows[i].positions; s++) {
			c.stage[s].f_ns = c.stage[s].b_ns = c.stage[s].w_ns = 1;
			c.stage[s].transfer_ns = 0;
		}
		is_int(exact_order(&c.request, INT32_MAX, STATES).value_ns, rows[i].makespan_ns,
		       "the best of all, row %zu", i + 1);
	}
}

static void test_exact(int cases)
{
	int near = 0, undecided = 0, above = 0;
	uint64_t state = 7;

	for (int n = 0; n < cases; n++) {
		int positions = (int)between(&state, 2, 4), microbatches = (int)between(&state, 1, 6);
		struct random_chain c;
		struct exact best;
		int64_t value_ns;

		make_chain(&c, &state, positions, microbatches, false);
		set_cap(&c, between(&state, 1, positions + 1));
		value_ns = search_time(&c);
		best = exact_order(&c.request, value_ns, STATES);
		undecided += !best.decided;
		above += value_ns < 0;
		if (value_ns >= 0 && best.decided && 200 * (value_ns - best.value_ns) <= best.value_ns)
			near++;
		else
			diag("case %d: %d positions, %d microbatches, room for %" PRId64 ": %" PRId64 " ns, the best %"
			     PRId64 "%s", n, positions, microbatches, c.cap_bytes[0] / UNIT, value_ns, best.value_ns,
			     best.decided ? "" : ", not decided");
	}
	is_int(undecided, 0, "%d requests: the best of all is known", cases);
	is_int(above, 0, "each has an order within its caps");
	ok(30 * near >= 29 * cases, "%d of %d orders are within half a percent of the best", near, cases);
}

/* Tells whether more room makes no order slower, by more than half a percent. */
static void test_room(int cases)
{
	uint64_t state = 11;
	int slower = 0;

	for (int n = 0; n < cases; n++) {
		int positions = (int)between(&state, 2, 8), microbatches = (int)between(&state, 2, 3 * positions);
		int64_t least_ns = INT64_MAX;
		struct random_chain c;

		make_chain(&c, &state, positions, microbatches, between(&state, 0, 1));
		for (int cap = 1; cap <= 2 * positions + 2; cap++) {
			int64_t value_ns;

			set_cap(&c, cap);
			value_ns = search_time(&c);
			if (value_ns - pd_min(value_ns, least_ns) > least_ns / 200) {
				slower++;
				diag("case %d: %d positions, %d microbatches: %" PRId64 " ns with room for %d, %" PRId64
				     " with less", n, positions, microbatches, value_ns, cap, least_ns);
			}
			least_ns = pd_min(least_ns, value_ns);
		}
	}
	is_int(slower, 0, "%d requests: none is slower with more room", cases);
}

int main(int argc, char **argv)
{
	int cases = argc > 1 ? atoi(argv[1]) : 60;

	test_judge();
	test_exact(cases);
	test_room(test_quick() ? pd_max(cases / 20, 1) : cases / 5);
	return done_testing();
}
