/* SPDX-License-Identifier: Apache-2.0 */
/* An order's W's, decided anew by what passes take. */
#include "order/found.h"
#include "order/walk.h"

#include <stdio.h>

/* Returns the order without W's; I's stand for B's. */
static struct pd_order *without_weights(const struct pd_order *order)
{
	struct pd_order *bare = pd_order_new(order->positions, order->stages, order->microbatches,
					     order->position_of);

	for (int q = 0; q < order->positions; q++)
		for (size_t k = 0; k < order->lists[q].count; k++) {
			const struct pd_order_op *op = &order->lists[q].ops[k];

			if (op->pass != PD_ORDER_W)
				pd_order_add(bare, op->pass == PD_ORDER_F ? PD_ORDER_F : PD_ORDER_I, op->stage,
					     op->microbatch);
		}
	return bare;
}

/* When W's are done. */
enum filling { GAPS, GREEDY, AT_ONCE, FILLINGS };

static bool put(struct pd_order_build *build, const struct pd_order_op *op, int position, enum filling filling)
{
	enum pd_order_pass pass = (enum pd_order_pass)op->pass;

	if (pass == PD_ORDER_F &&
	    !pd_order_make_room(build, position, build->request->stage[op->stage].f_bytes))
		return false;
	pd_order_fill(build, position, pd_order_arrival(build, pass, op->stage),
		      pd_order_most_idle(build) - pd_order_seat(build, position)->idle_ns, filling == GREEDY);
	if (!pd_order_put(build, pass, op->stage))
		return false;
	if (filling == AT_ONCE && pass == PD_ORDER_I)
		pd_order_put_weight(build, position);
	return true;
}

/* Returns the order with other W's, or NULL if there is no room for its forwards. */
static struct pd_order *refill(const struct pd_order *bare, const struct pd_order_request *request,
			       enum filling filling)
{
	struct pd_order_build build = pd_order_build_begin(request);
	struct pd_order_walk walk = pd_order_walk_begin(bare);
	const struct pd_order_op *op;
	bool all = true;
	int position;

	while (all && (op = pd_order_walk_next(&walk, &position)))
		all = put(&build, op, position, filling);
	pd_order_walk_release(&walk);
	if (all) {
		pd_order_put_weights(&build);
		return pd_order_build_end(&build);
	}
	pd_order_build_release(&build);
	return NULL;
}

void pd_order_offer_filled(struct pd_order_found *found, struct pd_order *order,
			   const struct pd_order_request *request, const char *seed)
{
	struct pd_order *bare = without_weights(order);

	pd_order_offer(found, order, request, "%s", seed);
	for (int filling = 0; filling < FILLINGS; filling++) {
		struct pd_order *filled = refill(bare, request, (enum filling)filling);

		if (filled)
			pd_order_offer(found, filled, request, "%s, W's moved", seed);
	}
	pd_order_free(bare);
}
