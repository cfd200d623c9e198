/* SPDX-License-Identifier: Apache-2.0 */
/* Orders that formulas make: the lists that others make, what they take and keep, and that they are right. */
#include "order/made.h"
#include "order/request.h"

#include "base/mem.h"
#include "tap.h"
#include "worked_orders.h"

#include <stdlib.h>
#include <string.h>

static struct pd_order *interleaved(int positions, int microbatches)
{
	return pd_order_interleaved(positions, 2, microbatches, positions);
}

typedef struct pd_order *maker(int positions, int microbatches);

/* All formulas; for four positions and eight microbatches what they take, in units and unequal, and keep in chunks. */
static const struct kind {
	const char *name;
	maker *make;
	int chunks;
	int64_t makespan, span, unequal, unequal_span;
	int64_t peak[4];
} kinds[] = {
	{ "1f1b", pd_order_1f1b, 1, 66, 66, 632, 632, { 4, 3, 2, 1 } },
	{ "interleaved g4", interleaved, 2, 57, 57, 546, 546, { 11, 9, 7, 5 } },
	{ "zb-v", pd_order_zb_v, 2, 51, 48, 494, 488, { 8, 8, 8, 8 } },
	{ "v-half", pd_order_v_half, 2, 53, 53, 543, 543, { 6, 6, 6, 6 } },
	{ "v-min", pd_order_v_min, 2, 59, 59, 664, 664, { 4, 4, 4, 4 } },
	{ "dualpipe-v", pd_order_dualpipe_v, 2, 206, 206, 506, 506, { 9, 9, 9, 9 } },
	{ "zb-h1", pd_order_zb_h1, 1, 54, 54, 544, 544, { 4, 4, 4, 4 } },
};

/* A request of stages that are all alike. */
struct even {
	struct pd_order_request request;
	struct pd_order_stage *stages;
};

static struct even even(const struct pd_order *order, int64_t f, int64_t b, int64_t w, int64_t transfer)
{
	struct even e = {
		.request = { .positions = order->positions, .stages = order->stages,
			     .microbatches = order->microbatches, .position_of = order->position_of },
		.stages = pd_calloc((size_t)order->stages, sizeof(*e.stages)),
	};

	for (int s = 0; s < order->stages; s++)
		e.stages[s] = (struct pd_order_stage){ f, b, w, transfer, 1, 0, -1 };
	e.request.stage = e.stages;
	return e;
}

static struct pd_order_price price(const struct pd_order *order, int64_t f, int64_t b, int64_t w, int64_t transfer,
				   int64_t pair_ns, int64_t alone_ns)
{
	struct even e = even(order, f, b, w, transfer);
	struct pd_order_price found;

	e.request.pair_parts = alone_ns > 0 ? (pair_ns * PD_PAIR_PARTS + alone_ns / 2) / alone_ns : 0;
	found = pd_order_price(order, &e.request);
	free(e.stages);
	return found;
}

static const struct worked *worked(const char *name)
{
	for (size_t i = 0; i < PD_COUNT(worked_orders); i++)
		if (strcmp(worked_orders[i].name, name) == 0)
			return &worked_orders[i];
	return NULL;
}

/* Compares with what is known of four positions and eight microbatches. */
static void test_worked(const struct kind *kind)
{
	struct pd_order *order = kind->make(4, 8);
	const struct worked *other = worked(kind->name);
	int whole = kind->chunks == 1 ? 2 : 1;          /* units of a chunk; a rank has two of each pass */
	bool pairs = strcmp(kind->name, "dualpipe-v") == 0;
	struct pd_order_price units, unequal;

	for (int q = 0; q < 4 && other; q++) {
		char *text = pd_order_text(order, q);

		is_str(text, other->texts[q], "%s: position %d", kind->name, q);
		free(text);
	}
	units = pairs ? price(order, 4, 4, 4, 0, 11, 12) : price(order, whole, whole, whole, 0, 0, 0);
	is_int(units.makespan_ns, kind->makespan, "%s: makespan", kind->name);
	is_int(units.span_ns, kind->span, "%s: span", kind->name);
	for (int q = 0; q < 4; q++)
		is_int(units.peak_bytes[q], kind->peak[q], "%s: chunks kept at position %d", kind->name, q);
	unequal = price(order, 10 * whole, 11 * whole, 7 * whole, 1, 25, 28);
	is_int(unequal.makespan_ns, kind->unequal, "%s: unequal: makespan", kind->name);
	is_int(unequal.span_ns, kind->unequal_span, "%s: unequal: span", kind->name);
	pd_order_price_release(&units);
	pd_order_price_release(&unequal);
	pd_order_free(order);
}

/* All are right, however many positions and microbatches there are. */
static void test_certified(const struct kind *kind)
{
	for (int positions = 1; positions <= 9; positions++) {
		int refused = 0;

		for (int m = 1; m <= 4 * positions + 2; m++) {
			struct pd_order *order = kind->make(positions, m);
			struct pd_error err;

			if (pd_order_certify(order, NULL, &err) < 0) {
				diag("%d microbatches: %s", m, err.text);
				refused++;
			}
			pd_order_free(order);
		}
		is_int(refused, 0, "%s: %d positions, 1 to %d microbatches", kind->name, positions,
		       4 * positions + 2);
	}
}

/* What else is known of orders: positions, microbatches, what a pass of a chunk takes in all, the makespan. */
static void test_known(void)
{
	static const struct known {
		maker *make;
		int positions, microbatches;
		int64_t f, b, w, transfer, pair, alone, makespan, peak;
	} cases[] = {
		{ pd_order_zb_v, 4, 1, 1, 1, 1, 0, 0, 0, 18, 2 }, { pd_order_zb_v, 4, 2, 1, 1, 1, 0, 0, 0, 22, 4 },
		{ pd_order_zb_v, 4, 3, 1, 1, 1, 0, 0, 0, 26, 6 }, { pd_order_zb_v, 4, 5, 1, 1, 1, 0, 0, 0, 34, 8 },
		{ pd_order_zb_v, 8, 32, 500, 500, 500, 0, 0, 0, 99500, 16 },
				{ pd_order_v_half, 4, 1, 1, 1, 1, 0, 0, 0, 17, 2 }, { pd_order_v_half, 4, 2, 1, 1, 1, 0, 0, 0, 20, 4 },
		{ pd_order_v_half, 4, 3, 1, 1, 1, 0, 0, 0, 24, 6 }, { pd_order_v_half, 4, 5, 1, 1, 1, 0, 0, 0, 35, 6 },
		{ pd_order_v_half, 8, 32, 500, 500, 500, 0, 0, 0, 104500, 10 },
		{ pd_order_v_min, 4, 1, 1, 1, 1, 0, 0, 0, 17, 2 }, { pd_order_v_min, 4, 2, 1, 1, 1, 0, 0, 0, 21, 4 },
		{ pd_order_v_min, 4, 3, 1, 1, 1, 0, 0, 0, 29, 4 }, { pd_order_v_min, 4, 5, 1, 1, 1, 0, 0, 0, 41, 4 },
		{ pd_order_v_min, 8, 32, 500, 500, 500, 0, 0, 0, 109000, 8 },
		{ pd_order_dualpipe_v, 4, 16, 4, 4, 4, 0, 11, 12, 382, 9 },
		{ pd_order_dualpipe_v, 4, 16, 4, 4, 4, 0, 0, 0, 408, 9 },
		{ pd_order_dualpipe_v, 4, 1, 4, 4, 4, 0, 11, 12, 84, 2 },
		{ pd_order_dualpipe_v, 4, 7, 4, 4, 4, 0, 11, 12, 192, 0 },
		{ interleaved, 8, 32, 500, 500, 500, 0, 0, 0, 106500, 23 },
		{ interleaved, 4, 3, 1, 1, 1, 0, 0, 0, 30, 0 }, { interleaved, 4, 4, 1, 1, 1, 0, 0, 0, 33, 8 },
		{ interleaved, 4, 5, 1, 1, 1, 0, 0, 0, 45, 0 }, { interleaved, 4, 6, 1, 1, 1, 0, 0, 0, 49, 0 },
		{ interleaved, 4, 9, 1, 1, 1, 0, 0, 0, 69, 0 }, { interleaved, 4, 10, 1, 1, 1, 0, 0, 0, 73, 0 },
		{ pd_order_1f1b, 8, 32, 1000, 1000, 1000, 0, 0, 0, 117000, 8 },
		{ pd_order_zb_h1, 8, 32, 1000, 1000, 1000, 0, 0, 0, 103000, 8 },
	};

	for (size_t i = 0; i < PD_COUNT(cases); i++) {
		const struct known *c = &cases[i];
		struct pd_order *order = c->make(c->positions, c->microbatches);
		struct pd_order_price found = price(order, c->f, c->b, c->w, c->transfer, c->pair, c->alone);
		int64_t most = 0;

		for (int q = 0; q < c->positions; q++)
			most = found.peak_bytes[q] > most ? found.peak_bytes[q] : most;
		if (c->makespan)
			is_int(found.makespan_ns, c->makespan, "case %zu takes", i);
		if (c->peak)
			is_int(most, c->peak, "case %zu keeps", i);
		pd_order_price_release(&found);
		pd_order_free(order);
	}
}

/* DualPipeV's total: f, d (I), w, a pair takes x. */
static void test_dualpipe(void)
{
	static const int64_t cases[][5] = {     /* f, d, w, the pair's parts of what they take alone */
		{ 4, 4, 4, 11, 12 }, { 6, 5, 4, 4, 5 }, { 30, 20, 10, 1, 1 }, { 7, 8, 5, 19, 20 }, { 9, 9, 2, 3, 4 },
	};

	for (size_t i = 0; i < PD_COUNT(cases); i++)
		for (int p = 2; p <= 8; p += 2)
			for (int m = 2 * p; m <= 4 * p; m += p) {
				int64_t f = cases[i][0], d = cases[i][1], w = cases[i][2];
				int64_t x = (f + d + w) * cases[i][3] / cases[i][4];
				struct pd_order *order = pd_order_dualpipe_v(p, m);
				struct pd_order_price found = price(order, f, d, w, 0, cases[i][3], cases[i][4]);

				is_int(found.makespan_ns, (p - 1) * f + 2 * p * f + (2 * (m - p) - 1) * x +
				       (p - 1) * x + (2 * p - 1) * d + w + 2 * (d + w) + f,
				       "DualPipeV, case %zu, %d positions, %d microbatches", i, p, m);
				pd_order_price_release(&found);
				pd_order_free(order);
			}
}

/* The blocks as they were published, and their W's in the slots that are left. */
static void test_blocks(void)
{
	for (int p = 2; p <= 16; p++) {
		int half = p % 2 == 0 ? 3 : 0, min = p % 3 == 0 ? 2 : 0, wrong = 0;
		struct pd_order_block a, b;

		pd_order_block_v_half(p, &a);
		pd_order_block_v_min(p, &b);
		for (int q = 0, z = 2 * p - 1; q < p; q++, z--) {
			const int *f = a.slot, *i = a.slot + 2 * p, *g = b.slot, *j = b.slot + 2 * p;

			wrong += f[q] != 2 * q || f[z] != 3 * p - 2 - q || i[z] != 3 * p + half + 2 * q - 1 ||
				 i[q] != 6 * p + half - 2 - q;
			wrong += g[q] != q || g[z] != 2 * p - 1 - q || j[z] != 2 * p + min + q ||
				 j[q] != 4 * p + min - 1 - q;
		}
		is_int(wrong, 0, "blocks of %d positions", p);
		pd_order_block_release(&a);
		pd_order_block_release(&b);
	}
}

int main(void)
{
	for (size_t i = 0; i < PD_COUNT(kinds); i++) {
		test_worked(&kinds[i]);
		test_certified(&kinds[i]);
	}
	test_known();
	test_blocks();
	test_dualpipe();
	return done_testing();
}
