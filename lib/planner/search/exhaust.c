/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tries all plans if there are few: every chain of states of the network, all numbers of replicas,
 * every order of the stages along the line of devices and every other placement, and with 1f1b every
 * warm-up up to pd_warmup_most.  Stages are added one after the other from the first; a stage that
 * alone takes longer than the best plan known ends that branch.  What can win by its bound
 * (judge.h), which no replay is below, is entered, and contest.c replays entries until no
 * bound that is left is below the best replay.  The winner is then the best of all these plans.
 */
#include "planner/search/contest.h"

#include "base/mem.h"
#include "planner/search/placement.h"
#include "planner/search/recompute.h"
#include "planner/search/warmup.h"
#include "predict/judge.h"
#include "predict/links.h"
#include "predict/predict.h"

#include <stdlib.h>
#include <string.h>

#define MOST_SHAPES 1000        /* combinations of cuts and replicas */
#define MOST_BOUNDS 20000       /* plans whose bound is computed */

struct exhaust {
	struct pd_contest *contest;
	const struct pd_task *task;
	int64_t time_ns;                /* time of the best plan known */
	int ranks;                      /* its devices */
	struct pd_points *points;
	int count, *ends, *replicas;    /* stages so far */
	int bounds;
	bool left_out;                  /* not every placement was tried */
	bool plain;                     /* each minibatch of a replica has its own update */
};

/* Tells whether there are few chains of points, each with all numbers of replicas for its stages. */
static bool few_of(const struct pd_task *task, const struct pd_points *points)
{
	int64_t devices = pd_task_stages(task, task->topology->devices);
	size_t room = (size_t)points->last + 1;
	double *chains, *next, all = 0, gifts = task->straight ? 1 : (double)devices;

	if (points->last > MOST_SHAPES)         /* plans of two stages are already more */
		return false;
	chains = pd_calloc(2 * room, sizeof(*chains));  /* of s - 1 stages, by their ends */
	next = chains + room;
	chains[0] = 1;
	for (int s = 1; s <= devices && s <= points->last && all <= MOST_SHAPES; s++) {
		for (int v = 0; v <= points->last; v++)
			next[v] = 0;
		for (int u = 0; u < points->last; u++)
			for (int i = 0; chains[u] > 0 && i < pd_points_ends(points, u); i++)
				next[pd_points_end(points, u, i)] += chains[u];
		if (task->request->chunks)      /* all stages have as many replicas */
			gifts = s % task->request->chunks ? 0 : task->straight ? 1 : (double)(devices / s);
		all += next[points->last] * gifts;
		if (!task->request->chunks)
			gifts = task->straight ? 1 : gifts * (double)(devices - s) / (s + 1);
		memcpy(chains, next, room * sizeof(*chains));
	}
	free(chains);
	return all <= MOST_SHAPES;
}

bool pd_contest_few(const struct pd_task *task)
{
	struct pd_points units;
	bool few;

	if (task->views && task->views->points.states)
		return task->views->states.whole && few_of(task, &task->views->points);
	pd_points_of_units(&units, &task->costs);
	few = few_of(task, &units);
	pd_points_release(&units);
	return few;
}

/* Tells whether a plan may be better than the best one known: faster, or as fast on no more devices. */
static bool may_win(const struct exhaust *exhaust, const struct pd_plan *plan, int64_t bound_ns)
{
	return bound_ns < exhaust->time_ns ||
	       (bound_ns == exhaust->time_ns && plan->rank_count <= exhaust->ranks);
}

static struct pd_expected expect(struct exhaust *exhaust, const struct pd_plan *plan)
{
	struct pd_expected expected = pd_contest_expect(exhaust->contest, plan, true);

	exhaust->bounds += expected.bound_ns < PD_COST_MAX;
	return expected;
}

/* Enters the plan as it is now, or with recomputation if it does not fit otherwise (recompute.c). */
static void enter(struct exhaust *exhaust, const struct pd_plan *plan)
{
	const struct pd_task *task = exhaust->task;
	struct pd_expected expected = expect(exhaust, plan);
	struct pd_plan *copy;
	bool enters;

	if (!may_win(exhaust, plan, expected.bound_ns))
		return;
	copy = pd_candidate_copy(plan);
	enters = pd_candidate_fits(copy, task->limit_bytes);
	if (!enters && pd_recompute_free(task->request) &&
	    pd_recompute_fit(copy, task->request, task->limit_bytes)) {
		expected = expect(exhaust, copy);
		enters = may_win(exhaust, copy, expected.bound_ns);
	}
	if (enters)
		pd_contest_add(exhaust->contest, copy, expected, 1);
	else
		pd_candidate_drop(copy);
}

/* Tries all warm-ups of stages s to 0; those of later stages are set. */
static void vary(struct exhaust *exhaust, struct pd_plan *plan, int s)
{
	struct pd_stage *stage = &plan->stages[s];
	int64_t lead = s + 1 < plan->stage_count
		? (int64_t)stage[1].warmup * stage[1].replicas : 0;
	int most = pd_warmup_most(plan, s);

	for (int w = (int)pd_ceil_div(lead, stage->replicas); w <= most; w++) {
		stage->warmup = w;
		if (exhaust->bounds > MOST_BOUNDS)
			return;
		if (s > 0)
			vary(exhaust, plan, s - 1);
		else
			enter(exhaust, plan);
	}
}

/* Enters the plan, at its place, unless its ranks or links alone are too slow with any warm-ups. */
static void enter_here(void *context, struct pd_plan *plan)
{
	struct exhaust *exhaust = context;
	struct pd_wiring *wiring = pd_wiring_new(plan);
	bool hopeless = pd_links_busiest_ns(plan, wiring) > exhaust->time_ns, equal = exhaust->task->request->equal;

	pd_wiring_free(wiring);
	if (hopeless || exhaust->bounds > MOST_BOUNDS || (equal && !pd_plan_has_equal_replicas(plan)))
		return;
	pd_predict_times(plan);
	if (pd_schedule_has(plan->schedule, PD_FACT_LEADS) && !equal)
		vary(exhaust, plan, plan->stage_count - 1);
	else
		enter(exhaust, plan);
}

static void place(struct exhaust *exhaust)
{
	struct pd_partition partition = { .stage_count = exhaust->count,
					  .replicas = exhaust->replicas };
	struct pd_error err;
	struct pd_plan *plan;

	if (exhaust->task->request->chunks && exhaust->count % exhaust->task->request->chunks != 0)
		return;
	pd_points_layers(exhaust->points, exhaust->ends, exhaust->count, &partition.layers,
			 &partition.order);
	plan = pd_candidate_plan(exhaust->task, &partition, &err);
	free(partition.layers);
	free(partition.order);
	if (plan && !pd_placement_each(plan, enter_here, exhaust))
		exhaust->left_out = true;
	pd_candidate_drop(plan);
}

/* Tries all stages that can follow when the layers before u have theirs. */
static void extend(struct exhaust *exhaust, int u, int devices)
{
	const struct pd_points *points = exhaust->points;

	if (u == points->last) {
		place(exhaust);
		return;
	}
	for (int i = 0; i < pd_points_ends(points, u); i++)
		for (int m = 1; m <= (exhaust->task->straight ? 1 : devices); m++) {
			int v = pd_points_end(points, u, i);
			int64_t compute = points->compute_ns[v] - points->compute_ns[u];

			if (m > devices || exhaust->bounds > MOST_BOUNDS)
				break;
			if (exhaust->task->request->chunks && exhaust->count > 0 && m != exhaust->replicas[0])
				continue;
			if (compute / m > exhaust->time_ns && exhaust->plain)
				continue;
			exhaust->ends[exhaust->count] = v;
			exhaust->replicas[exhaust->count++] = m;
			extend(exhaust, v, devices - m);
			exhaust->count--;
		}
}

bool pd_contest_exhaust(struct pd_contest *contest, size_t winner)
{
	const struct pd_task *task = contest->task;
	struct exhaust exhaust = { .contest = contest, .task = task,
				   .time_ns = contest->entries[winner].time_ns,
				   .ranks = contest->entries[winner].plan->rank_count };
	size_t room = (size_t)task->profile->layer_count;
	struct pd_points units;
	int64_t devices;

	if (!contest->few)
		return false;
	pd_points_of_units(&units, &task->costs);
	exhaust.points = task->views && task->views->points.states ? &task->views->points : &units;
	exhaust.plain = pd_planner_plain(task->request);
	exhaust.ends = pd_calloc(room, sizeof(int));
	exhaust.replicas = pd_calloc(room, sizeof(int));
	/* Plans that are as fast with fewer devices are left if none is faster. */
	devices = task->bound_ns >= exhaust.time_ns ? exhaust.ranks : task->topology->devices;
	extend(&exhaust, 0, (int)pd_task_stages(task, devices));
	pd_points_release(&units);
	free(exhaust.ends);
	free(exhaust.replicas);
	return exhaust.bounds <= MOST_BOUNDS && !exhaust.left_out;
}
