/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All plans, where they are few: every way to cut the units and to give replicas, every place,
 * every warm-up up to pd_warmup_most.  Stages come one after the other from the first; a stage
 * that alone takes longer than the best plan known ends that branch.  What is left is entered
 * with the bound of flow.c, and contest.c replays it in order of that until no bound is below
 * the best replay: the winner is then the best of all these plans.
 */
#include "planner/contest.h"

#include "base/mem.h"
#include "planner/flow.h"
#include "planner/links.h"
#include "planner/place.h"
#include "planner/predict.h"
#include "planner/warmup.h"
#include "schedule/schedule.h"

#include <stdlib.h>

#define MOST_SHAPES 1000        /* cuts and replicas */
#define MOST_BOUNDS 20000       /* plans whose bound is worked out */

struct exhaust {
	struct pd_contest *contest;
	const struct pd_task *task;
	int64_t time_ns;                /* of the best plan known */
	int units, devices;
	int count, *layers, *replicas;  /* stages so far */
	int bounds;
	bool plain;                     /* each minibatch of a replica has its update */
};

/* Sum over S of C(units - 1, S - 1) C(devices, S), or too many. */
bool pd_contest_few(const struct pd_task *task)
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

/* Whatever its warm-ups: processors, with what they send themselves, and links. */
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

/* The plan as it is now. */
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
			pd_candidate_drop(copy);
	}
	pd_schedule_free(schedule);
}

/* All warm-ups of stages s to 0, those behind being set. */
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
	struct pd_layout layout = { .cost_ns = PD_NEVER, .stage_count = exhaust->count,
				    .layers = exhaust->layers, .replicas = exhaust->replicas };
	struct pd_error err;
	struct pd_plan *plan = pd_candidate_plan(exhaust->task, &layout, &err);
	struct pd_wiring *wiring;

	if (!plan)
		return;
	wiring = pd_wiring_new(plan);
	for (int n = 0; n < PD_PLACES; n++) {
		if (!pd_place_differs(plan, n) || !pd_place(plan, n))
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

/* All that can follow when the units before u have their stages. */
static void extend(struct exhaust *exhaust, int u, int devices)
{
	const struct pd_costs *costs = &exhaust->task->costs;

	if (u == exhaust->units) {
		place(exhaust);
		return;
	}
	for (int v = u + 1; v <= exhaust->units; v++)
		for (int m = 1; m <= (exhaust->task->straight ? 1 : devices); m++) {
			int64_t compute = costs->compute_ns[v] - costs->compute_ns[u];

			if (m > devices || exhaust->bounds > MOST_BOUNDS)
				break;
			if (compute / m > exhaust->time_ns && exhaust->plain)
				continue;
			exhaust->layers[exhaust->count] = costs->first[v] - costs->first[u];
			exhaust->replicas[exhaust->count++] = m;
			extend(exhaust, v, devices - m);
			exhaust->count--;
		}
}

bool pd_contest_exhaust(struct pd_contest *contest, int64_t time_ns)
{
	const struct pd_task *task = contest->task;
	struct exhaust exhaust = { .contest = contest, .task = task, .time_ns = time_ns,
				   .units = task->costs.unit_count,
				   .devices = (int)task->topology->devices };

	if (!pd_contest_few(task))
		return false;
	exhaust.plain = pd_planner_plain(task->request);
	exhaust.layers = pd_calloc((size_t)exhaust.units, sizeof(int));
	exhaust.replicas = pd_calloc((size_t)exhaust.units, sizeof(int));
	extend(&exhaust, 0, exhaust.devices);
	free(exhaust.layers);
	free(exhaust.replicas);
	return exhaust.bounds <= MOST_BOUNDS;
}
