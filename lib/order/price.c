/* SPDX-License-Identifier: Apache-2.0 */
#include "order/request.h"

#include "base/mem.h"
#include "base/minmax.h"
#include "order/run.h"
#include "order/walk.h"

#include <stdlib.h>

int64_t pd_order_cost(const struct pd_order_stage *stage, enum pd_order_pass pass)
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

int64_t pd_order_run_arrival(const struct pd_order_run *run, const struct pd_order_op *op)
{
	const struct pd_order_request *request = run->request;
	enum pd_order_pass pass = op->pass == PD_ORDER_F ? PD_ORDER_F : PD_ORDER_I;
	int to = op->stage, from = to + (pass == PD_ORDER_F ? -1 : 1);

	if (op->pass == PD_ORDER_W || from < 0 || from == request->stages)
		return 0;
	return *pd_order_time(&run->ends, pass, from, op->microbatch) +
	       (request->position_of[from] == request->position_of[to]
		? 0 : request->stage[from < to ? from : to].transfer_ns);
}

static void keep(struct pd_order_seat *seat, int64_t bytes)
{
	seat->bytes += bytes;
	if (seat->bytes > seat->peak_bytes)
		seat->peak_bytes = seat->bytes;
}

static void use_slots(struct pd_order_seat *seat, int by)
{
	seat->slots += by;
	if (seat->slots > seat->most_slots)
		seat->most_slots = seat->slots;
}

/* Counts an F or I that begins.  Where it is computed again, F only works in the slot that I will have. */
static void enter(struct pd_order_run *run, struct pd_order_seat *seat, const struct pd_order_op *op)
{
	struct pd_order_pool *pool = &run->pools[op->stage];
	bool again = run->request->stage[op->stage].again_bytes > 0;

	if (op->pass == PD_ORDER_F || (again && op->pass != PD_ORDER_W))
		use_slots(seat, 1);
	if (again && op->pass == PD_ORDER_F)
		use_slots(seat, -1);

	pool->in_flight += op->pass == PD_ORDER_F;
	if (pool->in_flight > pool->most_in_flight)
		pool->most_in_flight = pool->in_flight;
	if (op->pass != PD_ORDER_W && pool->waiting >= pool->most_kept)
		pool->most_kept = pool->waiting + 1;
}

/* An operation of a seat is over; it keeps what a forward made from the beginning on. */
static void end(struct pd_order_run *run, struct pd_order_seat *seat, const struct pd_order_op *op)
{
	const struct pd_order_stage *stage = &run->request->stage[op->stage];

	if (op->pass == PD_ORDER_F) {
		*pd_order_time(&run->ends, PD_ORDER_F, op->stage, op->microbatch) = seat->now_ns;
		return;
	}
	if (op->pass != PD_ORDER_W) {
		seat->bytes += stage->b_bytes;
		run->pools[op->stage].waiting++;
		*pd_order_time(&run->ends, PD_ORDER_I, op->stage, op->microbatch) = seat->now_ns;
	}
	if (op->pass != PD_ORDER_I) {
		use_slots(seat, -1);
		seat->bytes += stage->w_bytes;
		run->pools[op->stage].waiting--;
		run->pools[op->stage].in_flight--;
		*pd_order_time(&run->ends, PD_ORDER_W, op->stage, op->microbatch) = seat->now_ns;
	}
}

void pd_order_run_op(struct pd_order_run *run, const struct pd_order_op *op)
{
	const struct pd_order_request *request = run->request;
	struct pd_order_seat *seat = &run->seats[request->position_of[op->stage]];
	int64_t begin_ns = seat->now_ns, needed_ns[2] = { 0 };

	for (int half = 0; half <= op->beside; half++) {
		int64_t arrival_ns = pd_order_run_arrival(run, op + half);

		begin_ns = arrival_ns > begin_ns ? arrival_ns : begin_ns;
		needed_ns[half] = pd_order_cost(&request->stage[op[half].stage], (enum pd_order_pass)op[half].pass);
		if (op[half].pass == PD_ORDER_F)
			keep(seat, request->stage[op[half].stage].f_bytes);
		enter(run, seat, op + half);
	}
	if (seat->begun)
		seat->idle_ns += begin_ns - seat->now_ns;
	else
		seat->first_ns = begin_ns;
	seat->begun = true;
	seat->now_ns = begin_ns + (op->beside && request->pair_parts > 0
				   ? pd_pair_ns(needed_ns[0], needed_ns[1], request->pair_parts)
				   : needed_ns[0] + needed_ns[1]);
	for (int half = 0; half <= op->beside; half++)
		end(run, seat, op + half);
}

struct pd_order_run pd_order_run_begin(const struct pd_order_request *request)
{
	return (struct pd_order_run){
		.request = request,
		.ends = pd_order_times_new(request->stages, request->microbatches),
		.seats = pd_calloc((size_t)request->positions, sizeof(struct pd_order_seat)),
		.pools = pd_calloc((size_t)request->stages, sizeof(struct pd_order_pool)),
	};
}

void pd_order_run_release(struct pd_order_run *run)
{
	pd_order_times_release(&run->ends);
	free(run->seats);
	free(run->pools);
	*run = (struct pd_order_run){ 0 };
}

/* Returns the bytes of slots of a position's stages, each with its own or all with theirs in common. */
static int64_t slots_of(const struct pd_order_run *run, int position)
{
	const struct pd_order_request *request = run->request;
	int64_t apart = 0, largest = 0;

	for (int s = 0; s < request->stages; s++) {
		const struct pd_order_stage *stage = &request->stage[s];

		if (request->position_of[s] != position)
			continue;
		apart += run->pools[s].most_in_flight * stage->slot_bytes + run->pools[s].most_kept * stage->again_bytes;
		largest = pd_max(largest, pd_max(stage->slot_bytes, stage->again_bytes));
	}
	return pd_min(apart, run->seats[position].most_slots * largest);
}

struct pd_order_price pd_order_run_end(struct pd_order_run *run)
{
	int positions = run->request->positions;
	const struct pd_order_request *request = run->request;
	struct pd_order_price price = { .ends = run->ends,
					.peak_bytes = pd_calloc((size_t)positions, sizeof(int64_t)),
					.pool_bytes = pd_calloc((size_t)positions, sizeof(int64_t)) };

	for (int q = 0; q < positions; q++) {
		const struct pd_order_seat *seat = &run->seats[q];

		price.peak_bytes[q] = seat->peak_bytes;
		price.pool_bytes[q] = slots_of(run, q);
		if (seat->now_ns > price.makespan_ns)
			price.makespan_ns = seat->now_ns;
		if (seat->now_ns - seat->first_ns > price.span_ns)
			price.span_ns = seat->now_ns - seat->first_ns;
	}
	for (int s = 0; s < request->stages; s++)
		price.pool_bytes[request->position_of[s]] +=
			run->pools[s].most_in_flight * (request->stage[s].f_bytes - request->stage[s].slot_bytes);
	free(run->seats);
	free(run->pools);
	*run = (struct pd_order_run){ 0 };
	return price;
}

struct pd_order_price pd_order_price(const struct pd_order *order, const struct pd_order_request *request)
{
	struct pd_order_run run = pd_order_run_begin(request);
	struct pd_order_walk walk = pd_order_walk_begin(order);
	const struct pd_order_op *op;
	int position;

	while ((op = pd_order_walk_next(&walk, &position)))
		pd_order_run_op(&run, op);
	pd_order_walk_release(&walk);
	return pd_order_run_end(&run);
}

void pd_order_price_release(struct pd_order_price *price)
{
	free(price->peak_bytes);
	free(price->pool_bytes);
	pd_order_times_release(&price->ends);
	*price = (struct pd_order_price){ 0 };
}

bool pd_order_fits(const struct pd_order_price *price, const struct pd_order_request *request)
{
	for (int q = 0; q < request->positions; q++)
		if ((request->cap_bytes && price->peak_bytes[q] > request->cap_bytes[q]) ||
		    (request->pool_bytes && price->pool_bytes[q] > request->pool_bytes[q]))
			return false;
	return true;
}
