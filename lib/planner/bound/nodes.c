/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/bound/nodes.h"

#include "base/mem.h"

#include <stdlib.h>

/*
 * A cut before layer p of the profile is firm, in every topological order, if all the layers
 * before it are needed, directly or not, by all from p on.  Of those before, it is enough to look
 * at the ends, which no other of them uses; of those behind, at the beginnings, which use no
 * other of them: each beginning must use every end.
 *
 * Layer t is a beginning for the p that are above its last input and up to t; layer x is an end
 * for those that are above x and up to its first use.  In a chain that is one p each.
 */
static int *first_uses(const struct pd_profile *profile)
{
	int *first = pd_calloc((size_t)profile->layer_count, sizeof(*first));

	for (int l = 0; l < profile->layer_count; l++)
		first[l] = profile->layer_count;
	for (int l = profile->layer_count - 1; l >= 0; l--)
		for (int i = 0; i < profile->layers[l].input_count; i++)
			first[profile->layers[l].inputs[i]] = l;
	return first;
}

/* Counts the ends before each p (layer_count + 1 entries). */
static int *count_ends(const struct pd_profile *profile, const int *first_use)
{
	int n = profile->layer_count;
	int *ends = pd_calloc((size_t)n + 2, sizeof(*ends));

	for (int x = 0; x < n; x++) {
		ends[x + 1]++;
		ends[first_use[x] + 1]--;
	}
	for (int p = 1; p <= n; p++)
		ends[p] += ends[p - 1];
	return ends;
}

/* Returns how many of a layer's inputs are ends for p, each once. */
static int ends_used(const struct pd_profile_layer *layer, const int *first_use, int p)
{
	int count = 0;

	for (int i = 0; i < layer->input_count; i++) {
		bool again = false;

		for (int k = 0; k < i; k++)
			again |= layer->inputs[k] == layer->inputs[i];
		count += !again && first_use[layer->inputs[i]] >= p;
	}
	return count;
}

static bool *firm_layers(const struct pd_profile *profile)
{
	int n = profile->layer_count;
	bool *firm = pd_calloc((size_t)n + 1, sizeof(*firm));
	int *first_use = first_uses(profile), *ends = count_ends(profile, first_use);

	for (int p = 0; p <= n; p++)
		firm[p] = true;
	for (int t = 0; t < n; t++) {
		const struct pd_profile_layer *layer = &profile->layers[t];
		int last = 0;

		for (int i = 0; i < layer->input_count; i++)
			last = layer->inputs[i] + 1 > last ? layer->inputs[i] + 1 : last;
		for (int p = last > 0 ? last : 1; p <= t; p++)
			firm[p] &= ends_used(layer, first_use, p) == ends[p];
	}
	free(first_use);
	free(ends);
	return firm;
}

/* Tells whether the layers between two firm cuts can be put in another order. */
static bool can_change(const struct pd_costs *costs, const bool *firm, int from, int to)
{
	for (int l = costs->first[from] + 1; l < costs->first[to]; l++)
		if (!firm[l])
			return true;
	return false;
}

static void cuts_init(struct pd_cuts *cuts, const struct pd_costs *costs)
{
	bool *firm = firm_layers(costs->profile);
	int before = 0;

	cuts->count = 1;
	cuts->any_soft = false;
	cuts->list = pd_calloc(2 * (size_t)costs->unit_count + 1, sizeof(*cuts->list));
	for (int u = 1; u <= costs->unit_count; u++) {
		if (!firm[costs->first[u]])
			continue;
		if (can_change(costs, firm, before, u))
			cuts->list[cuts->count++] = (struct pd_cut){ true, before, u };
		cuts->any_soft |= cuts->list[cuts->count - 1].soft;
		cuts->list[cuts->count++] = (struct pd_cut){ false, u, u };
		before = u;
	}
	free(firm);
}

static void cuts_release(struct pd_cuts *cuts)
{
	free(cuts->list);
	cuts->list = NULL;
}

static void cuts_around(const struct pd_cuts *cuts, const struct pd_costs *costs,
		    const struct pd_states *states, int state, struct pd_cut *out_p)
{
	int layers = states->layer_count[state];

	*out_p = (struct pd_cut){ true, 0, costs->unit_count };
	for (int i = 0; i < cuts->count; i++) {
		const struct pd_cut *cut = &cuts->list[i];
		int before = costs->first[cut->last];

		if (cut->soft)
			continue;
		/* if firm, one contains the other */
		if (before <= layers)
			out_p->last = cut->last;
		if (before >= layers) {
			out_p->first = cut->last;
			break;
		}
	}
	out_p->soft = out_p->last != out_p->first;
}

static int64_t split_way_ns(const struct pd_profile_layer *layer)
{
	return layer->forward_ns + pd_profile_input_ns(layer);
}

/*
 * Returns sums over layers in sequence; of a region that can be cut in many ways, its longest layer
 * counts.
 */
static int64_t *path_sums(const struct pd_costs *costs, const struct pd_cuts *cuts,
			  int64_t (*time_of)(const struct pd_profile_layer *layer))
{
	int64_t *sum = pd_calloc((size_t)costs->unit_count + 1, sizeof(*sum)), ns = 0;

	for (int i = 0; i + 1 < cuts->count; i++) {
		int from = cuts->list[i].last, to = cuts->list[i + 1].last;
		int64_t all = 0, most = 0;

		if (cuts->list[i].soft)
			continue;
		for (int k = i + 1; cuts->list[k].soft; k++)
			to = cuts->list[k + 1].last;
		for (int l = costs->first[from]; l < costs->first[to]; l++) {
			int64_t time = time_of(&costs->profile->layers[l]);

			all += time;
			most = pd_max64(most, time);
		}
		for (int u = from; u < to; u++)
			sum[u] = ns;
		ns += cuts->list[i + 1].soft ? most : all;
		sum[to] = ns;
	}
	return sum;
}

/* Leaves out everything before the first stage that surely has parameters. */
static void begin_with_parameters(const struct pd_cuts *cuts, const struct pd_costs *costs,
				  int64_t *sum)
{
	int z = 0, from = 0;

	while (z < costs->unit_count && costs->parameter_bytes[z + 1] == 0)
		z++;
	for (int i = 0; i < cuts->count; i++)
		if (!cuts->list[i].soft && cuts->list[i].last <= z)
			from = i;
	if (from + 1 < cuts->count && cuts->list[from + 1].soft)
		from += 2;
	z = cuts->list[from].last;
	for (int u = costs->unit_count; u >= 0; u--)
		sum[u] = u > z ? sum[u] - sum[z] : 0;
}

/* The parts of stages. */
struct parts {
	const struct pd_costs *costs;
	int64_t (*way_ns)(const struct pd_profile_layer *layer);
};

static void add_layer(const struct parts *parts, int layer, struct pd_node_sum *sum)
{
	const struct pd_profile *profile = parts->costs->profile;
	const struct pd_profile_layer *at = &profile->layers[layer];

	sum->passes_ns += pd_passes_ns(at);
	sum->way_ns += parts->way_ns(at);
	sum->update_ns += at->update_ns;
	if (!profile->model || profile->model->layers[layer].shares < 0)
		sum->bytes += at->parameter_bytes;
}

static void list_cuts(struct pd_nodes *nodes, const struct parts *parts)
{
	const struct pd_costs *costs = parts->costs;
	const struct pd_cut *cuts = nodes->cuts.list;
	struct pd_node_sum *sums = pd_calloc((size_t)costs->unit_count + 1, sizeof(*sums));
	struct pd_node_sum sum = { 0 };

	for (int u = 0; u < costs->unit_count; u++) {
		for (int l = costs->first[u]; l < costs->first[u + 1]; l++)
			add_layer(parts, l, &sum);
		sums[u + 1] = sum;
	}
	nodes->count = nodes->cuts.count;
	nodes->list = pd_calloc((size_t)nodes->count, sizeof(*nodes->list));
	for (int i = 0; i < nodes->count; i++)
		nodes->list[i] = (struct pd_node){ cuts[i], sums[cuts[i].first],
						   sums[cuts[i].last] };
	free(sums);
}

static void list_states(struct pd_nodes *nodes, const struct parts *parts)
{
	const struct pd_states *states = &nodes->states;

	nodes->count = states->count;
	nodes->list = pd_calloc((size_t)nodes->count, sizeof(*nodes->list));
	for (int i = 0; i < nodes->count; i++) {
		struct pd_node *node = &nodes->list[i];

		cuts_around(&nodes->cuts, parts->costs, states, i, &node->cut);
		for (int l = 0; l < parts->costs->profile->layer_count; l++)
			if (pd_states_has(states, i, l))
				add_layer(parts, l, &node->begin);
		node->end = node->begin;
	}
}

static void forget_states(struct pd_nodes *nodes)
{
	if (!nodes->states.count)
		return;
	pd_points_release(&nodes->points);
	pd_states_release(&nodes->states);
}

/* Returns false, with nothing kept, if states are missing or too many for their traffic. */
static bool find_states(struct pd_nodes *nodes, const struct pd_profile *profile)
{
	pd_states_init(&nodes->states, profile, PD_STATES_ALL);
	if (nodes->states.whole)
		pd_points_of_states(&nodes->points, &nodes->states);
	if (nodes->points.traffic)
		return true;
	if (nodes->states.whole)
		forget_states(nodes);
	else
		pd_states_release(&nodes->states);
	return false;
}

void pd_nodes_init(struct pd_nodes *nodes, const struct pd_costs *costs,
		   enum pd_schedule_kind schedule)
{
	struct parts parts = { costs, schedule == PD_SCHEDULE_ZB_H1 ? split_way_ns : pd_passes_ns };

	*nodes = (struct pd_nodes){ .count = 0 };
	cuts_init(&nodes->cuts, costs);
	nodes->path_ns = path_sums(costs, &nodes->cuts, pd_passes_ns);
	nodes->way_ns = path_sums(costs, &nodes->cuts, parts.way_ns);
	begin_with_parameters(&nodes->cuts, costs, nodes->way_ns);
	if (nodes->cuts.any_soft && find_states(nodes, costs->profile))
		list_states(nodes, &parts);
	else
		list_cuts(nodes, &parts);
}

void pd_nodes_release(struct pd_nodes *nodes)
{
	cuts_release(&nodes->cuts);
	forget_states(nodes);
	free(nodes->list);
	free(nodes->path_ns);
	free(nodes->way_ns);
	*nodes = (struct pd_nodes){ .count = 0 };
}
