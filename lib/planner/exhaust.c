/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tries all plans if there are few: every chain of states of the network, all numbers of replicas,
 * every placement, every warm-up up to pd_warmup_most.  Stages are added one after the other from
 * the first; a stage that alone takes longer than the best plan known ends that branch.  The
 * remaining plans are entered with the bound of flow.c.  contest_replays.c replays them in order of
 * that until no bound is below the best replay.  The winner is then the best of all these plans.
 */
#include "planner/contest.h"

#include "base/mem.h"
#include "planner/flow.h"
#include "planner/links.h"
#include "planner/placement.h"
#include "planner/predict.h"
#include "planner/recompute.h"
#include "planner/warmup.h"
#include "schedule/schedule.h"

#include <stdlib.h>
#include <string.h>

#define MOST_SHAPES 1000        /* combinations of cuts and replicas */
#define MOST_BOUNDS 20000       /* plans whose bound is computed */

struct exhaust {
	struct pd_contest *contest;
	const struct pd_task *task;
	int64_t time_ns;                /* time of the best plan known */
	struct pd_points *points;
	int devices;
	int count, *ends, *replicas;    /* stages so far */
	int bounds;
	bool plain;                     /* each minibatch of a replica has its own update */
};

/* Tells whether there are few: the sum over S of C(units - 1, S - 1) C(devices, S). */
static bool few_of_units(const struct pd_task *task)
{
	int units = task->costs.unit_count, devices = (int)task->topology->devices;
	double all = 0, cuts = 1, gifts = devices;

	for (int s = 1; s <= units && s <= devices; s++) {
		all += cuts * gifts;
		if (all > MOST_SHAPES)
			return false;
		cuts = cuts * (units - s) / s;
		gifts = gifts * (devices - s) / (s + 1);
	}
	return true;
}

/* Tells the same for cuts that are chains of states. */
static bool few_of_states(const struct pd_points *points, int devices)
{
	size_t room = (size_t)points->last + 1;
	double *chains, *next, all = 0, gifts = devices;

	if (points->last > MOST_SHAPES)         /* plans of two stages are already more */
		return false;
	chains = pd_calloc(2 * room, sizeof(*chains));  /* of s - 1 stages, by their ends */
	next = chains + room;
	chains[0] = 1;
	for (int s = 1; s <= devices && all <= MOST_SHAPES; s++) {
		for (int v = 0; v <= points->last; v++)
			next[v] = 0;
		for (int u = 0; u <= points->last; u++)
			for (int i = 0; chains[u] > 0 && i < pd_points_ends(points, u); i++)
				next[pd_points_end(points, u, i)] += chains[u];
		all += next[points->last] * gifts;
		gifts = gifts * (devices - s) / (s + 1);
		memcpy(chains, next, room * sizeof(*chains));
	}
	free(chains);
	return all <= MOST_SHAPES;
}

bool pd_contest_few(const struct pd_task *task)
{
	if (!task->views || !task->views->many)
		return few_of_units(task);
	return task->views->states.whole &&
		few_of_states(&task->views->points, (int)task->topology->devices);
}

/*
 * Tells whether the plan cannot win with any warm-ups: by its processors, with their own sends, and
 * its links.
 */
static bool hopeless(const struct exhaust *exhaust, const struct pd_plan *plan,
		     const struct pd_wiring *wiring)
{
	if (pd_links_busiest_ns(plan, wiring) > exhaust->time_ns)
		return true;
	for (int s = 0; s < plan->stage_count; s++) {
		const struct pd_stage *stage = &plan->stages[s];

		if ((stage->forward_ns + stage->backward_ns) / stage->replicas > exhaust->time_ns)
			return true;
	}
	return false;
}

/* Enters the plan with recomputation if it does not fit otherwise (recompute.c); takes it. */
static void enter_again(struct exhaust *exhaust, struct pd_plan *plan)
{
	const struct pd_task *task = exhaust->task;
	struct pd_schedule *schedule = NULL;
	int64_t bound = PD_NEVER;
	struct pd_error err;

	if (pd_recompute_free(task->request) && pd_recompute_fit(plan, task->limit_bytes))
		schedule = pd_schedule_new(plan, &err);
	if (schedule) {
		exhaust->bounds++;
		bound = pd_flow_bound_ns(schedule);
	}
	pd_schedule_free(schedule);
	if (bound <= exhaust->time_ns)
		pd_contest_add(exhaust->contest, plan, bound);
	else
		pd_candidate_drop(plan);
}

/* Enters the plan as it is now. */
static void enter(struct exhaust *exhaust, const struct pd_plan *plan)
{
	struct pd_error err;
	struct pd_schedule *schedule = pd_schedule_new(plan, &err);
	struct pd_plan *copy;
	int64_t bound;

	if (!schedule)
		return;
	exhaust->bounds++;
	bound = pd_flow_bound_ns(schedule);
	if (bound <= exhaust->time_ns) {
		copy = pd_candidate_copy(plan);
		pd_predict_memory(copy, schedule);
		if (pd_candidate_fullest(copy, NULL) <= exhaust->task->limit_bytes)
			pd_contest_add(exhaust->contest, copy, bound);
		else
			enter_again(exhaust, copy);
	}
	pd_schedule_free(schedule);
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

static void place(struct exhaust *exhaust)
{
	struct pd_partition partition = { .cost_ns = PD_NEVER, .stage_count = exhaust->count,
					  .replicas = exhaust->replicas };
	struct pd_wiring *wiring;
	struct pd_error err;
	struct pd_plan *plan;

	pd_points_layers(exhaust->points, exhaust->ends, exhaust->count, &partition.layers,
			 &partition.order);
	plan = pd_candidate_plan(exhaust->task, &partition, &err);
	free(partition.layers);
	free(partition.order);
	if (!plan)
		return;
	wiring = pd_wiring_new(plan);
	for (int n = 0; n < PD_PLACEMENTS; n++) {
		if (!pd_placement_differs(plan, n) || !pd_placement_set(plan, n))
			continue;
		pd_predict_stages(plan);
		if (hopeless(exhaust, plan, wiring))
			continue;
		if (plan->schedule == PD_SCHEDULE_1F1B)
			vary(exhaust, plan, plan->stage_count - 1);
		else
			enter(exhaust, plan);
	}
	pd_wiring_free(wiring);
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
			if (compute / m > exhaust->time_ns && exhaust->plain)
				continue;
			exhaust->ends[exhaust->count] = v;
			exhaust->replicas[exhaust->count++] = m;
			extend(exhaust, v, devices - m);
			exhaust->count--;
		}
}

bool pd_contest_exhaust(struct pd_contest *contest, int64_t time_ns)
{
	const struct pd_task *task = contest->task;
	struct exhaust exhaust = { .contest = contest, .task = task, .time_ns = time_ns,
				   .devices = (int)task->topology->devices };

	struct pd_points units;
	size_t room = (size_t)task->profile->layer_count;

	if (!pd_contest_few(task))
		return false;
	pd_points_of_units(&units, &task->costs);
	exhaust.points = task->views && task->views->many ? &task->views->points : &units;
	exhaust.plain = pd_planner_plain(task->request);
	exhaust.ends = pd_calloc(room, sizeof(int));
	exhaust.replicas = pd_calloc(room, sizeof(int));
	extend(&exhaust, 0, exhaust.devices);
	pd_points_release(&units);
	free(exhaust.ends);
	free(exhaust.replicas);
	return exhaust.bounds <= MOST_BOUNDS;
}
