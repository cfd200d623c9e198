/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans for devices on a line, servers one behind the other: where a stage is decides which
 * links it uses.
 *
 * As in flat.c the question is the fewest devices on which every stage from unit u on takes at
 * most a time t,
 *
 *     F(u) = min over u < v <= U of  m(u, v, F(v)) + F(v),      F(U) = 0,
 *
 * but stage [u, v) now has the devices F(v) to F(v) + m - 1, counted from the end of the line,
 * so that the links between its replicas and to the stage behind it are known, those which a
 * component shares among them:
 *
 *   - its all-reduce takes as long as the busiest link of those it crosses;
 *   - of the minibatches that go on to the next stage a component's link carries those that
 *     are for another component;
 *   - its warm-up follows from t, from what the stages behind it take and are ahead
 *     (warmup.c), and with it the bytes of a replica, which must fit.
 *
 * F(v) stands for one plan of the units from v on.  What goes on from there may be better with
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

struct node {                           /* a plan of the units from u on */
	int devices;                    /* ascending from F(u); or NONE */
	int next, which;                /* the unit behind its first stage; which of its plans */
	int stages;
	int64_t lead;                   /* of its first stage: warm-up times replicas */
	int64_t behind_ns;              /* G: what the way through all of it takes */
	double load_ns[PD_MAX_LEVELS];  /* on the link of the component of its last device */
};

struct search {
	const struct pd_line *line;
	const struct pd_costs *costs;
	struct pd_row row;
	int kept;                       /* plans per unit */
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
static bool fits(const struct search *search, int v, int m, int64_t warmup)
{
	const struct pd_line *line = search->line;
	const struct pd_costs *costs = search->costs;
	int64_t parameters = costs->parameter_bytes[v] - costs->parameter_bytes[search->row.unit];
	int64_t more = versions(line, warmup, warmup * m) - (warmup + 1);

	if (costs->memory_limit_bytes == INT64_MAX)
		return true;
	if (line->group > m)
		more++;
	return pd_row_memory(&search->row, v, m, (int)warmup) + more * parameters <=
		costs->memory_limit_bytes;
}

static struct node *nodes_of(const struct search *search, int u)
{
	return &search->nodes[(size_t)u * (size_t)search->kept];
}

/* Does the stage [u, v) with m replicas hold before a plan of v?  What it makes is *node_p. */
static bool stage_holds(const struct search *search, int v, const struct node *rest, int m,
			int64_t time, struct node *node_p)
{
	const struct pd_line *line = search->line;
	const struct pd_costs *costs = search->costs;
	struct pd_span own = { rest->devices, rest->devices + m }, next = { 0, rest->devices };
	bool last = v == costs->unit_count;
	int u = search->row.unit;
	int64_t compute = costs->compute_ns[v] - costs->compute_ns[u];
	int64_t bytes = m > 1 ? costs->parameter_bytes[v] - costs->parameter_bytes[u] : 0;
	int64_t group = line->group ? line->group : m, reduce, back, lead = 0, warmup = 0, way = 0;
	struct pd_span_load load = { &own, last ? NULL : &next, costs->cut_bytes[v],
			     (double)bytes / m, (double)group };

	reduce = pd_map_reduce_ns(&search->map, &own, load.piece);
	if (group == m && compute + reduce > (__int128)m * time)    /* without a division */
		return false;
	if (pd_ceil_div(compute, m) + pd_ceil_div(reduce, group) > time)
		return false;
	if (!last) {
		next.begin = nodes_of(search, rest->next)[rest->which].devices;
		way = pd_map_way_ns(&search->map, &next, &own, search->row.out_bytes[v]);
	}
	if (!pd_map_holds(&search->map, &load, rest->load_ns, (double)time, node_p->load_ns))
		return false;
	back = compute + 2 * way + rest->behind_ns;
	if (!last && !line->least) {
		/* a burst of m comes back together where they update together */
		int64_t need = pd_ceil_div(back + reduce, time > 0 ? time : 1) -
			(reduce > 0 ? 1 : m);

		lead = pd_max64(need, rest->lead);
		warmup = pd_ceil_div(lead, m);
		lead = warmup * m;
	}
	if (!fits(search, v, m, warmup))
		return false;
	node_p->devices = own.end;
	node_p->next = v;
	node_p->which = (int)(rest - nodes_of(search, v));
	node_p->stages = rest->stages + 1;
	node_p->lead = lead;
	node_p->behind_ns = pd_max64(lead * time + compute, back);
	return true;
}

/* At least m replicas: as many as compute and reduce within a time. */
static int64_t enough(const struct search *search, int v, int begin, int64_t m, int64_t time)
{
	const struct pd_costs *costs = search->costs;
	int64_t compute = costs->compute_ns[v] - costs->compute_ns[search->row.unit];
	int64_t bytes = costs->parameter_bytes[v] - costs->parameter_bytes[search->row.unit];

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
	struct node *list = nodes_of(search, search->row.unit);
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

/* The plans of the units from u on. */
static void fill_one(struct search *search, int64_t time)
{
	const int64_t *compute = search->costs->compute_ns;
	const struct node *worst = &nodes_of(search, search->row.unit)[search->kept - 1];
	int u = search->row.unit, U = search->costs->unit_count;
	int64_t least = time > 0 ? pd_ceil_div(compute[U] - compute[u], time) : 1;
	struct node node;

	for (int v = u + 1; v <= U && worst->devices > least; v++) {
		int64_t fewest = time > 0 ? pd_ceil_div(compute[v] - compute[u], time) : 1;

		if (fewest > pd_min64(search->line->devices, worst->devices))
			break;
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
				if (m <= most &&
				    stage_holds(search, v, rest, (int)m, time, &node))
					keep(search, &node);
			}
		}
	}
}

static bool probe(struct search *search, int64_t time)
{
	int U = search->costs->unit_count;

	for (int i = 0; i < (U + 1) * search->kept; i++)
		search->nodes[i].devices = NONE;
	nodes_of(search, U)[0] = (struct node){ .devices = 0 };
	for (int u = U - 1; u >= 0; u--) {
		pd_row_set(&search->row, u);
		fill_one(search, time);
	}
	return nodes_of(search, 0)[0].devices != NONE;
}

static struct pd_layout *walk(const struct search *search, int64_t time)
{
	const struct pd_costs *costs = search->costs;
	const struct node *node = nodes_of(search, 0);
	size_t room = (size_t)node->stages;
	struct pd_layout *layout = pd_zalloc(sizeof(*layout));

	layout->cost_ns = time;
	layout->layers = pd_calloc(room, sizeof(int));
	layout->replicas = pd_calloc(room, sizeof(int));
	layout->ranks = pd_calloc(room, sizeof(*layout->ranks));
	for (int u = 0; u < costs->unit_count; u = node->next) {
		int s = layout->stage_count++, rest;

		if (u > 0)
			node = nodes_of(search, u) + node->which;
		rest = nodes_of(search, node->next)[node->which].devices;

		layout->layers[s] = costs->first[node->next] - costs->first[u];
		layout->replicas[s] = node->devices - rest;
		layout->ranks[s] = pd_calloc((size_t)layout->replicas[s], sizeof(int));
		for (int r = 0; r < layout->replicas[s]; r++)
			layout->ranks[s][r] = rest + r;
	}
	return layout;
}

static struct search *search_new(const struct pd_line *line)
{
	struct search *search = pd_zalloc(sizeof(*search));

	search->line = line;
	search->costs = line->costs;
	pd_map_init(&search->map, line->topology, line->devices);
	pd_row_init(&search->row, line->costs);
	search->kept = line->kept;
	search->nodes = pd_calloc(((size_t)line->costs->unit_count + 1) * (size_t)line->kept,
				  sizeof(*search->nodes));
	return search;
}

static void search_free(struct search *search)
{
	pd_row_release(&search->row);
	pd_map_release(&search->map);
	free(search->nodes);
	free(search);
}

struct pd_layout *pd_line_search(const struct pd_line *line)
{
	struct search *search = search_new(line);
	const struct pd_costs *costs = line->costs;
	int64_t low = costs->compute_ns[costs->unit_count] / line->devices, high = PD_COST_MAX;
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
