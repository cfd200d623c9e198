/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/formula/terms.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

const struct pd_terms *pd_terms(enum pd_cost_kind kind)
{
	static const struct pd_terms terms[PD_COST_KINDS] = {
		[PD_COST_SIMULATED] = { .sum = true, .allreduce = 2, .by_piece = true },
		[PD_COST_SOSP19] = { .allreduce = 2, .cut = 2 },
		[PD_COST_RELEASED] = { .sum = true, .allreduce = 4, .by_piece = true,
				       .first_is_shared = true, .all_used = true, .cut = 2,
				       .by_receiver = true },
		[PD_COST_RELEASED_NO_TRAFFIC] = { .sum = true, .allreduce = 4, .by_piece = true,
						  .first_is_shared = true, .all_used = true },
	};

	return &terms[kind];
}

struct pd_level_terms pd_level_terms(enum pd_cost_kind kind, const struct pd_topology *topology,
				     int level)
{
	return (struct pd_level_terms){
		.terms = pd_terms(kind),
		.ns_per_byte = 1e9 / (double)topology->level[level].bandwidth_bytes_per_s,
		.shared = level ? (int)topology->level[level - 1].count : 1,
	};
}

double pd_terms_allreduce(const struct pd_level_terms *at, int64_t m, bool first)
{
	double ns = at->terms->allreduce * (double)(m - 1) * at->ns_per_byte;

	if (at->terms->by_piece)
		ns /= (double)m;
	return first && at->terms->first_is_shared ? ns / at->shared : ns;
}

double pd_terms_data_parallel(enum pd_cost_kind kind, const struct pd_topology *topology,
			      int64_t compute_ns, int64_t parameter_bytes)
{
	double value = (double)compute_ns;

	for (int k = 0; k < topology->levels; k++) {
		struct pd_level_terms at = pd_level_terms(kind, topology, k);
		int64_t m = topology->level[k].count;

		value = pd_terms_stage(&at, value, (double)parameter_bytes *
				       pd_terms_allreduce(&at, m, true), m);
	}
	return value;
}

int64_t pd_terms_round(double ns)
{
	return ns < (double)PD_COST_MAX ? (int64_t)floor(ns + 0.5) : PD_COST_MAX;
}

/* Stages of a plan in one component, whose ranks begin at base. */
struct part {
	enum pd_cost_kind kind;
	const struct pd_topology *topology;
	const struct pd_priced *stages;
	int stage_count;        /* of the whole plan */
	const int *stage_of;    /* per device, or -1 */
	int first, end;
	int64_t base;
};

static int64_t devices_below(const struct pd_topology *topology, int level)
{
	int64_t devices = 1;

	for (int k = 0; k < level; k++)
		devices *= topology->level[k].count;
	return devices;
}

/* Returns the first component at or after `from` with a replica of the stage, or count. */
static int64_t next_component(const struct part *part, int s, int64_t from, int64_t count,
			      int64_t span)
{
	for (; from < count; from++)
		for (int64_t d = 0; d < span; d++)
			if (part->stage_of[part->base + from * span + d] == s)
				return from;
	return count;
}

/* Tells whether stage t has the same devices in both components. */
static bool same_inside(const struct part *part, int t, int64_t a, int64_t b, int64_t span)
{
	const int *x = &part->stage_of[part->base + a * span];
	const int *y = &part->stage_of[part->base + b * span];

	for (int64_t d = 0; d < span; d++)
		if ((x[d] == t) != (y[d] == t))
			return false;
	return true;
}

/* Tells whether stages s and t are in the same components, and t is the same in each of them. */
static bool together(const struct part *part, int s, int t, int64_t count, int64_t span)
{
	int64_t one = next_component(part, s, 0, count, span), c = one, d;

	for (d = next_component(part, t, 0, count, span); c < count && c == d;) {
		if (!same_inside(part, t, one, c, span))
			return false;
		c = next_component(part, s, c + 1, count, span);
		d = next_component(part, t, d + 1, count, span);
	}
	return c == d;
}

/* Tells whether only stages s to end - 1 are in the component. */
static bool alone(const struct part *part, int s, int end, int64_t c, int64_t span)
{
	const int *at = &part->stage_of[part->base + c * span];

	for (int64_t d = 0; d < span; d++)
		if (at[d] >= 0 && (at[d] < s || at[d] >= end))
			return false;
	return true;
}

static double price(const struct part *part, int level);

/* Prices stages s to end - 1 as one of this level, on m components. */
static double group_price(const struct part *part, int level, int s, int end, int64_t m,
			  const struct part *inside)
{
	struct pd_level_terms at = pd_level_terms(part->kind, part->topology, level - 1);
	bool first = s == part->first;
	double value = price(inside, level - 1), ns;
	int64_t parameters = 0;

	for (int t = s; t < end; t++)
		parameters += part->stages[t].parameter_bytes;
	if (value < 0)
		return value;
	ns = pd_terms_stage(&at, value, (double)parameters * pd_terms_allreduce(&at, m, first), m);
	if (!first)
		ns = fmax(ns, pd_terms_cut(&at, (double)part->stages[s - 1].cut_bytes, m));
	if (!first && at.terms->by_receiver && end < part->stage_count)
		ns = fmax(ns, pd_terms_cut(&at, (double)part->stages[end - 1].cut_bytes, m));
	return ns;
}

/* Prices a pipeline inside one component of a level. */
static double price(const struct part *part, int level)
{
	int64_t span, count;
	double most = 0;

	if (!level)
		return part->end - part->first == 1
			? (double)part->stages[part->first].compute_ns : -1;
	span = devices_below(part->topology, level - 1);
	count = part->topology->level[level - 1].count;
	for (int s = part->first, end; s < part->end; s = end) {
		int64_t one = next_component(part, s, 0, count, span), m = 0;
		struct part inside = *part;
		double ns;

		for (end = s; end < part->end && together(part, s, end, count, span);)
			end++;
		if (end == s)
			return -1;
		for (int64_t c = one; c < count; m++) {
			if (!alone(part, s, end, c, span))
				return -1;
			c = next_component(part, s, c + 1, count, span);
		}
		inside.first = s;
		inside.end = end;
		inside.base = part->base + one * span;
		ns = group_price(part, level, s, end, m, &inside);
		if (ns < 0)
			return ns;
		most = fmax(most, ns);
	}
	return most;
}

double pd_terms_price(enum pd_cost_kind kind, const struct pd_topology *topology,
		      const struct pd_priced *stages, int stage_count)
{
	int *stage_of = pd_calloc((size_t)topology->devices, sizeof(*stage_of));
	struct part all = {
		.kind = kind, .topology = topology, .stages = stages,
		.stage_count = stage_count, .stage_of = stage_of, .end = stage_count,
	};
	double ns;

	for (int64_t d = 0; d < topology->devices; d++)
		stage_of[d] = -1;
	for (int s = 0; s < stage_count; s++)
		for (int r = 0; r < stages[s].replicas; r++)
			stage_of[stages[s].ranks[r]] = s;
	ns = price(&all, topology->levels);
	free(stage_of);
	return ns;
}
