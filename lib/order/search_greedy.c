/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A search for any placement of stages: always the position that can act first does what a rule prefers of what is
 * ready there.  A forward begins only if there is room for it, and, as if all microbatches that have their forwards
 * behind them were gone, for the forwards that are left of the oldest of the others.  So that one can always go on,
 * and where each position has room for all its forwards of one microbatch, all end.
 */
#include "order/found.h"

#include "base/mem.h"

#include <stdlib.h>

enum preference { DEEPEST, OLDEST, GROUPS, PREFERENCES };

struct rule {
	enum preference forwards;       /* which of several is taken */
	bool alternates;                /* after a gradient, a forward, if one is ready */
	bool waits;                     /* for a gradient that comes soon, rather than begin a forward */
	bool greedy;                    /* a W in every gap */
};

/* What a position does next. */
struct action {
	int64_t begin_ns;               /* INT64_MAX: nothing is known that it could do */
	enum pd_order_pass pass;
	int stage;
};

struct greedy {
	struct pd_order_build build;
	struct rule rule;
	int *first_stage, *stages;      /* per position: where its stages, deepest first, begin in `stages` */
	struct holding {
		int oldest;             /* the first microbatch with a forward left */
		int64_t old_bytes;      /* what those before it keep */
		int64_t *bytes;         /* what each microbatch keeps */
		bool gradient;          /* the last operation was one */
	} *holdings;                    /* per position */
	struct action *next;            /* per position */
	bool *known;                    /* per position: that is what it would do now */
	int64_t most_idle_ns;
};

static const struct pd_order_stage *stage(const struct greedy *g, int s)
{
	return &g->build.request->stage[s];
}

static int next_of(const struct greedy *g, enum pd_order_pass pass, int s)
{
	return *pd_order_count(&g->build, pass, s);
}

/* Returns what the forwards of the oldest microbatch that are left at a position will keep. */
static int64_t left_bytes(const struct greedy *g, int position)
{
	int64_t bytes = 0;

	for (int k = g->first_stage[position]; k < g->first_stage[position + 1]; k++)
		if (next_of(g, PD_ORDER_F, g->stages[k]) <= g->holdings[position].oldest)
			bytes += stage(g, g->stages[k])->f_bytes;
	return bytes;
}

static bool has_room(const struct greedy *g, int position, int s)
{
	const struct pd_order_seat *seat = pd_order_seat(&g->build, position);
	const struct holding *holding = &g->holdings[position];
	int64_t cap = pd_order_cap(g->build.request, position), bytes = stage(g, s)->f_bytes;
	int64_t others = left_bytes(g, position);

	if (next_of(g, PD_ORDER_F, s) == holding->oldest)
		others -= bytes;
	return seat->bytes <= cap - bytes && seat->bytes - holding->old_bytes + others <= cap - bytes;
}

/* Tells whether forward a goes before forward b. */
static bool forward_before(const struct greedy *g, int a, int b)
{
	int i = next_of(g, PD_ORDER_F, a), j = next_of(g, PD_ORDER_F, b), positions = g->build.request->positions;

	if (g->rule.forwards == OLDEST && i != j)
		return i < j;
	if (g->rule.forwards == GROUPS)
		return i / positions != j / positions ? i / positions < j / positions : a < b;
	return a > b;
}

/* What there is to do at a position. */
struct choice {
	int gradient, forward;          /* the preferred stages that are ready, or -1 */
	int64_t gradient_ns;            /* when the next gradient comes that does not wait yet, or INT64_MAX */
	int64_t forward_ns;             /* the same of a forward for which there is room */
	int next_gradient, next_forward;
	bool lacks_room;                /* a forward waits for it */
};

static void look_at_gradient(const struct greedy *g, int s, int64_t now_ns, struct choice *c)
{
	int64_t arrival_ns = pd_order_arrival(&g->build, PD_ORDER_I, s);

	if (arrival_ns > now_ns) {
		if (arrival_ns < c->gradient_ns) {
			c->gradient_ns = arrival_ns;
			c->next_gradient = s;
		}
	} else if (c->gradient < 0 || next_of(g, PD_ORDER_I, s) < next_of(g, PD_ORDER_I, c->gradient)) {
		c->gradient = s;
	}
}

static void look_at_forward(const struct greedy *g, int position, int s, int64_t now_ns, struct choice *c)
{
	int64_t arrival_ns = pd_order_arrival(&g->build, PD_ORDER_F, s);

	if (!has_room(g, position, s)) {
		c->lacks_room = true;
	} else if (arrival_ns > now_ns) {
		if (arrival_ns < c->forward_ns) {
			c->forward_ns = arrival_ns;
			c->next_forward = s;
		}
	} else if (c->forward < 0 || forward_before(g, s, c->forward)) {
		c->forward = s;
	}
}

static struct choice choose_at(const struct greedy *g, int position)
{
	struct choice c = { .gradient = -1, .forward = -1, .gradient_ns = INT64_MAX, .forward_ns = INT64_MAX };
	int64_t now_ns = pd_order_seat(&g->build, position)->now_ns;

	for (int k = g->first_stage[position]; k < g->first_stage[position + 1]; k++) {
		if (pd_order_can(&g->build, PD_ORDER_I, g->stages[k]))
			look_at_gradient(g, g->stages[k], now_ns, &c);
		if (pd_order_can(&g->build, PD_ORDER_F, g->stages[k]))
			look_at_forward(g, position, g->stages[k], now_ns, &c);
	}
	return c;
}

/* Returns what is done by a position at which nothing is ready. */
static struct action in_gap(const struct greedy *g, int position, const struct choice *c)
{
	const struct pd_order_seat *seat = pd_order_seat(&g->build, position);
	bool gradient = c->gradient_ns <= c->forward_ns;
	struct action next = { .begin_ns = gradient ? c->gradient_ns : c->forward_ns,
			       .pass = gradient ? PD_ORDER_I : PD_ORDER_F,
			       .stage = gradient ? c->next_gradient : c->next_forward };
	int64_t gap_ns = next.begin_ns - seat->now_ns;

	if (pd_order_weight_waits(&g->build, position) &&
	    (c->lacks_room || g->rule.greedy || gap_ns >= pd_order_weight_ns(&g->build, position) ||
	     gap_ns > g->most_idle_ns - seat->idle_ns))
		return (struct action){ .begin_ns = seat->now_ns, .pass = PD_ORDER_W };
	return next;
}

static struct action choose(const struct greedy *g, int position)
{
	struct choice c = choose_at(g, position);
	int64_t now_ns = pd_order_seat(&g->build, position)->now_ns;

	if (c.gradient >= 0 && !(c.forward >= 0 && g->rule.alternates && g->holdings[position].gradient))
		return (struct action){ now_ns, PD_ORDER_I, c.gradient };
	if (c.forward < 0)
		return in_gap(g, position, &c);
	if (g->rule.waits && c.gradient_ns < INT64_MAX &&
	    c.gradient_ns - now_ns < stage(g, c.next_gradient)->b_ns / 2) {
		c.forward_ns = INT64_MAX;
		return in_gap(g, position, &c);
	}
	return (struct action){ now_ns, PD_ORDER_F, c.forward };
}

/* Counts what a pass of a microbatch changes. */
static void hold(struct greedy *g, int position, int microbatch, int64_t bytes)
{
	struct holding *holding = &g->holdings[position];

	holding->bytes[microbatch] += bytes;
	if (microbatch < holding->oldest)
		holding->old_bytes += bytes;
	while (holding->oldest < g->build.request->microbatches) {
		for (int k = g->first_stage[position]; k < g->first_stage[position + 1]; k++)
			if (next_of(g, PD_ORDER_F, g->stages[k]) <= holding->oldest)
				return;
		holding->old_bytes += holding->bytes[holding->oldest++];
	}
}

/* Forgets what the positions would do for which an operation of a stage changes something. */
static void forget(struct greedy *g, int position, int s)
{
	const struct pd_order_request *request = g->build.request;
	int64_t idle_ns = pd_order_seat(&g->build, position)->idle_ns;

	g->known[position] = false;
	if (s > 0)
		g->known[request->position_of[s - 1]] = false;
	if (s + 1 < request->stages)
		g->known[request->position_of[s + 1]] = false;
	if (idle_ns <= g->most_idle_ns)
		return;
	g->most_idle_ns = idle_ns;
	for (int q = 0; q < request->positions; q++)
		g->known[q] = false;
}

static void act(struct greedy *g, int position, const struct action *action)
{
	struct pd_order_waiting *waiting = &g->build.waiting[position];
	int s = action->pass == PD_ORDER_W ? waiting->stages[waiting->first] : action->stage;
	int microbatch = next_of(g, action->pass, s);

	if (action->pass == PD_ORDER_W)
		pd_order_put_weight(&g->build, position);
	else
		pd_order_put(&g->build, action->pass, s);
	g->holdings[position].gradient = action->pass == PD_ORDER_I ||
					 (action->pass == PD_ORDER_W && g->holdings[position].gradient);
	hold(g, position, microbatch, action->pass == PD_ORDER_F ? stage(g, s)->f_bytes
				      : action->pass == PD_ORDER_I ? stage(g, s)->b_bytes : stage(g, s)->w_bytes);
	forget(g, position, s);
}

/* Returns the position that can act first, or -1. */
static int first_to_act(struct greedy *g)
{
	int64_t begin_ns = INT64_MAX;
	int position = -1;

	for (int q = 0; q < g->build.request->positions; q++) {
		if (!g->known[q])
			g->next[q] = choose(g, q);
		g->known[q] = true;
		if (g->next[q].begin_ns < begin_ns) {
			begin_ns = g->next[q].begin_ns;
			position = q;
		}
	}
	return position;
}

static void try(struct greedy *g, struct pd_order_found *found)
{
	static const char *const names[] = { "deepest", "oldest", "groups" };
	const struct pd_order_request *request = g->build.request;
	size_t passes = 3 * (size_t)request->stages * (size_t)request->microbatches, done = 0;

	for (; done < passes; done++) {
		int position = first_to_act(g);
		struct action action;

		if (position < 0)
			break;
		action = g->next[position];
		act(g, position, &action);
	}
	if (done == passes)
		pd_order_offer(found, pd_order_build_end(&g->build), request, "%s first%s%s%s",
			       names[g->rule.forwards], g->rule.alternates ? ", in turns" : "",
			       g->rule.waits ? ", waiting" : "", g->rule.greedy ? ", greedy" : "");
	else
		pd_order_build_release(&g->build);
}

static void sort_stages(struct greedy *g, const struct pd_order_request *request)
{
	int end = 0;

	for (int q = 0; q < request->positions; q++) {
		g->first_stage[q] = end;
		for (int s = request->stages - 1; s >= 0; s--)
			if (request->position_of[s] == q)
				g->stages[end++] = s;
	}
	g->first_stage[request->positions] = end;
}

static void begin(struct greedy *g, const struct pd_order_request *request, int64_t *bytes)
{
	size_t microbatches = (size_t)request->microbatches;

	g->build = pd_order_build_begin(request);
	g->most_idle_ns = 0;
	for (size_t q = 0; q < (size_t)request->positions; q++) {
		g->holdings[q] = (struct holding){ .bytes = bytes + q * microbatches };
		g->known[q] = false;
		for (size_t i = 0; i < microbatches; i++)
			g->holdings[q].bytes[i] = 0;
	}
}

void pd_order_search_greedy(const struct pd_order_request *request, struct pd_order_found *found)
{
	size_t positions = (size_t)request->positions;
	struct greedy g = {
		.first_stage = pd_calloc(positions + 1, sizeof(*g.first_stage)),
		.stages = pd_calloc((size_t)request->stages, sizeof(*g.stages)),
		.holdings = pd_calloc(positions, sizeof(*g.holdings)),
		.next = pd_calloc(positions, sizeof(*g.next)),
		.known = pd_calloc(positions, sizeof(*g.known)),
	};
	int64_t *bytes = pd_calloc(positions * (size_t)request->microbatches, sizeof(*bytes));

	sort_stages(&g, request);
	for (int n = 0; n < 8 * PREFERENCES; n++) {
		g.rule = (struct rule){ (enum preference)(n / 8), n & 1, n & 2, n & 4 };
		begin(&g, request, bytes);
		try(&g, found);
	}
	free(bytes);
	free(g.first_stage);
	free(g.stages);
	free(g.holdings);
	free(g.next);
	free(g.known);
}
