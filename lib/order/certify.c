/* SPDX-License-Identifier: Apache-2.0 */
#include "order/order.h"

#include "base/mem.h"
#include "order/walk.h"

#include <inttypes.h>
#include <stdlib.h>

#define OP_TEXT 32

static const char *show(const struct pd_order_op *op, char text[OP_TEXT])
{
	snprintf(text, OP_TEXT, "%d%c%d", op->stage, PD_ORDER_LETTERS[op->pass], op->microbatch);
	return text;
}

/* Counts an operation; refuses it if it is not the next of its stage. */
static int count(const struct pd_order *order, int position, const struct pd_order_op *op, int *next,
		 struct pd_error *err)
{
	int first = op->pass == PD_ORDER_B ? PD_ORDER_I : op->pass;
	int last = op->pass == PD_ORDER_B ? PD_ORDER_W : op->pass;
	char text[OP_TEXT];

	for (int pass = first; pass <= last; pass++) {
		int *due = &next[pass * order->stages + op->stage];

		if (op->microbatch < *due)
			return pd_error_no(err, "position %d: %s: stage %d has %c of microbatch %d a second time",
					   position, show(op, text), op->stage, PD_ORDER_LETTERS[pass],
					   op->microbatch);
		if (op->microbatch > *due)
			return pd_error_no(err, "position %d: %s: expected %c of stage %d in the order of "
					   "microbatches, %d first", position, show(op, text),
					   PD_ORDER_LETTERS[pass], op->stage, *due);
		++*due;
	}
	return 0;
}

/* Refuses an order unless each pass is there once, ascending in each stage. */
static int check_complete(const struct pd_order *order, struct pd_error *err)
{
	int *next = pd_calloc((size_t)PD_ORDER_SPLIT * (size_t)order->stages, sizeof(*next)), result = 0;

	for (int q = 0; q < order->positions && result == 0; q++)
		for (size_t k = 0; k < order->lists[q].count && result == 0; k++)
			result = count(order, q, &order->lists[q].ops[k], next, err);
	for (int n = 0; n < PD_ORDER_SPLIT * order->stages && result == 0; n++)
		if (next[n] < order->microbatches)
			result = pd_error_no(err, "position %d: %d%c%d is missing; expected it of microbatches 0 to %d",
					     order->position_of[n % order->stages], n % order->stages,
					     PD_ORDER_LETTERS[n / order->stages], next[n],
					     order->microbatches - 1);
	free(next);
	return result;
}

/* Names the operation that an operation waits for. */
static const char *awaited(const struct pd_order_walk *walk, const struct pd_order_op *op, char text[OP_TEXT])
{
	struct pd_order_op needed = { .stage = op->stage, .microbatch = op->microbatch };

	if (op->beside && pd_order_walk_ready(walk, op))
		return awaited(walk, op + 1, text);
	if (op->pass == PD_ORDER_F) {
		needed.stage--;
	} else if (op->pass == PD_ORDER_W) {
		needed.pass = PD_ORDER_I;
	} else if (walk->done[PD_ORDER_F * walk->order->stages + op->stage] > op->microbatch) {
		needed.pass = PD_ORDER_I;
		needed.stage++;
	}
	return show(&needed, text);
}

/* Says for what the positions wait. */
static int stuck(const struct pd_order_walk *walk, struct pd_error *err)
{
	char *text, a[OP_TEXT], b[OP_TEXT];
	const char *comma = "";
	size_t size;
	FILE *out = pd_mem_stream(&text, &size);

	for (int q = 0; q < walk->order->positions; q++) {
		const struct pd_order_list *list = &walk->order->lists[q];

		if (walk->next[q] == list->count)
			continue;
		fprintf(out, "%s position %d with %s for %s", comma, q, show(&list->ops[walk->next[q]], a),
			awaited(walk, &list->ops[walk->next[q]], b));
		comma = ",";
	}
	pd_mem_stream_close(out);
	pd_error_no(err, "the order deadlocks; there wait%s", text);
	free(text);
	return -1;
}

struct numbering {
	struct pd_order_times slots;
	int64_t *before;                /* per position: the slot of the operation before, or -1 */
};

/* Returns the slot of what an operation needs from another stage, or -1. */
static int64_t slot_of_input(const struct numbering *n, const struct pd_order_op *op)
{
	if (op->pass == PD_ORDER_F && op->stage > 0)
		return *pd_order_time(&n->slots, PD_ORDER_F, op->stage - 1, op->microbatch);
	if ((op->pass == PD_ORDER_I || op->pass == PD_ORDER_B) && op->stage + 1 < n->slots.stages)
		return *pd_order_time(&n->slots, PD_ORDER_I, op->stage + 1, op->microbatch);
	return -1;
}

/* Numbers an operation, or a pair, which has one slot. */
static void number(struct numbering *n, int position, const struct pd_order_op *op)
{
	int64_t slot = n->before[position];

	for (int half = 0; half <= op->beside; half++) {
		int64_t input = slot_of_input(n, op + half);

		slot = input > slot ? input : slot;
	}
	n->before[position] = ++slot;
	for (const struct pd_order_op *end = op + 1 + op->beside; op < end; op++) {
		bool whole = op->pass == PD_ORDER_B;
		enum pd_order_pass pass = whole ? PD_ORDER_I : (enum pd_order_pass)op->pass;

		*pd_order_time(&n->slots, pass, op->stage, op->microbatch) = slot;
		if (whole)
			*pd_order_time(&n->slots, PD_ORDER_W, op->stage, op->microbatch) = slot;
	}
}

int pd_order_certify(const struct pd_order *order, struct pd_order_times *slots, struct pd_error *err)
{
	struct numbering n = { 0 };
	struct pd_order_walk walk;
	const struct pd_order_op *op;
	int position, result = 0;

	if (check_complete(order, err) < 0)
		return -1;
	n.slots = pd_order_times_new(order->stages, order->microbatches);
	n.before = pd_calloc((size_t)order->positions, sizeof(*n.before));
	for (int q = 0; q < order->positions; q++)
		n.before[q] = -1;
	walk = pd_order_walk_begin(order);
	while ((op = pd_order_walk_next(&walk, &position)))
		number(&n, position, op);
	for (int q = 0; q < order->positions && result == 0; q++)
		if (walk.next[q] < order->lists[q].count)
			result = stuck(&walk, err);
	pd_order_walk_release(&walk);
	free(n.before);
	if (result == 0 && slots)
		*slots = n.slots;
	else
		pd_order_times_release(&n.slots);
	return result;
}
