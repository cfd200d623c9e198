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
 *     max over s <= e of ( sum_{s..e} t + 2 sum_{s..e-1} C + u_s ) / ( w_s + 1 - w_e )
 *
 * which is the answer where all links go to the next stage: no microbatch need be gone through.
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
#include "base/rng.h"
#include "planner/cost.h"
#include "planner/links.h"
#include "planner/predict.h"
#include "trace/steady.h"

#include <math.h>
#include <stdlib.h>

struct link {                          /* between two stages */
	const struct pd_stage *from, *to;
	const struct stage *behind;     /* `to` */
	int64_t way_ns[PD_MAX_LEVELS];  /* of its tensors, by outermost level of the way */
	int64_t only_ns;                /* the same where neither stage has replicas; else -1 */
	int turn;                       /* which replica the next that goes down is for */
	int64_t *arrival_ns;            /* of those on their way down: microbatch n at n & mask */
	int64_t mask;
};

struct stage {
	const struct pd_stage *plan;
	int in_count, out_count;
	const int *in, *out;            /* links */
	int64_t forward_ns, backward_ns, update_ns;
	int64_t again_ns;               /* a forward before each backward */
	const int64_t *sends_ns;        /* in an all-reduce, by replica */
	int64_t lead;                   /* microbatches that forwards are ahead of backwards */
	int64_t group, left;            /* microbatches of an update; until the next one */
	int down, up;                   /* which replica does the next forward, the next backward */
	uint64_t weight;                /* in marks */
	int rank;                       /* of the last backward, */
	int64_t end_ns;                 /* and its end */
};

struct flow {
	const struct pd_schedule *schedule;
	const struct pd_plan *plan;
	int64_t n;                      /* microbatches */
	struct stage *stages;
	struct link *links;
	int64_t *sends_ns, *arrival_ns; /* all stages', all links' */
	int64_t *free_ns;               /* per rank */
	int *component[PD_MAX_LEVELS];  /* of each rank, above level k */
	int64_t *backward_end;          /* of the first stage, by microbatch */
	uint64_t *marks;                /* of the others', by microbatch: tick() */
	uint64_t weights;               /* of all stages */
};

/* Odd, and as if drawn by chance. */
static uint64_t weight_of(int stage)
{
	struct pd_random4 numbers = pd_random(0, 0, 0, (uint32_t)stage);

	return (uint64_t)numbers.v[0] << 32 | numbers.v[1] | 1;
}

static void measure_stages(struct flow *flow)
{
	const struct pd_schedule *schedule = flow->schedule;
	const struct pd_plan *plan = flow->plan;
	int64_t *sends_ns = flow->sends_ns;

	for (int s = 0; s < plan->stage_count; s++) {
		const struct pd_stage *at = &plan->stages[s];
		bool apart = pd_schedule_versions(schedule, s) > 1;
		struct stage *stage = &flow->stages[s];

		*stage = (struct stage){
			.plan = at, .in_count = schedule->wiring->in_count[s],
			.out_count = schedule->wiring->out_count[s],
			.in = schedule->wiring->in[s], .out = schedule->wiring->out[s],
			.lead = schedule->warmup[s] * (int64_t)at->replicas,
			.group = schedule->group[s], .left = schedule->group[s],
			.sends_ns = sends_ns,
		};
		for (int l = at->first_layer; l < at->first_layer + at->layer_count; l++) {
			const struct pd_profile_layer *layer = &plan->profile->layers[l];

			stage->forward_ns += layer->forward_ns;
			stage->backward_ns += layer->backward_ns;
			stage->update_ns += apart ? pd_profile_apart_ns(layer) : layer->update_ns;
		}
		stage->again_ns = at->recompute ? stage->forward_ns : 0;
		stage->weight = weight_of(s);
		flow->weights += stage->weight;
		pd_links_allreduce(&plan->topology, at->ranks, at->replicas,
				   pd_stage_parameter_bytes(plan, s), sends_ns);
		sends_ns += at->replicas;
	}
}

/* From rank to rank. */
static int64_t way_ns(const struct flow *flow, const struct link *link, int from, int to)
{
	int k = 0;

	if (link->only_ns >= 0)
		return link->only_ns;
	if (from == to)
		return 0;
	while (flow->component[k] && flow->component[k][from] != flow->component[k][to])
		k++;
	return link->way_ns[k];
}

/* Its tensors go one behind the other. */
static void measure_way(const struct flow *flow, const struct pd_link *at, struct link *link)
{
	const struct pd_topology *topology = &flow->plan->topology;
	int64_t bandwidth = INT64_MAX;

	for (int k = 0; k < topology->levels; k++) {
		bandwidth = pd_min64(bandwidth, topology->level[k].bandwidth_bytes_per_s);
		link->way_ns[k] = topology->level[k].latency_ns;
		for (int t = 0; t < at->tensor_count; t++) {
			link->way_ns[k] += pd_bytes_ns(flow->plan->profile->layers[at->tensors[t]]
						       .activation_bytes, bandwidth);
			link->way_ns[k] = pd_min64(link->way_ns[k], PD_COST_MAX);
		}
	}
	link->only_ns = -1;
	if (link->from->replicas == 1 && link->to->replicas == 1)
		link->only_ns = way_ns(flow, link, link->from->ranks[0], link->to->ranks[0]);
}

/* Stages let in no more than those before them, so what is on its way down a link is what the
 * one is ahead of the other. */
static void measure_links(struct flow *flow)
{
	const struct pd_wiring *wiring = flow->schedule->wiring;
	size_t room = 0;

	for (int l = 0; l < wiring->link_count; l++) {
		const struct pd_link *at = &wiring->links[l];
		int64_t ahead = flow->stages[at->from].lead - flow->stages[at->to].lead, size = 1;
		struct link *link = &flow->links[l];

		while (size <= ahead)
			size *= 2;
		*link = (struct link){ .from = flow->stages[at->from].plan,
				       .to = flow->stages[at->to].plan,
				       .behind = &flow->stages[at->to], .mask = size - 1 };
		measure_way(flow, at, link);
		room += (size_t)size;
	}
	flow->arrival_ns = pd_calloc(room, sizeof(int64_t));
	for (int l = wiring->link_count - 1; l >= 0; l--) {
		room -= (size_t)flow->links[l].mask + 1;
		flow->links[l].arrival_ns = flow->arrival_ns + room;
	}
}

static void flow_init(struct flow *flow, const struct pd_schedule *schedule)
{
	const struct pd_plan *plan = schedule->plan;
	const struct pd_topology *topology = &plan->topology;
	size_t stages = (size_t)plan->stage_count, ranks = (size_t)plan->rank_count;
	int64_t size = 1;

	*flow = (struct flow){ .schedule = schedule, .plan = plan,
			       .n = pd_steady_minibatches(plan) };
	flow->stages = pd_calloc(stages, sizeof(*flow->stages));
	flow->links = pd_calloc((size_t)schedule->wiring->link_count, sizeof(*flow->links));
	flow->sends_ns = pd_calloc(ranks, sizeof(int64_t));
	flow->free_ns = pd_calloc(ranks, sizeof(int64_t));
	flow->backward_end = pd_calloc((size_t)flow->n, sizeof(int64_t));
	flow->marks = pd_calloc((size_t)flow->n, sizeof(*flow->marks));
	for (int k = 0; k + 1 < topology->levels; k++) {
		size *= topology->level[k].count;
		flow->component[k] = pd_calloc(ranks, sizeof(int));
		for (int r = 0; r < plan->rank_count; r++)
			flow->component[k][r] = (int)(r / size);
	}
	measure_stages(flow);
	measure_links(flow);
}

static void flow_release(struct flow *flow)
{
	for (int k = 0; k < PD_MAX_LEVELS; k++)
		free(flow->component[k]);
	free(flow->stages);
	free(flow->links);
	free(flow->sends_ns);
	free(flow->arrival_ns);
	free(flow->free_ns);
	free(flow->backward_end);
	free(flow->marks);
}

/* Takes turns among a stage's replicas: returns the one whose turn it is.  (A division takes
 * longer than all else that a microbatch does.) */
static int take_turn(const struct pd_stage *stage, int *turn)
{
	int rank = stage->ranks[*turn];

	if (++*turn == stage->replicas)
		*turn = 0;
	return rank;
}

/* Microbatches from `first` on come next. */
static void set_turns(struct flow *flow, int64_t first)
{
	for (int s = 0; s < flow->plan->stage_count; s++) {
		struct stage *stage = &flow->stages[s];

		stage->down = stage->up = (int)(first % stage->plan->replicas);
		stage->left = stage->group - first % stage->group;
	}
	for (int l = 0; l < flow->schedule->wiring->link_count; l++)
		flow->links[l].turn = (int)(first % flow->links[l].to->replicas);
}

static void forward(struct flow *flow, struct stage *stage, int64_t n)
{
	int rank = take_turn(stage->plan, &stage->down);
	int64_t end_ns = flow->free_ns[rank];

	for (int i = 0; i < stage->in_count; i++) {
		const struct link *link = &flow->links[stage->in[i]];

		end_ns = pd_max64(end_ns, link->arrival_ns[n & link->mask]);
	}
	end_ns += stage->forward_ns;
	flow->free_ns[rank] = end_ns;
	for (int i = 0; i < stage->out_count; i++) {
		struct link *link = &flow->links[stage->out[i]];

		link->arrival_ns[n & link->mask] =
			end_ns + way_ns(flow, link, rank, take_turn(link->to, &link->turn));
	}
}

/*
 * All-reduce and step behind the last backward of a group.  Without parameters there is nothing
 * for which replicas would wait for each other.
 */
static void update(struct flow *flow, const struct stage *stage)
{
	const struct pd_stage *at = stage->plan;
	int64_t last = 0;

	if (at->replicas == 1) {
		flow->free_ns[at->ranks[0]] += stage->update_ns;
		return;
	}
	for (int i = 0; i < at->replicas; i++)
		last = pd_max64(last, flow->free_ns[at->ranks[i]]);
	for (int i = 0; i < at->replicas; i++) {
		int64_t *free_ns = &flow->free_ns[at->ranks[i]], sends_ns = stage->sends_ns[i];

		if (sends_ns)
			*free_ns = pd_max64(*free_ns + sends_ns, last + sends_ns / 2);
		*free_ns += stage->update_ns;
	}
}

static void backward(struct flow *flow, struct stage *stage)
{
	int rank = take_turn(stage->plan, &stage->up);
	int64_t end_ns = flow->free_ns[rank] + stage->again_ns; /* that waits for no gradient */

	for (int i = 0; i < stage->out_count; i++) {
		const struct link *link = &flow->links[stage->out[i]];

		end_ns = pd_max64(end_ns, link->behind->end_ns +
				  way_ns(flow, link, rank, link->behind->rank));
	}
	end_ns += stage->backward_ns;
	flow->free_ns[rank] = stage->end_ns = end_ns;
	stage->rank = rank;
	if (--stage->left == 0) {
		stage->left = stage->group;
		update(flow, stage);
	}
}

/*
 * What the schedule has at microbatch k of those from first to last - 1, between which the
 * pipeline does not drain.  To keep when every stage's backward ended would take more time than to
 * work it out.  So that is summed up, with weights, from the first stage's on; two microbatches of
 * which it is not the same have equal sums by a chance of 1 in 2^64.
 */
static void tick(struct flow *flow, int64_t first, int64_t last, int64_t k)
{
	int stages = flow->plan->stage_count;
	uint64_t sum = 0;

	for (int s = 0; s < stages; s++) {
		struct stage *stage = &flow->stages[s];
		int64_t n = k + stage->lead;

		if (n >= first && n < last)
			forward(flow, stage, n);
	}
	if (k < first)
		return;
	for (int s = stages - 1; s >= 0; s--) {
		struct stage *stage = &flow->stages[s];

		backward(flow, stage);
		sum += stage->weight * (uint64_t)stage->end_ns;
	}
	flow->backward_end[k] = flow->stages[0].end_ns;
	flow->marks[k] = sum - flow->weights * (uint64_t)flow->stages[0].end_ns;
}

/* Until it repeats itself: a look at what came back, from time to time.  Returns the period. */
static double run(struct flow *flow)
{
	const struct pd_schedule *schedule = flow->schedule;
	int64_t group = schedule->drains ? schedule->group[0] : flow->n, look;
	struct pd_progress progress;
	struct pd_steady steady = { .period_ns = 0 };

	pd_progress_init(&progress, flow->plan, flow->backward_end, flow->n);
	progress.marks = flow->marks;
	look = pd_progress_first(&progress);
	for (int64_t first = 0; first < flow->n; first += group) {
		int64_t last = pd_min64(first + group, flow->n);

		set_turns(flow, first);
		for (int64_t k = first - flow->stages[0].lead; k < last; k++) {
			tick(flow, first, last, k);
			if (k + 1 < look)
				continue;
			look = pd_progress_next(&progress, k + 1);
			if (pd_steady_repeats(&progress, k + 1, &steady.period_ns))
				return steady.period_ns;
		}
	}
	pd_steady_of(flow->plan, flow->backward_end, (size_t)flow->n, !schedule->drains, &steady);
	return steady.cycle ? steady.period_ns
			    : steady.period_ns * 0.99;  /* not settled: the slope is about right */
}

/* Do the cycles have the form above?  No replicas, one link to the next stage, and updates that
 * come after every microbatch. */
static bool is_chain(const struct flow *flow)
{
	for (int s = 0; s < flow->plan->stage_count; s++) {
		const struct stage *stage = &flow->stages[s];
		bool last = s + 1 == flow->plan->stage_count;

		if (stage->plan->replicas > 1 || (stage->group > 1 && stage->update_ns > 0) ||
		    stage->out_count != !last ||
		    (!last && flow->links[stage->out[0]].behind != stage + 1))
			return false;
	}
	return !flow->schedule->drains;
}

/*
 * The largest ratio of a chain's cycles, rounded down.  A stage that recomputes does so where the
 * cycle turns: elsewhere before the gradient is there.
 */
static int64_t cycles_ns(const struct flow *flow)
{
	int stages = flow->plan->stage_count;
	int64_t most = 0;

	for (int s = 0; s < stages; s++) {
		int64_t time = flow->stages[s].update_ns, lead = flow->stages[s].lead + 1;

		for (int e = s; e < stages; e++) {
			const struct stage *last = &flow->stages[e];
			int64_t tokens = lead - last->lead;

			time += last->forward_ns + last->backward_ns;
			if ((__int128)tokens * (most + 1) <= time + last->again_ns)
				most = (time + last->again_ns) / tokens;
			if (last->out_count > 0)
				time += 2 * flow->links[last->out[0]].only_ns;
		}
	}
	return most;
}

bool pd_flow_knows(const struct pd_plan *plan)
{
	return plan->schedule == PD_SCHEDULE_1F1B || plan->schedule == PD_SCHEDULE_GPIPE ||
	       plan->schedule == PD_SCHEDULE_NONE;
}

/* All of a minibatch, one behind the other. */
static double longest_ns(const struct flow *flow)
{
	double ns = 0;

	for (int s = 0; s < flow->plan->stage_count; s++)
		ns += 2 * (double)flow->stages[s].forward_ns + (double)flow->stages[s].backward_ns +
		      (double)flow->stages[s].update_ns;
	for (int r = 0; r < flow->plan->rank_count; r++)
		ns += (double)flow->sends_ns[r];
	for (int l = 0; l < flow->schedule->wiring->link_count; l++)
		for (int k = 0; k < flow->plan->topology.levels; k++)
			ns += 2 * (double)flow->links[l].way_ns[k];
	return ns;
}

/* Takes times whose sums would not fit in units of so many nanoseconds, rounded down. */
static int64_t scale(struct flow *flow)
{
	double all = longest_ns(flow) * (double)flow->n;
	int64_t unit = 1;

	while (all / (double)unit > (double)PD_COST_MAX)
		unit *= 2;
	for (int s = 0; s < flow->plan->stage_count && unit > 1; s++) {
		flow->stages[s].forward_ns /= unit;
		flow->stages[s].again_ns /= unit;
		flow->stages[s].backward_ns /= unit;
		flow->stages[s].update_ns /= unit;
	}
	for (int r = 0; r < flow->plan->rank_count && unit > 1; r++)
		flow->sends_ns[r] /= unit;
	for (int l = 0; l < flow->schedule->wiring->link_count && unit > 1; l++) {
		struct link *link = &flow->links[l];

		for (int k = 0; k < PD_MAX_LEVELS; k++)
			link->way_ns[k] /= unit;
		link->only_ns = link->only_ns < 0 ? -1 : link->only_ns / unit;
	}
	return unit;
}

static int64_t period_ns(const struct pd_schedule *schedule)
{
	struct flow flow;
	double ns;

	flow_init(&flow, schedule);
	ns = (double)scale(&flow);
	ns *= is_chain(&flow) ? (double)cycles_ns(&flow) : run(&flow);
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
