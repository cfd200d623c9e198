/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans for devices on a line, servers one behind the other: where a stage is decides which
 * links it uses.
 *
 * As in flat.c the question is the fewest devices on which every stage from point u on takes at
 * most a time t,
 *
 *     F(u) = min over u < v <= U of  m(u, v, F(v)) + F(v),      F(U) = 0,
 *
 * where points are the units of the profile's order, or the states of the network, v then being
 * those that contain u (points.h);
 *
 * but stage [u, v) now has the devices F(v) to F(v) + m - 1, counted from the end of the line,
 * so that the links between its replicas and to the stage behind it are known, those which a
 * component shares among them:
 *
 *   - its all-reduce takes as long as the busiest link of those it crosses;
 *   - of the minibatches that go on to the next stage a component's link carries those that
 *     are for another component;
 *   - its warm-up follows from t, from what the stages behind it take and are ahead
 *     (warmup.c), and with it the bytes of a replica, which must fit; where they do not, they may
 *     when it recomputes, and then it takes a forward longer.
 *
 * F(v) stands for one plan of what is behind v.  What goes on from there may be better with
 * another: where a server ends makes a difference, so plans of a few more devices are kept
 * beside the one of fewest, and still this is a search for good plans and not a proof.  Which of
 * them are best the event simulation says.
 */
#include "planner/line.h"

#include "base/mem.h"
#include "planner/map.h"

#include <stdlib.h>
#include <string.h>

#define NONE INT32_MAX
#define PROBES 48

struct node {                           /* a plan of what is behind u */
	int devices;                    /* ascending from F(u); or NONE */
	int next, which;                /* the point behind its first stage; which of its plans */
	int stages;
	int64_t lead;                   /* of its first stage: warm-up times replicas */
	int64_t behind_ns;              /* G: what the way through all of it takes */
	double load_ns[PD_MAX_LEVELS];  /* on the link of the component of its last device */
};

struct search {
	const struct pd_line *line;
	struct pd_points *points;
	int u;                          /* where stages begin now */
	int kept;                       /* plans per point */
	struct node *nodes;
	struct pd_map map;
};

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

/* Near what pd_schedule_memory will say; that decides. */
static bool fits(const struct search *search, int v, int m, int64_t warmup, bool again)
{
	const struct pd_line *line = search->line;
	const struct pd_points *points = search->points;
	int64_t parameters = points->parameter_bytes[v] - points->parameter_bytes[search->u];
	int64_t more = versions(line, warmup, warmup * m) - (warmup + 1), more_bytes = 0;

	if (line->memory_limit_bytes == INT64_MAX)
		return true;
	if (line->group > m)
		more++;
	if (again)
		more_bytes = -pd_points_saved(points, search->u, v, (int)warmup);
	return pd_points_memory(points, search->u, v, m, (int)warmup) + more * parameters +
		more_bytes <= line->memory_limit_bytes;
}

/* Whatever its replicas and warm-up? */
static bool may_fit(const struct search *search, int v)
{
	int64_t limit = search->line->memory_limit_bytes;

	return limit == INT64_MAX || pd_points_memory(search->points, search->u, v, 1, 0) <= limit;
}

static struct node *nodes_of(const struct search *search, int u)
{
	return &search->nodes[(size_t)u * (size_t)search->kept];
}

enum answer { NO, TOO_LARGE, YES };

/*
 * Does the stage [u, v) with m replicas, which may do forwards again, hold before a plan of v?
 * What it makes is *node_p.
 */
static enum answer stage_holds(const struct search *search, int v, const struct node *rest, int m,
			       int64_t time, bool again, struct node *node_p)
{
	const struct pd_line *line = search->line;
	const struct pd_points *points = search->points;
	struct pd_span own = { rest->devices, rest->devices + m }, next = { 0, rest->devices };
	bool last = v == points->last;
	int u = search->u;
	int64_t compute = points->compute_ns[v] - points->compute_ns[u] +
		(again ? points->forward_ns[v] - points->forward_ns[u] : 0);
	int64_t bytes = m > 1 ? points->parameter_bytes[v] - points->parameter_bytes[u] : 0;
	int64_t group = line->group ? line->group : m, reduce, back, lead = 0, warmup = 0, way = 0;
	struct pd_span_load load = { &own, last ? NULL : &next, points->cut_bytes[v],
			     (double)bytes / m, (double)group };

	reduce = pd_map_reduce_ns(&search->map, &own, load.piece);
	if (group == m && compute + reduce > (__int128)m * time)    /* without a division */
		return NO;
	if (pd_ceil_div(compute, m) + pd_ceil_div(reduce, group) > time ||
	    !fits(search, v, m, 0, false))
		return NO;
	if (!last) {
		next.begin = nodes_of(search, rest->next)[rest->which].devices;
		way = pd_map_way_ns(&search->map, &next, &own, pd_points_out_bytes(points, v));
	}
	if (!pd_map_holds(&search->map, &load, rest->load_ns, (double)time, node_p->load_ns))
		return NO;
	back = compute + 2 * way + rest->behind_ns;
	if (!last && !line->least) {
		/* a burst of m comes back together where they update together */
		int64_t need = pd_ceil_div(back + reduce, time > 0 ? time : 1) -
			(reduce > 0 ? 1 : m);

		lead = pd_max64(need, rest->lead);
		warmup = pd_ceil_div(lead, m);
		lead = warmup * m;
	}
	if (!fits(search, v, m, warmup, again))
		return TOO_LARGE;
	node_p->devices = own.end;
	node_p->next = v;
	node_p->which = (int)(rest - nodes_of(search, v));
	node_p->stages = rest->stages + 1;
	node_p->lead = lead;
	node_p->behind_ns = pd_max64(lead * time + compute, back);
	return YES;
}

static bool holds(const struct search *search, int v, const struct node *rest, int m,
		  int64_t time, struct node *node_p)
{
	enum answer once = stage_holds(search, v, rest, m, time, false, node_p);

	if (once != TOO_LARGE || !search->line->tight)
		return once == YES;
	*search->line->tight = true;
	return stage_holds(search, v, rest, m, time, true, node_p) == YES;
}

/* At least m replicas: as many as compute and reduce within a time. */
static int64_t enough(const struct search *search, int v, int begin, int64_t m, int64_t time)
{
	const struct pd_points *points = search->points;
	int64_t compute = points->compute_ns[v] - points->compute_ns[search->u];
	int64_t bytes = points->parameter_bytes[v] - points->parameter_bytes[search->u];

	while (m > 1 && begin + m <= search->line->devices && !search->line->group) {
		struct pd_span own = { begin, begin + (int)m };
		int64_t all = compute + pd_map_reduce_ns(&search->map, &own,
							 (double)bytes / (double)m);

		if (time == 0 || all <= m * time)
			break;
		m = pd_max64(m + 1, pd_ceil_div(all, time));
	}
	return m;
}

/* Keeps a plan if it is among those of fewest devices; of as many, the shortest way. */
static void keep(const struct search *search, const struct node *node)
{
	struct node *list = nodes_of(search, search->u);
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

/* The plans of what is behind u. */
static void fill_one(struct search *search, int64_t time)
{
	const struct pd_points *points = search->points;
	const int64_t *compute = points->compute_ns;
	const struct node *worst = &nodes_of(search, search->u)[search->kept - 1];
	int u = search->u, count = pd_points_ends(points, u);
	int64_t least = time > 0 ? pd_ceil_div(compute[points->last] - compute[u], time) : 1;
	struct node node;

	for (int i = 0; i < count && worst->devices > least; i++) {
		int v = pd_points_end(points, u, i);
		int64_t fewest = time > 0 ? pd_ceil_div(compute[v] - compute[u], time) : 1;

		if (fewest > pd_min64(search->line->devices, worst->devices))
			break;
		if (!may_fit(search, v))
			continue;
		for (int j = 0; j < search->kept; j++) {
			const struct node *rest = &nodes_of(search, v)[j];
			int64_t most = pd_min64(search->line->devices, worst->devices) -
				rest->devices;
			int64_t m = pd_max64(fewest, 1);

			if (rest->devices == NONE)
				break;
			if (search->line->straight && most > 1)
				most = 1;
			for (int t = 0; m <= most && t < search->line->tries; t++, m++) {
				m = enough(search, v, rest->devices, m, time);
				if (m <= most && holds(search, v, rest, (int)m, time, &node))
					keep(search, &node);
			}
		}
	}
}

static bool probe(struct search *search, int64_t time)
{
	int U = search->points->last;

	for (int i = 0; i < (U + 1) * search->kept; i++)
		search->nodes[i].devices = NONE;
	nodes_of(search, U)[0] = (struct node){ .devices = 0 };
	for (int u = U - 1; u >= 0; u--) {
		search->u = u;
		pd_points_set(search->points, u);
		fill_one(search, time);
	}
	return nodes_of(search, 0)[0].devices != NONE;
}

static struct pd_layout *walk(const struct search *search, int64_t time)
{
	const struct node *node = nodes_of(search, 0);
	size_t room = (size_t)node->stages;
	struct pd_layout *layout = pd_zalloc(sizeof(*layout));
	int *ends = pd_calloc(room, sizeof(*ends));

	layout->cost_ns = time;
	layout->replicas = pd_calloc(room, sizeof(int));
	layout->ranks = pd_calloc(room, sizeof(*layout->ranks));
	for (int u = 0; u < search->points->last; u = node->next) {
		int s = layout->stage_count++, rest;

		if (u > 0)
			node = nodes_of(search, u) + node->which;
		rest = nodes_of(search, node->next)[node->which].devices;

		ends[s] = node->next;
		layout->replicas[s] = node->devices - rest;
		layout->ranks[s] = pd_calloc((size_t)layout->replicas[s], sizeof(int));
		for (int r = 0; r < layout->replicas[s]; r++)
			layout->ranks[s][r] = rest + r;
	}
	pd_points_layers(search->points, ends, layout->stage_count, &layout->layers,
			 &layout->order);
	free(ends);
	return layout;
}

static struct search *search_new(const struct pd_line *line)
{
	struct search *search = pd_zalloc(sizeof(*search));

	search->line = line;
	search->points = line->points;
	pd_map_init(&search->map, line->topology, line->devices);
	search->kept = line->kept;
	search->nodes = pd_calloc(((size_t)line->points->last + 1) * (size_t)line->kept,
				  sizeof(*search->nodes));
	return search;
}

static void search_free(struct search *search)
{
	pd_map_release(&search->map);
	free(search->nodes);
	free(search);
}

struct pd_layout *pd_line_search(const struct pd_line *line)
{
	struct search *search = search_new(line);
	const struct pd_points *points = line->points;
	int64_t low = points->compute_ns[points->last] / line->devices, high = PD_COST_MAX;
	struct pd_layout *layout = NULL;

	for (high = pd_max64(2 * low, 1); high < PD_COST_MAX && !probe(search, high); high *= 2)
		low = high;
	if (high < PD_COST_MAX) {
		for (int i = 0; i < PROBES && low + low / line->precision < high; i++) {
			int64_t middle = low + (high - low) / 2;

			if (probe(search, middle))
				high = middle;
			else
				low = middle + 1;
		}
		probe(search, high);
		layout = walk(search, high);
	}
	search_free(search);
	return layout;
}

struct pd_layout *pd_line_at(const struct pd_line *line, int64_t time)
{
	struct search *search = search_new(line);
	struct pd_layout *layout = probe(search, time) ? walk(search, time) : NULL;

	search_free(search);
	return layout;
}
