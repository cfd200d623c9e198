/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search of ZB-V (Qi et al., 2024) for positions with two stages each in a V, under a cap for each.  After a
 * beginning of forwards each position does one gradient in each of 2 m rounds, and one forward where it can.  W's fill
 * gaps; one is added to a gap that is too short for it only where the position has not been idle as long as another,
 * of this pass or of the one before, which the search repeats with what it has learnt as long as that gains.
 */
#include "order/found.h"

#include "base/mem.h"

#include <stdlib.h>

struct vee {
	struct pd_order_build build;
	const int64_t *approved_ns;     /* per position: how long it was idle in the pass before */
	bool fill_forwards, fill_gradients;     /* what is tried */
	bool *upper;                    /* per position: the gradient of this round is its upper stage's */
};

enum { UPPER, DEEP };

static int positions(const struct vee *v)
{
	return v->build.request->positions;
}

static int stage_of(const struct vee *v, int q, int chunk)
{
	return chunk == UPPER ? q : 2 * positions(v) - 1 - q;
}

static const struct pd_order_stage *stage(const struct vee *v, int q, int chunk)
{
	return &v->build.request->stage[stage_of(v, q, chunk)];
}

static int count(const struct vee *v, enum pd_order_pass pass, int q, int chunk)
{
	return *pd_order_count(&v->build, pass, stage_of(v, q, chunk));
}

static bool can(const struct vee *v, enum pd_order_pass pass, int q, int chunk)
{
	return pd_order_can(&v->build, pass, stage_of(v, q, chunk));
}

static bool put_forward(struct vee *v, int q, int chunk)
{
	return pd_order_make_room(&v->build, q, stage(v, q, chunk)->f_bytes) &&
	       pd_order_put(&v->build, PD_ORDER_F, stage_of(v, q, chunk));
}

/* The first forward of all, and those for which there is time before it comes back to each position. */
static bool go_down_and_up(struct vee *v)
{
	int m = v->build.request->microbatches, p = positions(v);

	for (int q = 0; q < p; q++)
		if (!put_forward(v, q, UPPER))
			return false;
	for (int q = p - 1; q >= 0; q--) {
		const struct pd_order_seat *seat = pd_order_seat(&v->build, q);
		int64_t bytes = stage(v, q, UPPER)->f_bytes;

		while (q < p - 1 && count(v, PD_ORDER_F, q, UPPER) < m &&
		       seat->bytes <= pd_order_cap(v->build.request, q) - bytes * (2 + 2 * q) &&
		       seat->now_ns + stage(v, q, UPPER)->f_ns <=
			       pd_order_arrival(&v->build, PD_ORDER_F, stage_of(v, q, DEEP)))
			for (int to = 0; to <= q; to++)
				if (!put_forward(v, to, UPPER))
					return false;
		if (!put_forward(v, q, DEEP))
			return false;
	}
	return true;
}

/* Forwards until each position has as many as the one before it. */
static bool catch_up(struct vee *v)
{
	int m = v->build.request->microbatches, p = positions(v), turn = UPPER;

	for (int q = 1; q < p; q++)
		for (int tries = 0;; tries++) {
			int deep = count(v, PD_ORDER_F, q, DEEP), before = count(v, PD_ORDER_F, q - 1, DEEP);

			if (deep + count(v, PD_ORDER_F, q, UPPER) >=
				    before + count(v, PD_ORDER_F, q - 1, UPPER) &&
			    (deep > before || before == m))
				break;
			if (tries > 2 * m)
				return false;
			for (int to = p - 1; to >= q; to--)
				if (count(v, PD_ORDER_F, to, turn) < m && !put_forward(v, to, turn))
					return false;
			turn = turn == UPPER ? DEEP : UPPER;
		}
	return true;
}

/* Adds a pass, and before it the W's for which there is time, or one more where that is allowed. */
static bool put(struct vee *v, enum pd_order_pass pass, int q, int chunk, bool one_more)
{
	int64_t idle_ns = pd_order_seat(&v->build, q)->idle_ns, most_ns = pd_order_most_idle(&v->build), before_ns = 0;

	if (!can(v, pass, q, chunk))
		return false;
	for (int to = 0; to < positions(v); to++)
		before_ns = v->approved_ns[to] > before_ns ? v->approved_ns[to] : before_ns;
	before_ns -= v->approved_ns[q];
	most_ns = before_ns > most_ns ? before_ns : most_ns;
	pd_order_fill(&v->build, q, pd_order_arrival(&v->build, pass, stage_of(v, q, chunk)),
		      one_more ? most_ns - idle_ns : INT64_MAX, false);
	return pd_order_put(&v->build, pass, stage_of(v, q, chunk));
}

static bool takes_upper(const struct vee *v, int q)
{
	int m = v->build.request->microbatches, upper = count(v, PD_ORDER_I, q, UPPER);

	if (count(v, PD_ORDER_I, q, DEEP) <= upper)
		return false;
	return q == positions(v) - 1 || count(v, PD_ORDER_I, q + 1, UPPER) > upper ||
	       count(v, PD_ORDER_I, q, DEEP) == m;
}

static bool put_gradients(struct vee *v)
{
	int p = positions(v);

	for (int q = 0; q < p; q++)
		v->upper[q] = takes_upper(v, q);
	for (int q = p - 1; q >= 0; q--)
		if (v->upper[q] && !put(v, PD_ORDER_I, q, UPPER, true))
			return false;
	for (int q = 0; q < p; q++)
		if (!v->upper[q] && !put(v, PD_ORDER_I, q, DEEP, v->fill_gradients))
			return false;
	return true;
}

static bool put_forwards(struct vee *v)
{
	int m = v->build.request->microbatches, p = positions(v);

	for (int q = 0; q < p; q++) {
		int deep = count(v, PD_ORDER_F, q, DEEP), upper = count(v, PD_ORDER_F, q, UPPER), chunk;

		if (deep == m)
			continue;
		if (deep == upper)
			chunk = UPPER;
		else if (q == p - 1 || can(v, PD_ORDER_F, q, DEEP))
			chunk = DEEP;
		else if (upper < m && can(v, PD_ORDER_F, q, UPPER))
			chunk = UPPER;
		else
			continue;
		if (!pd_order_make_room(&v->build, q, stage(v, q, chunk)->f_bytes) ||
		    !put(v, PD_ORDER_F, q, chunk, v->fill_forwards))
			return false;
	}
	return true;
}

/* Makes one order; leaves it in build. */
static bool pass(struct vee *v)
{
	bool all = go_down_and_up(v) && catch_up(v);

	for (int i = 0; i < 2 * v->build.request->microbatches && all; i++)
		all = put_gradients(v) && put_forwards(v);
	if (all)
		pd_order_put_weights(&v->build);
	return all;
}

/* Repeats it while the position that is idle longest is so less long. */
static void try(struct vee *v, struct pd_order_found *found)
{
	const struct pd_order_request *request = v->build.request;
	int64_t *approved_ns = pd_calloc((size_t)request->positions, sizeof(*approved_ns)), most_ns = INT64_MAX;
	bool better = true;

	v->approved_ns = approved_ns;
	while (better) {
		v->build = pd_order_build_begin(request);
		better = pass(v) && pd_order_most_idle(&v->build) < most_ns;
		if (better) {
			most_ns = pd_order_most_idle(&v->build);
			for (int q = 0; q < request->positions; q++)
				approved_ns[q] = pd_order_seat(&v->build, q)->idle_ns;
			pd_order_offer(found, pd_order_build_end(&v->build), request, "v%s%s",
				       v->fill_forwards ? ", fills before forwards" : "",
				       v->fill_gradients ? ", before gradients" : "");
		} else {
			pd_order_build_release(&v->build);
		}
	}
	free(approved_ns);
}

void pd_order_search_v(const struct pd_order_request *request, struct pd_order_found *found)
{
	struct vee v = { .upper = pd_calloc((size_t)request->positions, sizeof(*v.upper)) };

	for (int flags = 0; flags < 4; flags++) {
		v.build.request = request;
		v.fill_forwards = flags & 1;
		v.fill_gradients = flags & 2;
		try(&v, found);
	}
	free(v.upper);
}
