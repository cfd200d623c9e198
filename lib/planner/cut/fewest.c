/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/cut/fewest.h"

#include "base/mem.h"

#include <stdlib.h>

#define FIRST_STEP 64           /* part of the least value by which the search for one that holds begins */
#define STAGE_STEPS 16          /* steps (base/effort.h) of looking at a stage */

/* Tells whether so many devices can do what is between two points. */
static bool enough(const struct pd_fewest *fewest, int u, int v, int devices, int64_t value)
{
	return !fewest->ns || fewest->ns[v] - fewest->ns[u] <= (__int128)value * devices;
}

/* Returns a number of devices that no plan of the layers behind u is below. */
static int64_t least(const struct pd_fewest *fewest, int u, int64_t value)
{
	return fewest->ns ? pd_ceil_div(fewest->ns[fewest->points->last] - fewest->ns[u], value) : 1;
}

/* Keeps the fewest devices. */
static int look(struct pd_fewest *fewest, int u, int i, int most, int64_t value)
{
	int v = pd_points_end(fewest->points, u, i), behind = fewest->devices[v];
	int m = fewest->stage(fewest, u, i, behind,
			      most - behind < fewest->each ? most - behind : fewest->each, value);

	pd_effort_spend(fewest->effort, STAGE_STEPS);
	if (m == PD_FEWEST_NONE || m == PD_FEWEST_TOO_LONG)
		return m == PD_FEWEST_NONE ? most : 0;
	fewest->devices[u] = m + behind;
	fewest->next[u] = v;
	return m + behind <= least(fewest, u, value) ? 0 : m + behind - 1;
}

void pd_fewest_init(struct pd_fewest *fewest)
{
	size_t room = (size_t)fewest->points->last + 1;

	if (!fewest->look)
		fewest->look = look;
	fewest->devices = pd_calloc(room, sizeof(int));
	fewest->next = pd_calloc(room, sizeof(int));
}

void pd_fewest_release(struct pd_fewest *fewest)
{
	free(fewest->devices);
	free(fewest->next);
}

void pd_fewest_each(struct pd_fewest *fewest, int u, int most, int64_t value)
{
	const struct pd_points *points = fewest->points;
	const int *devices = fewest->devices;

	int i = 0;

	if (pd_effort_spent(fewest->effort))
		return;
	if (most > 0)
		pd_points_set(fewest->points, u);
	for (int ends = pd_points_ends(points, u); i < ends && most > 0; i++) {
		int v = pd_points_end(points, u, i);

		if (!enough(fewest, u, v, most < fewest->each ? most : fewest->each, value)) {
			if (points->states && fewest->ns != points->compute_ns)
				continue;
			break;
		}
		if (devices[v] < most && enough(fewest, u, v, most - devices[v], value))
			most = fewest->look(fewest, u, i, most, value);
	}
	pd_effort_spend(fewest->effort, i);
}

int pd_fewest_devices(struct pd_fewest *fewest, int64_t value)
{
	int last = fewest->points->last;

	fewest->devices[last] = 0;
	for (int u = last - 1; u >= 0; u--) {
		fewest->devices[u] = PD_FEWEST_NONE;
		pd_fewest_each(fewest, u, fewest->most, value);
	}
	return fewest->devices[0];
}

static bool holds(struct pd_fewest *fewest, int64_t value)
{
	return pd_fewest_devices(fewest, value) != PD_FEWEST_NONE;
}

int64_t pd_fewest_value(struct pd_fewest *fewest, int64_t low, int64_t part, int64_t *below_p)
{
	int64_t high = low = pd_max(low, 1), step = pd_max(low / FIRST_STEP, 1);

	while (high < PD_COST_MAX && !holds(fewest, high) && !pd_effort_spent(fewest->effort)) {
		low = high + 1;
		high = pd_min(high + step, PD_COST_MAX);
		step = pd_min(2 * step, PD_COST_MAX);
	}
	while (high < PD_COST_MAX && high - low > low / part) {
		int64_t middle = low + (high - low) / 2;

		if (holds(fewest, middle))
			high = middle;
		else if (pd_effort_spent(fewest->effort))
			break;
		else
			low = middle + 1;
	}
	if (below_p)
		*below_p = low;
	return !pd_effort_spent(fewest->effort) && high < PD_COST_MAX && holds(fewest, high) ? high : PD_COST_MAX;
}
