/* SPDX-License-Identifier: Apache-2.0 */
#include "predict/links.h"

#include "base/mem.h"
#include "memory/buckets.h"
#include "memory/shared_gradients.h"
#include "predict/cost.h"

#include <math.h>
#include <stdlib.h>

#define LONGEST_ROUND 65536     /* pairs of replicas between two stages; more are not counted */

static void links_init(struct pd_links *links, const struct pd_topology *topology, int ranks)
{
	*links = (struct pd_links){ .topology = topology };
	links->size[0] = 1;
	for (int k = 0; k < topology->levels; k++) {
		links->size[k + 1] = links->size[k] * topology->level[k].count;
		links->ns_per_byte[k] = 1e9 / (double)topology->level[k].bandwidth_bytes_per_s;
		links->components[k] = (int)((ranks + links->size[k] - 1) / links->size[k]);
		links->load[k] = pd_calloc((size_t)links->components[k], sizeof(*links->load[k]));
	}
}

void pd_links_release(struct pd_links *links)
{
	for (int k = 0; k < links->topology->levels; k++)
		free(links->load[k]);
}

static double most_of(const struct pd_links *links)
{
	double most = 0;

	for (int k = 0; k < links->topology->levels; k++)
		for (int c = 0; c < links->components[k]; c++)
			for (int way = 0; way < PD_WAYS; way++)
				most = fmax(most, links->load[k][c][way].busy_ns);
	return most;
}

/* Adds bytes, of which the link of component c is busy with a part for sure. */
static void load(struct pd_links *links, int level, int64_t c, enum pd_way way, double bytes, double part)
{
	struct pd_load *at = &links->load[level][c][way];
	double ns_per_byte = links->topology->link_runs == 0 ? links->ns_per_byte[level]
		: 1e9 / (double)pd_topology_link(links->topology, level, c).bandwidth_bytes_per_s;

	at->bytes += bytes;
	at->busy_ns += bytes * part * ns_per_byte;
}

static void carry(struct pd_links *links, int from, int to, double bytes)
{
	int outermost = pd_topology_level(links->topology, from, to);

	for (int k = 0; k <= outermost; k++) {
		load(links, k, from / links->size[k], PD_WAY_OUT, bytes, 1);
		load(links, k, to / links->size[k], PD_WAY_IN, bytes, 1);
	}
}

/* Adds a link's activations one way and gradients the other; replicas are paired in turn. */
static void carry_link(struct pd_links *links, const struct pd_plan *plan,
		       const struct pd_link *link)
{
	const struct pd_stage *a = &plan->stages[link->from], *b = &plan->stages[link->to];
	int64_t round = pd_lcm(a->replicas, b->replicas, LONGEST_ROUND);

	for (int64_t n = 0; n < round; n++) {
		int from = a->ranks[n % a->replicas], to = b->ranks[n % b->replicas];
		double bytes = (double)link->bytes / (double)round;

		if (from == to)
			continue;
		carry(links, from, to, bytes);
		carry(links, to, from, bytes);
	}
}

/* Adds the sum of a stage's gradients for a group of microbatches. */
static void carry_sum(struct pd_links *links, const struct pd_plan *plan, int s, int64_t group)
{
	struct pd_sum sum = pd_plan_stage_sum(plan, s);
	int levels = links->topology->levels;
	double sure;
	struct pd_traffic *traffic = pd_sum_traffic(&sum, &sure);

	for (int i = 0; i < sum.members.count * levels && traffic; i++) {
		int k = i % levels;
		int64_t c = sum.members.ranks[i / levels] / links->size[k];

		load(links, k, c, PD_WAY_OUT, traffic[i].sent_bytes / (double)group, sure);
		load(links, k, c, PD_WAY_IN, traffic[i].got_bytes / (double)group, sure);
	}
	free(traffic);
}

/* Adds what copies of shared parameters exchange for an update. */
static void carry_copies(struct pd_links *links, const struct pd_plan *plan)
{
	struct pd_copy_transfer *list;
	size_t count = pd_plan_copy_transfers(plan, &list);

	for (size_t i = 0; i < count; i++)
		carry(links, list[i].from, list[i].to,
		      (double)list[i].bytes / (double)pd_plan_group(plan, 0));
	free(list);
}

void pd_links_init(struct pd_links *links, const struct pd_plan *plan,
		   const struct pd_wiring *wiring)
{
	links_init(links, &plan->topology, plan->rank_count);
	for (int k = 0; k < wiring->link_count; k++)
		carry_link(links, plan, &wiring->links[k]);
	for (int s = 0; s < plan->stage_count; s++)
		carry_sum(links, plan, s, pd_plan_group(plan, s));
	carry_copies(links, plan);
}

int64_t pd_links_busiest_ns(const struct pd_plan *plan, const struct pd_wiring *wiring)
{
	struct pd_links links;
	double most;

	pd_links_init(&links, plan, wiring);
	most = most_of(&links);
	pd_links_release(&links);
	return pd_cost_of(most * (1 - 1e-9));
}
