/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/links.h"

#include "base/mem.h"
#include "base/piece.h"
#include "planner/cost.h"
#include "topology/allreduce.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LONGEST_ROUND 65536     /* pairs of replicas between two stages; more are not counted */

static void links_init(struct pd_links *links, const struct pd_topology *topology, int ranks)
{
	*links = (struct pd_links){ .topology = topology };
	links->size[0] = 1;
	for (int k = 0; k < topology->levels; k++) {
		size_t n;

		links->size[k + 1] = links->size[k] * topology->level[k].count;
		links->components[k] = (int)((ranks + links->size[k] - 1) / links->size[k]);
		n = (size_t)links->components[k];
		links->up[k] = pd_calloc(n, sizeof(*links->up[k]));
		links->down[k] = pd_calloc(n, sizeof(*links->down[k]));
	}
}

void pd_links_release(struct pd_links *links)
{
	for (int k = 0; k < links->topology->levels; k++) {
		free(links->up[k]);
		free(links->down[k]);
	}
}

static double most_of(const struct pd_links *links)
{
	double most = 0;

	for (int k = 0; k < links->topology->levels; k++)
		for (int c = 0; c < links->components[k]; c++) {
			const struct pd_load *up = &links->up[k][c], *down = &links->down[k][c];

			most = up->busy_ns > most ? up->busy_ns : most;
			most = down->busy_ns > most ? down->busy_ns : most;
		}
	return most;
}

/* Bandwidth of a way whose outermost level is k. */
static int64_t bandwidth_to(const struct pd_topology *topology, int k)
{
	int64_t least = INT64_MAX;

	for (int l = 0; l <= k; l++)
		if (topology->level[l].bandwidth_bytes_per_s < least)
			least = topology->level[l].bandwidth_bytes_per_s;
	return least;
}

static void load(struct pd_load *at, double busy_ns, double bytes)
{
	at->busy_ns += busy_ns;
	at->bytes += bytes;
}

static void carry(struct pd_links *links, int from, int to, const int64_t *way_ns, int64_t bytes,
		  double share)
{
	int outermost = pd_topology_level(links->topology, from, to);
	double time = share * (double)way_ns[outermost], part = share * (double)bytes;

	for (int k = 0; k <= outermost; k++) {
		load(&links->up[k][from / links->size[k]], time, part);
		load(&links->down[k][to / links->size[k]], time, part);
	}
}

/* Activations one way, gradients the other: replicas meet in turn. */
static void carry_link(struct pd_links *links, const struct pd_plan *plan,
		       const struct pd_link *link)
{
	const struct pd_stage *a = &plan->stages[link->from], *b = &plan->stages[link->to];
	int64_t round = (int64_t)a->replicas / pd_gcd(a->replicas, b->replicas) * b->replicas;
	int64_t way_ns[PD_MAX_LEVELS] = { 0 };

	if (round > LONGEST_ROUND)
		return;
	for (int k = 0; k < links->topology->levels; k++)
		for (int t = 0; t < link->tensor_count; t++)
			way_ns[k] = pd_plus(way_ns[k], pd_bytes_ns(
					plan->profile->layers[link->tensors[t]].activation_bytes,
					bandwidth_to(links->topology, k)));
	for (int64_t n = 0; n < round; n++) {
		int from = a->ranks[n % a->replicas], to = b->ranks[n % b->replicas];

		if (from == to)
			continue;
		carry(links, from, to, way_ns, link->bytes, 1.0 / (double)round);
		carry(links, to, from, way_ns, link->bytes, 1.0 / (double)round);
	}
}

/* An all-reduce as it lies on the machine, and how much of it counts. */
struct summing {
	struct pd_allreduce how;
	const int *ranks;
	int64_t bytes;
	double share;
};

static int64_t begin_bytes(const struct summing *sum, int piece)
{
	return (int64_t)(sizeof(float) * pd_piece_begin((size_t)sum->bytes / sizeof(float),
							sum->how.pieces, piece));
}

/* Bytes of the shortest of what each member of a group of so many owns, or of the pieces: what is
 * counted is never too much. */
static int64_t least_share(const struct summing *sum, int size)
{
	int64_t least = INT64_MAX;

	for (int i = 0; i < size; i++) {
		int from = pd_allreduce_piece_begin(&sum->how, size, i);
		int to = pd_allreduce_piece_begin(&sum->how, size, i + 1);

		least = pd_min64(least, begin_bytes(sum, to) - begin_bytes(sum, from));
	}
	return least;
}

/* Owners of two groups that follow each other: each piece from one to the other, and back. */
static void carry_chain(struct pd_links *links, const struct summing *sum, const int64_t *piece_ns,
			int group)
{
	const struct pd_allreduce *how = &sum->how;
	int a = pd_allreduce_group_begin(how, group), b = pd_allreduce_group_begin(how, group + 1);
	int a_size = b - a, b_size = pd_allreduce_group_begin(how, group + 2) - b;

	for (int p = 0, end; p < how->pieces; p = end) {
		int i = pd_allreduce_owner(how, a_size, p), k = pd_allreduce_owner(how, b_size, p);
		int64_t way_ns[PD_MAX_LEVELS];

		end = (int)pd_min64(pd_allreduce_piece_begin(how, a_size, i + 1),
				    pd_allreduce_piece_begin(how, b_size, k + 1));
		for (int l = 0; l < links->topology->levels; l++)
			way_ns[l] = pd_times(end - p, piece_ns[l]);
		carry(links, sum->ranks[a + i], sum->ranks[b + k], way_ns,
		      begin_bytes(sum, end) - begin_bytes(sum, p), sum->share);
		carry(links, sum->ranks[b + k], sum->ranks[a + i], way_ns,
		      begin_bytes(sum, end) - begin_bytes(sum, p), sum->share);
	}
}

/*
 * Pairs of members of a group are told apart by the level at which their ways part: a component's
 * link carries, for each of its members, two shares for each member outside.  inside: by level and
 * component, zeros.
 */
static void carry_group(struct pd_links *links, const struct summing *sum, int *const *inside,
			const int *ranks, int size)
{
	const struct pd_topology *topology = links->topology;
	int64_t least = least_share(sum, size), way_ns[PD_MAX_LEVELS];

	for (int k = 0; k < topology->levels; k++)
		way_ns[k] = pd_bytes_ns(least, bandwidth_to(topology, k));
	for (int k = 0; k <= topology->levels; k++)
		for (int i = 0; i < size; i++)
			inside[k][ranks[i] / links->size[k]]++;
	for (int i = 0; i < size; i++) {
		double time = 0, sent = 0;

		for (int k = topology->levels - 1; k >= 0; k--) {
			int outside = inside[k + 1][ranks[i] / links->size[k + 1]] -
				inside[k][ranks[i] / links->size[k]];

			time += 2.0 * outside * (double)way_ns[k];
			sent += 2.0 * outside * (double)sum->bytes / size;
			load(&links->up[k][ranks[i] / links->size[k]], sum->share * time,
			     sum->share * sent);
			load(&links->down[k][ranks[i] / links->size[k]], sum->share * time,
			     sum->share * sent);
		}
	}
	for (int k = 0; k <= topology->levels; k++)
		for (int i = 0; i < size; i++)
			inside[k][ranks[i] / links->size[k]] = 0;
}

static void carry_allreduce(struct pd_links *links, const int *ranks, int count, int64_t bytes,
			    double share)
{
	const struct pd_topology *topology = links->topology;
	struct summing sum = { .ranks = ranks, .bytes = bytes, .share = share };
	int64_t piece_ns[PD_MAX_LEVELS];
	int *inside[PD_MAX_LEVELS + 1];

	if (count < 2 || bytes == 0)
		return;
	sum.how = pd_allreduce_choose(topology, ranks, count, bytes);
	for (int k = 0; k <= topology->levels; k++)
		inside[k] = pd_calloc(k < topology->levels ? (size_t)links->components[k] : 1,
				      sizeof(int));
	for (int g = 0; g < sum.how.groups && sum.how.groups < count; g++) {
		int from = pd_allreduce_group_begin(&sum.how, g);

		carry_group(links, &sum, inside, ranks + from,
			    pd_allreduce_group_begin(&sum.how, g + 1) - from);
	}
	for (int k = 0; k < topology->levels && sum.how.groups > 1; k++)
		piece_ns[k] = pd_bytes_ns(least_share(&sum, sum.how.pieces),
					  bandwidth_to(topology, k));
	for (int g = 0; g + 1 < sum.how.groups; g++)
		carry_chain(links, &sum, piece_ns, g);
	for (int k = 0; k <= topology->levels; k++)
		free(inside[k]);
}

void pd_links_allreduce(const struct pd_topology *topology, const int *ranks, int count,
			int64_t bytes, int64_t *sends_ns)
{
	struct pd_links links;
	int highest = 0;

	memset(sends_ns, 0, (size_t)count * sizeof(*sends_ns));
	if (count < 2 || bytes == 0)
		return;
	for (int i = 0; i < count; i++)
		highest = ranks[i] > highest ? ranks[i] : highest;
	links_init(&links, topology, highest + 1);
	carry_allreduce(&links, ranks, count, bytes, 1);
	for (int i = 0; i < count; i++)
		sends_ns[i] = links.up[0][ranks[i]].busy_ns < (double)PD_COST_MAX
			? (int64_t)links.up[0][ranks[i]].busy_ns : PD_COST_MAX;
	pd_links_release(&links);
}

int64_t pd_stage_parameter_bytes(const struct pd_plan *plan, int stage)
{
	const struct pd_stage *at = &plan->stages[stage];
	const struct pd_model *model = plan->profile->model;
	int64_t sum = 0;

	for (int l = at->first_layer; l < at->first_layer + at->layer_count; l++)
		if (!model || model->layers[l].shares < 0)
			sum += plan->profile->layers[l].parameter_bytes;
	return sum;
}

void pd_links_init(struct pd_links *links, const struct pd_plan *plan,
		   const struct pd_wiring *wiring)
{
	bool groups = plan->microbatches > 1 || plan->weights == PD_WEIGHTS_FLUSH ||
		      plan->weights == PD_WEIGHTS_2BW || plan->schedule == PD_SCHEDULE_NF1B;

	links_init(links, &plan->topology, plan->rank_count);
	for (int k = 0; k < wiring->link_count; k++)
		carry_link(links, plan, &wiring->links[k]);
	for (int s = 0; s < plan->stage_count; s++) {
		const struct pd_stage *stage = &plan->stages[s];
		int64_t group = groups ? plan->microbatches : stage->replicas;

		carry_allreduce(links, stage->ranks, stage->replicas,
				pd_stage_parameter_bytes(plan, s), 1.0 / (double)group);
	}
}

int64_t pd_links_busiest_ns(const struct pd_plan *plan, const struct pd_wiring *wiring)
{
	struct pd_links links;
	double most;

	pd_links_init(&links, plan, wiring);
	most = most_of(&links);
	pd_links_release(&links);
	return most < (double)PD_COST_MAX ? (int64_t)(most * (1 - 1e-9)) : PD_COST_MAX;
}
