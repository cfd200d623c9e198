/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search of Zero Bubble's ZB-2p (Qi et al., 2023) for positions with one stage each, under a cap for each.
 * Forwards that the first gradient leaves time for come first; then there is a round for each microbatch: a
 * forward of every stage that wants one, then a gradient of every stage, and W's where a stage would be idle.
 */
#include "order/found.h"

#include "base/mem.h"

#include <stdlib.h>

struct chain {
	struct pd_order_build build;
	bool early, prefers_gradients, greedy;  /* what is tried */
	int *extra;                             /* per stage: forwards before the first gradient, but one */
	bool *wants;                            /* per stage: it wants a forward in this round */
};

static const struct pd_order_stage *stage(const struct chain *c, int s)
{
	return &c->build.request->stage[s];
}

static struct pd_order_seat *seat(const struct chain *c, int s)
{
	return pd_order_seat(&c->build, c->build.request->position_of[s]);
}

static int forwards(const struct chain *c, int s)
{
	return *pd_order_count(&c->build, PD_ORDER_F, s);
}

/* Counts the forwards for which there is time until the first gradient, and room. */
static void count_extra(struct chain *c)
{
	const struct pd_order_request *request = c->build.request;
	int last = request->stages - 1;
	int64_t gradient_ns = seat(c, last)->now_ns + stage(c, last)->b_ns;

	for (int s = last - 1; s >= 0; s--) {
		int64_t cap = pd_order_cap(request, request->position_of[s]), bytes = seat(c, s)->bytes;
		int64_t now_ns = seat(c, s)->now_ns, arrival_ns = gradient_ns + stage(c, s)->transfer_ns;

		c->extra[s] = 0;
		while (1 + c->extra[s] < request->microbatches && bytes <= cap - stage(c, s)->f_bytes &&
		       (c->early ? now_ns + stage(c, s)->f_ns <= arrival_ns : now_ns < arrival_ns)) {
			c->extra[s]++;
			bytes += stage(c, s)->f_bytes;
			now_ns += stage(c, s)->f_ns;
		}
		gradient_ns = (now_ns > arrival_ns ? now_ns : arrival_ns) + stage(c, s)->b_ns;
	}
	for (int s = 1; s <= last; s++) {
		int most = c->extra[s - 1] + 1 < request->microbatches ? c->extra[s - 1] - 1 : c->extra[s - 1];

		if (c->extra[s] > most)
			c->extra[s] = most > 0 ? most : 0;
	}
}

static bool begin(struct chain *c)
{
	int stages = c->build.request->stages;
	bool all = true;

	for (int s = 0; s < stages && all; s++)
		all = pd_order_make_room(&c->build, c->build.request->position_of[s], stage(c, s)->f_bytes) &&
		      pd_order_put(&c->build, PD_ORDER_F, s);
	if (all)
		count_extra(c);
	for (int s = 0; s < stages && all; s++)
		for (int i = 0; i < c->extra[s] && all; i++)
			all = pd_order_put(&c->build, PD_ORDER_F, s);
	for (int s = stages - 1; s >= 0 && all; s--)
		all = pd_order_put(&c->build, PD_ORDER_I, s);
	return all;
}

/* Returns how long the W's take that make room for a forward. */
static int64_t room_ns(const struct chain *c, int s)
{
	int position = c->build.request->position_of[s];
	const struct pd_order_waiting *waiting = &c->build.waiting[position];
	int64_t bytes = seat(c, s)->bytes + stage(c, s)->f_bytes, cap = pd_order_cap(c->build.request, position);
	int64_t needed_ns = 0;

	for (int i = waiting->first; i < waiting->end && bytes > cap; i++) {
		bytes += stage(c, s)->w_bytes;
		needed_ns += stage(c, s)->w_ns;
	}
	return needed_ns;
}

/* Tells whether a stage, of which the next has enough to do, does a forward before its next gradient. */
static bool wants_ahead(const struct chain *c, int s)
{
	const struct pd_order_seat *here = seat(c, s);
	int64_t gradient_ns = seat(c, s + 1)->now_ns + stage(c, s + 1)->f_ns + stage(c, s + 1)->b_ns +
			      stage(c, s)->transfer_ns;

	if (here->now_ns >= gradient_ns)
		return false;
	if (here->now_ns + stage(c, s)->f_ns + room_ns(c, s) <= gradient_ns)
		return true;
	return gradient_ns - here->now_ns > pd_order_most_idle(&c->build) - here->idle_ns;
}

static void set_wants(struct chain *c)
{
	int last = c->build.request->stages - 1;

	for (int s = last; s >= 0; s--) {
		c->wants[s] = forwards(c, s) < c->build.request->microbatches;
		if (c->wants[s] && c->prefers_gradients && s < last && forwards(c, s) >= forwards(c, s + 1) + 2)
			c->wants[s] = wants_ahead(c, s);
	}
	for (int s = last - 1; s >= 0; s--)
		c->wants[s] &= c->wants[s + 1];
}

/* Adds a pass, and before it the W's for which there is time. */
static bool put(struct chain *c, enum pd_order_pass pass, int s)
{
	int position = c->build.request->position_of[s];

	if (!pd_order_can(&c->build, pass, s))
		return false;
	pd_order_fill(&c->build, position, pd_order_arrival(&c->build, pass, s),
		      pd_order_most_idle(&c->build) - seat(c, s)->idle_ns, c->greedy);
	return pd_order_put(&c->build, pass, s);
}

static bool round_of(struct chain *c)
{
	const struct pd_order_request *request = c->build.request;
	bool all = true;

	set_wants(c);
	for (int s = 0; s < request->stages && all; s++)
		if (c->wants[s])
			all = pd_order_make_room(&c->build, request->position_of[s], stage(c, s)->f_bytes) &&
			      put(c, PD_ORDER_F, s);
	for (int s = request->stages - 1; s >= 0 && all; s--) {
		while (s == 0 && forwards(c, 0) == request->microbatches &&
		       pd_order_weight_waits(&c->build, request->position_of[0]))
			pd_order_put_weight(&c->build, request->position_of[0]);
		all = put(c, PD_ORDER_I, s);
	}
	return all;
}

static void try(struct chain *c, struct pd_order_found *found)
{
	const struct pd_order_request *request = c->build.request;
	bool all = begin(c);

	for (int i = 1; i < request->microbatches && all; i++)
		all = round_of(c);
	pd_order_put_weights(&c->build);
	if (all)
		pd_order_offer(found, pd_order_build_end(&c->build), request, "chain%s%s%s", c->early ? ", early" : "",
			       c->prefers_gradients ? ", gradients first" : "", c->greedy ? ", greedy" : "");
	else
		pd_order_build_release(&c->build);
}

void pd_order_search_chain(const struct pd_order_request *request, struct pd_order_found *found)
{
	struct chain c = {
		.extra = pd_calloc((size_t)request->stages, sizeof(*c.extra)),
		.wants = pd_calloc((size_t)request->stages, sizeof(*c.wants)),
	};

	for (int flags = 7; flags >= 0; flags--) {
		c.build = pd_order_build_begin(request);
		c.early = flags & 1;
		c.prefers_gradients = flags & 2;
		c.greedy = flags & 4;
		try(&c, found);
	}
	free(c.extra);
	free(c.wants);
}
