/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans for devices on a line, servers one behind the other: where a stage is decides which
 * links it uses.
 *
 * The question is the fewest devices on which every stage from point u on takes at
 * most a time t,
 *
 *     F(u) = min over u < v <= U of  m(u, v, F(v)) + F(v),      F(U) = 0,
 *
 * where points are the units of the profile's order, or the states of the network, v then being
 * those that contain u (points.h).
 *
 * But stage [u, v) now has the devices F(v) to F(v) + m - 1, counted from the end of the line,
 * so that the links between its replicas and to the stage behind it are known, those which a
 * component shares among them (line_stage.c).
 *
 * F(v) stands for one plan of what is behind v.  What goes on from there may be better with
 * another: where a server ends makes a difference, so plans of a few more devices are kept
 * beside the one of fewest, and still this is a search for good plans and not a proof.  Which of
 * them are best the event simulation says.
 */
#include "planner/search/line_search.h"

#include "base/mem.h"

#include <stdlib.h>

#define PROBES 48
#define LITTLE 256                      /* part of the bound by which times are tried */
#define BLOCK 64                        /* points whose fewest devices are known together */

/* Tells whether the stage [u, v) can fit with some replicas and warm-up. */
static bool may_fit(const struct line_search *search, int v)
{
	int64_t limit = search->line->memory_limit_bytes;

	return search->roomy >= 0 || pd_points_memory(search->points, search->u, v, 1, 0) <= limit;
}

/*
 * Returns the devices left for u: the layers before u compute too, and no device for longer than
 * this time.
 */
static int room_for(const struct line_search *search, int u, int64_t time)
{
	int64_t before = search->points->compute_ns[u];

	if (before == 0)
		return search->line->devices;
	before = time > 0 ? pd_ceil_div(before, time) : INT32_MAX;
	return (int)pd_max64(0, search->line->devices - before);
}

/* Tells whether a stage with this computing time can keep to a time on the devices left. */
static bool may_do(int64_t compute_ns, int64_t time, int64_t devices)
{
	return devices > 0 && (time == 0 || compute_ns <= (__int128)devices * time);
}

/* Finds the plans of the layers behind u. */
static void fill_one(struct line_search *search, int64_t time)
{
	const struct pd_points *points = search->points;
	const int64_t *compute = points->compute_ns;
	const struct node *worst = &line_nodes(search, search->u)[search->kept - 1];
	int u = search->u, count = pd_points_ends(points, u);
	int64_t least = time > 0 ? pd_ceil_div(compute[points->last] - compute[u], time) : 1;

	for (int i = 0; i < count && worst->devices > least; i++) {
		int v = pd_points_end(points, u, i);
		int64_t ns = compute[v] - compute[u], most = pd_min64(search->room, worst->devices);

		if (!may_do(ns, time, most))
			break;
		if (!points->states && v % BLOCK == 0 &&
		    !may_do(ns, time, most - search->fewest[v / BLOCK])) {
			i += BLOCK - 1;
			continue;
		}
		if (!may_do(ns, time, most - search->devices[v]) || !may_fit(search, v))
			continue;
		pd_line_fill_stage(search, v, time);
	}
}

/* Tells whether any stage can be before the plan. */
static bool goes_on(const struct line_search *search, int u, const struct node *node, int64_t time)
{
	struct pd_span own = { 0, node->devices };

	if (u == search->points->last)
		return true;
	own.begin = line_nodes(search, node->next)[node->which].devices;
	return pd_map_takes(search->map, &own, search->points->cut_bytes[u], node->load_ns,
			    (double)time);
}

/* Sets F of u, over plans that something can be before, and of the block that begins with u. */
static void note_fewest(struct line_search *search, int u, int64_t time)
{
	int *fewest = &search->fewest[u / BLOCK], kept = 0;
	struct node *list = line_nodes(search, u);

	for (int i = 0; i < search->kept && list[i].devices != NONE; i++)
		if (u == 0 || goes_on(search, u, &list[i], time))
			list[kept++] = list[i];
	if (kept < search->kept)
		list[kept].devices = NONE;
	search->devices[u] = list[0].devices;
	if (u % BLOCK != 0)
		return;
	*fewest = NONE;
	for (int v = u; v < u + BLOCK && v <= search->points->last; v++)
		*fewest = search->devices[v] < *fewest ? search->devices[v] : *fewest;
}

static bool probe(struct line_search *search, int64_t time)
{
	int U = search->points->last;

	for (int i = 0; i < (U + 1) * search->kept; i++)
		search->nodes[i].devices = NONE;
	line_nodes(search, U)[0] = (struct node){ .devices = 0 };
	note_fewest(search, U, time);
	for (int u = U - 1; u >= 0; u--) {
		search->u = u;
		search->room = room_for(search, u, time);
		if (search->room > 0) {
			pd_points_set(search->points, u);
			fill_one(search, time);
		}
		note_fewest(search, u, time);
	}
	return search->devices[0] != NONE;
}

/* Makes a partition of what was found for a time. */
static struct pd_partition *walk(const struct line_search *search, int64_t time)
{
	const struct node *nodes = search->found, *node = nodes;
	size_t room = (size_t)node->stages;
	struct pd_partition *partition = pd_zalloc(sizeof(*partition));
	int *ends = pd_calloc(room, sizeof(*ends));

	partition->cost_ns = time;
	partition->replicas = pd_calloc(room, sizeof(int));
	partition->ranks = pd_calloc(room, sizeof(*partition->ranks));
	for (int u = 0; u < search->points->last; u = node->next) {
		int s = partition->stage_count++, rest;

		if (u > 0)
			node = &nodes[u * search->kept + node->which];
		rest = nodes[node->next * search->kept + node->which].devices;

		ends[s] = node->next;
		partition->replicas[s] = node->devices - rest;
		partition->ranks[s] = pd_calloc((size_t)partition->replicas[s], sizeof(int));
		for (int r = 0; r < partition->replicas[s]; r++)
			partition->ranks[s][r] = rest + r;
	}
	pd_points_layers(search->points, ends, partition->stage_count, &partition->layers,
			 &partition->order);
	free(ends);
	return partition;
}

/*
 * Returns a warm-up with which any stage fits: the whole network does, with its parameters once
 * more, and the largest cut for all that crosses bounds.
 */
static int64_t roomy_warmup(const struct pd_line *line)
{
	struct pd_points *points = line->points;
	int64_t cut = 0, bytes[2], each;

	if (line->memory_limit_bytes == INT64_MAX)
		return INT64_MAX;
	for (int u = 0; u <= points->last; u++)
		cut = pd_max64(cut, points->cut_bytes[u]);
	pd_points_set(points, 0);
	for (int w = 0; w < 2; w++)
		bytes[w] = pd_points_memory(points, 0, points->last, 2, w) +
			pd_times(2, points->parameter_bytes[points->last]) + pd_times(8, cut);
	each = pd_plus(bytes[1] - bytes[0] + 1, pd_times(2, cut));
	return bytes[0] > line->memory_limit_bytes ? -1
		: (line->memory_limit_bytes - bytes[0]) / each;
}

static struct line_search *search_new(const struct pd_line *line)
{
	struct line_search *search = pd_zalloc(sizeof(*search));

	search->line = line;
	search->points = line->points;
	search->roomy = roomy_warmup(line);
	search->map = line->map;
	search->kept = line->kept;
	for (int i = 0; i < 2; i++)
		search->of[i] = pd_calloc(((size_t)line->points->last + 1) * (size_t)line->kept,
					  sizeof(*search->nodes));
	search->nodes = search->of[0];
	search->devices = pd_calloc((size_t)line->points->last + 1, sizeof(int));
	search->fewest = pd_calloc((size_t)line->points->last / BLOCK + 1, sizeof(int));
	return search;
}

static void search_free(struct line_search *search)
{
	free(search->of[0]);
	free(search->of[1]);
	free(search->devices);
	free(search->fewest);
	free(search);
}

/* Tries a time and keeps what it finds, since the next try overwrites the nodes. */
static bool finds(struct line_search *search, int64_t time)
{
	bool found = probe(search, time);

	if (found) {
		search->found = search->nodes;
		search->nodes = search->of[search->nodes == search->of[0]];
	}
	return found;
}

/*
 * Returns a time that is enough: often little above the bound, else up to twice as much, and so on
 * up to the most.
 */
static int64_t above(struct line_search *search, int64_t *low_p)
{
	int64_t part = *low_p / LITTLE, high = *low_p + part, most = search->line->most_ns;

	if (part > 0 && finds(search, high))
		return high;
	if (most > 0 && most < 2 * *low_p)
		return finds(search, most) ? most : PD_COST_MAX;
	for (high = pd_max64(2 * *low_p, 1); high < PD_COST_MAX && !finds(search, high); high *= 2) {
		if (most > 0 && high >= most)
			return PD_COST_MAX;
		*low_p = high;
	}
	return high;
}

struct pd_partition *pd_line_search(const struct pd_line *line)
{
	struct line_search *search = search_new(line);
	const struct pd_points *points = line->points;
	int64_t low = pd_max64(points->compute_ns[points->last] / line->devices, line->bound_ns);
	int64_t high = above(search, &low);
	struct pd_partition *partition = NULL;

	if (high < PD_COST_MAX) {
		for (int i = 0; i < PROBES && low + low / line->precision < high; i++) {
			int64_t middle = low + (high - low) / 2;

			if (finds(search, middle))
				high = middle;
			else
				low = middle + 1;
		}
		partition = walk(search, high);
	}
	search_free(search);
	return partition;
}

struct pd_partition *pd_line_at(const struct pd_line *line, int64_t time)
{
	struct line_search *search = search_new(line);
	struct pd_partition *partition = finds(search, time) ? walk(search, time) : NULL;

	search_free(search);
	return partition;
}
