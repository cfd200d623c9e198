/* SPDX-License-Identifier: Apache-2.0 */
#include "order/found.h"

#include <stdarg.h>
#include <stdio.h>

static bool better(const struct pd_order_price *price, const struct pd_order_price *than,
		   const struct pd_order_request *request)
{
	int64_t value = pd_order_value(price, request), other = pd_order_value(than, request);

	if (value != other)
		return value < other;
	return price->makespan_ns + price->span_ns < than->makespan_ns + than->span_ns;
}

void pd_order_offer(struct pd_order_found *found, struct pd_order *order, const struct pd_order_request *request,
		    const char *seed, ...)
{
	struct pd_order_price price = pd_order_price(order, request);
	va_list ap;

	if (!pd_order_fits(&price, request) || (found->order && !better(&price, &found->price, request))) {
		pd_order_price_release(&price);
		pd_order_free(order);
		return;
	}
	pd_order_found_release(found);
	found->order = order;
	found->price = price;
	va_start(ap, seed);
	vsnprintf(found->seed, sizeof(found->seed), seed, ap);
	va_end(ap);
}

void pd_order_found_release(struct pd_order_found *found)
{
	pd_order_free(found->order);
	pd_order_price_release(&found->price);
	*found = (struct pd_order_found){ 0 };
}

struct pd_order *pd_order_build_end(struct pd_order_build *build)
{
	struct pd_order *order = build->order;

	build->order = NULL;
	pd_order_build_release(build);
	return order;
}
