/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans for devices in a row, from the last stage to the first.
 *
 * The recurrence of SOSP 2019 (levels.c) on one level asks for the least time on a number
 * of devices.  Here the question is turned round, which needs one dimension less: for a
 * time t, the fewest devices on which every stage from unit u on takes at most t,
 *
 *     F(u) = min over u < v <= U of  m(u, v) + F(v),      F(U) = 0,
 *     m(u, v) = the least m with T([u, v), m) <= t whose replicas' bytes fit
 *
 * and the least t with F(0) <= D is found by bisection; times are integers, so it is the
 * recurrence's minimum exactly.
 *
 * From this end memory is exact: the warm-up of a stage is ceil(R / m) - 1 with R the ranks
 * of the stage and all later ones, m + F(v).  And fewest is best: a stage with fewer ranks
 * behind it holds no more bytes, so a plan stays one when what follows v is replaced by
 * what F(v) stands for.  It follows too that in a plan that uses F(0) devices every part
 * from u on uses exactly F(u); the plans to choose from are thus the paths of a graph
 * whose nodes are the units, and choice() takes one of them by the documented order.
 *
 * A stage does m minibatches in pd_stage_work_total_ns, which does not fall with m; so when
 * total(m) / m > t, nothing below total(m) / t is enough either.
 */
#include "planner/search.h"

#include "base/mem.h"

#include <stdlib.h>

void pd_partition_free(struct pd_partition *partition)
{
	if (!partition)
		return;
	for (int s = 0; partition->ranks && s < partition->stage_count; s++)
		free(partition->ranks[s]);
	free(partition->ranks);
	free(partition->order);
	free(partition->layers);
	free(partition->replicas);
	free(partition->warmups);
	free(partition);
}

/* What follows a stage of layer k is a plan of layer k - 1; with `any`, of the same layer. */
struct layer {
	int *devices;                   /* F(u), or NONE */
	int64_t *slowest;               /* of the stages behind it */
	int *stages;                    /* the fewest of a path, once the graph is known */
	int64_t *bytes;                 /* then the least at the fullest rank of such a path */
};

#define NONE INT32_MAX

struct search {
	const struct pd_flat *flat;
	const struct pd_costs *costs;
	struct pd_row row;
	int count;                      /* layers 0 to count: plans of so many stages; 0: any */
	struct layer *layers;
};

static struct search *search_new(const struct pd_flat *flat, int count)
{
	struct search *search = pd_zalloc(sizeof(*search));
	size_t room = (size_t)flat->costs->unit_count + 1;

	search->flat = flat;
	search->costs = flat->costs;
	search->count = count;
	search->layers = pd_calloc((size_t)count + 1, sizeof(*search->layers));
	pd_row_init(&search->row, flat->costs);
	for (int k = 0; k <= count; k++) {
		struct layer *layer = &search->layers[k];

		*layer = (struct layer){
			.devices = pd_calloc(room, sizeof(*layer->devices)),
			.slowest = pd_calloc(room, sizeof(*layer->slowest)),
			.stages = pd_calloc(room, sizeof(*layer->stages)),
			.bytes = pd_calloc(room, sizeof(*layer->bytes)),
		};
		for (size_t u = 0; u < room; u++)
			layer->devices[u] = NONE;
	}
	search->layers[0].devices[room - 1] = 0;
	return search;
}

static void search_free(struct search *search)
{
	for (int k = 0; k <= search->count; k++) {
		free(search->layers[k].devices);
		free(search->layers[k].slowest);
		free(search->layers[k].stages);
		free(search->layers[k].bytes);
	}
	free(search->layers);
	pd_row_release(&search->row);
	free(search);
}

static bool fits(struct search *search, int v, int m, int ranks)
{
	int64_t limit = search->costs->memory_limit_bytes;

	return limit == INT64_MAX ||
		pd_row_memory(&search->row, v, m, (ranks + m - 1) / m - 1) <= limit;
}

/* m(u, v) with rest devices behind it, if it is at most `most`; else NONE. */
static int least_replicas(struct search *search, int v, int64_t time, int rest, int most,
			  int64_t *time_p)
{
	const struct pd_level *link = &search->flat->link;
	struct pd_stage_work work;
	int64_t m = 1;

	pd_row_work(&search->row, v, link, &work);
	while (m <= most) {
		int64_t total = pd_stage_work_total_ns(&work, link, m);
		int64_t enough = time > 0 ? pd_ceil_div(total, time) : total > 0 ? NONE : 1;

		if (enough > m) {
			m = enough;
			continue;
		}
		if (fits(search, v, (int)m, (int)m + rest)) {
			*time_p = pd_stage_work_ns(&work, link, m);
			return (int)m;
		}
		/* more replicas mean a shorter warm-up, but never less than this */
		if (!fits(search, v, 2, rest ? 4 : 2))
			break;
		m++;
	}
	return NONE;
}

/* F(u) for one u: what follows is in next. */
static void fill_one(struct search *search, int64_t time, const struct layer *next,
		     struct layer *to)
{
	const int64_t *compute = search->costs->compute_ns;
	int u = search->row.unit, U = search->costs->unit_count, best = NONE;
	int most = search->flat->straight ? 1 : search->flat->devices;
	int64_t slowest = 0, least = time > 0 ? pd_ceil_div(compute[U] - compute[u], time) : 1;

	for (int v = u + 1; v <= U && (best == NONE || best > least); v++) {
		int rest = next->devices[v], room = best == NONE ? search->flat->devices : best - 1;
		int64_t here;
		int m;

		if ((__int128)time * most < compute[v] - compute[u])
			break;
		if (rest >= room)
			continue;
		room -= rest;
		if (room > most)
			room = most;
		if ((__int128)time * room < compute[v] - compute[u])
			continue;
		m = least_replicas(search, v, time, rest, room, &here);
		if (m == NONE)
			continue;
		best = m + rest;
		slowest = pd_max64(here, next->slowest[v]);
	}
	to->devices[u] = best;
	to->slowest[u] = slowest;
}

/* F for layers from first to last. */
static void fill(struct search *search, int64_t time, int first, int last)
{
	for (int u = search->costs->unit_count - 1; u >= 0; u--) {
		pd_row_set(&search->row, u);
		for (int k = first; k <= last; k++)
			fill_one(search, time, &search->layers[k > 0 ? k - 1 : 0],
				 &search->layers[k]);
	}
}

/*
 * Layers 1 to count must end what layer 0 begins at the end: while they are filled, layer
 * 0 stands for the empty plan alone.
 */
static void probe(struct search *search, int64_t time, int count)
{
	if (count > 0)
		for (int u = 0; u < search->costs->unit_count; u++)
			search->layers[0].devices[u] = NONE;
	fill(search, time, count > 0, count);
}

/* The fewest devices of a plan of 1 to count stages, or any; *layer_p: how many, or 0. */
static int fewest(const struct search *search, int count, int *layer_p)
{
	int best = NONE;

	for (int k = count > 0; k <= count; k++)
		if (search->layers[k].devices[0] < best) {
			best = search->layers[k].devices[0];
			*layer_p = k;
		}
	return best;
}

/* The least time of a plan of 1 to count stages, or any (0); the tables are then its. */
static int64_t least_time(struct search *search, int count)
{
	const struct pd_costs *costs = search->costs;
	int64_t low = costs->compute_ns[costs->unit_count] / search->flat->devices;
	int64_t high = PD_COST_MAX;
	int layer = 0;

	probe(search, high, count);
	if (fewest(search, count, &layer) == NONE)
		return PD_NEVER;
	high = search->layers[layer].slowest[0];
	while (low < high) {
		int64_t middle = low + (high - low) / 2;

		probe(search, middle, count);
		if (fewest(search, count, &layer) == NONE)
			low = middle + 1;
		else
			high = search->layers[layer].slowest[0];
	}
	probe(search, high, count);
	return high;
}

/* Does a stage [u, v) belong to the graph?  Its replicas and bytes. */
static bool edge(struct search *search, int64_t time, int k, int v, int *m_p, int64_t *bytes_p)
{
	const struct layer *from = &search->layers[k], *to = &search->layers[k > 0 ? k - 1 : 0];
	int all = from->devices[search->row.unit], rest = to->devices[v], m;
	struct pd_stage_work work;

	if (all == NONE || rest == NONE || rest >= all)
		return false;
	m = all - rest;
	if (search->flat->straight && m > 1)
		return false;
	pd_row_work(&search->row, v, &search->flat->link, &work);
	if (pd_stage_work_ns(&work, &search->flat->link, m) > time)
		return false;
	*m_p = m;
	*bytes_p = pd_row_memory(&search->row, v, m, (all + m - 1) / m - 1);
	return *bytes_p <= search->costs->memory_limit_bytes;
}

static void weigh_one(struct search *search, int64_t time, int k)
{
	struct layer *from = &search->layers[k], *to = &search->layers[k > 0 ? k - 1 : 0];
	int u = search->row.unit, m;
	int64_t bytes;

	from->stages[u] = NONE;
	for (int v = u + 1; v <= search->costs->unit_count; v++) {
		if (!edge(search, time, k, v, &m, &bytes) || to->stages[v] >= from->stages[u])
			continue;
		bytes = pd_max64(bytes, to->bytes[v]);
		if (to->stages[v] + 1 == from->stages[u] && bytes >= from->bytes[u])
			continue;
		from->stages[u] = to->stages[v] + 1;
		from->bytes[u] = bytes;
	}
}

/* Fewest stages, then least bytes at the fullest rank, from every node to the end. */
static void weigh(struct search *search, int64_t time, int layer)
{
	for (int u = search->costs->unit_count - 1; u >= 0; u--) {
		pd_row_set(&search->row, u);
		for (int k = layer > 0; k <= layer; k++)
			weigh_one(search, time, k);
	}
}

/* The shortest next stage of a best path. */
static int choice(struct search *search, int64_t time, int k, int64_t limit, int *m_p)
{
	const struct layer *to = &search->layers[k > 0 ? k - 1 : 0];
	int u = search->row.unit;
	int64_t bytes;

	for (int v = u + 1; v <= search->costs->unit_count; v++)
		if (edge(search, time, k, v, m_p, &bytes) && bytes <= limit &&
		    to->stages[v] == search->layers[k].stages[u] - 1 && to->bytes[v] <= limit)
			return v;
	pd_bug("planner: the table has no plan from unit %d on", u);
}

/* A best plan of the tables as least_time left them. */
static struct pd_partition *walk(struct search *search, int64_t time, int count)
{
	const struct pd_costs *costs = search->costs;
	struct pd_partition *partition = pd_zalloc(sizeof(*partition));
	int k = 0, v, m;
	int64_t limit;
	size_t room;

	fewest(search, count, &k);
	weigh(search, time, k);
	limit = search->layers[k].bytes[0];
	room = (size_t)search->layers[k].stages[0];
	partition->cost_ns = time;
	partition->layers = pd_calloc(room, sizeof(*partition->layers));
	partition->replicas = pd_calloc(room, sizeof(*partition->replicas));
	for (int u = 0; u < costs->unit_count; u = v, k -= k > 0) {
		pd_row_set(&search->row, u);
		v = choice(search, time, k, limit, &m);
		partition->layers[partition->stage_count] = costs->first[v] - costs->first[u];
		partition->replicas[partition->stage_count++] = m;
	}
	return partition;
}

struct pd_partition *pd_flat_search(const struct pd_flat *flat, int count)
{
	struct search *search = search_new(flat, count);
	int64_t time = least_time(search, count);
	struct pd_partition *partition = time == PD_NEVER ? NULL : walk(search, time, count);

	search_free(search);
	return partition;
}
