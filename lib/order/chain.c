/* SPDX-License-Identifier: Apache-2.0 */
/* Orders of stages in a loop. */
#include "order/made.h"

static int at_most(int n, int most)
{
	return n < most ? n : most;
}

struct pd_order *pd_order_1f1b(int positions, int microbatches)
{
	struct pd_order *order = pd_order_new_placed(positions, positions, microbatches, pd_order_loop);

	for (int q = 0; q < positions; q++) {
		int warmup = at_most(positions - 1 - q, microbatches);

		for (int i = 0; i < microbatches + warmup; i++) {
			if (i < microbatches)
				pd_order_add(order, PD_ORDER_F, q, i);
			if (i >= warmup)
				pd_order_add(order, PD_ORDER_B, q, i - warmup);
		}
	}
	return order;
}

/* As 1F1B; position q does W of a microbatch behind I of the one that comes q later. */
struct pd_order *pd_order_zb_h1(int positions, int microbatches)
{
	struct pd_order *order = pd_order_new_placed(positions, positions, microbatches, pd_order_loop);

	for (int q = 0; q < positions; q++) {
		int warmup = at_most(positions - 1 - q, microbatches);

		for (int i = 0; i < microbatches + warmup + q; i++) {
			int backward = i - warmup, weight = backward - q;

			if (i < microbatches)
				pd_order_add(order, PD_ORDER_F, q, i);
			if (backward >= 0 && backward < microbatches)
				pd_order_add(order, PD_ORDER_I, q, backward);
			if (weight >= 0 && weight < microbatches)
				pd_order_add(order, PD_ORDER_W, q, weight);
		}
	}
	return order;
}

/* Adds the k-th pass of a position. */
static void add_of_table(struct pd_order *order, enum pd_order_pass pass, int q, int group, int k)
{
	int p = order->positions, v = order->stages / p;
	int round = k / (group * v), chunk = k / group % v;

	if (pass == PD_ORDER_B)
		chunk = v - 1 - chunk;
	pd_order_add(order, pass, chunk * p + q, round * group + k % group);
}

struct pd_order *pd_order_interleaved(int positions, int chunks, int microbatches, int group)
{
	int whole = (microbatches + group - 1) / group * group, passes = whole * chunks;
	struct pd_order *order = pd_order_new_placed(positions, positions * chunks, whole, pd_order_loop);

	for (int q = 0; q < positions; q++) {
		int warmup = at_most(2 * (positions - 1 - q) + (chunks - 1) * group, passes);

		for (int k = 0; k < passes + warmup; k++) {
			if (k < passes)
				add_of_table(order, PD_ORDER_F, q, group, k);
			if (k >= warmup)
				add_of_table(order, PD_ORDER_B, q, group, k - warmup);
		}
	}
	pd_order_drop(order, microbatches);
	return order;
}
