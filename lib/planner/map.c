/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/map.h"

#include "base/mem.h"

#include <stdlib.h>

#define TYPICAL_BYTES 100000000         /* of an all-reduce, against the latency of its steps */
#define MOST_KNOWN 1100                 /* devices for which there is a table of all-reduces */

void pd_map_init(struct pd_map *map, const struct pd_topology *topology, int devices)
{
	int64_t width = INT64_MAX;
	size_t n = (size_t)devices * ((size_t)devices + 1) + 1;

	*map = (struct pd_map){ .topology = topology, .devices = devices };
	map->size[0] = 1;
	for (int k = 0; k < topology->levels; k++) {
		map->size[k + 1] = map->size[k] * topology->level[k].count;
		width = pd_min64(width, topology->level[k].bandwidth_bytes_per_s);
		map->width[k] = width;
		map->ns_per_byte[k] = 1e9 / (double)width;
	}
	if (devices > MOST_KNOWN)
		return;
	map->reduce = pd_calloc(n, sizeof(double));
	for (size_t i = 0; i < n; i++)
		map->reduce[i] = -1;
}

void pd_map_release(struct pd_map *map)
{
	free(map->reduce);
}

static int64_t inside(const struct pd_span *span, int64_t begin, int64_t end)
{
	int64_t a = pd_max64(span->begin, begin), b = pd_min64(span->end, end);

	return b > a ? b - a : 0;
}

static bool chained(const struct pd_map *map, const struct pd_span *span)
{
	return pd_topology_chains_line(map->topology, span->begin, (int)(span->end - span->begin),
				       TYPICAL_BYTES);
}

/* All of the buffer, once for each neighbour of the component's first and last device. */
static double chain_load(const struct pd_map *map, const struct pd_span *span, int k, int64_t at,
			 double bytes)
{
	int64_t first = at / map->size[k] * map->size[k], end = first + map->size[k];
	double load = 0;

	if (span->begin < first)
		load += bytes * map->ns_per_byte[pd_topology_level(map->topology, first - 1, first)];
	if (end < span->end)
		load += bytes * map->ns_per_byte[pd_topology_level(map->topology, end - 1, end)];
	return load;
}

/* What a component's link at level k carries in an all-reduce: its members' pieces. */
static double reduce_load(const struct pd_map *map, const struct pd_span *span, bool chain, int k,
			  int64_t at, double piece_bytes)
{
	int64_t c = at / map->size[k] * map->size[k];
	int64_t here = inside(span, c, c + map->size[k]), within = here;
	double load = 0;

	if (chain)
		return chain_load(map, span, k, at,
				  piece_bytes * (double)(span->end - span->begin));
	for (int l = k; l < map->topology->levels; l++) {
		int64_t o = at / map->size[l + 1] * map->size[l + 1];
		int64_t around = inside(span, o, o + map->size[l + 1]);

		load += 2.0 * (double)(around - within) * piece_bytes * map->ns_per_byte[l];
		within = around;
	}
	return load * (double)here;
}

/* The busiest link of an all-reduce of pieces of one byte: that of an end of the stage, or of a
 * component that is full. */
static double busiest(const struct pd_map *map, const struct pd_span *span)
{
	bool chain = chained(map, span);
	double most = 0;

	for (int k = 0; k < map->topology->levels; k++) {
		int64_t full = pd_ceil_div(span->begin, map->size[k]) * map->size[k];
		int64_t at[] = { span->begin, full < span->end ? full : span->begin,
				 span->end - 1 };

		for (size_t i = 0; i < PD_COUNT(at); i++) {
			double load = reduce_load(map, span, chain, k, at[i], 1);

			most = load > most ? load : most;
		}
	}
	return most;
}

/* How long an all-reduce takes. */
int64_t pd_map_reduce_ns(const struct pd_map *map, const struct pd_span *span, double piece)
{
	const struct pd_topology *topology = map->topology;
	size_t D = (size_t)map->devices;
	double none = -1, *known = map->reduce ? &map->reduce[(size_t)span->begin * (D + 1) +
					(size_t)(span->end - span->begin)] : &none;
	int outermost;

	if (piece == 0)
		return 0;
	if (*known < 0)
		*known = busiest(map, span);
	outermost = pd_topology_level(topology, span->begin, span->end - 1);
	return *known * piece < (double)PD_COST_MAX
		? (int64_t)(*known * piece) + 2 * topology->level[outermost].latency_ns
		: PD_COST_MAX;
}

/* What goes out of (and comes into) the component that contains a device, per minibatch
 * between two stages: activations of one for replicas outside, gradients of the other. */
static double pass_load(const struct pd_map *map, const struct pd_span *a, const struct pd_span *b,
			int k, int64_t at, int64_t bytes)
{
	int64_t c = at / map->size[k] * map->size[k];
	double x = (double)inside(a, c, c + map->size[k]) / (a->end - a->begin);
	double y = (double)inside(b, c, c + map->size[k]) / (b->end - b->begin);

	return (x * (1 - y) + y * (1 - x)) * (double)bytes * map->ns_per_byte[k];
}

static double load_at(const struct pd_map *map, const struct pd_span_load *load, bool chain, int k,
		      int64_t at)
{
	double ns = 0;

	if (load->piece > 0)
		ns += reduce_load(map, load->own, chain, k, at, load->piece) / load->group;
	if (load->next)
		ns += pass_load(map, load->own, load->next, k, at, load->out_bytes);
	return ns;
}

bool pd_map_holds(const struct pd_map *map, const struct pd_span_load *load,
		  const double *behind_ns, double time, double *load_ns)
{
	bool chain = load->piece > 0 && chained(map, load->own);

	for (int k = 0; k < map->topology->levels; k++) {
		int64_t size = map->size[k], first = load->own->begin, last = load->own->end - 1;
		double here = load_at(map, load, chain, k, first);
		bool shared = first % size != 0, one = first / size == last / size;
		int64_t full = pd_ceil_div(first, size) * size;

		if (shared)
			here += behind_ns[k];
		if (here > time)
			return false;
		if (!one && full < last && load_at(map, load, chain, k, full) > time)
			return false;
		if (!one)
			here = load_at(map, load, chain, k, last);
		if (here > time)
			return false;
		/* the last component behind gets more to carry */
		if (load->next && !shared &&
		    behind_ns[k] + load_at(map, load, chain, k, first - 1) > time)
			return false;
		load_ns[k] = here;
	}
	return true;
}

/* One transfer at its slowest. */
int64_t pd_map_way_ns(const struct pd_map *map, const struct pd_span *a, const struct pd_span *b,
		      int64_t bytes)
{
	const struct pd_topology *topology = map->topology;
	int level = pd_topology_level(topology, a->end - 1, b->begin);

	return topology->level[level].latency_ns + pd_bytes_ns(bytes, map->width[level]);
}
