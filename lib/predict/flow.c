/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steady state of 1F1B as a recurrence.
 *
 * With f, b, u the times of a stage's forward, backward and update, C those of transfers and
 * A those of all-reduces, r replicas, w warm-ups and g the microbatches of an update, the
 * orders and dependencies of lib/schedule/tick.c are
 *
 *     F_s(n) = f + max( rank is free, F_q(n) + C  for all links q -> s )
 *     B_s(n) = b + max( rank is free, B_t(n) + C  for all links s -> t )
 *     after the last B of a group: all ranks of s are free at  max(theirs) + A + u,
 *     or, where the update is put off (2BW), not before the next B
 *
 * where a rank does F_s(n) before B_s(n - w r) and after B_s(n - (w + 1) r).  Taken in the
 * schedule's own order every term is known when it is needed: a minibatch costs a few
 * operations per stage, a thousandth of a replay.
 *
 * This is the timed event graph of ../trace/steady's pipeline with each replica a lane.  Its
 * period is the largest ratio of time to tokens over its cycles: those of cycle.h, which are all there
 * are where no stage has replicas and all links go to the next one.  No microbatch need be gone
 * through then.  With replicas there are others.  Replicas update together, so the last backward of
 * a group leads to the first forward after it on any of them.  A cycle that comes back to s as the
 * last of a group and goes on as the first of another loses up to r_s - 1 tokens.  That is why warm-ups that are enough without
 * replicas (SOSP 2019: 3-2-1 has 1, 1, 0) are not enough with them.
 *
 * Why no replay settles below this.  Let x(n) be all the times that the recurrence has found when n
 * microbatches have come back, and y(n) those of a replay.  Both do the operations of a rank in the
 * list's order.  What an operation waits for here it waits for there as well (an operation retires after
 * those before it in the list: lib/engine/worker); and passes, transfers and all-reduces take no less there:
 * processors may be shared, transfers wait for links and buffers too, and of an all-reduce only what it
 * takes for sure is here (pd_sum_delays).  Maxima and sums grow with their terms, so by induction along
 * the lists y(n) >= x(n) + c, with one c for all n.  In the long run, then, a microbatch takes no less.
 *
 * If x(n) = x(n - p) + d in all its terms, this goes on, with d / p for a microbatch.  If x does not
 * repeat itself as far as it is computed, the estimate is the slope of the first stage, and the bound is
 * what links and ranks take.
 *
 * Nor is a period below what the busiest link carries (links.c).  (Links that are taken in the order of
 * the schedule make a worse estimate, not a better one: what is listed early need not happen early.)
 */
#include "predict/flow.h"

#include "base/mem.h"
#include "predict/cost.h"
#include "predict/flow_parts.h"
#include "predict/links.h"
#include "predict/predict.h"
#include "predict/walk.h"
#include "trace/steady.h"

#include <math.h>
#include <stdlib.h>

/* Steps (base/effort.h) of a stage's forward and backward, and of what is done once for a rank. */
#define TICK_STEPS 8
#define RANK_STEPS 16
#define MOST_UPDATES 8 /* of a pipeline that drains, which leave its ranks each in another way */
#define FILL 48 /* microbatches for each stage that show the form of a longer update */

/*
 * Takes turns among a stage's replicas; returns the one whose turn it is.  (A division would take
 * longer than all else for a microbatch.)
 */
static int take_turn(const struct pd_flow_stage *stage, int *turn)
{
	int rank = stage->ranks[*turn];

	if (++*turn == stage->replicas)
		*turn = 0;
	return rank;
}

/* Sets the turns for microbatches from `first` on. */
static void set_turns(struct pd_flow *flow, int64_t first)
{
	for (int s = 0; s < flow->plan->stage_count; s++) {
		struct pd_flow_stage *stage = &flow->stages[s];

		stage->down = stage->up = (int)(first % stage->replicas);
		stage->left = stage->group - first % stage->group;
	}
	for (int l = 0; l < flow->schedule->wiring->link_count; l++)
		flow->links[l].turn = (int)(first % flow->links[l].behind->replicas);
}

enum way { DOWN, UP };

/* Does what travel() does for the last of several equal pipelines. */
static int64_t travel_in_turns(struct pd_flow *flow, struct pd_flow_stage *stage,
			       struct pd_flow_link *link, enum way way, int64_t ready_ns)
{
	struct pd_flow_stage *to = way == DOWN ? &flow->stages[link->to] : &flow->stages[link->from];
	int64_t spread_ns = pd_max(stage->spread_ns[0], stage->spread_ns[way]), arrival_ns;

	arrival_ns = pd_turns_arrival(&link->turns, ready_ns, &spread_ns, &link->turns_free_ns[way]);
	to->spread_ns[way] = pd_max(to->spread_ns[way], spread_ns);
	flow->longer = true;
	return arrival_ns;
}

/*
 * Returns when what leaves a rank at some time arrives at another.  Replicas of a stage that are joined to those of the
 * next by one link take turns on it.
 */
static int64_t travel(struct pd_flow *flow, struct pd_flow_stage *stage, struct pd_flow_link *link,
		      enum way way, int from, int to, int64_t ready_ns)
{
	int k;
	int64_t *out, *in, start_ns;

	if (flow->likely && link->turns.count > 1)
		return travel_in_turns(flow, stage, link, way, ready_ns);
	if (!flow->likely || link->only_ns >= 0 || link->differs || from == to)
		return ready_ns + pd_flow_way_ns(flow, link, from, to);
	k = pd_flow_level(flow, from, to);
	out = &stage->out_ns[k][k ? flow->component[k - 1][from] : from];
	in = &link->in_ns[k][2 * (k ? flow->component[k - 1][to] : to) + (int)way];
	start_ns = pd_max(ready_ns, pd_max(*out, *in));
	flow->longer |= start_ns > ready_ns;
	*out = *in = start_ns + link->own_ns[k];
	return start_ns + link->way_ns[k];
}

static void forward(struct pd_flow *flow, struct pd_flow_stage *stage, int64_t n)
{
	int rank = take_turn(stage, &stage->down);
	int64_t end_ns = flow->free_ns[rank];

	for (int i = 0; i < stage->in_count; i++) {
		const struct pd_flow_link *link = &flow->links[stage->in[i]];

		end_ns = pd_max(end_ns, link->arrival_ns[n & link->mask]);
	}
	end_ns += pd_flow_own(flow, stage, rank).forward_ns;
	flow->free_ns[rank] = end_ns;
	for (int i = 0; i < stage->out_count; i++) {
		struct pd_flow_link *link = &flow->links[stage->out[i]];

		link->arrival_ns[n & link->mask] = link->only_ns >= 0 && link->turns.count <= 1 ? end_ns + link->only_ns
			: travel(flow, stage, link, DOWN, rank, take_turn(link->behind, &link->turn), end_ns);
	}
}

/*
 * Does the all-reduce and the step behind the last backward of a group.  In a stage without
 * parameters replicas do not wait for each other.
 */
static void update(struct pd_flow *flow, const struct pd_flow_stage *stage)
{
	int64_t last_ns = 0;

	for (int i = 0; i < stage->replicas && stage->late > 0; i++) {
		int rank = stage->ranks[i];

		flow->free_ns[rank] += flow->left[rank] * pd_flow_own(flow, stage, rank).weight_ns;
		flow->left[rank] = 0;
	}

	if (stage->replicas == 1 && flow->lanes == 1) {
		flow->free_ns[stage->ranks[0]] += pd_flow_own(flow, stage, stage->ranks[0]).update_ns;
		return;
	}
	for (int i = 0; i < stage->replicas; i++)
		last_ns = pd_max(last_ns, flow->free_ns[stage->ranks[i]]);
	for (int i = 0; i < stage->replicas; i++) {
		const struct pd_sum_delay *delay = &stage->delays[i];
		int64_t *free_ns = &flow->free_ns[stage->ranks[i]], summed_ns = *free_ns;

		if (delay->sends_ns) {
			summed_ns = pd_max(*free_ns + delay->sends_ns,
					   last_ns + delay->rest_ns);
			flow->longer |= last_ns + stage->grouped_ns > summed_ns;
			if (flow->likely)
				summed_ns = pd_max(summed_ns, last_ns + stage->grouped_ns);
		}
		if (stage->deferred)
			flow->summed_ns[stage->ranks[i]] = summed_ns;
		else
			*free_ns = summed_ns + pd_flow_own(flow, stage, stage->ranks[i]).update_ns;
	}
}

static void backward(struct pd_flow *flow, struct pd_flow_stage *stage)
{
	int rank = take_turn(stage, &stage->up);
	int64_t end_ns = flow->free_ns[rank], weight_ns = pd_flow_own(flow, stage, rank).weight_ns;

	if (flow->summed_ns[rank] >= 0) {
		end_ns = pd_max(end_ns, flow->summed_ns[rank]) + pd_flow_own(flow, stage, rank).update_ns;
		flow->summed_ns[rank] = -1;
	}
	end_ns += pd_flow_own(flow, stage, rank).again_ns;      /* it waits for no gradient */

	for (int i = 0; i < stage->out_count; i++) {
		struct pd_flow_link *link = &flow->links[stage->out[i]];

		end_ns = pd_max(end_ns, travel(flow, &flow->stages[link->to], link, UP,
					       link->behind->rank, rank, link->behind->end_ns));
	}
	stage->end_ns = end_ns + pd_flow_own(flow, stage, rank).backward_ns - weight_ns;
	flow->free_ns[rank] = stage->end_ns + (flow->left[rank] < stage->late ? 0 : weight_ns);
	flow->left[rank] += flow->left[rank] < stage->late;
	stage->rank = rank;
	if (--stage->left == 0) {
		stage->left = stage->group;
		update(flow, stage);
	}
}

/*
 * Does the operations of the schedule at microbatch k, of those from first to last - 1, between
 * which the pipeline does not drain.  Storing when every stage's backward ended would take longer
 * than computing it.  So only a weighted sum over the stages is kept, relative to the first; two
 * different sums are equal with a chance of 1 in 2^64.
 */
static void tick(struct pd_flow *flow, int64_t first, int64_t last, int64_t k)
{
	int stages = flow->plan->stage_count;
	uint64_t sum = 0;

	for (int s = 0; s < stages; s++) {
		struct pd_flow_stage *stage = &flow->stages[s];
		int64_t n = k + stage->lead;

		if (n >= first && n < last)
			forward(flow, stage, n);
	}
	if (k < first)
		return;
	for (int s = stages - 1; s >= 0; s--) {
		struct pd_flow_stage *stage = &flow->stages[s];

		backward(flow, stage);
		sum += stage->weight * (uint64_t)stage->end_ns;
	}
	if (!flow->backward_end)
		return;
	flow->backward_end[k] = flow->stages[0].end_ns;
	pd_recurrence_add(&flow->recurrence, sum - flow->weights * (uint64_t)flow->stages[0].end_ns, 0);
}

/* The period, as a bound and as an estimate. */
struct periods { double bound_ns, estimate_ns; int64_t ticks; };

/*
 * Tells whether everything repeats from microbatch k on.  What happens next depends on nothing that is older
 * than those in flight, and than a turn.
 */
static bool repeats(struct pd_flow *flow, int64_t k, double *period_ns_p)
{
	struct pd_recurrence *recurrence = &flow->recurrence;
	int64_t end_ns = flow->backward_end[k], before = k - flow->in_flight - pd_max(recurrence->turn, 4);
	bool asks;

	pd_recurrence_add(recurrence, (uint64_t)(end_ns - recurrence->begin_ns),
			  before < 0 ? PD_COST_MAX : end_ns - flow->backward_end[before]);
	asks = k + 1 >= flow->look && (k + 1) % recurrence->turn == 0;
	if (asks)
		flow->look = k + 1 + flow->in_flight / 4;
	return pd_recurrence_found(recurrence, k + 1, end_ns, asks ? period_ns_p : NULL);
}

/* Goes on until everything repeats, which it asks from time to time. */
static struct periods run(struct pd_flow *flow)
{
	struct pd_steady steady = { .period_ns = 0 };
	int64_t lead = flow->stages[0].lead;

	set_turns(flow, 0);
	for (int64_t k = -lead; k < flow->n; k++) {
		tick(flow, 0, flow->n, k);
		if (k >= 0 && repeats(flow, k, &steady.period_ns))
			return (struct periods){ steady.period_ns, steady.period_ns, k + 1 + lead };
	}
	pd_steady_of(flow->plan, flow->backward_end, (size_t)flow->n, true, &steady);
	return (struct periods){ 0, steady.cycle ? steady.period_ns : steady.period_ns * 0.99,
				 flow->n + lead };
}

/* Goes through an update; returns when the first stage's last backward ends. */
static int64_t run_update(struct pd_flow *flow)
{
	int64_t end_ns = 0;

	set_turns(flow, 0);
	for (int64_t k = -flow->stages[0].lead; k < flow->n; k++) {
		tick(flow, 0, flow->n, k);
		if (k >= 0)
			end_ns = pd_max(end_ns, flow->stages[0].end_ns);
	}
	return end_ns;
}

/* Keeps when ranks are free, relative to an end; returns whether that is as it was kept before. */
static bool keep_free(const struct pd_flow *flow, int64_t end_ns, int64_t *kept)
{
	bool same = true;

	for (int s = 0; s < flow->plan->stage_count; s++)
		for (int i = 0; i < flow->stages[s].replicas; i++) {
			int rank = flow->stages[s].ranks[i];

			same &= kept[rank] == flow->free_ns[rank] - end_ns;
			kept[rank] = flow->free_ns[rank] - end_ns;
		}
	return same;
}

/* Goes through whole updates until one leaves the ranks as the one before; only that matters for the next. */
static struct periods run_updates(struct pd_flow *flow)
{
	int64_t *kept = pd_calloc((size_t)flow->plan->rank_count, sizeof(*kept));
	int64_t ends_ns[MOST_UPDATES];
	bool same = false;
	double period_ns;
	int count, from;

	for (count = 0; count < MOST_UPDATES && !same; count++) {
		ends_ns[count] = run_update(flow);
		same = keep_free(flow, ends_ns[count], kept) && count > 0;
	}
	free(kept);
	from = same ? count - 2 : MOST_UPDATES / 2;
	period_ns = (double)(ends_ns[count - 1] - ends_ns[from]) /
		    ((double)(count - 1 - from) * (double)flow->n * flow->lanes);
	return (struct periods){ same ? period_ns : 0, period_ns,
				 count * (flow->n + flow->stages[0].lead) };
}

/*
 * Tells whether cycle.h has all cycles: no replicas, one link to the next stage, and updates that come
 * after every microbatch.
 */
static bool is_chain(const struct pd_schedule *schedule, const struct pd_stage_times *times)
{
	const struct pd_wiring *wiring = schedule->wiring;
	int last = schedule->plan->stage_count - 1;

	for (int s = 0; s <= last; s++)
		if (times[s].replicas > 1 || (times[s].group > 1 && times[s].update_ns > 0) ||
		    wiring->out_count[s] != (s < last) ||
		    (s < last && wiring->links[wiring->out[s][0]].to != s + 1))
			return false;
	return !schedule->drains;
}

bool pd_flow_knows(const struct pd_plan *plan)
{
	return pd_schedule_has(plan->schedule, PD_FACT_FLOW);
}

/* Returns the time of a minibatch by itself. */
static double longest_ns(const struct pd_flow *flow)
{
	double ns = 0;

	for (int s = 0; s < flow->plan->stage_count; s++)
		ns += 2 * (double)flow->stages[s].forward_ns + (double)flow->stages[s].backward_ns +
		      (double)flow->stages[s].update_ns + (double)flow->stages[s].grouped_ns;
	for (int r = 0; r < flow->plan->rank_count; r++)
		ns += (double)flow->delays[r].sends_ns + (double)flow->delays[r].rest_ns;
	for (int l = 0; l < flow->schedule->wiring->link_count; l++)
		for (int k = 0; k < flow->plan->topology.levels; k++)
			ns += 2 * (double)flow->links[l].way_ns[k];
	return ns;
}

/*
 * Returns both by the recurrence, or by the cycles of cycle.h if its times would not fit; sets whether it
 * matters that they are likely (pd_flow_init).
 */
static struct periods recur(const struct pd_schedule *schedule, const struct pd_stage_times *times,
			    bool likely, bool *matters_p)
{
	double updates = schedule->drains ? MOST_UPDATES : 1;
	struct periods periods = { 0 };
	struct pd_flow flow;

	pd_flow_init(&flow, schedule, times, likely);
	if (schedule->drains)
		pd_flow_keep_one(&flow);
	if (longest_ns(&flow) * (double)flow.n * updates < (double)PD_COST_MAX)
		periods = schedule->drains ? run_updates(&flow) : run(&flow);
	else
		periods.estimate_ns = (double)pd_cycle_slowest(times, flow.plan->stage_count).period_ns;
	*matters_p = flow.longer;
	pd_flow_release(&flow);
	return periods;
}

/* Returns the least that a stage's backward takes on a rank: whole or, by some schedules, in two parts. */
static int64_t least_backward_ns(const struct pd_schedule *schedule, int s, int rank,
				 int64_t whole_ns)
{
	const struct pd_stage *stage = &schedule->plan->stages[s];
	const struct pd_profile *profile = pd_plan_profile_of(schedule->plan, rank);
	int64_t parts_ns = 0;

	for (int l = stage->first_layer; l < stage->first_layer + stage->layer_count; l++)
		parts_ns += pd_profile_input_ns(&profile->layers[l]) +
			    pd_profile_weight_ns(&profile->layers[l]);
	return schedule->splits ? pd_min(whole_ns, parts_ns) : whole_ns;
}

int64_t pd_flow_least_ns(const struct pd_schedule *schedule, int64_t busiest_ns)
{
	const struct pd_plan *plan = schedule->plan;
	struct pd_stage_times *times = pd_stage_times_of(schedule);
	double *busy = pd_calloc((size_t)plan->rank_count, sizeof(*busy)), most = 0;
	double pairs = pd_cost_of_pairs(plan->profile, plan->schedule);

	for (int s = 0; s < plan->stage_count; s++)
		for (int r = 0; r < plan->stages[s].replicas; r++) {
			int number = plan->stages[s].ranks[r];
			struct pd_stage_times own = pd_stage_times_on(schedule, &times[s], s, number);
			int64_t backward_ns = least_backward_ns(schedule, s, number, own.backward_ns);
			double *rank = &busy[number];

			*rank += (double)(own.forward_ns + own.again_ns + backward_ns) * pairs /
				 (double)own.replicas + (double)own.update_ns / (double)own.group;
			most = *rank > most ? *rank : most;
		}
	free(busy);
	free(times);
	return pd_max(pd_max(pd_cost_of(most * (1 - 1e-9)),
			     pd_cost_of((double)pd_predict_turns_ns(plan) * pairs)), busiest_ns);
}

static bool are_replicas_equal(const struct pd_plan *plan)
{
	for (int s = 1; s < plan->stage_count; s++)
		if (plan->stages[s].replicas != plan->stages[0].replicas)
			return false;
	return true;
}

/* Returns both as the schedule is, by what knows it. */
static struct periods periods_of(const struct pd_schedule *schedule, bool likely, bool *matters_p)
{
	struct pd_stage_times *times = pd_stage_times_of(schedule);
	bool known = pd_flow_knows(schedule->plan),
	     shares = pd_schedule_has(schedule->plan->schedule, PD_FACT_SHARES);
	struct periods periods = { .estimate_ns = -1 };

	if (shares || (schedule->splits && are_replicas_equal(schedule->plan)))
		periods.estimate_ns = pd_walk_expect_ns(schedule, times, &periods.ticks);
	if (periods.estimate_ns < 0 && (known ? is_chain(schedule, times) : shares || !schedule->splits))
		periods.bound_ns = periods.estimate_ns =
			(double)pd_cycle_slowest(times, schedule->plan->stage_count).period_ns;
	else if (periods.estimate_ns < 0)
		periods = recur(schedule, times, likely, matters_p);
	free(times);
	return periods;
}

/* Returns both by the form of an update (trace/steady.h) where the plan's is long: that is no bound. */
static struct periods by_form(const struct pd_schedule *schedule, bool likely, bool *matters_p)
{
	struct pd_plan shorter[2];
	struct periods both[2];
	double periods_ns[2];

	if (!pd_steady_shorter(schedule->plan, FILL, shorter))
		return periods_of(schedule, likely, matters_p);
	for (int i = 0; i < 2; i++) {
		struct pd_error err;
		struct pd_schedule *one = pd_schedule_new(&shorter[i], &err);

		if (!one)
			return periods_of(schedule, likely, matters_p);
		both[i] = periods_of(one, likely, matters_p);
		periods_ns[i] = both[i].estimate_ns;
		pd_schedule_free(one);
	}
	return (struct periods){ 0, pd_steady_longer_ns(schedule->plan, shorter, periods_ns),
				 both[0].ticks + both[1].ticks };
}

/* Does what pd_flow_expect does, once; the bound is -1 where what is likely is no bound. */
static struct pd_expected expect(const struct pd_schedule *schedule, bool likely, int64_t busiest_ns)
{
	bool known = pd_flow_knows(schedule->plan), matters = false;
	int64_t least_ns = pd_flow_least_ns(schedule, busiest_ns);
	struct periods periods = by_form(schedule, likely, &matters);
	struct pd_expected expected = {
		.bound_ns = known ? pd_max(pd_cost_of(periods.bound_ns), least_ns) : least_ns,
		.estimate_ns = pd_max(pd_cost_of(periods.estimate_ns), least_ns),
		.steps = TICK_STEPS * periods.ticks * schedule->plan->stage_count +
			 RANK_STEPS * schedule->plan->rank_count,
	};

	if (known && likely && matters)
		expected.bound_ns = -1;
	return expected;
}

struct pd_expected pd_flow_expect(const struct pd_schedule *schedule, bool bound, int64_t busiest_ns)
{
	struct pd_expected expected = expect(schedule, true, busiest_ns);

	if (bound && expected.bound_ns < 0) {
		struct pd_expected again = expect(schedule, false, busiest_ns);

		expected.bound_ns = again.bound_ns;
		expected.steps += again.steps;
	}
	return expected;
}
