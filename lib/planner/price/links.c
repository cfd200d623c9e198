/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/price/links.h"

#include "base/mem.h"
#include "base/piece.h"
#include "plan/sparse.h"
#include "planner/price/cost.h"
#include "planner/price/predict.h"
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

static void load(struct pd_load *at, double busy_ns, double bytes)
{
	at->busy_ns += busy_ns;
	at->bytes += bytes;
}

/* ns is the time of the bytes on a link of each level. */
static void carry(struct pd_links *links, int from, int to, const int64_t *ns, int64_t bytes,
		  double share)
{
	int outermost = pd_topology_level(links->topology, from, to);

	for (int k = 0; k <= outermost; k++) {
		double time = share * (double)ns[k], part = share * (double)bytes;

		load(&links->up[k][from / links->size[k]], time, part);
		load(&links->down[k][to / links->size[k]], time, part);
	}
}

static int64_t link_ns(const struct pd_links *links, int k, int64_t bytes)
{
	return pd_bytes_ns(bytes, links->topology->level[k].bandwidth_bytes_per_s);
}

/* Adds a link's activations one way and gradients the other; replicas are paired in turn. */
static void carry_link(struct pd_links *links, const struct pd_plan *plan,
		       const struct pd_link *link)
{
	const struct pd_stage *a = &plan->stages[link->from], *b = &plan->stages[link->to];
	int64_t round = (int64_t)a->replicas / pd_gcd(a->replicas, b->replicas) * b->replicas;
	int64_t ns[PD_MAX_LEVELS] = { 0 };

	if (round > LONGEST_ROUND)
		return;
	for (int k = 0; k < links->topology->levels; k++)
		for (int t = 0; t < link->tensor_count; t++)
			ns[k] = pd_plus(ns[k], link_ns(links, k,
					plan->profile->layers[link->tensors[t]].activation_bytes));
	for (int64_t n = 0; n < round; n++) {
		int from = a->ranks[n % a->replicas], to = b->ranks[n % b->replicas];

		if (from == to)
			continue;
		carry(links, from, to, ns, link->bytes, 1.0 / (double)round);
		carry(links, to, from, ns, link->bytes, 1.0 / (double)round);
	}
}

/* An all-reduce on the machine, and its weight. */
struct summing {
	enum pd_reducer_kind reducer;
	struct pd_members members;
	struct pd_allreduce how;
	int64_t bytes;
	double share;
	double *sends_ns;               /* by member and level: what it sends there; or NULL */
};

static void send(const struct pd_links *links, const struct summing *sum, int member, int k,
		 double ns)
{
	if (sum->sends_ns)
		sum->sends_ns[member * links->topology->levels + k] += ns;
}

static int64_t begin_bytes(const struct summing *sum, int piece)
{
	return (int64_t)(sizeof(float) * pd_piece_begin((size_t)sum->bytes / sizeof(float),
							sum->how.pieces, piece));
}

/*
 * Returns the bytes of the shortest share of a member of a group, or of the shortest piece, so that
 * the count is never too high.
 */
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

/* Returns the part of f32's bytes that gradients and sums of all have. */
static double narrowed(const struct summing *sum)
{
	return (double)pd_dtype_bytes(sum->members.dtype) / sizeof(float);
}

/* Adds what owners of two adjacent groups send: each piece from one to the other, and back. */
static void carry_chain(struct pd_links *links, const struct summing *sum, const int64_t *piece_ns,
			int group)
{
	const struct pd_allreduce *how = &sum->how;
	int a = pd_allreduce_group_begin(how, group), b = pd_allreduce_group_begin(how, group + 1);
	int a_size = b - a, b_size = pd_allreduce_group_begin(how, group + 2) - b;

	for (int p = 0, end; p < how->pieces; p = end) {
		int i = pd_allreduce_owner(how, a_size, p), k = pd_allreduce_owner(how, b_size, p);
		int from = sum->members.ranks[a + i], to = sum->members.ranks[b + k];
		int64_t ns[PD_MAX_LEVELS], bytes;

		end = (int)pd_min64(pd_allreduce_piece_begin(how, a_size, i + 1),
				    pd_allreduce_piece_begin(how, b_size, k + 1));
		for (int l = 0; l < links->topology->levels; l++)
			ns[l] = pd_times(end - p, piece_ns[l]);
		bytes = begin_bytes(sum, end) - begin_bytes(sum, p);
		carry(links, from, to, ns, bytes, sum->share);
		carry(links, to, from, ns, bytes, sum->share * narrowed(sum));
		for (int l = pd_topology_level(links->topology, from, to); l >= 0; l--) {
			send(links, sum, a + i, l, (double)ns[l]);
			send(links, sum, b + k, l, (double)ns[l] * narrowed(sum));
		}
	}
}

/*
 * Adds what a group sends: a component's link carries, for each of its members, two shares for each
 * member of the group outside.  inside is zero at first, by level and component.
 */
static void carry_group(struct pd_links *links, const struct summing *sum, int *const *inside,
			int first, int size)
{
	const struct pd_topology *topology = links->topology;
	const int *ranks = sum->members.ranks + first;
	int64_t least = least_share(sum, size);

	for (int k = 0; k < topology->levels; k++)
		for (int i = 0; i < size; i++)
			inside[k][ranks[i] / links->size[k]]++;
	for (int k = 0; k < topology->levels; k++)
		for (int i = 0; i < size; i++) {
			int64_t c = ranks[i] / links->size[k];
			double twice = 2.0 * (size - inside[k][c]) * narrowed(sum);
			double time = twice * (double)link_ns(links, k, least);
			double sent = twice * (double)sum->bytes / size;

			load(&links->up[k][c], sum->share * time, sum->share * sent);
			load(&links->down[k][c], sum->share * time, sum->share * sent);
			send(links, sum, first + i, k, time);
		}
	for (int k = 0; k < topology->levels; k++)
		for (int i = 0; i < size; i++)
			inside[k][ranks[i] / links->size[k]] = 0;
}

/* Adds what the row of a reducer says. */
static void carry_sends(struct pd_links *links, const struct summing *sum)
{
	const struct pd_reducer *reducer = pd_reducers[sum->reducer];
	const int *ranks = sum->members.ranks;
	double part;
	int peer;

	for (int m = 0; m < sum->members.count; m++)
		for (int i = 0; reducer->sends(&sum->members, m, i, &peer, &part); i++) {
			int64_t ns[PD_MAX_LEVELS];

			for (int k = 0; k < links->topology->levels; k++)
				ns[k] = link_ns(links, k, sum->bytes);
			carry(links, ranks[m], ranks[peer], ns, sum->bytes,
			      sum->share * part);
		}
}

static void carry_allreduce(struct pd_links *links, struct summing *sum)
{
	const struct pd_topology *topology = links->topology;
	int64_t piece_ns[PD_MAX_LEVELS];
	int *inside[PD_MAX_LEVELS], count = sum->members.count;

	if (count < 2 || sum->bytes == 0)
		return;
	if (pd_reducers[sum->reducer]->sends) {
		carry_sends(links, sum);
		return;
	}
	sum->how = pd_allreduce_choose(topology, sum->members.ranks, count, sum->bytes);
	for (int k = 0; k < topology->levels; k++)
		inside[k] = pd_calloc((size_t)links->components[k], sizeof(int));
	for (int g = 0; g < sum->how.groups && sum->how.groups < count; g++) {
		int from = pd_allreduce_group_begin(&sum->how, g);

		carry_group(links, sum, inside, from,
			    pd_allreduce_group_begin(&sum->how, g + 1) - from);
	}
	for (int k = 0; k < topology->levels && sum->how.groups > 1; k++)
		piece_ns[k] = link_ns(links, k, least_share(sum, sum->how.pieces));
	for (int g = 0; g + 1 < sum->how.groups; g++)
		carry_chain(links, sum, piece_ns, g);
	for (int k = 0; k < topology->levels; k++)
		free(inside[k]);
}

/*
 * Adds both ways over a link of a component with others before and behind it, from first to last.
 */
static void pass_both(struct pd_reduce *reduces, int back, int until, int64_t ns)
{
	for (int i = 0; i <= back; i++)
		if (ns > reduces[i].both_ns || (ns == reduces[i].both_ns && until > reduces[i].until)) {
			reduces[i].both_ns = ns;
			reduces[i].until = until;
		}
}

/*
 * Bounds a chain: member i is done when the sum has come from the one behind it and gone to the one
 * before.
 */
static void bound_chain(const struct pd_links *links, const int *ranks, int count, int64_t bytes,
			struct pd_reduce *reduces)
{
	const struct pd_topology *topology = links->topology;
	int64_t rest_ns = 0;

	for (int i = count - 1; i > 0; i--) {
		for (int k = pd_topology_level(topology, ranks[i - 1], ranks[i]); k >= 0; k--)
			rest_ns = pd_max64(rest_ns, link_ns(links, k, bytes));
		reduces[i].rest_ns = rest_ns;
	}
	reduces[0].rest_ns = rest_ns;
	for (int k = 0; k < topology->levels; k++)
		for (int first = 0, last; first < count; first = last + 1) {
			int64_t ns = pd_times(2, link_ns(links, k, bytes));

			for (last = first; last + 1 < count && ranks[last + 1] / links->size[k] ==
							       ranks[first] / links->size[k];)
				last++;
			if (first == 0 || last == count - 1)
				continue;
			pass_both(reduces, first, last, ns);            /* out: on, and back */
			pass_both(reduces, last + 1, first - 1, ns);    /* in */
		}
}

void pd_links_allreduce(const struct pd_members *members, int64_t bytes, struct pd_reduce *reduces)
{
	const struct pd_topology *topology = members->topology;
	const int *ranks = members->ranks;
	size_t levels = (size_t)topology->levels;
	struct summing sum = { .members = *members, .bytes = bytes, .share = 1 };
	struct pd_links links;
	int highest = 0, count = members->count;

	for (int i = 0; i < count; i++)
		reduces[i] = (struct pd_reduce){ .until = -1 };
	if (count < 2 || bytes == 0)
		return;
	for (int i = 0; i < count; i++)
		highest = ranks[i] > highest ? ranks[i] : highest;
	links_init(&links, topology, highest + 1);
	sum.sends_ns = pd_calloc((size_t)count * levels, sizeof(*sum.sends_ns));
	carry_allreduce(&links, &sum);
	for (int i = 0; i < count; i++) {
		for (size_t k = 0; k < levels; k++) {
			double ns = sum.sends_ns[(size_t)i * levels + k];

			reduces[i].sends_ns = pd_max64(reduces[i].sends_ns,
						       ns < (double)PD_COST_MAX ? (int64_t)ns
										: PD_COST_MAX);
		}
		reduces[i].rest_ns = reduces[i].sends_ns / 2;
	}
	if (sum.how.groups == count)
		bound_chain(&links, ranks, count, (int64_t)((double)bytes * narrowed(&sum)), reduces);
	free(sum.sends_ns);
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
		int64_t parameters = pd_stage_parameter_bytes(plan, s);
		struct summing sum = { .reducer = plan->reducer, .members = pd_plan_members(plan, s),
				       .share = 1.0 / (double)group,
				       .bytes = pd_plan_sum_bytes(plan, s, 0, parameters,
								  parameters) };

		carry_allreduce(links, &sum);
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

/* Returns the time of a replica's passes, and its share of updates, in the mean of a microbatch. */
static double busy_ns(const struct pd_schedule *schedule, int s)
{
	const struct pd_plan *plan = schedule->plan;
	const struct pd_stage *stage = &plan->stages[s];
	bool apart = pd_schedule_versions(schedule, s) > 1;
	double passes = 0, update = 0;

	for (int l = stage->first_layer; l < stage->first_layer + stage->layer_count; l++) {
		const struct pd_profile_layer *layer = &plan->profile->layers[l];

		passes += (double)layer->forward_ns * (stage->recompute ? 2 : 1) +
			  (double)layer->backward_ns;
		update += (double)(apart ? pd_profile_apart_ns(layer) : layer->update_ns);
	}
	return passes / stage->replicas + update / (double)schedule->group[s];
}

int64_t pd_links_floor_ns(const struct pd_schedule *schedule)
{
	const struct pd_plan *plan = schedule->plan;
	double *busy = pd_calloc((size_t)plan->rank_count, sizeof(*busy)), most = 0;

	for (int s = 0; s < plan->stage_count; s++)
		for (int r = 0; r < plan->stages[s].replicas; r++)
			busy[plan->stages[s].ranks[r]] += busy_ns(schedule, s);
	for (int r = 0; r < plan->rank_count; r++)
		most = busy[r] > most ? busy[r] : most;
	free(busy);
	most = most < (double)PD_COST_MAX ? most * (1 - 1e-9) : (double)PD_COST_MAX;
	return pd_max64(pd_max64((int64_t)most, pd_predict_turns_ns(plan)),
			pd_links_busiest_ns(plan, schedule->wiring));
}
