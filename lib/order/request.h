/* SPDX-License-Identifier: Apache-2.0 */
/* What an order is made for, and what it takes there: integers alone, so that it is the same on any machine. */
#pragma once

#include "base/cost.h"
#include "order/order.h"

struct pd_order_stage {
	int64_t f_ns, b_ns, w_ns;       /* F, I and W of a microbatch; B takes b + w */
	int64_t transfer_ns;            /* of a microbatch between it and the next stage, where that is at another
					   position; one way, and its gradient back */
	int64_t f_bytes, b_bytes, w_bytes;      /* by which each changes what its position keeps; f > 0, the
						   others at most 0, the sum 0 */
	int64_t slot_bytes;             /* of f_bytes, what is in slots, which stages of a position may share */
	int64_t again_bytes;            /* what it needs for each I whose W waits, and one more, in a pool: what is
					   computed again for it; these are slots, then */
};

struct pd_order_request {
	int positions, stages, microbatches;
	const int *position_of;                 /* per stage */
	const struct pd_order_stage *stage;     /* per stage */
	const int64_t *cap_bytes;               /* per position: what it may keep; NULL: as much as it likes */
	const int64_t *pool_bytes;              /* per position: what its stages may take of memory for the most that
						   they ever keep (pd_order_price); NULL: as cap_bytes */
	bool agrees;                            /* all positions agree on updates: the makespan counts, else
						   the longest span */
	int64_t pair_parts;                     /* pd_pair_ns(); 0: pairs take as long as the two one after the
						   other */
};

struct pd_order_price {
	int64_t makespan_ns;            /* from the first beginning to the last end */
	int64_t span_ns;                /* the most from a position's first beginning to its last end */
	int64_t *peak_bytes;            /* per position: the most that it keeps at once */
	int64_t *pool_bytes;            /* per position: room for the most that each of its stages keeps; or, of slots, for
					   the most that all keep at once, each as large as the largest, where that is less */
	struct pd_order_times ends;
};

/*
 * Returns what an order takes in which each position computes its list as early as it can, from a walk over its
 * operations.  The order has been certified, and is of the request's stages.  A pair begins when both can, and
 * both end with it.
 */
struct pd_order_price pd_order_price(const struct pd_order *order, const struct pd_order_request *request);
void pd_order_price_release(struct pd_order_price *price);
/* Tells whether every position keeps at most its cap, and its stages at most their pool. */
bool pd_order_fits(const struct pd_order_price *price, const struct pd_order_request *request);
/* Returns the time that counts: see struct pd_order_request.agrees. */
static inline int64_t pd_order_value(const struct pd_order_price *price, const struct pd_order_request *request)
{
	return request->agrees ? price->makespan_ns : price->span_ns;
}
