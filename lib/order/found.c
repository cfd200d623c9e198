/* SPDX-License-Identifier: Apache-2.0 */
#include "order/found.h"

#include "base/sort.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* Returns a number below 0 if an order is better than another. */
static int compare(const struct pd_order_price *a, const struct pd_order_price *b,
		   const struct pd_order_request *request)
{
	PD_ORDER(pd_order_value(a, request), pd_order_value(b, request));
	PD_ORDER(a->makespan_ns + a->span_ns, b->makespan_ns + b->span_ns);
	return 0;
}

static bool keeps_as_much(const struct pd_order_price *a, const struct pd_order_price *b,
			  const struct pd_order_request *request)
{
	for (int q = 0; q < request->positions; q++)
		if (a->peak_bytes[q] != b->peak_bytes[q] || a->pool_bytes[q] != b->pool_bytes[q])
			return false;
	return true;
}

static void release(struct pd_order_one *one)
{
	pd_order_free(one->order);
	pd_order_price_release(&one->price);
	*one = (struct pd_order_one){ 0 };
}

/* Returns the place of an order among the best, or -1. */
static int place_of(const struct pd_order_found *found, const struct pd_order_price *price,
		    const struct pd_order_request *request)
{
	int place = 0;

	for (; place < found->count; place++) {
		int order = compare(price, &found->best[place].price, request);

		if (order < 0)
			break;
		if (order == 0 && keeps_as_much(price, &found->best[place].price, request))
			return -1;
	}
	return place < PD_ORDERS_FOUND ? place : -1;
}

void pd_order_offer(struct pd_order_found *found, struct pd_order *order, const struct pd_order_request *request,
		    const char *seed, ...)
{
	struct pd_order_one one = { .order = order, .price = pd_order_price(order, request) };
	int place = pd_order_fits(&one.price, request) ? place_of(found, &one.price, request) : -1;
	va_list ap;

	if (place < 0) {
		release(&one);
		return;
	}
	va_start(ap, seed);
	vsnprintf(one.seed, sizeof(one.seed), seed, ap);
	va_end(ap);
	if (found->count == PD_ORDERS_FOUND)
		release(&found->best[--found->count]);
	for (int i = found->count++; i > place; i--)
		found->best[i] = found->best[i - 1];
	found->best[place] = one;
}

void pd_order_found_release(struct pd_order_found *found)
{
	for (int i = 0; i < found->count; i++)
		release(&found->best[i]);
	found->count = 0;
}

struct pd_order *pd_order_build_end(struct pd_order_build *build)
{
	struct pd_order *order = build->order;

	build->order = NULL;
	pd_order_build_release(build);
	return order;
}
