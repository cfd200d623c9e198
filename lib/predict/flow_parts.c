/* SPDX-License-Identifier: Apache-2.0 */
#include "predict/flow_parts.h"

#include "base/mem.h"
#include "base/rng.h"
#include "memory/buckets.h"
#include "predict/cost.h"
#include "trace/steady.h"

#include <stdlib.h>

/* Returns an odd number that looks random. */
static uint64_t weight_of(int stage)
{
	struct pd_random4 numbers = pd_random(0, 0, 0, (uint32_t)stage);

	return (uint64_t)numbers.v[0] << 32 | numbers.v[1] | 1;
}

/* Returns the part of a stage's backward that makes the gradients of its parameters, where that is done later. */
static int64_t weight_ns(const struct pd_schedule *schedule, const struct pd_profile *profile,
			 int s, int64_t backward_ns)
{
	const struct pd_stage *stage = &schedule->plan->stages[s];
	int64_t ns = 0;

	for (int l = stage->first_layer;
	     l < stage->first_layer + stage->layer_count && schedule->splits; l++)
		ns += pd_profile_weight_ns(&profile->layers[l]);
	return pd_min(ns, backward_ns);
}

static void measure_stages(struct pd_flow *flow, const struct pd_stage_times *times)
{
	const struct pd_schedule *schedule = flow->schedule;
	const struct pd_plan *plan = flow->plan;
	struct pd_sum_delay *delays = flow->delays;
	/* If group or run has no more forwards, no more are ahead: GPipe's of a long update. */
	int64_t most = schedule->drains ? pd_min(schedule->group[0], flow->n) : flow->n;

	for (int s = 0; s < plan->stage_count; s++) {
		const struct pd_stage *at = &plan->stages[s];
		const struct pd_stage_times *own = &times[s];
		struct pd_flow_stage *stage = &flow->stages[s];

		*stage = (struct pd_flow_stage){
			.replicas = at->replicas, .ranks = at->ranks, .in_count = schedule->wiring->in_count[s],
			.out_count = schedule->wiring->out_count[s],
			.in = schedule->wiring->in[s], .out = schedule->wiring->out[s],
			.forward_ns = own->forward_ns, .backward_ns = own->backward_ns,
			.update_ns = own->update_ns, .again_ns = own->again_ns,
			.weight_ns = weight_ns(schedule, plan->profile, s, own->backward_ns), .late = schedule->kept[s] - 1,
			.lead = pd_min(own->lead, most), .group = own->group, .left = own->group,
			.delays = delays, .weight = weight_of(s),
			.deferred = pd_schedule_defers(schedule, s),
		};
		flow->weights += stage->weight;
		if (pd_schedule_sums_serially(schedule, s) || (stage->deferred && schedule->buckets[s] == 1)) {
			struct pd_sum sum = pd_plan_stage_sum(plan, s);

			stage->grouped_ns = pd_sum_grouped_ns(&sum);
			pd_sum_delays(&sum, delays);
		}
		delays += at->replicas;
	}
}

/* Finds the times of each rank where kinds of devices differ. */
static void measure_ranks(struct pd_flow *flow, const struct pd_stage_times *times)
{
	const struct pd_plan *plan = flow->plan;

	if (pd_plan_kinds(plan) == 1)
		return;
	flow->own = pd_calloc((size_t)plan->rank_count, sizeof(*flow->own));
	for (int s = 0; s < plan->stage_count; s++)
		for (int r = 0; r < plan->stages[s].replicas; r++) {
			int rank = plan->stages[s].ranks[r];
			struct pd_stage_times own = pd_stage_times_on(flow->schedule, &times[s], s, rank);

			flow->own[rank] = (struct pd_flow_own){ own.forward_ns, own.backward_ns,
								own.update_ns, own.again_ns,
								weight_ns(flow->schedule, pd_plan_profile_of(plan, rank),
									  s, own.backward_ns) };
		}
}

/* Its tensors are sent one after the other on a way, which takes its latency and this. */
static int64_t way_ns(const struct pd_flow *flow, const struct pd_link *at, const struct pd_level *way)
{
	int64_t ns = way->latency_ns;

	for (int t = 0; t < at->tensor_count; t++)
		ns = pd_min(ns + pd_bytes_ns(flow->plan->profile->layers[at->tensors[t]].activation_bytes,
					     way->bandwidth_bytes_per_s), PD_COST_MAX);
	return ns;
}

int64_t pd_flow_way_between(const struct pd_flow *flow, const struct pd_flow_link *link, int from, int to)
{
	struct pd_level way = pd_topology_way(&flow->plan->topology, from, to);

	return way_ns(flow, link->differs, &way);
}

static void measure_way(const struct pd_flow *flow, const struct pd_link *at,
			struct pd_flow_link *link)
{
	const struct pd_topology *topology = &flow->plan->topology;
	const struct pd_flow_stage *from = &flow->stages[at->from], *to = link->behind;

	link->differs = topology->link_runs > 0 ? at : NULL;
	for (int k = 0; k < topology->levels; k++) {
		struct pd_level way = pd_slowest_link(topology, k);

		link->way_ns[k] = way_ns(flow, at, &way);
		way = topology->level[k];
		way.latency_ns = 0;
		link->own_ns[k] = way_ns(flow, at, &way);
	}
	link->only_ns = -1;
	if (from->replicas == 1 && to->replicas == 1)
		link->only_ns = pd_flow_way_ns(flow, link, from->ranks[0], to->ranks[0]);
}

/* Returns the least power of two from n on. */
static int64_t power_of_two(int64_t n)
{
	int64_t size = 1;

	while (size < n)
		size *= 2;
	return size;
}

/* Keeps when the links of a level are free, so many of each component. */
static void share_links(const struct pd_flow *flow, size_t each, int64_t *free_ns[PD_MAX_LEVELS])
{
	int64_t size = 1;

	for (int k = 0; k < flow->plan->topology.levels; k++) {
		free_ns[k] = pd_calloc(each * (size_t)(flow->plan->rank_count / size + 1), sizeof(int64_t));
		size *= flow->plan->topology.level[k].count;
	}
}

/*
 * Prepares a link.  A stage admits no more than the stage before, so the microbatches on a link are
 * those by which the one is ahead of the other.
 */
static void measure_link(struct pd_flow *flow, const struct pd_link *at, struct pd_flow_link *link)
{
	const struct pd_flow_stage *from = &flow->stages[at->from], *to = &flow->stages[at->to];

	*link = (struct pd_flow_link){
		.behind = to, .from = at->from, .to = at->to,
		.mask = power_of_two(from->lead - to->lead + 1) - 1,
	};
	measure_way(flow, at, link);
	if (flow->likely && link->only_ns < 0 && !link->differs)
		share_links(flow, 2, link->in_ns);
	link->arrival_ns = pd_calloc((size_t)link->mask + 1, sizeof(int64_t));
}

void pd_flow_init(struct pd_flow *flow, const struct pd_schedule *schedule,
		  const struct pd_stage_times *times, bool likely)
{
	const struct pd_plan *plan = schedule->plan;
	const struct pd_topology *topology = &plan->topology;
	size_t stages = (size_t)plan->stage_count, ranks = (size_t)plan->rank_count;
	int64_t size = 1;

	*flow = (struct pd_flow){ .schedule = schedule, .plan = plan, .likely = likely, .lanes = 1,
			       .n = schedule->drains ? schedule->group[0] : pd_steady_microbatches(plan) };
	flow->stages = pd_calloc(stages, sizeof(*flow->stages));
	flow->links = pd_calloc((size_t)schedule->wiring->link_count, sizeof(*flow->links));
	flow->delays = pd_calloc(ranks, sizeof(*flow->delays));
	flow->free_ns = pd_calloc(ranks, sizeof(int64_t));
	flow->summed_ns = pd_calloc(ranks, sizeof(int64_t));
	flow->left = pd_calloc(ranks, sizeof(int64_t));
	for (size_t r = 0; r < ranks; r++)
		flow->summed_ns[r] = -1;
	if (!schedule->drains)
		flow->backward_end = pd_calloc((size_t)flow->n, sizeof(int64_t));
	pd_recurrence_init(&flow->recurrence, pd_steady_turn(plan));
	flow->in_flight = pd_steady_in_flight(plan);
	for (int k = 0; k + 1 < topology->levels; k++) {
		size *= topology->level[k].count;
		flow->component[k] = pd_calloc(ranks, sizeof(int));
		for (int r = 0; r < plan->rank_count; r++)
			flow->component[k][r] = (int)(r / size);
	}
	measure_stages(flow, times);
	for (int s = 0; s < plan->stage_count && likely; s++)
		share_links(flow, 1, flow->stages[s].out_ns);
	measure_ranks(flow, times);
	for (int l = 0; l < schedule->wiring->link_count; l++)
		measure_link(flow, &schedule->wiring->links[l], &flow->links[l]);
}

/* Tells whether all pipelines have the same way over a link. */
static bool has_one_way(const struct pd_flow *flow, int l)
{
	const struct pd_link *at = &flow->schedule->wiring->links[l];
	const struct pd_flow_stage *from = &flow->stages[at->from], *to = &flow->stages[at->to];
	int64_t way_ns = pd_flow_way_ns(flow, &flow->links[l], from->ranks[0], to->ranks[0]);

	for (int i = 1; i < from->replicas; i++)
		if (pd_flow_way_ns(flow, &flow->links[l], from->ranks[i], to->ranks[i]) != way_ns)
			return false;
	return true;
}

static bool are_alike(const struct pd_flow *flow)
{
	int r = flow->stages[0].replicas;

	if (r == 1 || flow->own || !flow->schedule->drains)
		return false;
	for (int s = 0; s < flow->plan->stage_count; s++) {
		const struct pd_flow_stage *stage = &flow->stages[s];

		if (stage->replicas != r || stage->lead % r != 0 || stage->group % r != 0)
			return false;
		for (int i = 1; i < r; i++)
			if (stage->delays[i].sends_ns != stage->delays[0].sends_ns ||
			    stage->delays[i].rest_ns != stage->delays[0].rest_ns)
				return false;
	}
	for (int l = 0; l < flow->schedule->wiring->link_count; l++)
		if (!has_one_way(flow, l))
			return false;
	return true;
}

void pd_flow_keep_one(struct pd_flow *flow)
{
	if (!are_alike(flow))
		return;
	flow->lanes = flow->stages[0].replicas;
	for (int l = 0; l < flow->schedule->wiring->link_count; l++) {
		const struct pd_link *at = &flow->schedule->wiring->links[l];

		flow->links[l].only_ns = pd_flow_way_ns(flow, &flow->links[l], flow->stages[at->from].ranks[0],
							flow->stages[at->to].ranks[0]);
		flow->links[l].turns = pd_turns_of(flow->plan, at);
	}
	for (int s = 0; s < flow->plan->stage_count; s++) {
		struct pd_flow_stage *stage = &flow->stages[s];

		stage->lead /= flow->lanes;
		stage->group /= flow->lanes;
		stage->left = stage->group;
		stage->replicas = 1;
	}
	flow->n /= flow->lanes;
}

void pd_flow_release(struct pd_flow *flow)
{
	for (int k = 0; k < PD_MAX_LEVELS; k++)
		free(flow->component[k]);
	for (int l = 0; l < flow->schedule->wiring->link_count; l++) {
		for (int k = 0; k < PD_MAX_LEVELS; k++)
			free(flow->links[l].in_ns[k]);
		free(flow->links[l].arrival_ns);
	}
	for (int s = 0; s < flow->plan->stage_count; s++)
		for (int k = 0; k < PD_MAX_LEVELS; k++)
			free(flow->stages[s].out_ns[k]);
	free(flow->own);
	free(flow->stages);
	free(flow->links);
	free(flow->delays);
	free(flow->free_ns);
	free(flow->summed_ns);
	free(flow->left);
	free(flow->backward_end);
	pd_recurrence_release(&flow->recurrence);
}
