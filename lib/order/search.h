/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Searches for an order that takes the least time for what passes and transfers take, where each position keeps no
 * more than its cap.  The same request gives the same order on any machine.
 */
#pragma once

#include "order/request.h"

#define PD_ORDERS_FOUND 6

/* The best orders that were found, the best first; no two take as long and keep as much. */
struct pd_order_found {
	int count;
	struct pd_order_one {
		struct pd_order *order;
		struct pd_order_price price;
		char seed[48];          /* what made it */
	} best[PD_ORDERS_FOUND];
};

/*
 * Searches for any placement.  Found is always something where each position has room for all its forwards of one
 * microbatch.  It is never worse than the formulas of made.h for the request's placement that keep within the caps.
 */
struct pd_order_found pd_order_search(const struct pd_order_request *request);
void pd_order_found_release(struct pd_order_found *found);
