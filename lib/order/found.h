/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the search: each offers what it makes, and the best is kept. */
#pragma once

#include "order/build.h"
#include "order/search.h"

/*
 * Takes an order, certified, if it fits and is among the best: those of the least value, of equal ones those of which
 * the other of makespan and span is less, of equal ones the first.  Frees what is not taken.
 */
void pd_order_offer(struct pd_order_found *found, struct pd_order *order, const struct pd_order_request *request,
		    const char *seed, ...) __attribute__((format(printf, 4, 5)));
/* Takes the order out of a build that is complete, and releases the build. */
struct pd_order *pd_order_build_end(struct pd_order_build *build);

/* Search A: one stage a position, in a loop (Qi et al., 2023). */
void pd_order_search_chain(const struct pd_order_request *request, struct pd_order_found *found);
/* Search B: two, in a V (Qi et al., 2024). */
void pd_order_search_v(const struct pd_order_request *request, struct pd_order_found *found);
/* Event by event, for any placement, by several rules. */
void pd_order_search_greedy(const struct pd_order_request *request, struct pd_order_found *found);
/*
 * Moves operations of an order, certified, and offers the best that comes of it; steps: operations of
 * orders that are priced for that; cool: the first temperature is this part of the order's time.  An
 * order with pairs stays.
 */
void pd_order_improve(const struct pd_order_request *request, const struct pd_order *order,
		      int64_t steps, int64_t cool, struct pd_order_found *found);
/*
 * Offers an order, which is freed, and those in which F and I stay as they are and W's fill gaps by the request's
 * costs.
 */
void pd_order_offer_filled(struct pd_order_found *found, struct pd_order *order,
			   const struct pd_order_request *request, const char *seed);
