/* SPDX-License-Identifier: Apache-2.0 */
#include "order/request.h"

#include "base/mem.h"
#include "order/walk.h"

#include <stdlib.h>

struct pricing {
	const struct pd_order_request *request;
	struct pd_order_price price;
	struct clock {
		int64_t first_ns, end_ns, bytes;
		bool begun;
	} *clocks;                      /* per position */
};

/* Returns when what stage `from` has made at `end_ns` is at another stage. */
static int64_t arrival(const struct pd_order_request *request, int from, int to, int64_t end_ns)
{
	return end_ns + (request->position_of[from] == request->position_of[to] ? 0 : request->transfer_ns);
}

/* Returns when the inputs of an operation are there; INT64_MIN: they are its own position's. */
static int64_t inputs(const struct pricing *p, const struct pd_order_op *op)
{
	const struct pd_order_times *ends = &p->price.ends;
	int s = op->stage, i = op->microbatch;

	if (op->pass == PD_ORDER_F && s > 0)
		return arrival(p->request, s - 1, s, *pd_order_time(ends, PD_ORDER_F, s - 1, i));
	if ((op->pass == PD_ORDER_I || op->pass == PD_ORDER_B) && s + 1 < ends->stages)
		return arrival(p->request, s + 1, s, *pd_order_time(ends, PD_ORDER_I, s + 1, i));
	return INT64_MIN;
}

static int64_t cost(const struct pd_order_stage *stage, enum pd_order_pass pass)
{
	switch (pass) {
	case PD_ORDER_F:
		return stage->f_ns;
	case PD_ORDER_I:
		return stage->b_ns;
	case PD_ORDER_W:
		return stage->w_ns;
	default:
		return stage->b_ns + stage->w_ns;
	}
}

static void keep(struct pricing *p, int position, int64_t bytes)
{
	struct clock *clock = &p->clocks[position];

	clock->bytes += bytes;
	if (clock->bytes > p->price.peak_bytes[position])
		p->price.peak_bytes[position] = clock->bytes;
}

static void finish(struct pricing *p, int position, const struct pd_order_op *op)
{
	const struct pd_order_stage *stage = &p->request->stage[op->stage];
	struct pd_order_times *ends = &p->price.ends;
	int64_t end_ns = p->clocks[position].end_ns;

	switch (op->pass) {
	case PD_ORDER_F:
		keep(p, position, stage->f_bytes);
		*pd_order_time(ends, PD_ORDER_F, op->stage, op->microbatch) = end_ns;
		return;
	case PD_ORDER_I:
	case PD_ORDER_B:
		keep(p, position, stage->b_bytes);
		*pd_order_time(ends, PD_ORDER_I, op->stage, op->microbatch) = end_ns;
		if (op->pass == PD_ORDER_I)
			return;
	}
	keep(p, position, stage->w_bytes);
	*pd_order_time(ends, PD_ORDER_W, op->stage, op->microbatch) = end_ns;
}

static void run(struct pricing *p, int position, const struct pd_order_op *op)
{
	const struct pd_order_request *request = p->request;
	struct clock *clock = &p->clocks[position];
	int64_t begin_ns = clock->end_ns, needed_ns = 0;

	for (int half = 0; half <= op->beside; half++) {
		int64_t arrival_ns = inputs(p, op + half);

		begin_ns = arrival_ns > begin_ns ? arrival_ns : begin_ns;
		needed_ns += cost(&request->stage[op[half].stage], op[half].pass);
	}
	if (op->beside && request->alone_ns > 0)
		needed_ns = needed_ns * request->pair_ns / request->alone_ns;
	if (!clock->begun)
		clock->first_ns = begin_ns;
	clock->begun = true;
	clock->end_ns = begin_ns + needed_ns;
	for (int half = 0; half <= op->beside; half++)
		finish(p, position, op + half);
}

struct pd_order_price pd_order_price(const struct pd_order *order, const struct pd_order_request *request)
{
	struct pricing p = {
		.request = request,
		.price = {
			.peak_bytes = pd_calloc((size_t)order->positions, sizeof(int64_t)),
			.ends = pd_order_times_new(order),
		},
		.clocks = pd_calloc((size_t)order->positions, sizeof(*p.clocks)),
	};
	struct pd_order_walk walk = pd_order_walk_begin(order);
	const struct pd_order_op *op;
	int position;

	while ((op = pd_order_walk_next(&walk, &position)))
		run(&p, position, op);
	pd_order_walk_release(&walk);
	for (int q = 0; q < order->positions; q++) {
		const struct clock *clock = &p.clocks[q];

		if (clock->end_ns > p.price.makespan_ns)
			p.price.makespan_ns = clock->end_ns;
		if (clock->end_ns - clock->first_ns > p.price.span_ns)
			p.price.span_ns = clock->end_ns - clock->first_ns;
	}
	free(p.clocks);
	return p.price;
}

void pd_order_price_release(struct pd_order_price *price)
{
	free(price->peak_bytes);
	pd_order_times_release(&price->ends);
	*price = (struct pd_order_price){ 0 };
}

bool pd_order_fits(const struct pd_order_price *price, const struct pd_order_request *request)
{
	for (int q = 0; q < request->positions && request->cap_bytes; q++)
		if (price->peak_bytes[q] > request->cap_bytes[q])
			return false;
	return true;
}
