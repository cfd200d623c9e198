/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/bound/nodes.h"

#include "base/mem.h"

#include <stdlib.h>

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
	const struct pd_states *states = &nodes->spans.states;

	nodes->count = states->count;
	nodes->list = pd_calloc((size_t)nodes->count, sizeof(*nodes->list));
	for (int i = 0; i < nodes->count; i++) {
		struct pd_node *node = &nodes->list[i];

		pd_cuts_around(&nodes->cuts, parts->costs, states, i, &node->cut);
		for (int l = 0; l < parts->costs->profile->layer_count; l++)
			if (pd_states_has(states, i, l))
				add_layer(parts, l, &node->begin);
		node->end = node->begin;
	}
}

void pd_nodes_init(struct pd_nodes *nodes, const struct pd_costs *costs,
		   enum pd_schedule_kind schedule)
{
	struct parts parts = { costs, schedule == PD_SCHEDULE_ZB_H1 ? split_way_ns : pd_passes_ns };

	*nodes = (struct pd_nodes){ .count = 0 };
	pd_cuts_init(&nodes->cuts, costs);
	nodes->path_ns = path_sums(costs, &nodes->cuts, pd_passes_ns);
	nodes->way_ns = path_sums(costs, &nodes->cuts, parts.way_ns);
	begin_with_parameters(&nodes->cuts, costs, nodes->way_ns);
	if (nodes->cuts.any_soft && pd_spans_init(&nodes->spans, costs->profile))
		list_states(nodes, &parts);
	else
		list_cuts(nodes, &parts);
}

void pd_nodes_release(struct pd_nodes *nodes)
{
	pd_cuts_release(&nodes->cuts);
	pd_spans_release(&nodes->spans);
	free(nodes->list);
	free(nodes->path_ns);
	free(nodes->way_ns);
	*nodes = (struct pd_nodes){ .count = 0 };
}
