/* SPDX-License-Identifier: Apache-2.0 */
#include "predict/map.h"

#include "base/mem.h"
#include "sums/price.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>

#define TYPICAL_BYTES 100000000         /* bytes of an all-reduce, to compare with the latency of
					   its steps */
#define KNOWN (1 << 18)                     /* all-reduces that are remembered: a power of two */

void pd_map_init(struct pd_map *map, const struct pd_topology *topology, int devices,
		 int64_t direct_bytes_per_s)
{
	*map = (struct pd_map){ .topology = topology, .devices = devices,
				.direct_bytes_per_s = direct_bytes_per_s };
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
	map->ranks = pd_calloc((size_t)devices, sizeof(int));
	for (int d = 0; d < devices; d++)
		map->ranks[d] = d;
	map->known = pd_calloc(KNOWN, sizeof(*map->known));
	map->loads = pd_calloc(KNOWN * (size_t)topology->levels, sizeof(*map->loads));
}

void pd_map_release(struct pd_map *map)
{
	for (int k = 0; k <= map->topology->levels; k++)
		free(map->start[k]);
	free(map->ranks);
	free(map->known);
	free(map->loads);
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
	int64_t a = pd_max(span->begin, begin), b = pd_min(span->end, end);

	return b > a ? b - a : 0;
}

/* Returns where the first component begins, at a device or behind it. */
static int first_full(const struct pd_map *map, int first, int k)
{
	int64_t start = map->start[k][first];

	return start == first ? first : (int)pd_min(start + map->size[k], INT_MAX);
}

static double (*loads_of(const struct pd_map *map, const struct pd_map_reduce *known))[3]
{
	return &map->loads[(known - map->known) * map->topology->levels];
}

static void work_out(const struct pd_map *map, const struct pd_span *span,
		     struct pd_map_reduce *out_p)
{
	struct pd_allreduce how = pd_allreduce_choose(map->topology, map->ranks + span->begin,
						      out_p->count, TYPICAL_BYTES);

	for (int k = 0; k < map->topology->levels; k++) {
		double *load = loads_of(map, out_p)[k];
		int full = first_full(map, span->begin, k);
		int at[] = { span->begin, full < span->end ? full : span->begin, span->end - 1 };

		for (int i = 0; i < 3; i++) {
			int64_t start = map->start[k][at[i]];
			int first = (int)pd_max(start - span->begin, 0);
			int last = (int)pd_min(start + map->size[k], span->end) - span->begin - 1;

			load[i] = pd_traffic_out(&how, first, last) * map->ns_per_byte[k];
			out_p->most = fmax(out_p->most, load[i]);
		}
	}
}

/*
 * Returns the loads of an all-reduce.  Components of the outermost level are all alike, so it is enough
 * to know where a stage begins in its own.
 */
static const struct pd_map_reduce *reduce_of(const struct pd_map *map, const struct pd_span *span)
{
	int begin = span->begin - map->start[map->topology->levels - 1][span->begin];
	int count = span->end - span->begin;
	struct pd_map_reduce *known = &map->known[((unsigned)begin * (unsigned)(map->devices + 1) +
						   (unsigned)count) % KNOWN];

	if (known->begin != begin || known->count != count) {
		*known = (struct pd_map_reduce){ .begin = begin, .count = count };
		work_out(map, span, known);
	}
	return known;
}

/* Returns the time of an all-reduce in each other's memory; -1: it is not. */
static int64_t memory_ns(const struct pd_map *map, const struct pd_span *span, double piece)
{
	int count = span->end - span->begin;

	return pd_sum_memory_ns(&(struct pd_sum){
		PD_REDUCER_dense, { .topology = map->topology, .ranks = map->ranks + span->begin, .count = count,
				    .direct_bytes_per_s = map->direct_bytes_per_s },
		(int64_t)(piece * count) });
}

/* Returns the time of an all-reduce. */
int64_t pd_map_reduce_ns(const struct pd_map *map, const struct pd_span *span, double piece)
{
	int64_t latency_ns, direct_ns;
	double ns;

	if (piece == 0)
		return 0;
	latency_ns = map->topology->level[level_of(map, span->begin, span->end - 1)].latency_ns;
	direct_ns = memory_ns(map, span, piece);
	if (direct_ns >= 0)
		return direct_ns + 2 * latency_ns;
	ns = reduce_of(map, span)->most * piece;
	return ns < (double)PD_COST_MAX ? (int64_t)ns + 2 * latency_ns : PD_COST_MAX;
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
	static const double none[PD_MAX_LEVELS][3];
	const double (*known)[3] = load->piece > 0 && memory_ns(map, load->own, load->piece) < 0
		? (const double (*)[3])loads_of(map, reduce_of(map, load->own)) : none;
	const struct pd_span *next = load->next ? load->next : load->own;
	const struct pass pass = {
		load->own, next, 1.0 / (load->own->end - load->own->begin),
		1.0 / (next->end - next->begin), load->next ? (double)load->out_bytes : 0 };
	double each = load->piece / load->group;

	for (int i = 0; i < 3; i++)     /* a device's own link */
		if (known[0][i] * each + (double)load->traffic_bytes * map->ns_per_byte[0] /
		    (load->own->end - load->own->begin) > time)
			return false;
	for (int k = 1; k < map->topology->levels; k++) {
		const int *start = map->start[k];
		const double *reduce = known[k];
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

/* Returns the time of the slowest transfer. */
int64_t pd_map_way_ns(const struct pd_map *map, const struct pd_span *a, const struct pd_span *b,
		      int64_t bytes)
{
	int level = level_of(map, a->end - 1, b->begin);

	return map->topology->level[level].latency_ns + pd_bytes_ns(bytes, map->width[level]);
}
