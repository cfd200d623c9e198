/* SPDX-License-Identifier: Apache-2.0 */
/* Searches for orders: what is published and worked out, and random cases. */
#include "order/found.h"
#include "order/made.h"
#include "order/search.h"

#include "base/mem.h"
#include "tap.h"
#include "worked_orders.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef void searcher(const struct pd_order_request *request, struct pd_order_found *found);

static void search_all(const struct pd_order_request *request, struct pd_order_found *found)
{
	*found = pd_order_search(request);
}

/* A request of stages that are all alike. */
struct even {
	struct pd_order_request request;
	struct pd_order_stage *stages;
	int *position_of;
	int64_t *caps, *pools;
};

/* Each stage keeps two units until its W ends; cap is in those of a position, 0: none. */
static struct even even(int positions, int chunks, int m, pd_order_placement *place, const int64_t *fbwc, int64_t cap)
{
	int stages = positions * chunks;
	struct even e = {
		.stages = pd_calloc((size_t)stages, sizeof(*e.stages)),
		.position_of = pd_calloc((size_t)stages, sizeof(*e.position_of)),
		.caps = pd_calloc((size_t)positions, sizeof(*e.caps)),
		.pools = pd_calloc((size_t)positions, sizeof(*e.pools)),
	};

	for (int s = 0; s < stages; s++) {
		e.stages[s] = (struct pd_order_stage){ fbwc[0], fbwc[1], fbwc[2], fbwc[3], 1, 0, -1 };
		e.position_of[s] = place(positions, s);
	}
	for (int q = 0; q < positions; q++)
		e.caps[q] = cap;
	e.request = (struct pd_order_request){
		.positions = positions, .stages = stages, .microbatches = m, .position_of = e.position_of,
		.stage = e.stages, .cap_bytes = cap ? e.caps : NULL };
	return e;
}

/* A transformer layer of 1024 tokens keeps 34 h + 5 a s, and of that 32 h from I to W. */
static void set_bytes(struct even *e, int64_t hidden, int64_t heads)
{
	int64_t bytes = 34 * hidden + 5 * heads * 1024;

	for (int s = 0; s < e->request.stages; s++) {
		e->stages[s].f_bytes = bytes;
		e->stages[s].w_bytes = -32 * hidden;
		e->stages[s].b_bytes = -bytes + 32 * hidden;
	}
	for (int q = 0; q < e->request.positions; q++)
		e->caps[q] *= bytes;
}

static void release(struct even *e)
{
	free(e->stages);
	free(e->position_of);
	free(e->caps);
	free(e->pools);
}

static int64_t found_by(searcher *search, struct even *e, bool agrees)
{
	struct pd_order_found found = { 0 };
	struct pd_error err;
	int64_t value = -1;

	e->request.agrees = agrees;
	search(&e->request, &found);
	if (found.count > 0) {
		value = pd_order_value(&found.best[0].price, &e->request);
		diag("%s: span %" PRId64 ", makespan %" PRId64, found.best[0].seed, found.best[0].price.span_ns,
		     found.best[0].price.makespan_ns);
	}
	for (int i = 0; i < found.count; i++)
		if (pd_order_certify(found.best[i].order, NULL, &err) < 0)
			diag("%s", err.text);
	pd_order_found_release(&found);
	return value;
}

/* Returns an order's makespan, and frees it. */
static int64_t price_of(struct pd_order *order, const struct even *e)
{
	struct pd_order_price price = pd_order_price(order, &e->request);
	int64_t makespan_ns = price.makespan_ns;

	pd_order_price_release(&price);
	pd_order_free(order);
	return makespan_ns;
}

/* Tells whether a figure is within half a percent of another. */
static bool near(int64_t got, int64_t expected)
{
	int64_t off = got > expected ? got - expected : expected - got;

	if (200 * off > expected)
		diag("got %" PRId64 ", expected %" PRId64, got, expected);
	return 200 * off <= expected;
}

/* The table of Qi et al.: ZB-2p's longest span; makespans of ZB-H1 and 1F1B. */
static void test_published(void)
{
	static const struct {
		int positions, microbatches;
		int64_t fbwc[4], zb_2p, zb_h1, one, interleaved, chunks;
		int64_t hidden, heads;
	} rows[] = {
		{ 8, 24, { 18522, 18086, 9337, 601 }, 1152599, 1310405, 1456749, 1232723, 3, 2304, 24 },
		{ 8, 64, { 18546, 18097, 9321, 762 }, 2949221, 3154286, 3357932, 3077901, 3, 2304, 24 },
		{ 8, 24, { 29718, 29444, 19927, 527 }, 1903596, 2187537, 2480217, 2065000, 4, 4096, 32 },
		{ 8, 64, { 29935, 29621, 19388, 535 }, 5057708, 5348572, 5671364, 5219458, 4, 4096, 32 },
		{ 16, 48, { 11347, 11248, 8132, 377 }, 1484721, 1714461, 1980287, 1657937, 3, 5120, 40 },
		{ 16, 128, { 11325, 11308, 8109, 378 }, 3946061, 4175516, 4497410, 4118170, 3, 5120, 40 },
		{ 32, 96, { 10419, 10207, 7715, 408 }, 2731004, 3171569, 3699675, 3198374, 2, 6144, 48 },
		{ 32, 256, { 10402, 10248, 7698, 460 }, 7270432, 7715640, 8391636, 7739722, 2, 6144, 48 },
	};

	for (size_t i = 0; i < PD_COUNT(rows); i++) {
		int p = rows[i].positions, m = rows[i].microbatches, chunks = (int)rows[i].chunks;
		struct even e = even(p, 1, m, pd_order_loop, rows[i].fbwc, 2 * p);

		set_bytes(&e, rows[i].hidden, rows[i].heads);
		is_int(found_by(pd_order_search_chain, &e, false), rows[i].zb_2p, "ZB-2p, row %zu", i + 1);
		for (int q = 0; q < p; q++)
			e.caps[q] /= 2;
		if (rows[i].positions < 32)
			is_int(found_by(pd_order_search_chain, &e, true), rows[i].zb_h1, "half of its memory, row %zu",
			       i + 1);
		is_int(price_of(pd_order_1f1b(p, m), &e), rows[i].one, "1F1B, row %zu", i + 1);
		ok(near(price_of(pd_order_zb_h1(p, m), &e), rows[i].zb_h1), "ZB-H1, row %zu", i + 1);
		release(&e);
		e = even(p, chunks, m, pd_order_loop, rows[i].fbwc, 0);
		for (int s = 0; s < p * chunks; s++)    /* a chunk takes as long as a stage: all takes so much longer */
			e.stages[s].transfer_ns *= chunks;
		ok(near(price_of(pd_order_interleaved(p, chunks, m, p), &e), rows[i].interleaved * chunks),
		   "interleaved, row %zu", i + 1);
		release(&e);
	}
}

/* What ZB-V's own search gives: its longest span; in units and for few microbatches, the makespan. */
static void test_v(void)
{
	static const struct {
		int positions, microbatches;
		int64_t fbwc[4], value, hidden, heads;
	} rows[] = {
		{ 16, 48, { 14407, 14380, 9676, 1610 }, 3969197, 4096, 32 },
		{ 16, 64, { 14412, 14393, 9688, 1621 }, 5204741, 4096, 32 },
		{ 24, 72, { 6763, 6969, 5251, 755 }, 2919856, 5120, 40 },
		{ 32, 96, { 9458, 9748, 7288, 879 }, 5407444, 6144, 48 },
		{ 4, 8, { 1, 1, 1, 0 }, 51, 0, 0 }, { 4, 1, { 1, 1, 1, 0 }, 17, 0, 0 },
		{ 4, 2, { 1, 1, 1, 0 }, 19, 0, 0 }, { 4, 3, { 1, 1, 1, 0 }, 23, 0, 0 },
		{ 4, 5, { 1, 1, 1, 0 }, 33, 0, 0 },
	};

	for (size_t i = 0; i < PD_COUNT(rows); i++) {
		struct even e = even(rows[i].positions, 2, rows[i].microbatches, pd_order_v, rows[i].fbwc,
				     2 * rows[i].positions);

		if (rows[i].hidden)
			set_bytes(&e, rows[i].hidden, rows[i].heads);
		is_int(found_by(pd_order_search_v, &e, !rows[i].hidden), rows[i].value, "ZB-V, row %zu", i + 1);
		release(&e);
	}
}

/* What is reached, in units and unequal, by the memory that a position has in chunks; 0: as much as it likes. */
static void test_caps(void)
{
	static const struct {
		pd_order_placement *place;
		int positions, chunks, microbatches;
		int64_t fbwc[4], cap, makespan;
	} rows[] = {
		{ pd_order_v, 4, 2, 8, { 1, 1, 1, 0 }, 1, -1 }, { pd_order_v, 4, 2, 8, { 1, 1, 1, 0 }, 2, 101 },
		{ pd_order_v, 4, 2, 8, { 1, 1, 1, 0 }, 3, 87 }, { pd_order_v, 4, 2, 8, { 1, 1, 1, 0 }, 4, 59 },
		{ pd_order_v, 4, 2, 8, { 1, 1, 1, 0 }, 5, 58 }, { pd_order_v, 4, 2, 8, { 1, 1, 1, 0 }, 6, 53 },
		{ pd_order_v, 4, 2, 8, { 1, 1, 1, 0 }, 8, 51 }, { pd_order_v, 4, 2, 8, { 1, 1, 1, 0 }, 0, 51 },
		{ pd_order_v, 4, 2, 8, { 10, 11, 7, 1 }, 3, 950 }, { pd_order_v, 4, 2, 8, { 10, 11, 7, 1 }, 4, 651 },
		{ pd_order_v, 4, 2, 8, { 10, 11, 7, 1 }, 5, 616 }, { pd_order_v, 4, 2, 8, { 10, 11, 7, 1 }, 6, 537 },
		{ pd_order_v, 4, 2, 8, { 10, 11, 7, 1 }, 8, 492 },
		{ pd_order_loop, 4, 1, 10, { 1, 1, 1, 0 }, 2, 51 }, { pd_order_loop, 4, 1, 10, { 1, 1, 1, 0 }, 4, 33 },
		{ pd_order_loop, 4, 1, 10, { 1, 1, 1, 0 }, 8, 33 },
		{ pd_order_v, 4, 3, 5, { 1, 1, 1, 0 }, 6, 68 }, { pd_order_v, 4, 3, 5, { 1, 1, 1, 0 }, 9, 51 },
		{ pd_order_v, 4, 3, 5, { 1, 1, 1, 0 }, 12, 48 }, { pd_order_v, 4, 3, 8, { 1, 1, 1, 0 }, 9, 78 },
		{ pd_order_loop, 4, 3, 8, { 1, 1, 1, 0 }, 9, 81 }, { pd_order_loop, 4, 3, 8, { 1, 1, 1, 0 }, 14, 75 },
		{ pd_order_loop, 1, 1, 3, { 1, 1, 1, 0 }, 1, 9 }, { pd_order_v, 1, 2, 3, { 1, 1, 1, 0 }, 2, 18 },
		{ pd_order_loop, 4, 1, 1, { 1, 1, 1, 0 }, 8, 9 }, { pd_order_loop, 4, 1, 2, { 1, 1, 1, 0 }, 8, 11 },
		{ pd_order_loop, 4, 1, 3, { 1, 1, 1, 0 }, 8, 13 }, { pd_order_loop, 4, 1, 5, { 1, 1, 1, 0 }, 8, 18 },
		{ pd_order_loop, 4, 1, 3, { 1, 1, 0, 0 }, 4, 12 },
	};

	for (size_t i = 0; i < PD_COUNT(rows); i++) {
		struct even e = even(rows[i].positions, rows[i].chunks, rows[i].microbatches, rows[i].place,
				     rows[i].fbwc, rows[i].cap);

		is_int(found_by(search_all, &e, true), rows[i].makespan, "search, row %zu", i + 1);
		release(&e);
	}
}

/* The chain's search alone makes these lists. */
static void test_worked(void)
{
	static const struct {
		const char *name;
		int64_t fbwc[4], cap;
	} cases[] = {
		{ "zb-2p (cap 8)", { 2, 2, 2, 0 }, 8 }, { "zb-2p unequal", { 20, 22, 14, 1 }, 8 },
		{ "zb cap 4", { 2, 2, 2, 0 }, 4 }, { "zb cap 6", { 2, 2, 2, 0 }, 6 },
		{ "zb cap 4 unequal", { 20, 22, 14, 1 }, 4 }, { "zb cap 6 unequal", { 20, 22, 14, 1 }, 6 },
	};

	for (size_t i = 0; i < PD_COUNT(cases); i++) {
		struct even e = even(4, 1, 8, pd_order_loop, cases[i].fbwc, cases[i].cap);
		struct pd_order_found found = { 0 };

		pd_order_search_chain(&e.request, &found);
		for (size_t j = 0; j < PD_COUNT(worked_orders); j++)
			for (int q = 0; q < 4 && strcmp(worked_orders[j].name, cases[i].name) == 0; q++) {
				char *text = pd_order_text(found.best[0].order, q);

				is_str(text, worked_orders[j].texts[q], "%s: position %d", cases[i].name, q);
				free(text);
			}
		pd_order_found_release(&found);
		release(&e);
	}
}

/* V-Half keeps six of two stages that keep seven apart: slots are shared where that takes less. */
static void test_slots(void)
{
	static const int64_t fbwc[4] = { 1, 1, 1, 0 };
	struct even e = even(4, 2, 8, pd_order_v, fbwc, 0);
	struct pd_order *order = pd_order_v_half(4, 8);
	struct pd_order_price price;

	for (int s = 0; s < 8; s++) {
		e.stages[s].f_bytes = s < 4 ? 3 : 11;
		e.stages[s].slot_bytes = s == 4 ? 10 : 2;
	}
	price = pd_order_price(order, &e.request);
	is_int(price.pool_bytes[1], 5 * 1 + 2 * 9 + 6 * 2, "six slots for two stages, and what is not in slots");
	is_int(price.pool_bytes[3], 3 * 1 + 3 * 1 + 3 * 2 + 3 * 10, "slots of their own where those of one are large");
	pd_order_price_release(&price);
	pd_order_free(order);
	release(&e);
}

static int64_t between(uint64_t *state, int64_t low, int64_t high)
{
	*state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return low + (int64_t)((*state >> 33) % (uint64_t)(high - low + 1));
}

/* A request of up to five positions, four stages each and nine microbatches, all uneven, with just room enough. */
static struct even random_request(uint64_t *state)
{
	static const int64_t none[4] = { 0, 0, 0, 0 };
	pd_order_placement *place = between(state, 0, 1) ? pd_order_v : pd_order_loop;
	int positions = (int)between(state, 1, 5), chunks = (int)between(state, 1, 4);
	struct even e = even(positions, chunks, (int)between(state, 1, 9), place, none, 0);

	for (int s = 0; s < e.request.stages; s++) {
		struct pd_order_stage *stage = &e.stages[s];

		*stage = (struct pd_order_stage){ between(state, 1, 20), between(state, 1, 20), between(state, 0, 20),
						  between(state, 0, 5), between(state, 1, 30), 0, 0 };
		stage->b_bytes = -between(state, 0, stage->f_bytes);
		stage->w_bytes = -stage->f_bytes - stage->b_bytes;
		e.caps[e.position_of[s]] += stage->f_bytes;
	}
	for (int q = 0; q < positions; q++)
		e.pools[q] = e.caps[q] += between(state, 0, 2) * between(state, 0, 40);
	e.request.cap_bytes = e.caps;
	for (int s = 0; s < e.request.stages && between(state, 0, 1); s++) {    /* some compute again */
		e.stages[s].again_bytes = between(state, 1, 20);
		e.pools[e.position_of[s]] += e.stages[s].again_bytes;
	}
	if (between(state, 0, 1))
		e.request.pool_bytes = e.pools;
	e.request.agrees = between(state, 0, 1);
	return e;
}

static void test_random(void)
{
	int cases = test_quick() ? 200 : 2480, wrong = 0, lower = 0, differ = 0;
	uint64_t state = 42;

	for (int n = 0; n < cases; n++) {
		struct even e = random_request(&state);
		struct pd_order_found found = pd_order_search(&e.request), again = { 0 };
		struct pd_error err;

		if (found.count == 0 || pd_order_certify(found.best[0].order, NULL, &err) < 0 ||
		    !pd_order_fits(&found.best[0].price, &e.request)) {
			wrong++;
			diag("case %d: %d positions, %d stages, %d microbatches", n, e.request.positions,
			     e.request.stages, e.request.microbatches);
		}
		if (n % 10 == 0) {
			again = pd_order_search(&e.request);
			differ += strcmp(found.best[0].seed, again.best[0].seed) != 0 ||
				  found.best[0].price.makespan_ns != again.best[0].price.makespan_ns;
			pd_order_found_release(&again);
			e.caps[e.request.positions - 1] = 0;
			again = pd_order_search(&e.request);
			lower += again.count > 0;
		}
		pd_order_found_release(&found);
		pd_order_found_release(&again);
		release(&e);
	}
	is_int(wrong, 0, "%d random requests have orders, all right and within their caps", cases);
	is_int(differ, 0, "the same twice");
	is_int(lower, 0, "none where there is no room");
}

int main(void)
{
	test_published();
	test_v();
	test_worked();
	test_caps();
	test_slots();
	test_random();
	return done_testing();
}
