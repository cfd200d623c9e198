/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/formula/terms.h"

#include "base/mem.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct pricing {
	enum pd_cost_kind kind;
	const struct pd_topology *topology;
	const struct pd_priced *stages;
	int stage_count;
};

/* The stages from first to end - 1, and what is on each of their devices: a stage, or -1. */
struct part {
	int first, end;
	const int *stage_of;
};

/* Returns the part of a component: from its first stage to its last; an empty one has none. */
static struct part part_of(const int *stage_of, int64_t devices)
{
	struct part part = { INT_MAX, 0, stage_of };

	for (int64_t d = 0; d < devices; d++)
		if (stage_of[d] >= 0) {
			part.first = stage_of[d] < part.first ? stage_of[d] : part.first;
			part.end = stage_of[d] >= part.end ? stage_of[d] + 1 : part.end;
		}
	return part;
}

/*
 * Sets the part that begins with stage s, inside a component whose own ones have so many devices each;
 * returns how many of these have it, or 0 if others have some of it.
 */
static int64_t find_part(const struct part *all, int s, int64_t count, int64_t devices,
			 struct part *part_p)
{
	int64_t m = 0;

	part_p->end = 0;
	for (int64_t c = 0; c < count && part_p->end == 0; c++) {
		struct part part = part_of(all->stage_of + c * devices, devices);

		if (part.first == s)
			*part_p = part;
	}
	for (int64_t c = 0; c < count; c++) {
		struct part part = part_of(all->stage_of + c * devices, devices);

		if (part.end <= part_p->first || part.first >= part_p->end)
			continue;
		if (memcmp(part.stage_of, part_p->stage_of, (size_t)devices * sizeof(int)) != 0)
			return 0;
		m++;
	}
	return m;
}

/* Prices a pipeline inside one component of a level; -1: its stages are not on whole components. */
static double price(const struct pricing *pricing, int level, const struct part *all)
{
	struct pd_level_terms at;
	int64_t devices = 1, m;
	double most = 0;
	struct part part;

	if (!level)
		return all->end - all->first == 1 ? (double)pricing->stages[all->first].compute_ns : -1;
	at = pd_level_terms(pricing->kind, pricing->topology, level - 1);
	for (int k = 0; k < level - 1; k++)
		devices *= pricing->topology->level[k].count;
	for (int s = all->first; s < all->end; s = part.end) {
		int64_t parameters = 0;
		double ns;

		m = find_part(all, s, pricing->topology->level[level - 1].count, devices, &part);
		ns = m > 0 ? price(pricing, level - 1, &part) : -1;
		if (ns < 0)
			return -1;
		for (int t = s; t < part.end; t++)
			parameters += pricing->stages[t].parameter_bytes;
		ns = pd_terms_stage(&at, ns, (double)parameters *
				    pd_terms_allreduce(&at, m, s == all->first), m);
		if (s > all->first)
			ns = fmax(ns, pd_terms_cut(&at, (double)pricing->stages[s - 1].cut_bytes, m));
		if (s > all->first && at.released && part.end < pricing->stage_count)
			ns = fmax(ns, pd_terms_cut(&at, (double)pricing->stages[part.end - 1].cut_bytes,
						   m));
		most = fmax(most, ns);
	}
	return most;
}

double pd_terms_price(enum pd_cost_kind kind, const struct pd_topology *topology,
		      const struct pd_priced *stages, int stage_count)
{
	struct pricing pricing = { kind, topology, stages, stage_count };
	int *stage_of = pd_calloc((size_t)topology->devices, sizeof(*stage_of));
	struct part all = { 0, stage_count, stage_of };
	double ns;

	for (int64_t d = 0; d < topology->devices; d++)
		stage_of[d] = -1;
	for (int s = 0; s < stage_count; s++)
		for (int r = 0; r < stages[s].replicas; r++)
			stage_of[stages[s].ranks[r]] = s;
	ns = price(&pricing, topology->levels, &all);
	free(stage_of);
	return ns;
}
