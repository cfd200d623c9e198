/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The period of continuous 1F1B.
 *
 * Without replicas, with F_j and B_j the forwards and backwards, w_j the warm-ups, t_j the
 * time of one minibatch at stage j and C_j that of a transfer from j to j + 1: the orders
 * and dependencies of 1F1B are a timed event graph, in which F_j precedes F_{j+1} and
 * B_{j+1} precedes B_j (C_j, no token), F_j precedes B_j (-w_j tokens), and B_j precedes
 * F_j (w_j + 1 tokens).  An elementary cycle climbs from F_s to F_e, comes down from B_e to
 * B_s, and closes at s.  The period is the greatest ratio of time to tokens:
 *
 *     max over s <= e of ( sum_{j=s..e} t_j + 2 sum_{j=s..e-1} C_j ) / ( w_s + 1 - w_e )
 *
 * With replicas a stage is r_j lanes that take minibatches in turn, so the tokens of a
 * cycle, counted in minibatches, are (w_s + 1) r_s - w_e r_e: exact for s = e, and an
 * approximation for longer windows, where the ratios of replica counts matter.  Links are
 * further resources: in a period each carries what its device sends and receives.
 */
#include "planner/price/predict.h"

#include "base/mem.h"
#include "plan/memory.h"
#include "plan/sparse.h"
#include "plan/wiring.h"
#include "planner/price/cost.h"
#include "planner/price/links.h"
#include "schedule/memory.h"

#include <stdlib.h>

static int64_t update_ns(const struct pd_plan *plan, const struct pd_stage *stage)
{
	int64_t sum = 0;

	for (int l = stage->first_layer; l < stage->first_layer + stage->layer_count; l++)
		sum += plan->profile->layers[l].update_ns;
	return sum;
}

/* Returns the worst way between two sets of ranks: outermost latency, least bandwidth. */
static struct pd_level worst_link(const struct pd_topology *topology, const int *a, int a_count,
				  const int *b, int b_count)
{
	int outermost = 0;

	/* Components are ranges of ranks, so the extremes are the farthest apart. */
	int low = a[0], high = a[0];
	for (int i = 0; i < a_count; i++) {
		low = a[i] < low ? a[i] : low;
		high = a[i] > high ? a[i] : high;
	}
	for (int i = 0; i < b_count; i++) {
		low = b[i] < low ? b[i] : low;
		high = b[i] > high ? b[i] : high;
	}
	if (low != high)
		outermost = pd_topology_level(topology, low, high);
	return pd_slowest_link(topology, outermost);
}

/* Sets the bytes that enter and leave each stage per minibatch, one way. */
static void traffic(const struct pd_plan *plan, int64_t *in_bytes, int64_t *out_bytes)
{
	struct pd_wiring *wiring = pd_wiring_new(plan);

	for (int s = 0; s < plan->stage_count; s++)
		in_bytes[s] = out_bytes[s] = 0;
	for (int k = 0; k < wiring->link_count; k++) {
		out_bytes[wiring->links[k].from] += wiring->links[k].bytes;
		in_bytes[wiring->links[k].to] += wiring->links[k].bytes;
	}
	pd_wiring_free(wiring);
}

/* Sets the memory to the byte, if the profile says enough; else the searches' figures stay. */
static void exact_memory(struct pd_plan *plan)
{
	struct pd_error err;
	struct pd_schedule *schedule = plan->profile->model ? pd_schedule_new(plan, &err) : NULL;

	for (int s = 0; schedule && s < plan->stage_count; s++) {
		struct pd_memory memory;

		if (pd_schedule_memory(schedule, plan->stages[s].ranks[0], &pd_momentum, &memory))
			plan->stages[s].memory_bytes = memory.total_bytes;
	}
	pd_schedule_free(schedule);
}

void pd_predict_stages(struct pd_plan *plan)
{
	int64_t *in = pd_calloc((size_t)plan->stage_count, sizeof(*in));
	int64_t *out = pd_calloc((size_t)plan->stage_count, sizeof(*out));

	traffic(plan, in, out);
	for (int s = 0; s < plan->stage_count; s++) {
		struct pd_stage *stage = &plan->stages[s];
		struct pd_members members = pd_plan_members(plan, s);
		int64_t parameters = pd_stage_parameter_bytes(plan, s);
		struct pd_memory memory;

		stage->forward_ns = stage->backward_ns = 0;
		for (int l = stage->first_layer; l < stage->first_layer + stage->layer_count; l++) {
			stage->forward_ns += plan->profile->layers[l].forward_ns;
			stage->backward_ns += plan->profile->layers[l].backward_ns;
		}
		stage->allreduce_ns = pd_reducers[plan->reducer]->cost_ns(
			&members, pd_plan_sum_bytes(plan, s, 0, parameters, parameters));
		pd_memory_of(plan->profile, stage->first_layer, stage->layer_count, stage->replicas,
			     stage->warmup, in[s], out[s], &memory);
		stage->memory_bytes = memory.total_bytes;
	}
	free(in);
	free(out);
	exact_memory(plan);
}

void pd_predict_memory(struct pd_plan *plan, const struct pd_schedule *schedule)
{
	for (int s = 0; s < plan->stage_count; s++) {
		struct pd_memory memory;

		pd_schedule_memory(schedule, plan->stages[s].ranks[0], &pd_momentum, &memory);
		plan->stages[s].memory_bytes = memory.total_bytes;
	}
}

/* Returns the time for which a minibatch occupies a replica, with its share of everything. */
static int64_t occupied_ns(const struct pd_plan *plan, int s)
{
	const struct pd_stage *stage = &plan->stages[s];

	return stage->forward_ns * (stage->recompute ? 2 : 1) + stage->backward_ns +
		update_ns(plan, stage) +
		stage->allreduce_ns;
}

/* Returns how long a stage uses its link, each way, per minibatch. */
static int64_t link_ns(const struct pd_plan *plan, int stage, int64_t traffic_bytes)
{
	const struct pd_stage *at = &plan->stages[stage];

	return pd_ceil_div(pd_bytes_ns(traffic_bytes, plan->topology.level[0].bandwidth_bytes_per_s) +
			   at->allreduce_ns, at->replicas);
}

int64_t pd_predict_turns_ns(const struct pd_plan *plan)
{
	int64_t processors = plan->topology.processors, most = 0;
	int64_t *busy;

	if (processors == 0 || processors >= plan->rank_count)
		return 0;
	busy = pd_calloc((size_t)processors, sizeof(*busy));
	for (int s = 0; s < plan->stage_count; s++) {
		const struct pd_stage *stage = &plan->stages[s];
		int64_t ns = 0;

		for (int l = stage->first_layer; l < stage->first_layer + stage->layer_count; l++)
			ns += plan->profile->layers[l].forward_ns * (stage->recompute ? 2 : 1) +
			      plan->profile->layers[l].backward_ns;
		for (int r = 0; r < stage->replicas; r++)
			busy[stage->ranks[r] % processors] += ns / stage->replicas;
	}
	for (int64_t p = 0; p < processors; p++)
		most = pd_max64(most, busy[p]);
	free(busy);
	return most;
}

/* Returns C_s: the slowest of the transfers from stage s. */
static int64_t *transfers(const struct pd_plan *plan)
{
	int64_t *transfer = pd_calloc((size_t)plan->stage_count, sizeof(*transfer));
	struct pd_wiring *wiring = pd_wiring_new(plan);

	for (int k = 0; k < wiring->link_count; k++) {
		const struct pd_link *link = &wiring->links[k];
		const struct pd_stage *from = &plan->stages[link->from], *to = &plan->stages[link->to];
		struct pd_level way = worst_link(&plan->topology, from->ranks, from->replicas,
						 to->ranks, to->replicas);
		int64_t ns = way.latency_ns + pd_bytes_ns(link->bytes, way.bandwidth_bytes_per_s);

		/*
		 * A transfer that skips stages has all their time, so it does not slow down its own
		 * step.
		 */
		if (link->to == link->from + 1)
			transfer[link->from] = pd_max64(transfer[link->from], ns);
	}
	pd_wiring_free(wiring);
	return transfer;
}

static int64_t links_ns(const struct pd_plan *plan)
{
	int64_t *in = pd_calloc((size_t)plan->stage_count, sizeof(*in));
	int64_t *out = pd_calloc((size_t)plan->stage_count, sizeof(*out));
	int64_t most = 0;

	traffic(plan, in, out);
	for (int s = 0; s < plan->stage_count; s++)
		most = pd_max64(most, link_ns(plan, s, in[s] + out[s]));
	free(in);
	free(out);
	return most;
}

static int64_t capped(__int128 value)
{
	return value > PD_COST_MAX ? PD_COST_MAX : (int64_t)value;
}

int64_t pd_predict_period_ns(const struct pd_plan *plan)
{
	int64_t *transfer = transfers(plan);
	int64_t period = pd_max64(links_ns(plan), pd_predict_turns_ns(plan));

	for (int s = 0; s < plan->stage_count; s++) {
		int64_t lead = ((int64_t)plan->stages[s].warmup + 1) * plan->stages[s].replicas;
		__int128 time = 0;

		for (int e = s; e < plan->stage_count; e++) {
			int64_t tokens = lead - (int64_t)plan->stages[e].warmup *
				plan->stages[e].replicas;

			time += occupied_ns(plan, e);
			if (tokens > 0 && (time + tokens - 1) / tokens > period)
				period = capped((time + tokens - 1) / tokens);
			time += 2 * transfer[e];
		}
	}
	free(transfer);
	return period;
}
