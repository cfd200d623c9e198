/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans whose order is searched for: for the stages of the best plans of zb-h1, 1f1b and zb-v, for those that are fast whatever
 * memory they take, and for two chunks a rank in a V whose positions take about as long as each other.  The
 * search of orders looks at the memory of devices; the plan of the shortest replay is taken.
 */
#include "planner/answers.h"

#include "base/mem.h"
#include "planner/search/candidate.h"
#include "planner/search/gain.h"
#include "planner/search/ordering.h"
#include "planner/search/recompute.h"

#include <stdlib.h>
#include <string.h>

struct ordered {
	const struct pd_task *task;
	struct pd_plan *best;
	int64_t time_ns;
	struct pd_error why;            /* why there is none */
	struct pd_prediction tried;     /* its `schedules`: of those whose stages are taken */
};

/* Gives a plan its order, and keeps it if it is the best so far; it is dropped otherwise. */
static void offer(struct ordered *o, struct pd_plan *plan)
{
	double gain = o->task->request->min_gain;
	struct pd_error err;
	int64_t time_ns;

	if (!plan)
		return;
	if (!pd_ordering_find(plan, o->task->limit_bytes, &time_ns, &err)) {
		o->why = err;
		pd_candidate_drop(plan);
		return;
	}
	if (o->best && pd_gain_of(gain, time_ns, plan->rank_count) >=
		       pd_gain_of(gain, o->time_ns, o->best->rank_count)) {
		pd_candidate_drop(plan);
		return;
	}
	pd_candidate_drop(o->best);
	o->best = plan;
	o->time_ns = time_ns;
}

/* Puts stages on ranks in a V, there and back again; a chunk goes up. */
static void put_in_v(struct pd_plan *plan, int chunks)
{
	plan->rank_count = plan->stage_count / chunks;
	for (int s = 0; s < plan->stage_count; s++)
		plan->stages[s].ranks[0] = pd_order_v(plan->rank_count, s);
}

/* Makes a plan of a partition, its stages on ranks in a V if they have several; frees the partition. */
static struct pd_plan *plan_of(const struct pd_task *task, struct pd_partition *partition, int chunks,
				 struct pd_error *err)
{
	const struct pd_plan_request *request = task->request;
	struct pd_plan_request with = *request;
	struct pd_task one = *task;
	struct pd_plan *plan;

	if (!partition)
		return NULL;
	with.chunks = chunks;   /* so that there may be more stages than devices */
	one.request = &with;
	plan = pd_candidate_plain(&one, partition);
	put_in_v(plan, chunks);
	plan->weights = PD_WEIGHTS_FLUSH;
	plan->agree = request->agree || pd_planner_agrees(request, task->profile, plan->weights);
	plan->microbatches = request->microbatches ? request->microbatches : plan->rank_count;
	pd_partition_free(partition);
	if (pd_recompute_asked(plan, request, err))
		return plan;
	pd_candidate_drop(plan);
	return NULL;
}

/* The best plan of another schedule. */
static void offer_best(struct ordered *o, enum pd_schedule_kind schedule, int chunks)
{
	struct pd_plan_request request = *o->task->request;
	struct pd_task one = *o->task;
	struct pd_plan *plan;
	int64_t time_ns;

	request.schedule = schedule;
	request.weights = PD_WEIGHTS_FLUSH;
	request.straight = true;
	request.chunks = chunks;
	one.request = &request;
	one.straight = true;
	pd_effort_begin(request.effort);
	plan = pd_replayed_plan(&one, &time_ns, &o->why);
	if (plan)
		o->tried.schedules[schedule][PD_WEIGHTS_FLUSH] =
			(struct pd_schedule_tried){ time_ns, pd_candidate_fullest(plan, NULL) };
	offer(o, plan);
}

/* The best plans of zb-h1 and 1f1b and, where memory is limited, stages that are fast without a limit. */
static void offer_chain(struct ordered *o)
{
	const struct pd_topology *topology = o->task->topology;
	const struct pd_costs *costs = &o->task->costs;
	int64_t bandwidth = pd_slowest_link(topology, topology->levels - 1).bandwidth_bytes_per_s;
	int ranks = (int)pd_min64(topology->devices, costs->unit_count);
	struct pd_partition *partition;

	offer_best(o, PD_SCHEDULE_ZB_H1, 0);
	offer_best(o, PD_SCHEDULE_1F1B, 0);
	partition = o->task->limit_bytes < INT64_MAX
		? pd_straight_most(costs, ranks, bandwidth, INT64_MAX) : NULL;
	if (partition)
		offer(o, plan_of(o->task, partition, 1, &o->why));
}

/* Returns the first unit at which the units from `from` on take more than a time. */
static int reach(const struct pd_costs *costs, int from, int64_t most_ns, int end)
{
	int to = from;

	while (to < end && costs->compute_ns[to + 1] - costs->compute_ns[from] <= most_ns)
		to++;
	return to;
}

/*
 * Cuts the network into two stages for each of `ranks` positions, which take at most most_ns together, about half of it
 * each: from both ends, inwards.  Sets where each begins; returns false if that is not enough.
 */
static bool cut_in_v(const struct pd_costs *costs, int ranks, int64_t most_ns, int *begin)
{
	int low = 0, high = costs->unit_count;

	begin[0] = 0;
	begin[2 * ranks] = high;
	for (int q = 0; q < ranks; q++) {
		int left = 2 * (ranks - 1 - q), to = reach(costs, low, most_ns / 2, high), from = high;

		/* Each needs a unit at least, and leaves one for each that is left. */
		to = to > low ? to : low + 1;
		to = to < high - left - 1 ? to : high - left - 1;
		while (from > to + left && from > 0 &&
		       (from == high || costs->compute_ns[high] - costs->compute_ns[from - 1] +
					costs->compute_ns[to] - costs->compute_ns[low] <= most_ns))
			from--;
		if (costs->compute_ns[high] - costs->compute_ns[from] + costs->compute_ns[to] -
		    costs->compute_ns[low] > most_ns)
			return false;
		begin[q + 1] = to;
		begin[2 * ranks - 1 - q] = q == ranks - 1 ? to : from;
		if (q == ranks - 1)
			return from == to;
		low = to;
		high = from;
	}
	return false;
}

/* Returns the partition for a V in which the slowest position takes least, as far as such cuts find it. */
static struct pd_partition *v_partition(const struct pd_costs *costs, int ranks)
{
	int64_t low = 0, high = costs->compute_ns[costs->unit_count];
	int *begin = pd_calloc((size_t)(2 * ranks + 1), sizeof(*begin));
	struct pd_partition *partition = NULL;

	while (low + 1 < high) {
		int64_t middle = low + (high - low) / 2;

		if (cut_in_v(costs, ranks, middle, begin))
			high = middle;
		else
			low = middle;
	}
	if (cut_in_v(costs, ranks, high, begin)) {
		partition = pd_partition_new(2 * ranks);
		for (int s = 0; s < 2 * ranks; s++)
			partition->layers[s] = costs->first[begin[s + 1]] - costs->first[begin[s]];
	}
	free(begin);
	return partition;
}

/* Several chunks a rank: if they are two, positions that take as long as each other; and stages that do. */
static void offer_v(struct ordered *o)
{
	const struct pd_costs *costs = &o->task->costs;
	int chunks = o->task->request->chunks ? o->task->request->chunks : PD_PLANNER_CHUNKS;
	int ranks = (int)pd_min64(costs->unit_count / chunks, o->task->topology->devices);

	if (ranks < 2 || chunks < 2)
		return;
	if (chunks == PD_PLANNER_CHUNKS)
		offer_best(o, PD_SCHEDULE_ZB_V, chunks);
	if (chunks == PD_PLANNER_CHUNKS)
		offer(o, plan_of(o->task, v_partition(costs, ranks), chunks, &o->why));
	offer(o, plan_of(o->task, pd_even_partition(costs, chunks * ranks, 0), chunks, &o->why));
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
		offer(o, plan_of(o->task, partition, request->chunks, &o->why));
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
	if (o->task->request->chunks <= 1)
		offer_chain(o);
	offer_v(o);
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
	o.tried.schedules[PD_SCHEDULE_ORDERED][PD_WEIGHTS_FLUSH] =
		(struct pd_schedule_tried){ o.time_ns, pd_candidate_fullest(o.best, NULL) };
	memcpy(o.best->predicted.schedules, o.tried.schedules, sizeof(o.tried.schedules));
	return o.best;
}
