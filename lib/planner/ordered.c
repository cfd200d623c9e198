/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans whose order is searched for: for the stages of the best plans of all schedules with flush, for those that are
 * fast whatever memory they take, for two chunks a rank in a V whose positions take about as long as each other,
 * and for equal pipelines side by side.  The search of orders looks at the memory of devices; the plan of the
 * shortest replay is taken, of equal ones that of least memory.  Where that is one of a schedule whose stages have
 * different numbers of replicas, which no order can have, or that takes less as it is, it stays what it is.
 */
#include "planner/answers.h"

#include "base/mem.h"
#include "planner/search/candidate.h"
#include "planner/search/gain.h"
#include "planner/search/ordering.h"
#include "planner/search/recompute.h"
#include "predict/judge.h"

#include <stdlib.h>
#include <string.h>

#define PIPELINES 2             /* numbers of replicas for which orders are searched */
#define FEW_DEVICES 16          /* of which some may be left out, so that pipelines are equal */
#define SMALL 512               /* layers times devices up to which the plans of all schedules are searched for */

struct ordered {
	const struct pd_task *task;
	struct pd_plan *best;
	int64_t time_ns;
	struct pd_error why;            /* why there is none */
	struct pd_prediction tried;     /* its `schedules`: of those whose stages are taken */
};

/* Tells whether a plan is better than the best so far: of equally fast ones, that of less memory. */
static bool is_better(const struct ordered *o, const struct pd_plan *plan, int64_t time_ns)
{
	double gain = o->task->request->min_gain, mine = pd_gain_of(gain, time_ns, plan->rank_count), best;

	if (!o->best)
		return true;
	best = pd_gain_of(gain, o->time_ns, o->best->rank_count);
	return mine < best || (mine == best && pd_candidate_fullest(plan, NULL) < pd_candidate_fullest(o->best, NULL));
}

/* Keeps a plan if it is the best so far; it is dropped otherwise. */
static void take(struct ordered *o, struct pd_plan *plan, int64_t time_ns)
{
	if (!is_better(o, plan, time_ns)) {
		pd_candidate_drop(plan);
		return;
	}
	pd_candidate_drop(o->best);
	o->best = plan;
	o->time_ns = time_ns;
}

/* Gives a plan its order, and takes it. */
static void offer(struct ordered *o, struct pd_plan *plan)
{
	struct pd_error err;
	int64_t time_ns;

	if (!plan)
		return;
	if (pd_ordering_find(plan, o->task->limit_bytes, &time_ns, &err)) {
		take(o, plan, time_ns);
		return;
	}
	o->why = err;
	pd_candidate_drop(plan);
}

/* Tells whether all stages have as many replicas. */
static bool is_equal(const int *replicas, int count)
{
	for (int s = 1; s < count; s++)
		if (replicas[s] != replicas[0])
			return false;
	return true;
}

static bool is_equal_plan(const struct pd_plan *plan)
{
	for (int s = 1; s < plan->stage_count; s++)
		if (plan->stages[s].replicas != plan->stages[0].replicas)
			return false;
	return true;
}

/*
 * Puts stages on ranks in a V, there and back again; a chunk goes up.  Replicas are side by side or, apart,
 * pipelines are.
 */
static void put_in_v(struct pd_plan *plan, int chunks, bool apart)
{
	int positions = plan->stage_count / chunks, replicas = plan->stages[0].replicas;

	plan->rank_count = positions * replicas;
	for (int s = 0; s < plan->stage_count; s++)
		for (int r = 0; r < replicas; r++)
			plan->stages[s].ranks[r] = apart ? r * positions + pd_order_v(positions, s)
							 : pd_order_v(positions, s) * replicas + r;
}

/* Makes a plan of a partition, its stages on ranks in a V if they have several; frees the partition. */
static struct pd_plan *plan_of(const struct pd_task *task, struct pd_partition *partition, int chunks, bool apart,
				 struct pd_error *err)
{
	const struct pd_plan_request *request = task->request;
	struct pd_plan_request with = *request;
	struct pd_task one = *task;
	struct pd_plan *plan;

	if (!partition)
		return NULL;
	if (!is_equal(partition->replicas, partition->stage_count)) {
		pd_error_input(err, "--stages: expected as many replicas of every stage, which compute in one order");
		pd_partition_free(partition);
		return NULL;
	}
	with.chunks = chunks;   /* so that there may be more stages than devices */
	one.request = &with;
	plan = pd_candidate_plain(&one, partition);
	put_in_v(plan, chunks, apart);
	plan->weights = PD_WEIGHTS_FLUSH;
	plan->agree = request->agree || pd_planner_agrees(request, task->profile, plan->weights);
	plan->microbatches = request->microbatches ? request->microbatches : plan->rank_count;
	pd_partition_free(partition);
	if (pd_recompute_asked(plan, request, err))
		return plan;
	pd_candidate_drop(plan);
	return NULL;
}

/* Says what a schedule whose stages are taken would take. */
static void note(struct ordered *o, const struct pd_plan *plan, int64_t time_ns)
{
	struct pd_schedule_tried *tried = &o->tried.schedules[plan->schedule][PD_WEIGHTS_FLUSH];

	if (tried->period_ns == 0 || time_ns < tried->period_ns)
		*tried = (struct pd_schedule_tried){ time_ns, pd_candidate_fullest(plan, NULL) };
}

/* Returns the best plan that is found of another schedule, in the memory there is, or as if there were any. */
static struct pd_plan *plan_of_schedule(struct ordered *o, enum pd_schedule_kind schedule, bool straight, bool limited,
					int64_t *time_ns_p)
{
	struct pd_plan_request request = *o->task->request;
	struct pd_task one = *o->task;

	request.schedule = schedule;
	request.weights = PD_WEIGHTS_FLUSH;
	request.straight = straight;
	if (!pd_schedule_has(schedule, PD_FACT_SHARES))
		request.chunks = 0;
	else if (!request.chunks)
		request.chunks = PD_PLANNER_CHUNKS;
	one.request = &request;
	one.straight = straight;
	if (!limited)
		one.limit_bytes = INT64_MAX;
	pd_effort_begin(request.effort);
	return pd_replayed_plan(&one, time_ns_p, &o->why);
}

/* Tells whether searches for plans take so little that there may be one for each schedule. */
static bool is_small(const struct ordered *o)
{
	return o->task->costs.unit_count * o->task->topology->devices <= SMALL;
}

/*
 * The best plan of another schedule, and one of the same stages with an order that is searched for.  A plan that is
 * found without a limit and fits is at least as fast as those for which memory was looked at; where searches take
 * long there is one, as if the schedule had been asked for.
 */
static void offer_best(struct ordered *o, enum pd_schedule_kind schedule, bool straight)
{
	int64_t limit_bytes = o->task->limit_bytes, time_ns;
	bool quick = is_small(o);
	struct pd_plan *plan = plan_of_schedule(o, schedule, straight, !quick, &time_ns);

	if (plan && quick && !pd_candidate_keeps(plan, limit_bytes)) {
		pd_candidate_drop(plan);
		plan = plan_of_schedule(o, schedule, straight, true, &time_ns);
	}
	if (!plan)
		return;
	note(o, plan, time_ns);
	if (is_equal_plan(plan))
		offer(o, pd_candidate_copy(plan));
	take(o, plan, time_ns);
}

/*
 * Tells whether the plans of a schedule are searched for, of those of a minibatch.  Where that takes long it is one for
 * each placement, since the orders of the others are looked at for its stages (planner/search/ordering.c).
 */
static bool is_open(const struct ordered *o, enum pd_schedule_kind kind)
{
	int chunks = o->task->request->chunks;
	bool v = pd_schedule_has(kind, PD_FACT_V), pairs = pd_schedule_has(kind, PD_FACT_PAIRS);

	if (!pd_schedule_goes_with(kind, PD_WEIGHTS_FLUSH) || pd_schedule_has(kind, PD_FACT_ORDERED) ||
	    pd_schedule_has(kind, PD_FACT_ALONE) || (pairs && o->task->profile->pairs == 0))
		return false;
	if (!is_small(o) && (v ? kind != PD_SCHEDULE_ZB_V : pd_schedule_has(kind, PD_FACT_FORWARDS_FIRST)))
		return false;
	if (!pd_schedule_has(kind, PD_FACT_SHARES))
		return chunks <= 1;
	return chunks != 1 && (!v || chunks == 0 || chunks == PD_PLANNER_CHUNKS);
}

/* Tells whether plans without replicas are searched for, beside those that may have some. */
static bool is_searched_straight(const struct ordered *o, enum pd_schedule_kind schedule)
{
	return o->task->straight || is_small(o) || !pd_schedule_has(schedule, PD_FACT_SHARES) || o->task->topology->devices == 1;
}

/* The best plans of all schedules and, where memory is limited, stages that are fast without a limit. */
static void offer_schedules(struct ordered *o)
{
	const struct pd_topology *topology = o->task->topology;
	const struct pd_costs *costs = &o->task->costs;
	int64_t bandwidth = pd_slowest_link(topology, topology->levels - 1).bandwidth_bytes_per_s;
	int ranks = (int)pd_min(topology->devices, costs->unit_count), chunks = o->task->request->chunks;
	struct pd_partition *partition;

	for (int kind = 0; kind < PD_SCHEDULE_KINDS; kind++)
		for (int straight = 1; straight >= 0 && is_open(o, (enum pd_schedule_kind)kind); straight--)
			if (straight ? is_searched_straight(o, (enum pd_schedule_kind)kind)
				     : !o->task->straight && topology->devices > 1)
				offer_best(o, (enum pd_schedule_kind)kind, straight);
	partition = chunks <= 1 && o->task->limit_bytes < INT64_MAX
		? pd_straight_most(costs, ranks, bandwidth, INT64_MAX) : NULL;
	if (partition)
		offer(o, plan_of(o->task, partition, 1, false, &o->why));
}

/* Several chunks a rank: if they are two, positions that take as long as each other; and stages that do. */
static void offer_v(struct ordered *o)
{
	const struct pd_costs *costs = &o->task->costs;
	int chunks = o->task->request->chunks ? o->task->request->chunks : PD_PLANNER_CHUNKS;
	int ranks = (int)pd_min(costs->unit_count / chunks, o->task->topology->devices);

	if (ranks < 2 || chunks < 2)
		return;
	if (chunks == PD_PLANNER_CHUNKS)
		offer(o, plan_of(o->task, pd_v_partition(costs, ranks), chunks, false, &o->why));
	offer(o, plan_of(o->task, pd_even_partition(costs, chunks * ranks, 0), chunks, false, &o->why));
}

/* Equal pipelines side by side. */
struct pipelines {
	int positions, replicas;
	bool apart;
	int64_t time_ns;
};

static struct pd_partition *replicated(struct pd_partition *partition, int replicas)
{
	for (int s = 0; partition && s < partition->stage_count; s++)
		partition->replicas[s] = replicas;
	return partition;
}

/* Enters pipelines among the fastest, by a replay of even stages with zb-h1, whatever memory that takes. */
static void enter(const struct ordered *o, struct pipelines new, struct pipelines *fastest)
{
	struct pd_error why;
	struct pd_plan *plan = plan_of(o->task, replicated(pd_even_partition(&o->task->costs, new.positions, 0), new.replicas),
				       1, new.apart, &why);
	enum pd_period_kind from;
	int64_t work = 0;

	if (!plan)
		return;
	plan->schedule = PD_SCHEDULE_ZB_H1;
	if (pd_judge_rival(plan, fastest[PIPELINES - 1].time_ns, &new.time_ns, &from, &work, &why) < 0)
		new.time_ns = PD_NEVER;
	pd_candidate_drop(plan);
	for (int i = 0; i < PIPELINES; i++)
		if (new.time_ns < fastest[i].time_ns) {
			struct pipelines slower = fastest[i];

			fastest[i] = new;
			new = slower;
		}
}

/* The fastest of equal pipelines, of one chunk a rank and of several. */
static void offer_pipelines(struct ordered *o)
{
	const struct pd_task *task = o->task;
	const struct pd_costs *costs = &task->costs;
	int devices = (int)task->topology->devices, chunks = task->request->chunks ? task->request->chunks : PD_PLANNER_CHUNKS;
	struct pipelines fastest[PIPELINES];

	for (int i = 0; i < PIPELINES; i++)
		fastest[i] = (struct pipelines){ .time_ns = PD_NEVER };
	for (int p = (int)pd_min(devices / 2, costs->unit_count); p >= 1 && !task->straight; p--)
		for (int apart = 0, r = devices / p; apart <= (p > 1 && task->topology->levels > 1); apart++)
			if (task->request->microbatches % r == 0 && (devices % p == 0 || devices <= FEW_DEVICES))
				enter(o, (struct pipelines){ .positions = p, .replicas = r, .apart = apart }, fastest);
	for (int i = 0; i < PIPELINES && fastest[i].time_ns < PD_NEVER; i++) {
		int p = fastest[i].positions, r = fastest[i].replicas;
		struct pd_partition *v;

		if (task->request->chunks <= 1)
			offer(o, plan_of(task, replicated(pd_even_partition(costs, p, 0), r), 1, fastest[i].apart, &o->why));
		if (p < 2 || chunks < 2 || (int64_t)chunks * p > costs->unit_count)
			continue;
		v = chunks == PD_PLANNER_CHUNKS ? pd_v_partition(costs, p) : pd_even_partition(costs, chunks * p, 0);
		offer(o, plan_of(task, replicated(v, r), chunks, fastest[i].apart, &o->why));
	}
}

/* The stages that are asked for, in a V if ranks have several. */
static void offer_hand(struct ordered *o)
{
	const struct pd_plan_request *request = o->task->request;
	struct pd_plan_request with = *request;
	struct pd_task one = *o->task;
	struct pd_partition *partition;
	int64_t time_ns;

	if (request->chunks > 1) {
		partition = pd_hand_partition(o->task, &o->why);
		offer(o, plan_of(o->task, partition, request->chunks, false, &o->why));
		return;
	}
	with.schedule = PD_SCHEDULE_GPIPE;      /* which any stages can have */
	one.request = &with;
	one.limit_bytes = INT64_MAX;
	offer(o, pd_hand_plan(&one, &time_ns, &o->why));
}

static void offer_all(struct ordered *o)
{
	if (o->task->request->stages) {
		offer_hand(o);
		return;
	}
	offer_schedules(o);
	offer_v(o);
	offer_pipelines(o);
}

struct pd_plan *pd_ordered_plan(const struct pd_task *task, int64_t *time_ns_p, struct pd_error *err)
{
	const struct pd_plan_request *request = task->request;
	struct ordered o = { .task = task };

	if (!pd_schedule_goes_with(request->schedule, request->weights)) {
		pd_error_input(err, "schedule \"%s\" does not go with weights \"%s\", but with %s",
			       pd_schedule_kind_name[request->schedule], pd_weight_kind_name[request->weights],
			       pd_weight_kind_name[PD_WEIGHTS_FLUSH]);
		return NULL;
	}
	pd_error_no(&o.why, "no plan was found");
	offer_all(&o);
	if (!o.best) {
		*err = o.why;
		return NULL;
	}
	*time_ns_p = o.time_ns;
	note(&o, o.best, o.time_ns);
	memcpy(o.best->predicted.schedules, o.tried.schedules, sizeof(o.tried.schedules));
	return o.best;
}
