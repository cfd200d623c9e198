/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moves single operations within the lists of an order (simulated annealing; Kirkpatrick et al., 1983,
 * equation 1).  A move is kept where the order still ends and keeps within its caps and, if it is then
 * slower, as often as a temperature allows that falls to 0.  Numbers are drawn by counting, so that the
 * same order gives the same.
 */
#include "order/found.h"

#include "base/mem.h"
#include "base/rng.h"
#include "order/walk.h"

#include <stdlib.h>

#define FARTHEST 8              /* places by which an operation is moved at once */

struct mover {
	const struct pd_order_request *request;
	struct pd_order *order;
	size_t operations;
	int64_t value;                          /* of order; see value_of() */
	struct pd_order *best;
	int64_t best_value;
	struct pd_random4 drawn;
	uint32_t draws;
};

static uint32_t draw_number(struct mover *mover)
{
	uint32_t n = mover->draws++;

	if (n % 4 == 0)
		mover->drawn = pd_random(0, 0, 0, n / 4);
	return mover->drawn.v[n % 4];
}

/* Returns the time that counts; INT64_MAX: the order cannot be. */
static int64_t value_of(const struct mover *mover)
{
	struct pd_order_run run = pd_order_run_begin(mover->request);
	struct pd_order_walk walk = pd_order_walk_begin(mover->order);
	struct pd_order_price price;
	const struct pd_order_op *op;
	size_t done = 0;
	int64_t value;
	int position;

	while ((op = pd_order_walk_next(&walk, &position))) {
		pd_order_run_op(&run, op);
		done++;
	}
	pd_order_walk_release(&walk);
	price = pd_order_run_end(&run);
	value = pd_order_value(&price, mover->request);
	if (done < mover->operations || !pd_order_fits(&price, mover->request))
		value = INT64_MAX;
	pd_order_price_release(&price);
	return value;
}

/* Tells whether an operation must stay behind another of its list. */
static bool needs_op(const struct pd_order_op *op, const struct pd_order_op *before)
{
	bool down = op->pass == PD_ORDER_F && op->stage > before->stage;
	bool up = op->pass == PD_ORDER_I && op->stage < before->stage;

	if (op->stage == before->stage)
		return op->pass == before->pass ||
		       (op->microbatch == before->microbatch && op->pass > before->pass);
	return op->microbatch == before->microbatch && op->pass == before->pass && (down || up);
}

/* Moves an operation by one place, unless one of the two needs the other. */
static bool swap_op(struct pd_order_list *list, size_t at, int by)
{
	struct pd_order_op *op = &list->ops[at], *other = op + by, swapped = *op;

	if (by < 0 ? at == 0 || needs_op(op, other) : at + 1 == list->count || needs_op(other, op))
		return false;
	*op = *other;
	*other = swapped;
	return true;
}

/* Returns how far it went. */
static int move_op(struct pd_order_list *list, size_t at, int by)
{
	int direction = by < 0 ? -1 : 1, gone = 0;

	while (gone != by && swap_op(list, (size_t)((int64_t)at + gone), direction))
		gone += direction;
	return gone;
}

static void keep_best(struct mover *mover)
{
	if (mover->value >= mover->best_value)
		return;
	pd_order_free(mover->best);
	mover->best = pd_order_copy(mover->order);
	mover->best_value = mover->value;
}

/* Returns a number of exponential distribution, in eighths. */
static int64_t draw_patience(struct mover *mover)
{
	static const uint8_t eighths[] = { 28, 19, 15, 12, 10, 9, 7, 6, 5, 4, 3, 3, 2, 1, 1, 0 };

	return eighths[draw_number(mover) % PD_COUNT(eighths)];
}

static void try_move(struct mover *mover, int64_t temperature)
{
	uint32_t position = draw_number(mover) % (uint32_t)mover->request->positions;
	struct pd_order_list *list = &mover->order->lists[position];
	size_t at = draw_number(mover) % (uint32_t)list->count;
	int far = 1 + (int)(draw_number(mover) % FARTHEST);
	int gone = move_op(list, at, draw_number(mover) % 2 ? far : -far);
	int64_t value;

	if (gone == 0)
		return;
	value = value_of(mover);
	if (value < INT64_MAX && value - mover->value <= temperature * draw_patience(mover) / 8) {
		mover->value = value;
		keep_best(mover);
		return;
	}
	move_op(list, (size_t)((int64_t)at + gone), -gone);
}

/* Returns a copy with I and W for each B; NULL where there are pairs. */
static struct pd_order *split_order(const struct pd_order *order)
{
	struct pd_order *copy = pd_order_new(order->positions, order->stages, order->microbatches,
					     order->position_of);

	for (int q = 0; q < order->positions; q++)
		for (size_t k = 0; k < order->lists[q].count; k++) {
			const struct pd_order_op *op = &order->lists[q].ops[k];
			bool whole = op->pass == PD_ORDER_B;

			if (op->beside) {
				pd_order_free(copy);
				return NULL;
			}
			pd_order_add(copy, whole ? PD_ORDER_I : (enum pd_order_pass)op->pass, op->stage,
				     op->microbatch);
			if (whole)
				pd_order_add(copy, PD_ORDER_W, op->stage, op->microbatch);
		}
	return copy;
}

void pd_order_improve(const struct pd_order_request *request, const struct pd_order *order,
		      int64_t steps, int64_t cool, struct pd_order_found *found)
{
	struct mover mover = {
		.request = request, .order = split_order(order), .best_value = INT64_MAX,
		.operations = (size_t)PD_ORDER_SPLIT * (size_t)request->stages *
			      (size_t)request->microbatches,
	};
	int64_t tries = steps / (int64_t)mover.operations;

	if (!mover.order)
		return;
	mover.value = value_of(&mover);
	keep_best(&mover);
	for (int64_t n = 0; n < tries && mover.best; n++)
		try_move(&mover, mover.best_value / cool * (tries - n) / tries);
	if (mover.best)
		pd_order_offer(found, mover.best, request, "moves");
	pd_order_free(mover.order);
}
