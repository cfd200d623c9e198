/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steady state of 1F1B as a recurrence.
 *
 * With f, b, u the times of a stage's forward, backward and update, C those of transfers and
 * A those of all-reduces, r replicas, w warm-ups and g the microbatches of an update, the
 * orders and dependencies of lib/schedule/ideal.c are
 *
 *     F_s(n) = f + max( rank is free, F_q(n) + C  for all links q -> s )
 *     B_s(n) = b + max( rank is free, B_t(n) + C  for all links s -> t )
 *     after the last B of a group: all ranks of s are free at  max(theirs) + A + u
 *
 * where a rank does F_s(n) before B_s(n - w r) and after B_s(n - (w + 1) r).  Taken in the
 * schedule's own order every term is known when it is needed: a minibatch costs a few
 * operations per stage, a thousandth of a replay.
 *
 * This is the timed event graph of ../trace/steady's pipeline with each replica a lane.  Its
 * period is the largest ratio of time to tokens over its cycles.  Without replicas these climb
 * from F_s to F_e, turn, come down from B_e and close at s:
 *
 *     max over s <= e of ( sum_{s..e} t + 2 sum_{s..e-1} C ) / ( w_s + 1 - w_e )
 *
 * With replicas the same cycle has (w_s + 1) r_s - w_e r_e tokens, but it is not the only one:
 * replicas update together, so the last backward of a group leads to the first forward after
 * it on any of them.  A cycle that comes back to s as the last of a group and goes on as the
 * first of another loses up to r_s - 1 tokens.  That is why warm-ups that are enough without
 * replicas (SOSP 2019: 3-2-1 has 1, 1, 0) are not enough with them.
 *
 * Real transfers wait for links as well, so the period is at least this; and at least what the
 * busiest link carries (links.c).  (Links that are taken in the order of the schedule make a
 * worse estimate, not a better one: what is listed early need not happen early.)
 */
#include "planner/flow.h"

#include "base/mem.h"
#include "planner/cost.h"
#include "planner/links.h"
#include "planner/predict.h"
#include "trace/steady.h"

#include <math.h>
#include <stdlib.h>

struct flow {
	const struct pd_schedule *schedule;
	const struct pd_plan *plan;
	int64_t n;                      /* microbatches */
	int64_t *forward_end, *backward_end;    /* by stage and microbatch */
	int64_t *free_ns;               /* per rank */
	int64_t *forward_ns, *backward_ns, *update_ns;  /* per stage */
	int64_t *sends_ns;              /* of all-reduces, per rank of each stage */
	int64_t *way_ns;                /* of a link's tensors, by outermost level of the way */
	int64_t *only_ns;               /* the same where no stage of a link has replicas; else -1 */
	int *component[PD_MAX_LEVELS];  /* of each rank, above level k */
	int64_t done;                   /* microbatches that came back */
};

static void measure(struct flow *flow)
{
	const struct pd_plan *plan = flow->plan;

	for (int s = 0, sends = 0; s < plan->stage_count; s++) {
		const struct pd_stage *stage = &plan->stages[s];
		bool apart = pd_schedule_versions(flow->schedule, s) > 1;

		for (int l = stage->first_layer; l < stage->first_layer + stage->layer_count; l++) {
			const struct pd_profile_layer *layer = &plan->profile->layers[l];

			flow->forward_ns[s] += layer->forward_ns;
			flow->backward_ns[s] += layer->backward_ns;
			flow->update_ns[s] += apart ? pd_profile_apart_ns(layer) : layer->update_ns;
		}
		pd_links_allreduce(&plan->topology, stage->ranks, stage->replicas,
				   pd_stage_parameter_bytes(plan, s), flow->sends_ns + sends);
		sends += stage->replicas;
	}
}

/* Its tensors go one behind the other. */
static void measure_ways(struct flow *flow)
{
	const struct pd_wiring *wiring = flow->schedule->wiring;
	const struct pd_topology *topology = &flow->plan->topology;
	int64_t bandwidth = INT64_MAX, *way_ns;

	flow->way_ns = pd_calloc((size_t)wiring->link_count * PD_MAX_LEVELS, sizeof(int64_t));
	for (int k = 0; k < topology->levels; k++) {
		bandwidth = pd_min64(bandwidth, topology->level[k].bandwidth_bytes_per_s);
		way_ns = flow->way_ns + k;
		for (int l = 0; l < wiring->link_count; l++, way_ns += PD_MAX_LEVELS) {
			*way_ns = topology->level[k].latency_ns;
			for (int t = 0; t < wiring->links[l].tensor_count; t++) {
				int tensor = wiring->links[l].tensors[t];

				*way_ns += pd_bytes_ns(flow->plan->profile->layers[tensor]
						       .activation_bytes, bandwidth);
			}
		}
	}
}

/* From rank to rank. */
static int64_t way_ns(const struct flow *flow, int l, int from, int to)
{
	int k = 0;

	if (from == to)
		return 0;
	while (flow->component[k] && flow->component[k][from] != flow->component[k][to])
		k++;
	return flow->way_ns[l * PD_MAX_LEVELS + k];
}

static void measure_only_ways(struct flow *flow)
{
	const struct pd_wiring *wiring = flow->schedule->wiring;

	flow->only_ns = pd_calloc((size_t)wiring->link_count, sizeof(int64_t));
	for (int l = 0; l < wiring->link_count; l++) {
		const struct pd_stage *a = &flow->plan->stages[wiring->links[l].from];
		const struct pd_stage *b = &flow->plan->stages[wiring->links[l].to];

		flow->only_ns[l] = a->replicas > 1 || b->replicas > 1 ? -1
				 : way_ns(flow, l, a->ranks[0], b->ranks[0]);
	}
}

static void flow_init(struct flow *flow, const struct pd_schedule *schedule)
{
	const struct pd_plan *plan = schedule->plan;
	const struct pd_topology *topology = &plan->topology;
	size_t stages = (size_t)plan->stage_count;
	int64_t size = 1;

	*flow = (struct flow){ .schedule = schedule, .plan = plan,
			       .n = pd_steady_minibatches(plan) };
	flow->forward_end = pd_calloc(stages * (size_t)flow->n, sizeof(int64_t));
	flow->backward_end = pd_calloc(stages * (size_t)flow->n, sizeof(int64_t));
	flow->free_ns = pd_calloc((size_t)plan->rank_count, sizeof(int64_t));
	flow->forward_ns = pd_calloc(3 * stages + (size_t)plan->rank_count, sizeof(int64_t));
	flow->backward_ns = flow->forward_ns + stages;
	flow->update_ns = flow->backward_ns + stages;
	flow->sends_ns = flow->update_ns + stages;
	for (int k = 0; k + 1 < topology->levels; k++) {
		size *= topology->level[k].count;
		flow->component[k] = pd_calloc((size_t)plan->rank_count, sizeof(int));
		for (int r = 0; r < plan->rank_count; r++)
			flow->component[k][r] = (int)(r / size);
	}
	measure_ways(flow);
	measure_only_ways(flow);
	measure(flow);
}

static void flow_release(struct flow *flow)
{
	for (int k = 0; k < PD_MAX_LEVELS; k++)
		free(flow->component[k]);
	free(flow->way_ns);
	free(flow->only_ns);
	free(flow->forward_end);
	free(flow->backward_end);
	free(flow->free_ns);
	free(flow->forward_ns);
}

/* Whose turn it is.  (Division of 32 bits is much faster.) */
static int turn(const struct pd_stage *stage, int64_t n)
{
	if (stage->replicas == 1)
		return stage->ranks[0];
	return stage->ranks[n <= UINT32_MAX ? (uint32_t)n % (uint32_t)stage->replicas
					    : n % stage->replicas];
}

/* What a link brings for microbatch n, down the pipeline or (back) up. */
static int64_t arrival(struct flow *flow, int l, int64_t n, bool back)
{
	const struct pd_link *link = &flow->schedule->wiring->links[l];
	const struct pd_stage *a = &flow->plan->stages[link->from];
	const struct pd_stage *b = &flow->plan->stages[link->to];
	int64_t end = back ? flow->backward_end[link->to * flow->n + n]
			   : flow->forward_end[link->from * flow->n + n];

	if (flow->only_ns[l] >= 0)
		return end + flow->only_ns[l];
	return end + way_ns(flow, l, turn(a, n), turn(b, n));
}

/* When the replica whose turn it is, is free. */
static int64_t *free_of(struct flow *flow, const struct pd_stage *stage, int64_t n)
{
	return &flow->free_ns[turn(stage, n)];
}

static void forward(struct flow *flow, int s, int64_t n)
{
	const struct pd_wiring *wiring = flow->schedule->wiring;
	const struct pd_stage *stage = &flow->plan->stages[s];
	int64_t *free_ns = free_of(flow, stage, n);

	for (int i = 0; i < wiring->in_count[s]; i++)
		*free_ns = pd_max64(*free_ns, arrival(flow, wiring->in[s][i], n, false));
	*free_ns += flow->forward_ns[s];
	flow->forward_end[s * flow->n + n] = *free_ns;
}

/*
 * All-reduce and step behind the last backward of a group.  Without parameters there is nothing
 * for which replicas would wait for each other.
 */
static void update(struct flow *flow, int s)
{
	const struct pd_stage *stage = &flow->plan->stages[s];
	const int64_t *sends_ns = flow->sends_ns;
	int64_t last = 0;

	if (stage->replicas == 1) {
		flow->free_ns[stage->ranks[0]] += flow->update_ns[s];
		return;
	}
	for (int t = 0; t < s; t++)
		sends_ns += flow->plan->stages[t].replicas;
	for (int i = 0; i < stage->replicas; i++)
		last = pd_max64(last, flow->free_ns[stage->ranks[i]]);
	for (int i = 0; i < stage->replicas; i++) {
		int64_t *free_ns = &flow->free_ns[stage->ranks[i]];

		if (sends_ns[i])
			*free_ns = pd_max64(*free_ns + sends_ns[i], last + sends_ns[i] / 2);
		*free_ns += flow->update_ns[s];
	}
}

static void backward(struct flow *flow, int s, int64_t n)
{
	const struct pd_wiring *wiring = flow->schedule->wiring;
	const struct pd_stage *stage = &flow->plan->stages[s];
	int64_t *free_ns = free_of(flow, stage, n);

	if (stage->recompute)           /* that waits for no gradient */
		*free_ns += flow->forward_ns[s];
	for (int i = 0; i < wiring->out_count[s]; i++)
		*free_ns = pd_max64(*free_ns, arrival(flow, wiring->out[s][i], n, true));
	*free_ns += flow->backward_ns[s];
	flow->backward_end[s * flow->n + n] = *free_ns;
	if (flow->schedule->group[s] == 1 || (n + 1) % flow->schedule->group[s] == 0)
		update(flow, s);
}

/* What the schedule has at microbatch k of those from first to last - 1, between which the
 * pipeline does not drain. */
static void tick(struct flow *flow, int64_t first, int64_t last, int64_t k)
{
	const struct pd_schedule *schedule = flow->schedule;
	int stages = flow->plan->stage_count;

	for (int s = 0; s < stages; s++) {
		int64_t n = k + schedule->warmup[s] * (int64_t)flow->plan->stages[s].replicas;

		if (n >= first && n < last)
			forward(flow, s, n);
	}
	for (int s = stages - 1; s >= 0 && k >= first; s--)
		backward(flow, s, k);
	flow->done = k + 1;
}

/* Until it repeats itself: a look at what came back, from time to time.  Returns the period. */
static double run(struct flow *flow)
{
	const struct pd_schedule *schedule = flow->schedule;
	int64_t group = schedule->drains ? schedule->group[0] : flow->n;
	int64_t lead = schedule->warmup[0] * (int64_t)flow->plan->stages[0].replicas, look;
	struct pd_progress progress;
	struct pd_steady steady = { .period_ns = 0 };

	pd_progress_init(&progress, flow->plan, flow->backward_end, flow->n);
	look = pd_progress_first(&progress);
	for (int64_t first = 0; first < flow->n; first += group) {
		int64_t last = pd_min64(first + group, flow->n);

		for (int64_t k = first - lead; k < last; k++) {
			tick(flow, first, last, k);
			if (flow->done < look)
				continue;
			look = pd_progress_next(&progress, flow->done);
			if (pd_steady_repeats(&progress, flow->done, &steady.period_ns))
				return steady.period_ns;
		}
	}
	pd_steady_of(flow->plan, flow->backward_end, (size_t)flow->n, !schedule->drains, &steady);
	return steady.cycle ? steady.period_ns
			    : steady.period_ns * 0.99;  /* not settled: the slope is about right */
}

bool pd_flow_knows(const struct pd_plan *plan)
{
	return plan->schedule == PD_SCHEDULE_1F1B || plan->schedule == PD_SCHEDULE_GPIPE ||
	       plan->schedule == PD_SCHEDULE_NONE;
}

static int64_t period_ns(const struct pd_schedule *schedule)
{
	struct flow flow;
	double ns;

	flow_init(&flow, schedule);
	ns = run(&flow);
	flow_release(&flow);
	return ns < (double)PD_COST_MAX ? (int64_t)floor(ns) : PD_COST_MAX;
}

int64_t pd_flow_bound_ns(const struct pd_schedule *schedule)
{
	if (!pd_flow_knows(schedule->plan))
		return 0;
	return pd_max64(pd_max64(period_ns(schedule), pd_predict_turns_ns(schedule->plan)),
			pd_links_busiest_ns(schedule->plan, schedule->wiring));
}
