/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Puts a stage before a plan of the layers behind it, for a time t.  Its place on the line is
 * known, and so are three things.
 *
 * Its all-reduce takes as long as the busiest link that it crosses.
 *
 * Of the minibatches that go on to the next stage, a component's link carries those for another
 * component.
 *
 * Its warm-up follows from t, and from the times and leads of the stages behind it (window.h).  The
 * bytes of a replica follow from the warm-up, and must fit.  If they do not, they may when it
 * recomputes, and then it takes a forward longer.
 */
#include "planner/search/line_search.h"

#include "base/mem.h"

#include <string.h>

#define MOST_LEAD (4 * PD_MAX_RANKS)     /* more than warmup.c ever uses */

/* Returns the versions that a stage keeps. */
static int64_t versions(const struct pd_line *line, int64_t warmup, int64_t lead)
{
	switch (line->weights) {
	case PD_WEIGHTS_STASH:
	case PD_WEIGHTS_VERTICAL_SYNC:
		return line->group ? pd_ceil_div(lead, line->group) + 1 : warmup + 1;
	case PD_WEIGHTS_2BW:
		return 2;
	default:
		return 1;
	}
}

/* Tells whether it fits, nearly as pd_schedule_memory will say, which decides. */
static bool fits(const struct line_search *search, int v, int m, int64_t warmup, bool again)
{
	const struct pd_line *line = search->line;
	const struct pd_points *points = search->points;
	int64_t parameters, more, saved = 0;

	if (warmup <= search->roomy)
		return true;
	parameters = points->parameter_bytes[v] - points->parameter_bytes[search->u];
	more = versions(line, warmup, warmup * m) - (warmup + 1);
	if (line->group > m)
		more++;
	if (again)
		saved = pd_points_saved(points, search->u, v, (int)warmup);
	return (__int128)more * parameters - saved +
	       pd_points_memory(points, search->u, v, m, (int)warmup) <= line->memory_limit_bytes;
}

/* Tells whether keep() would drop a plan with so many devices and a way of at least behind_ns. */
static bool superfluous(const struct line_search *search, int64_t devices, int64_t behind_ns)
{
	const struct node *list = line_nodes(search, search->u);
	int i = 0;

	while (i < search->kept && list[i].devices < devices)
		i++;
	return i == search->kept ||
	       (list[i].devices == devices && list[i].behind_ns <= behind_ns);
}

/*
 * The stage [u, v) with m replicas before a plan of v: its place, and its time for m minibatches.
 */
struct try {
	const struct node *rest;
	struct pd_span own, next;
	int64_t compute, reduce;
	double piece;                   /* of its gradients as they travel, for each replica */
	bool again;                     /* it recomputes */
};

/* Sets its warm-up and its way in *node_p. */
static void lead(const struct line_search *search, int v, const struct try *try, int64_t time,
		 struct node *node_p)
{
	int64_t m = try->own.end - try->own.begin, way, back = try->compute, need;

	node_p->lead = 0;
	if (v != search->points->last) {
		way = pd_map_way_ns(search->map, &try->next, &try->own,
				    pd_points_out_bytes(search->points, v));
		back = pd_min64(back + 2 * way + try->rest->behind_ns, PD_COST_MAX);
		/*
		 * Replicas that update together begin together, so a burst of m comes back
		 * together.
		 */
		need = pd_ceil_div(back + try->reduce, time > 0 ? time : 1) -
			(try->reduce > 0 ? 1 : m);
		need = pd_max64(pd_min64(need, MOST_LEAD), try->rest->lead);
		if (!search->line->least)
			node_p->lead = pd_ceil_div(need, m) * m;
	}
	node_p->behind_ns = pd_min64(pd_times(node_p->lead, time), PD_COST_MAX) + try->compute;
	node_p->behind_ns = pd_max64(node_p->behind_ns, back);
}

enum answer { NO, TOO_LARGE, YES };

/* Tells whether the stage keeps to the time, and sets *node_p; NO also if keep() would drop it. */
static enum answer stage_holds(const struct line_search *search, int v, const struct try *try,
			       int64_t time, struct node *node_p)
{
	const struct pd_line *line = search->line;
	const struct pd_points *points = search->points;
	int m = try->own.end - try->own.begin;
	int64_t group = line->group ? line->group : m;
	struct pd_span_load load = { &try->own, v == points->last ? NULL : &try->next,
				     points->cut_bytes[v], try->piece, (double)group };

	if (group == m && try->compute + try->reduce > (__int128)m * time)
		return NO;              /* this needs no division */
	if (pd_ceil_div(try->compute, m) + pd_ceil_div(try->reduce, group) > time)
		return NO;
	lead(search, v, try, time, node_p);
	if (superfluous(search, try->own.end, node_p->behind_ns) ||
	    !fits(search, v, m, 0, false) ||
	    !pd_map_holds(search->map, &load, try->rest->load_ns, (double)time, node_p->load_ns))
		return NO;
	if (!fits(search, v, m, node_p->lead / m, try->again))
		return TOO_LARGE;
	node_p->devices = try->own.end;
	node_p->next = v;
	node_p->which = (int)(try->rest - line_nodes(search, v));
	node_p->stages = try->rest->stages + 1;
	return YES;
}

/* Does the same, with recomputation if that is allowed. */
static bool holds(const struct line_search *search, int v, const struct try *try, int64_t time,
		  struct node *node_p)
{
	const struct pd_points *points = search->points;
	enum answer once = stage_holds(search, v, try, time, node_p);
	struct try again = *try;

	if (once != TOO_LARGE || !search->line->tight)
		return once == YES;
	*search->line->tight = true;
	again.again = true;
	again.compute += points->forward_ns[v] - points->forward_ns[search->u];
	return stage_holds(search, v, &again, time, node_p) == YES;
}

/*
 * Returns the least number of replicas, at least m, that compute and reduce within a time; sets the
 * time of the all-reduce.
 */
static int64_t enough(const struct line_search *search, int v, int64_t m, int64_t time,
		      struct try *try)
{
	const struct pd_points *points = search->points;
	int64_t bytes = points->parameter_bytes[v] - points->parameter_bytes[search->u];
	double wire = (double)pd_dtype_bytes(search->line->gradient_dtype) / sizeof(float);
	int64_t room = search->room - try->own.begin;

	for (;; m = pd_max64(m + 1, pd_ceil_div(try->compute + try->reduce, time))) {
		try->reduce = 0;
		try->piece = m > 1 ? (double)bytes / (double)m * wire : 0;
		if (m > room)
			return m;
		try->own.end = try->own.begin + (int)m;
		if (m > 1)
			try->reduce = pd_map_reduce_ns(search->map, &try->own, try->piece);
		if (m == 1 || search->line->group || time == 0 ||
		    try->compute + try->reduce <= pd_times(m, time))
			return m;
	}
}

/*
 * Keeps a plan if it is among those with the fewest devices, and of these among the shortest ways.
 */
static void keep(const struct line_search *search, const struct node *node)
{
	struct node *list = line_nodes(search, search->u);
	int i = 0;

	while (i < search->kept && list[i].devices < node->devices)
		i++;
	if (i == search->kept)
		return;
	if (list[i].devices != node->devices)
		memmove(&list[i + 1], &list[i], (size_t)(search->kept - 1 - i) * sizeof(*list));
	else if (list[i].behind_ns <= node->behind_ns)
		return;
	list[i] = *node;
}

/* Keeps stages before a plan of v, on at least m devices. */
static void fill_before(const struct line_search *search, int v, const struct node *rest, int64_t m,
			int64_t time)
{
	const struct pd_line *line = search->line;
	const struct pd_points *points = search->points;
	const struct node *worst = &line_nodes(search, search->u)[search->kept - 1];
	int64_t most = pd_min64(search->room, worst->devices) - rest->devices;
	struct try try = { .rest = rest, .own.begin = rest->devices, .next.end = rest->devices,
			   .compute = points->compute_ns[v] - points->compute_ns[search->u] };
	struct node node;

	if (v != points->last)
		try.next.begin = line_nodes(search, rest->next)[rest->which].devices;
	if (line->straight && most > 1)
		most = 1;
	for (int t = 0; m <= most && t < line->tries; t++, m++) {
		m = enough(search, v, m, time, &try);
		if (m <= most &&
		    !superfluous(search, try.own.end, rest->behind_ns + try.compute) &&
		    holds(search, v, &try, time, &node))
			keep(search, &node);
	}
}

void pd_line_fill_stage(const struct line_search *search, int v, int64_t time)
{
	const int64_t *compute = search->points->compute_ns;
	int64_t ns = compute[v] - compute[search->u], fewest = time > 0 ? pd_ceil_div(ns, time) : 1;
	const struct node *rest = line_nodes(search, v);

	for (int j = 0; j < search->kept && rest[j].devices != NONE; j++)
		fill_before(search, v, &rest[j], pd_max64(fewest, 1), time);
}
