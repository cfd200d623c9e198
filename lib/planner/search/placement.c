/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/search/placement.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define MOST_ORDERED 6          /* stages that are put on the line in every order */
#define MOST_DEVICES 256        /* of machines where that is done */

/* Returns the places on a line: one for each stage, or with chunks for each rank. */
static int places_of(const struct pd_plan *plan)
{
	return pd_schedule_has(plan->schedule, PD_FACT_SHARES) ? plan->rank_count / plan->stages[0].replicas
							       : plan->stage_count;
}

/* Tells whether a stage is at a place. */
static bool is_at(const struct pd_plan *plan, int stage, int place)
{
	return pd_schedule_position(plan->schedule, places_of(plan), stage) == place;
}

/* Puts the stage of place p behind `next` other devices, with chunks all that share its rank. */
static int put(struct pd_plan *plan, int p, int next)
{
	int replicas = plan->stages[p].replicas;

	for (int s = p; s < plan->stage_count; s++)
		for (int r = 0; r < replicas && is_at(plan, s, p); r++)
			plan->stages[s].ranks[r] = next + r;
	return next + replicas;
}

static void in_line(struct pd_plan *plan, bool reversed)
{
	int places = places_of(plan);

	for (int i = 0, next = 0; i < places; i++)
		next = put(plan, reversed ? places - 1 - i : i, next);
}

/* Returns the devices of a component below level k. */
static int64_t size_of(const struct pd_topology *topology, int k)
{
	int64_t size = 1;

	for (int l = 0; l < k; l++)
		size *= topology->level[l].count;
	return size;
}

/*
 * Returns how many components below level k the plan fills if each has its part of every stage; or
 * 0.
 */
static int components(const struct pd_plan *plan, int k)
{
	int64_t size = size_of(&plan->topology, k), count = plan->rank_count / size;

	if (size < 2 || count < 2 || plan->rank_count % size != 0)
		return 0;
	for (int s = 0; s < plan->stage_count; s++)
		if (plan->stages[s].replicas % count != 0)
			return 0;
	return (int)count;
}

static void strided(struct pd_plan *plan, int k)
{
	int size = (int)size_of(&plan->topology, k), count = components(plan, k), offset = 0;

	for (int p = 0; p < places_of(plan); p++) {
		int replicas = plan->stages[p].replicas;

		for (int s = p; s < plan->stage_count; s++)
			for (int r = 0; r < replicas && is_at(plan, s, p); r++)
				plan->stages[s].ranks[r] = r % count * size + offset + r / count;
		offset += replicas / count;
	}
}

/* Tells whether placement n differs from earlier ones. */
static bool differs(const struct pd_plan *plan, int n)
{
	int k = n - 1;                  /* n = 2 is below level 1 */

	if (n == 0)
		return true;
	if (n == 1)
		return places_of(plan) > 1 && !pd_topology_alike(&plan->topology);
	if (plan->topology.levels == 1 || k >= plan->topology.levels)
		return false;
	return components(plan, k) > 0;
}

bool pd_placement_set(struct pd_plan *plan, int n)
{
	if (!differs(plan, n))
		return false;
	if (n > 1)
		strided(plan, n - 1);
	else
		in_line(plan, n == 1);
	return true;
}

static int by_devices(const void *x, const void *y, void *size)
{
	const int *a = x, *b = y;

	for (int64_t d = 0; d < *(const int64_t *)size; d++)
		if (a[d] != b[d])
			return a[d] > b[d] ? -1 : 1;
	return 0;
}

/*
 * Puts the components of a level into one order, inside each of them first: all, or neighbours that are alike.
 * `own` is what is on all devices, and the level's components begin with device `first`.
 */
static void sort_components(const struct pd_topology *topology, int *own, int64_t first, int level)
{
	int64_t size = size_of(topology, level), count = topology->level[level].count, next;

	for (int64_t i = 0; i < count && level > 0; i++)
		sort_components(topology, own, first + i * size, level - 1);
	for (int64_t i = 0; i < count; i = next) {
		int *at = own + first + i * size;

		next = pd_topology_alike(topology) ? count : i + 1;
		while (next < count && pd_topology_same(topology, first + i * size, first + next * size, size))
			next++;
		qsort_r(at, (size_t)(next - i), (size_t)size * sizeof(*at), by_devices, &size);
	}
}

bool pd_placements_add(struct pd_placements *seen, const struct pd_plan *plan)
{
	const struct pd_topology *topology = &plan->topology;
	size_t devices = (size_t)topology->devices;
	int *own, number = 1;

	seen->list = pd_grow(seen->list, &seen->capacity, seen->count + 1, devices * sizeof(int));
	own = seen->list + seen->count * devices;
	memset(own, 0, devices * sizeof(int));
	for (int s = 0; s < plan->stage_count; s++)
		for (int r = 0; r < plan->stages[s].replicas; r++)
			own[plan->stages[s].ranks[r]] = number++;
	/* If ranks share processors, which one a rank has follows from its number. */
	if (topology->processors == 0)
		sort_components(topology, own, 0, topology->levels - 1);
	for (size_t i = 0; i < seen->count; i++)
		if (memcmp(seen->list + i * devices, own, devices * sizeof(int)) == 0)
			return false;
	seen->count++;
	return true;
}

void pd_placements_release(struct pd_placements *seen)
{
	free(seen->list);
	*seen = (struct pd_placements){ 0 };
}

struct orders {
	struct pd_placements seen;
	void (*found)(void *context, struct pd_plan *plan);
	void *context;
};

/* Puts stages that are not among `placed`, a bit for each place, behind `next` devices in every order. */
static void put_rest(struct orders *orders, struct pd_plan *plan, unsigned placed, int next)
{
	int places = places_of(plan);

	for (int p = 0; p < places; p++)
		if (!(placed >> p & 1))
			put_rest(orders, plan, placed | 1U << p, put(plan, p, next));
	if (placed == (1U << places) - 1 && pd_placements_add(&orders->seen, plan))
		orders->found(orders->context, plan);
}

bool pd_placement_each(struct pd_plan *plan, void (*found)(void *context, struct pd_plan *plan),
		       void *context)
{
	struct orders orders = { .found = found, .context = context };
	bool one = plan->topology.levels == 1 && plan->topology.processors == 0 &&
		   pd_topology_alike(&plan->topology);
	bool few = places_of(plan) <= MOST_ORDERED && plan->topology.devices <= MOST_DEVICES;

	for (int n = 0; n < PD_PLACEMENTS; n++)
		if (pd_placement_set(plan, n) && pd_placements_add(&orders.seen, plan))
			found(context, plan);
	if (few && !one)
		put_rest(&orders, plan, 0, 0);
	pd_placements_release(&orders.seen);
	return one || few;
}
