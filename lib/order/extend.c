/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An order for many microbatches by one for few.  Where a pipeline is full, each position does the same for one
 * microbatch, or for a few, as for those before: one such round from the middle of its list is repeated.
 */
#include "order/made.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define LONGEST_ROUND 8         /* microbatches of a round */

/* Returns where a list has the F of a stage and microbatch, or its end. */
static size_t find_forward(const struct pd_order_list *list, int stage, int microbatch)
{
	size_t k = 0;

	while (k < list->count && !(list->ops[k].pass == PD_ORDER_F && list->ops[k].stage == stage &&
				    list->ops[k].microbatch == microbatch))
		k++;
	return k;
}

/* Tells whether a piece of a list has as many passes of each kind and stage as it has microbatches. */
static bool is_round(const struct pd_order *order, const struct pd_order_list *list, size_t begin,
		     size_t end, int round)
{
	int *count = pd_calloc((size_t)order->stages * PD_ORDER_PASSES, sizeof(*count));
	bool whole = true;

	for (size_t k = begin; k < end; k++)
		count[list->ops[k].stage * PD_ORDER_PASSES + list->ops[k].pass]++;
	for (size_t k = 0; k < list->count; k++)
		whole &= count[list->ops[k].stage * PD_ORDER_PASSES + list->ops[k].pass] == round;
	free(count);
	return whole;
}

static void append(struct pd_order_list *list, struct pd_order_op op, int more)
{
	op.microbatch += more;
	list->ops = pd_grow(list->ops, &list->capacity, list->count + 1, sizeof(*list->ops));
	list->ops[list->count++] = op;
}

/* Returns the order with a round from microbatch `from` on so many times more; NULL where a position has none. */
static struct pd_order *repeat_round(const struct pd_order *order, int from, int round, int times)
{
	struct pd_order *longer = pd_order_new(order->positions, order->stages,
					       order->microbatches + round * times,
					       order->position_of);
	bool rounds = true;

	longer->splits = order->splits;
	for (int q = 0; q < order->positions && rounds; q++) {
		const struct pd_order_list *list = &order->lists[q];
		int stage = list->count > 0 ? list->ops[0].stage : 0;
		size_t begin = find_forward(list, stage, from), end = find_forward(list, stage, from + round);

		rounds = end < list->count && begin < end && is_round(order, list, begin, end, round);
		for (size_t k = 0; k < end && rounds; k++)
			append(&longer->lists[q], list->ops[k], 0);
		for (int i = 1; i <= times && rounds; i++)
			for (size_t k = begin; k < end; k++)
				append(&longer->lists[q], list->ops[k], i * round);
		for (size_t k = end; k < list->count && rounds; k++)
			append(&longer->lists[q], list->ops[k], times * round);
	}
	if (rounds)
		return longer;
	pd_order_free(longer);
	return NULL;
}

struct pd_order *pd_order_extend(const struct pd_order *order, int microbatches)
{
	struct pd_error ignored;

	for (int round = 1; round <= LONGEST_ROUND && microbatches > order->microbatches; round++)
		for (int back = 0; back <= order->positions; back++) {
			int from = order->microbatches / 2 - back;
			int times = (microbatches - order->microbatches + round - 1) / round;
			struct pd_order *longer = from < 0 ? NULL : repeat_round(order, from, round, times);

			if (longer)
				pd_order_drop(longer, microbatches);
			if (longer && pd_order_certify(longer, NULL, &ignored) == 0)
				return longer;
			pd_order_free(longer);
		}
	return microbatches == order->microbatches ? pd_order_copy(order) : NULL;
}
