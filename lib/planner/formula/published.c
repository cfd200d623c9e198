/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/formula/published.h"

#include "base/mem.h"
#include "planner/formula/levels.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* The released program does not look at all states, and SOSP 2019 only has chains of layers. */
static enum pd_states_rule rule(enum pd_cost_kind kind)
{
	return kind == PD_COST_SOSP19 ? PD_STATES_ALL : PD_STATES_RELEASED;
}

/* Makes a row in which every link is as slow as the slowest. */
static struct pd_topology row_of(const struct pd_topology *topology)
{
	struct pd_topology row = *topology;

	row.levels = 1;
	row.level[0] = pd_slowest_link(topology, topology->levels - 1);
	row.level[0].count = topology->devices;
	return row;
}

/*
 * Plans on one level if whole components of the levels are too much for few layers without
 * replicas.
 */
struct pd_partition *pd_published_partition(struct pd_profile *profile,
					    const struct pd_plan_request *request,
					    struct pd_error *err)
{
	struct pd_topology row = row_of(request->topology);
	struct pd_partition *partition;
	struct pd_states states;

	pd_states_init(&states, profile, rule(request->cost));
	partition = pd_levels_search(&states, request->topology, request->cost, request->straight, NULL);
	if (!partition && request->cost == PD_COST_SOSP19)
		partition = pd_levels_search(&states, &row, request->cost, request->straight, NULL);
	if (partition && partition->order) {
		pd_profile_reorder(profile, partition->order);
		free(partition->order);
		partition->order = NULL;        /* it is now the profile's */
	}
	if (!partition)
		pd_error_no(err, "--straight: cost \"%s\" uses all %" PRId64 " devices, and the "
			    "network cannot be cut into so many stages; expected fewer devices, or "
			    "another cost", pd_cost_kind_name[request->cost],
			    request->topology->devices);
	pd_states_release(&states);
	return partition;
}

int64_t pd_published_ns(enum pd_cost_kind kind, const struct pd_costs *costs,
			const struct pd_plan *plan)
{
	struct pd_priced *priced = pd_calloc((size_t)plan->stage_count, sizeof(*priced));
	struct pd_topology row = row_of(&plan->topology);
	double ns;

	for (int s = 0, u = 0, v; s < plan->stage_count; s++, u = v) {
		const struct pd_stage *stage = &plan->stages[s];

		v = pd_costs_unit(costs, stage->first_layer + stage->layer_count);
		priced[s] = (struct pd_priced){
			.replicas = stage->replicas, .ranks = stage->ranks,
			.compute_ns = costs->compute_ns[v] - costs->compute_ns[u],
			.parameter_bytes = costs->parameter_bytes[v] - costs->parameter_bytes[u],
			.cut_bytes = costs->cut_bytes[v],
		};
	}
	ns = pd_terms_price(kind, &plan->topology, priced, plan->stage_count);
	if (ns < 0)
		ns = pd_terms_price(kind, &row, priced, plan->stage_count);
	free(priced);
	return pd_terms_round(ns);
}

/* Returns the time of computing alone. */
static int64_t compute_bound(const struct pd_profile *profile,
			     const struct pd_plan_request *request)
{
	int64_t sum = 0, most = 0;

	for (int l = 0; l < profile->layer_count; l++) {
		int64_t ns = pd_profile_step_ns(&profile->layers[l]);

		sum += ns;
		most = pd_max(most, ns);
	}
	sum /= request->topology->devices;
	return request->straight ? pd_max(sum, most) : sum;
}

int64_t pd_published_bound_ns(const struct pd_profile *profile,
			      const struct pd_plan_request *request)
{
	struct pd_states states;
	struct pd_partition *partition;
	double time = 0;
	bool exact;

	if (request->topology->levels > 1 || request->cost != PD_COST_SOSP19)
		return compute_bound(profile, request);
	pd_states_init(&states, profile, rule(request->cost));
	partition = pd_levels_search(&states, request->topology, request->cost, request->straight, &time);
	exact = partition && states.whole;
	pd_partition_free(partition);
	pd_states_release(&states);
	return exact ? (int64_t)floor(time) : compute_bound(profile, request);
}
