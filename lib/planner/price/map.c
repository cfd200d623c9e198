/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/price/map.h"

#include "base/mem.h"
#include "topology/allreduce.h"

#include <limits.h>
#include <stdlib.h>

#define TYPICAL_BYTES 100000000         /* bytes of an all-reduce, to compare with the latency of
					   its steps */
#define MOST_KNOWN (1 << 20)            /* largest table of all-reduces */

void pd_map_init(struct pd_map *map, const struct pd_topology *topology, int devices)
{
	int64_t n;

	*map = (struct pd_map){ .topology = topology, .devices = devices };
	map->size[0] = 1;
	for (int k = 0; k < topology->levels; k++) {
		map->size[k + 1] = map->size[k] * topology->level[k].count;
		map->width[k] = pd_slowest_link(topology, k).bandwidth_bytes_per_s;
		map->ns_per_byte[k] = 1e9 / (double)topology->level[k].bandwidth_bytes_per_s;
	}
	for (int k = 0; k <= topology->levels; k++) {
		map->start[k] = pd_calloc((size_t)devices + 1, sizeof(int));
		for (int d = 0; d <= devices; d++)
			map->start[k][d] = (int)(d / map->size[k] * map->size[k]);
	}
	map->unit = (int)pd_min64(map->size[topology->levels - 1], devices);
	n = (int64_t)map->unit * (devices + 1);
	if (n > MOST_KNOWN) {
		map->unit = 0;
		n = 1;
	}
	map->stride = 3 * (size_t)topology->levels;
	map->most = pd_calloc((size_t)n, sizeof(double));
	map->known = pd_calloc((size_t)n * map->stride, sizeof(double));
}

void pd_map_release(struct pd_map *map)
{
	for (int k = 0; k <= map->topology->levels; k++)
		free(map->start[k]);
	free(map->most);
	free(map->known);
}

/* Returns the outermost level of the way between two devices. */
static int level_of(const struct pd_map *map, int a, int b)
{
	int k = 0;

	while (k < map->topology->levels - 1 && map->start[k + 1][a] != map->start[k + 1][b])
		k++;
	return k;
}

static int64_t inside(const struct pd_span *span, int64_t begin, int64_t end)
{
	int64_t a = pd_max64(span->begin, begin), b = pd_min64(span->end, end);

	return b > a ? b - a : 0;
}

/*
 * Returns the time of a component's link at level k for an all-reduce of pieces of one byte: what
 * its members send to others.
 */
static double reduce_load(const struct pd_map *map, const struct pd_span *span, int k, int at)
{
	int64_t c = map->start[k][at], n = span->end - span->begin;
	int64_t here = inside(span, c, c + map->size[k]);

	return 2.0 * (double)(n - here) * (double)here * map->ns_per_byte[k];
}

/* Returns the members of the group of a device of the stage. */
static struct pd_span group_span(const struct pd_allreduce *how, const struct pd_span *span, int at)
{
	int group = pd_allreduce_group_of(how, at - span->begin);

	return (struct pd_span){ span->begin + pd_allreduce_group_begin(how, group),
				 span->begin + pd_allreduce_group_begin(how, group + 1) };
}

/*
 * Returns the same time for groups: what the members of the first and the last device's group in
 * the component exchange, each of whom owns several pieces; and what the owners at either end, at
 * most as many as a group has, pass on to the next group and back.
 */
static double grouped_load(const struct pd_map *map, const struct pd_allreduce *how,
			   const struct pd_span *span, int k, int at)
{
	int first = (int)pd_max64(map->start[k][at], span->begin);
	int last = (int)pd_min64(map->start[k][at] + map->size[k], span->end) - 1;
	struct pd_span a = group_span(how, span, first), b = group_span(how, span, last);
	int size = a.end - a.begin;
	double owned = (double)how->members / size, exchange = 0;
	int ways;

	if (size > 1)
		exchange += reduce_load(map, &a, k, first);
	if (b.begin != a.begin && b.end - b.begin > 1)
		exchange += reduce_load(map, &b, k, last);
	ways = (a.begin > span->begin) + (b.end < span->end);
	return owned * exchange + ways * map->ns_per_byte[k] * owned *
				  (double)pd_min64(last - first + 1, size);
}

/* Returns where the first component begins, at a device or behind it. */
static int first_full(const struct pd_map *map, int first, int k)
{
	int64_t start = map->start[k][first];

	return start == first ? first : (int)pd_min64(start + map->size[k], INT_MAX);
}

/*
 * Returns the table entry of an all-reduce of pieces of one byte.  It has the loads, for each
 * level, on the links of the first device, of the first component that begins in the stage, and of
 * the last device.  `most` has the load of the busiest link, which is that of an end of the stage
 * or of a full component.  Components of the outermost level are all alike, so it is enough to know
 * where a stage begins in its own.
 */
static size_t known_of(const struct pd_map *map, const struct pd_span *span)
{
	size_t row = map->unit ? (size_t)(span->begin % map->unit) * ((size_t)map->devices + 1) +
				 (size_t)(span->end - span->begin) : 0;
	double *known = &map->known[row * map->stride], most = 0;
	struct pd_allreduce how;

	if (map->unit && map->most[row] > 0)
		return row;
	how = pd_allreduce_choose_line(map->topology, span->begin, span->end - span->begin,
				       TYPICAL_BYTES);
	for (int k = 0; k < map->topology->levels; k++) {
		int full = first_full(map, span->begin, k);
		int at[] = { span->begin, full < span->end ? full : span->begin,
			     span->end - 1 };

		for (int i = 0; i < 3; i++) {
			known[3 * k + i] = how.groups > 1
				? grouped_load(map, &how, span, k, at[i])
				: reduce_load(map, span, k, at[i]);
			if (known[3 * k + i] > most)
				most = known[3 * k + i];
		}
	}
	map->most[row] = most;
	return row;
}

/* Returns the time of an all-reduce. */
int64_t pd_map_reduce_ns(const struct pd_map *map, const struct pd_span *span, double piece)
{
	double ns;

	if (piece == 0)
		return 0;
	ns = map->most[known_of(map, span)] * piece;
	return ns < (double)PD_COST_MAX
		? (int64_t)ns +
		  2 * map->topology->level[level_of(map, span->begin, span->end - 1)].latency_ns
		: PD_COST_MAX;
}

/* The bytes between two stages, per minibatch. */
struct pass {
	const struct pd_span *a, *b;
	double a_part, b_part;          /* each replica's part of the bytes */
	double bytes;
};

/*
 * Returns the time of what leaves (and enters) the component of a device: activations of one stage
 * for replicas outside, gradients of the other.
 */
static double pass_ns(const struct pd_map *map, const struct pass *pass, int k, int at)
{
	int64_t c = map->start[k][at];
	double x = (double)inside(pass->a, c, c + map->size[k]) * pass->a_part;
	double y = (double)inside(pass->b, c, c + map->size[k]) * pass->b_part;

	return (x * (1 - y) + y * (1 - x)) * pass->bytes * map->ns_per_byte[k];
}

bool pd_map_holds(const struct pd_map *map, const struct pd_span_load *load,
		  const double *behind_ns, double time, double *load_ns)
{
	static const double none[3 * PD_MAX_LEVELS];
	const double *known = load->piece > 0
		? &map->known[known_of(map, load->own) * map->stride] : none;
	const struct pd_span *next = load->next ? load->next : load->own;
	const struct pass pass = {
		load->own, next, 1.0 / (load->own->end - load->own->begin),
		1.0 / (next->end - next->begin), load->next ? (double)load->out_bytes : 0 };
	double each = load->piece / load->group;

	for (int i = 0; i < 3; i++)     /* a device's own link */
		if (known[i] * each + (double)load->traffic_bytes * map->ns_per_byte[0] /
		    (load->own->end - load->own->begin) > time)
			return false;
	for (int k = 1; k < map->topology->levels; k++) {
		const int *start = map->start[k];
		const double *reduce = &known[3 * k];
		int first = load->own->begin, last = load->own->end - 1;
		double here = reduce[0] * each + pass_ns(map, &pass, k, first);
		bool shared = start[first] != first, one = start[first] == start[last];
		int full = first_full(map, first, k);

		if (shared)
			here += behind_ns[k];
		if (here > time)
			return false;
		if (!one && full < last && reduce[1] * each + pass_ns(map, &pass, k, full) > time)
			return false;
		if (!one)
			here = reduce[2] * each + pass_ns(map, &pass, k, last);
		if (here > time)
			return false;
		/* The last component behind gets more load, none of it from an all-reduce. */
		if (load->next && !shared &&
		    behind_ns[k] + pass_ns(map, &pass, k, first - 1) > time)
			return false;
		load_ns[k] = here;
	}
	return true;
}

bool pd_map_takes(const struct pd_map *map, const struct pd_span *own, int64_t in_bytes,
		  const double *load_ns, double time)
{
	const struct pd_span before = { own->end, own->end + 1 };
	const struct pass pass = { &before, own, 1, 1.0 / (own->end - own->begin),
				   (double)in_bytes };

	for (int k = 1; k < map->topology->levels; k++)
		if (map->start[k][own->end] == own->end &&
		    load_ns[k] + pass_ns(map, &pass, k, own->end - 1) > time)
			return false;
	return true;
}

/* Returns the time of the slowest transfer. */
int64_t pd_map_way_ns(const struct pd_map *map, const struct pd_span *a, const struct pd_span *b,
		      int64_t bytes)
{
	int level = level_of(map, a->end - 1, b->begin);

	return map->topology->level[level].latency_ns + pd_bytes_ns(bytes, map->width[level]);
}
