/* SPDX-License-Identifier: Apache-2.0 */
#include "order/walk.h"

#include "base/mem.h"

#include <stdlib.h>

static void wake(struct pd_order_walk *walk, int stage)
{
	int position;

	if (stage < 0 || stage >= walk->order->stages)
		return;
	position = walk->order->position_of[stage];
	if (!walk->waits[position]) {
		walk->waits[position] = true;
		walk->waiting[walk->waiting_count++] = position;
	}
}

struct pd_order_walk pd_order_walk_begin(const struct pd_order *order)
{
	size_t positions = (size_t)order->positions;
	struct pd_order_walk walk = {
		.order = order,
		.next = pd_calloc(positions, sizeof(*walk.next)),
		.done = pd_calloc((size_t)PD_ORDER_SPLIT * (size_t)order->stages, sizeof(*walk.done)),
		.waiting = pd_calloc(positions, sizeof(*walk.waiting)),
		.waits = pd_calloc(positions, sizeof(*walk.waits)),
	};

	for (int s = order->stages - 1; s >= 0; s--)
		wake(&walk, s);
	return walk;
}

void pd_order_walk_release(struct pd_order_walk *walk)
{
	free(walk->next);
	free(walk->done);
	free(walk->waiting);
	free(walk->waits);
	*walk = (struct pd_order_walk){ 0 };
}

static int *done(const struct pd_order_walk *walk, enum pd_order_pass pass, int stage)
{
	return &walk->done[(int)pass * walk->order->stages + stage];
}

bool pd_order_walk_ready(const struct pd_order_walk *walk, const struct pd_order_op *op)
{
	int s = op->stage, i = op->microbatch;

	if (op->pass == PD_ORDER_F)
		return s == 0 || *done(walk, PD_ORDER_F, s - 1) > i;
	if (op->pass == PD_ORDER_W)
		return *done(walk, PD_ORDER_I, s) > i;
	return *done(walk, PD_ORDER_F, s) > i &&
	       (s == walk->order->stages - 1 || *done(walk, PD_ORDER_I, s + 1) > i);
}

static void take_operation(struct pd_order_walk *walk, const struct pd_order_op *op)
{
	if (op->pass == PD_ORDER_B)
		++*done(walk, PD_ORDER_W, op->stage);
	++*done(walk, op->pass == PD_ORDER_B ? PD_ORDER_I : (enum pd_order_pass)op->pass, op->stage);
	if (op->pass == PD_ORDER_F)
		wake(walk, op->stage + 1);
	else if (op->pass != PD_ORDER_W)
		wake(walk, op->stage - 1);
}

const struct pd_order_op *pd_order_walk_next(struct pd_order_walk *walk, int *position_p)
{
	while (walk->waiting_count > 0) {
		int position = walk->waiting[walk->waiting_count - 1];
		const struct pd_order_list *list = &walk->order->lists[position];
		const struct pd_order_op *op = walk->next[position] < list->count
			? &list->ops[walk->next[position]] : NULL;

		if (op && pd_order_walk_ready(walk, op) && (!op->beside || pd_order_walk_ready(walk, op + 1))) {
			for (int half = 0; half <= op->beside; half++, walk->next[position]++)
				take_operation(walk, op + half);
			*position_p = position;
			return op;
		}
		walk->waits[position] = false;
		walk->waiting_count--;
	}
	return NULL;
}
