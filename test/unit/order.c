/* SPDX-License-Identifier: Apache-2.0 */
/* Orders: their texts, what refuses and what proves them, what they take. */
#include "order/request.h"

#include "base/mem.h"
#include "tap.h"

#include <stdlib.h>
#include <string.h>

/* Makes an order of texts, one for each position. */
static struct pd_order *order_of(int positions, int chunks, int microbatches, pd_order_placement *place,
				 const char *const *texts)
{
	struct pd_order *order = pd_order_new_placed(positions, positions * chunks, microbatches, place);
	struct pd_error err;

	for (int q = 0; q < positions; q++)
		if (pd_order_read(order, q, texts[q], &err) < 0)
			diag("%s", err.text);
	return order;
}

static void test_text(void)
{
	static const char text[] = "0F0,3F0,(0F1;3B0)OVERLAP_F_B,3F1,3I1,3W1,0B0,0I1,0W1";
	static const struct {
		const char *text, *message;
	} refused[] = {
		{ "0F0,", "expected an operation behind the last comma" },
		{ "0F0;3F0", "expected a comma between operations, found \";3F0\"" },
		{ "4F0", "expected an operation such as 2F0 (stage 0 to 3; F, I, W or B; microbatch 0 to 1), found "
			 "\"4F0\"" },
		{ "0F2", "expected an operation such as 2F0 (stage 0 to 3; F, I, W or B; microbatch 0 to 1), found "
			 "\"0F2\"" },
		{ "0X0", "expected an operation such as 2F0 (stage 0 to 3; F, I, W or B; microbatch 0 to 1), found "
			 "\"0X0\"" },
		{ "1F0", "stage 1 is at position 1, not here: found \"1F0\"" },
		{ "(0F0,3B0)OVERLAP_F_B", "expected a pair such as (0F7;7B3)OVERLAP_F_B, found "
					  "\"(0F0,3B0)OVERLAP_F_B\"" },
		{ "(0F0;3B0)", "expected a pair such as (0F7;7B3)OVERLAP_F_B, found \"(0F0;3B0)\"" },
		{ "(0F0)OVERLAP_F_B", "expected a pair such as (0F7;7B3)OVERLAP_F_B, found \"(0F0)OVERLAP_F_B\"" },
		{ "(3B0;0F0)OVERLAP_F_B", "expected a pair such as (0F7;7B3)OVERLAP_F_B, found "
					  "\"(3B0;0F0)OVERLAP_F_B\"" },
		{ "(0F0;3W0)OVERLAP_F_B", "expected a pair such as (0F7;7B3)OVERLAP_F_B, found "
					  "\"(0F0;3W0)OVERLAP_F_B\"" },
	};
	struct pd_order *order = pd_order_new_placed(2, 4, 2, pd_order_v);
	struct pd_error err;
	char *again;

	ok(pd_order_read(order, 0, text, &err) == 0, "a list is read");
	again = pd_order_text(order, 0);
	is_str(again, text, "and written");
	free(again);
	pd_order_drop(order, 1);
	again = pd_order_text(order, 0);
	is_str(again, "0F0,3F0,3B0,0B0", "without its second microbatch");
	free(again);
	pd_order_free(order);
	order = pd_order_new_placed(2, 4, 2, pd_order_v);
	for (size_t i = 0; i < PD_COUNT(refused); i++) {
		ok(pd_order_read(order, 0, refused[i].text, &err) < 0, "\"%s\" is refused", refused[i].text);
		is_str(err.text, refused[i].message, "and said to be");
	}
	pd_order_free(order);
}

static void test_refused(void)
{
	static const struct {
		const char *texts[2], *message;
	} cases[] = {
		{ { "0F0,0F1,0B0,0B1", "1F0,1F1,1I0,1W0,1B1" }, NULL },
		{ { "0F0,0F1,0B0,0B1", "1F0,1F1,1I0,1B1" }, "position 1: 1B1: expected W of stage 1 in the order of "
							      "microbatches, 0 first" },
		{ { "0F0,0F1,0B0", "1F0,1F1,1B0,1B1" }, "position 0: 0I1 is missing; expected it of microbatches 0 "
							 "to 1" },
		{ { "0F0,0F1,0F0,0B0,0B1", "1F0,1F1,1B0,1B1" }, "position 0: 0F0: stage 0 has F of microbatch 0 a "
								 "second time" },
		{ { "0F0,0F0,0F1,0B0,0B1", "1F0,1F1,1B0,1B1" }, "position 0: 0F0: stage 0 has F of microbatch 0 a "
								 "second time" },
		{ { "0F0,0B0,0F1,0B1", "1F0,1F1,1B0,1B1" }, "the order deadlocks; there wait position 0 with 0B0 for "
							     "1I0, position 1 with 1F1 for 0F1" },
		{ { "0F0,0F1,0B0,0B1", "1F0,1W0,1I0,1F1,1B1" }, "the order deadlocks; there wait position 0 with 0B0 "
								 "for 1I0, position 1 with 1W0 for 1I0" },
		{ { "0F0,0F1,0B0,0B1", "1F0,(1F1;1B1)OVERLAP_F_B,1B0" }, "position 1: 1B1: expected I of stage 1 in "
									 "the order of microbatches, 0 first" },
		{ { "(0F0;0B0)OVERLAP_F_B,0F1,0B1", "1F0,1F1,1B0,1B1" },
		  "the order deadlocks; there wait position 0 with 0F0 for 0F0, position 1 with 1F0 for 0F0" },
	};

	for (size_t i = 0; i < PD_COUNT(cases); i++) {
		struct pd_order *order = order_of(2, 1, 2, pd_order_loop, cases[i].texts);
		struct pd_error err = { 0 };

		is_int(pd_order_certify(order, NULL, &err), cases[i].message ? -1 : 0, "case %zu", i);
		is_str(err.text, cases[i].message ? cases[i].message : "", "its sentence");
		pd_order_free(order);
	}
}

/* By hand: 1F1B on two positions with two microbatches. */
static void test_price(void)
{
	static const char *const texts[] = { "0F0,0F1,0B0,0B1", "1F0,1I0,1W0,1F1,1B1" };
	static const int position_of[] = { 0, 1 };
	static const struct pd_order_stage stages[] = {
		{ .f_ns = 10, .b_ns = 20, .w_ns = 5, .transfer_ns = 1, .f_bytes = 100, .b_bytes = -40, .w_bytes = -60 },
		{ .f_ns = 12, .b_ns = 8, .w_ns = 4, .f_bytes = 10, .b_bytes = -4, .w_bytes = -6 },
	};
	static const int64_t caps[][2] = { { 200, 10 }, { 200, 9 }, { 199, 10 } };
	struct pd_order_request request = { .positions = 2, .stages = 2, .microbatches = 2,
					    .position_of = position_of, .stage = stages };
	struct pd_order *order = order_of(2, 1, 2, pd_order_loop, texts);
	struct pd_order_price price = pd_order_price(order, &request);
	struct pd_order_times slots;

	is_int(price.makespan_ns, 85, "the makespan");
	is_int(price.span_ns, 85, "the longest span");
	is_int(price.peak_bytes[0], 200, "position 0 keeps two microbatches");
	is_int(price.peak_bytes[1], 10, "position 1 one");
	is_int(*pd_order_time(&price.ends, PD_ORDER_I, 1, 0), 31, "I of the last stage ends");
	is_int(*pd_order_time(&price.ends, PD_ORDER_W, 0, 1), 85, "the last B ends");
	for (size_t i = 0; i < PD_COUNT(caps); i++) {
		request.cap_bytes = caps[i];
		ok(pd_order_fits(&price, &request) == (i == 0), "caps of %d and %d bytes", (int)caps[i][0],
		   (int)caps[i][1]);
	}
	pd_order_price_release(&price);
	ok(pd_order_certify(order, &slots, NULL) == 0, "it is certified");
	is_int(*pd_order_time(&slots, PD_ORDER_F, 1, 0), 1, "the slot of a forward");
	is_int(*pd_order_time(&slots, PD_ORDER_I, 0, 0), 3, "of a B");
	is_int(*pd_order_time(&slots, PD_ORDER_I, 0, 1), 6, "of the last");
	pd_order_times_release(&slots);
	pd_order_free(order);
}

int main(void)
{
	test_text();
	test_refused();
	test_price();
	return done_testing();
}
