/* SPDX-License-Identifier: Apache-2.0 */
#include "order/search.h"

#include "base/mem.h"
#include "order/found.h"
#include "order/made.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FEWER 8 /* searches with fewer microbatches in flight than there is room for */
#define FEWER_OPERATIONS 40000  /* of all of these, for each rule of a search */
#define IMPROVE_STEPS 400000 /* operations of orders that are priced to improve the best, twice */

static bool is_placed(const struct pd_order_request *request, pd_order_placement *place)
{
	for (int s = 0; s < request->stages; s++)
		if (request->position_of[s] != place(request->positions, s))
			return false;
	return true;
}

/* Tells whether each position has as many stages. */
static bool is_even(const struct pd_order_request *request)
{
	int *count = pd_calloc((size_t)request->positions, sizeof(*count));
	bool result = request->stages % request->positions == 0;

	for (int s = 0; s < request->stages; s++)
		result &= ++count[request->position_of[s]] <= request->stages / request->positions;
	free(count);
	return result;
}

/* Offers what a block makes: of the microbatches there are, and of more, of which the rest is left out. */
static void offer_block(const struct pd_order_request *request, const struct pd_order_block *block, const char *seed,
			struct pd_order_found *found)
{
	int m = request->microbatches, enough = 2 * request->positions;
	struct pd_order *order;

	pd_order_offer_filled(found, pd_order_squeeze(block, m), request, seed);
	if (m >= enough)
		return;
	order = pd_order_squeeze(block, enough);
	pd_order_drop(order, m);
	pd_order_offer_filled(found, order, request, seed);
}

static void search_blocks(const struct pd_order_request *request, struct pd_order_found *found)
{
	int period = 3 * (request->stages / request->positions);
	struct pd_order_block block;
	char seed[32];

	for (int hop = 1; hop <= period && is_even(request); hop++) {
		if (!pd_order_block_of(request->position_of, request->positions, request->stages, hop, 0, &block))
			continue;
		snprintf(seed, sizeof(seed), "block of hops of %d", hop);
		offer_block(request, &block, seed, found);
		pd_order_block_release(&block);
	}
}

static void search_v(const struct pd_order_request *request, struct pd_order_found *found)
{
	struct pd_order_block block;

	pd_order_offer_filled(found, pd_order_zb_v(request->positions, request->microbatches), request, "ZB-V");
	if (request->pair_parts > 0)
		pd_order_offer_filled(found, pd_order_dualpipe_v(request->positions, request->microbatches), request,
				      "DualPipeV");
	pd_order_block_v_half(request->positions, &block);
	offer_block(request, &block, "V-Half", found);
	pd_order_block_release(&block);
	pd_order_block_v_min(request->positions, &block);
	offer_block(request, &block, "V-Min", found);
	pd_order_block_release(&block);
}

static void search_loop(const struct pd_order_request *request, struct pd_order_found *found)
{
	int p = request->positions, m = request->microbatches, chunks = request->stages / p;

	if (chunks == 1) {
		pd_order_offer_filled(found, pd_order_1f1b(p, m), request, "1F1B");
		pd_order_offer_filled(found, pd_order_zb_h1(p, m), request, "ZB-H1");
		return;
	}
	for (int group = p; group <= 2 * p; group += p > 1 ? (p + 1) / 2 : 1)
		pd_order_offer_filled(found, pd_order_interleaved(p, chunks, m, group), request, "interleaved");
}

/* The searches that go by a cap. */
static void search_capped(const struct pd_order_request *request, struct pd_order_found *found)
{
	if (request->stages == request->positions && is_placed(request, pd_order_loop))
		pd_order_search_chain(request, found);
	if (request->stages == 2 * request->positions && is_placed(request, pd_order_v))
		pd_order_search_v(request, found);
	pd_order_search_greedy(request, found);
}

/* Returns the least that a position may keep by its cap and by its pool, without `step` forwards of a stage. */
static int64_t cap_of(const struct pd_order_request *request, int position, int64_t f_bytes,
		      int step)
{
	int64_t cap = pd_order_cap(request, position);

	if (!request->pool_bytes || request->pool_bytes[position] == INT64_MAX)
		return cap;
	return pd_min(cap, request->pool_bytes[position] - step * f_bytes);
}

/* Sets the caps of a search: at most so many microbatches of all stages, and room in pools. */
static void set_caps(const struct pd_order_request *request, int64_t microbatches, int step,
		     int64_t *caps)
{
	for (int q = 0; q < request->positions; q++)
		caps[q] = 0;
	for (int s = 0; s < request->stages; s++)
		caps[request->position_of[s]] += request->stage[s].f_bytes;
	for (int q = 0; q < request->positions; q++)
		caps[q] = microbatches < INT64_MAX ? caps[q] * microbatches : INT64_MAX;
	for (int s = 0; s < request->stages; s++) {
		int q = request->position_of[s];

		caps[q] = pd_min(caps[q], cap_of(request, q, request->stage[s].f_bytes, step));
	}
}

/* Returns how many searches with fewer microbatches there are; it is the same whatever memory there is. */
static int64_t count_fewer(const struct pd_order_request *request)
{
	int64_t operations = (int64_t)PD_ORDER_SPLIT * request->stages * request->microbatches;
	int64_t most = pd_min(FEWER, 2 * request->positions);

	return pd_min(most, FEWER_OPERATIONS / operations);
}

static bool is_limited(const struct pd_order_request *request)
{
	bool limited = false;

	for (int q = 0; q < request->positions && request->pool_bytes; q++)
		limited |= request->pool_bytes[q] < INT64_MAX;
	return limited;
}

/*
 * A pool takes as much as the stages of a position at their most, which is more than they keep at once: searches with
 * caps that are lower by some microbatches of a stage find what a pool has room for.  What is found with less room is
 * looked at wherever there is more: it may be faster, since no search finds all that its caps allow.
 */
static void search_caps(const struct pd_order_request *request, struct pd_order_found *found)
{
	int64_t *caps = pd_calloc((size_t)request->positions, sizeof(*caps));
	int64_t *before = pd_calloc((size_t)request->positions, sizeof(*before));
	size_t bytes = (size_t)request->positions * sizeof(*caps);
	struct pd_order_request with = *request;
	int steps = request->stages > request->positions ? 1 + 2 * request->stages / request->positions : 1;
	int64_t fewer = count_fewer(request);

	with.cap_bytes = caps;
	for (int step = 0; step < (is_limited(request) ? steps : 1); step++) {
		set_caps(request, INT64_MAX, step, caps);
		search_capped(&with, found);
	}
	for (int64_t n = 1; n <= fewer; n++) {
		int64_t microbatches = (2 * request->positions * n + fewer - 1) / fewer;

		memcpy(before, caps, bytes);
		set_caps(request, microbatches, 0, caps);
		if (microbatches < request->microbatches && memcmp(before, caps, bytes) != 0)
			search_capped(&with, found);
	}
	free(before);
	free(caps);
}

/* Returns an order of one microbatch at a time, which keeps as little as can be. */
static struct pd_order *alone(const struct pd_order_request *request)
{
	struct pd_order *order = pd_order_new(request->positions, request->stages, request->microbatches,
					      request->position_of);

	for (int i = 0; i < request->microbatches; i++) {
		for (int s = 0; s < request->stages; s++)
			pd_order_add(order, PD_ORDER_F, s, i);
		for (int s = request->stages - 1; s >= 0; s--)
			pd_order_add(order, PD_ORDER_B, s, i);
	}
	return order;
}

struct pd_order_found pd_order_search(const struct pd_order_request *request)
{
	static const int64_t cool[] = { 200, 2000 };
	struct pd_order_found found = { 0 };

	if (request->stages % request->positions == 0 && is_placed(request, pd_order_loop))
		search_loop(request, &found);
	if (request->stages == 2 * request->positions && is_placed(request, pd_order_v))
		search_v(request, &found);
	search_blocks(request, &found);
	pd_order_offer_filled(&found, alone(request), request, "one at a time");
	search_caps(request, &found);
	for (size_t i = 0; i < PD_COUNT(cool) && found.count > 0; i++)
		pd_order_improve(request, found.best[0].order, IMPROVE_STEPS, cool[i], &found);
	return found;
}
