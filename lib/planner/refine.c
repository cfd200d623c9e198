/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small changes to good plans: a cut moves, a replica goes from one stage to another, comes or
 * goes, two stages become one, one becomes two.  Of each plan the best change is taken until
 * none is expected to help.
 */
#include "planner/contest.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define BEST 8                  /* plans that are changed */

struct shape {                  /* stages over units */
	int count;
	int *ends, *replicas;   /* room for one more than count */
};

static void shape_init(struct shape *shape, int room)
{
	shape->count = 0;
	shape->ends = pd_calloc((size_t)room + 1, sizeof(int));
	shape->replicas = pd_calloc((size_t)room + 1, sizeof(int));
}

static void shape_release(struct shape *shape)
{
	free(shape->ends);
	free(shape->replicas);
}

static void shape_copy(struct shape *to, const struct shape *from)
{
	to->count = from->count;
	memcpy(to->ends, from->ends, (size_t)from->count * sizeof(int));
	memcpy(to->replicas, from->replicas, (size_t)from->count * sizeof(int));
}

static void shape_of(struct shape *shape, const struct pd_plan *plan, const struct pd_costs *costs)
{
	int u = 0;

	shape->count = plan->stage_count;
	for (int s = 0; s < plan->stage_count; s++) {
		const struct pd_stage *stage = &plan->stages[s];

		while (costs->first[u] < stage->first_layer + stage->layer_count)
			u++;
		shape->ends[s] = u;
		shape->replicas[s] = stage->replicas;
	}
}

static struct pd_layout *layout_of(const struct shape *shape, const struct pd_costs *costs)
{
	struct pd_layout *layout = pd_zalloc(sizeof(*layout));

	layout->cost_ns = PD_NEVER;
	layout->stage_count = shape->count;
	layout->layers = pd_calloc((size_t)shape->count, sizeof(int));
	layout->replicas = pd_calloc((size_t)shape->count, sizeof(int));
	for (int s = 0, u = 0; s < shape->count; u = shape->ends[s++]) {
		layout->layers[s] = costs->first[shape->ends[s]] - costs->first[u];
		layout->replicas[s] = shape->replicas[s];
	}
	return layout;
}

struct climb {
	struct pd_contest *contest;
	int64_t most_work;
	int units, devices;
	bool straight;
	struct shape at, best, trial;
	int64_t best_ns;
};

static bool valid(const struct climb *climb, const struct shape *shape)
{
	int devices = 0, before = 0;

	for (int s = 0; s < shape->count; s++) {
		if (shape->ends[s] <= before || shape->replicas[s] < 1 ||
		    (climb->straight && shape->replicas[s] > 1))
			return false;
		before = shape->ends[s];
		devices += shape->replicas[s];
	}
	return before == climb->units && devices <= climb->devices;
}

/* What `trial` is expected to be; then it is what we are at again. */
static void consider(struct climb *climb)
{
	int64_t ns;

	if (valid(climb, &climb->trial) && climb->contest->work < climb->most_work) {
		ns = pd_contest_enter(climb->contest, layout_of(&climb->trial,
								&climb->contest->task->costs));
		if (ns < climb->best_ns) {
			climb->best_ns = ns;
			shape_copy(&climb->best, &climb->trial);
		}
	}
	shape_copy(&climb->trial, &climb->at);
}

static void change_stage(struct climb *climb, int s)
{
	struct shape *trial = &climb->trial;
	int stages = climb->at.count;

	for (int by = 1; by <= 8 && s + 1 < stages; by *= 2)
		for (int sign = -1; sign <= 1; sign += 2) {
			trial->ends[s] += sign * by;
			consider(climb);
		}
	for (int t = 0; t < stages && trial->replicas[s] > 1; t++) {
		if (s == t)
			continue;
		trial->replicas[s]--;
		trial->replicas[t]++;
		consider(climb);
	}
	trial->replicas[s]++;
	consider(climb);
	trial->replicas[s]--;
	consider(climb);
	if (s + 1 < stages) {
		int together = trial->replicas[s] + trial->replicas[s + 1];

		memmove(&trial->ends[s], &trial->ends[s + 1],
			(size_t)(stages - s - 1) * sizeof(int));
		memmove(&trial->replicas[s], &trial->replicas[s + 1],
			(size_t)(stages - s - 1) * sizeof(int));
		trial->replicas[s] = climb->straight ? 1 : together;
		trial->count--;
		consider(climb);
	}
	if (trial->replicas[s] > 1 || climb->straight) {
		int begin = s > 0 ? trial->ends[s - 1] : 0, r = trial->replicas[s];

		memmove(&trial->ends[s + 1], &trial->ends[s], (size_t)(stages - s) * sizeof(int));
		memmove(&trial->replicas[s + 1], &trial->replicas[s],
			(size_t)(stages - s) * sizeof(int));
		trial->ends[s] = (begin + trial->ends[s + 1]) / 2;
		trial->replicas[s] = climb->straight ? 1 : (r + 1) / 2;
		trial->replicas[s + 1] = climb->straight ? 1 : r / 2;
		trial->count++;
		consider(climb);
	}
}

static void climb_from(struct climb *climb, const struct pd_entry *entry)
{
	shape_of(&climb->at, entry->plan, &climb->contest->task->costs);
	climb->best_ns = entry->expected_ns;
	for (;;) {
		int64_t before = climb->best_ns;

		shape_copy(&climb->trial, &climb->at);
		for (int s = 0; s < climb->at.count && climb->contest->work < climb->most_work; s++)
			change_stage(climb, s);
		if (climb->best_ns == before || climb->contest->work >= climb->most_work)
			return;
		shape_copy(&climb->at, &climb->best);
	}
}

void pd_contest_refine(struct pd_contest *contest, int64_t most_work)
{
	const struct pd_task *task = contest->task;
	struct climb climb = { .contest = contest, .units = task->costs.unit_count,
			       .devices = (int)task->topology->devices,
			       .straight = task->straight };
	struct pd_entry first[BEST];
	int count = contest->count < BEST ? (int)contest->count : BEST;

	if (count == 0)
		return;
	shape_init(&climb.at, climb.units);
	shape_init(&climb.best, climb.units);
	shape_init(&climb.trial, climb.units);
	pd_contest_sort(contest);
	memcpy(first, contest->entries, (size_t)count * sizeof(*first));
	for (int i = 0; i < count; i++) {
		climb.most_work = contest->work + (most_work - contest->work) / (count - i);
		climb_from(&climb, &first[i]);
	}
	shape_release(&climb.at);
	shape_release(&climb.best);
	shape_release(&climb.trial);
}
