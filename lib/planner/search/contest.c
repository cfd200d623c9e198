/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/search/contest.h"

#include "base/mem.h"
#include "planner/search/judge.h"
#include "planner/search/placement.h"
#include "planner/price/predict.h"
#include "planner/search/recompute.h"
#include "planner/search/warmup.h"

#include <math.h>
#include <stdlib.h>

/* estimates above which only a partition's own placement is tried */
#define FEW_WORK 8000000

void pd_contest_init(struct pd_contest *contest, const struct pd_task *task)
{
	*contest = (struct pd_contest){ .task = task, .slower = 1 };
	pd_map_init(&contest->map, task->topology, (int)task->topology->devices,
		    task->request->gradient_dtype == PD_F32
		    ? task->profile->in_step.sum_bytes_per_s : 0);
}

void pd_contest_release(struct pd_contest *contest)
{
	for (size_t i = 0; i < contest->count; i++)
		pd_candidate_drop(contest->entries[i].plan);
	free(contest->entries);
	free(contest->seen);
	pd_map_release(&contest->map);
	*contest = (struct pd_contest){ 0 };
}

size_t pd_contest_find(const struct pd_contest *contest, const struct pd_plan *plan)
{
	size_t i = 0;

	while (i < contest->count && pd_candidate_compare(contest->entries[i].plan, plan) != 0)
		i++;
	return i;
}

void pd_contest_add(struct pd_contest *contest, struct pd_plan *plan, struct pd_expected expected)
{
	if (pd_contest_find(contest, plan) < contest->count) {
		pd_candidate_drop(plan);
		return;
	}
	contest->entries = pd_grow(contest->entries, &contest->capacity, contest->count + 1,
				   sizeof(*contest->entries));
	contest->entries[contest->count++] = (struct pd_entry){
		.plan = plan, .expected = expected, .time_ns = PD_NEVER,
		.likely_ns = (int64_t)fmin((double)expected.estimate_ns * contest->slower,
					   (double)PD_COST_MAX) };
}

struct pd_expected pd_contest_expect(const struct pd_plan *plan)
{
	struct pd_expected expected = { PD_COST_MAX, PD_COST_MAX };
	struct pd_error err;

	pd_judge_expect(plan, &expected, &err);
	return expected;
}

/*
 * Fills in the plan, and chooses its warm-ups or takes them as they are; false if it does not fit.
 */
static bool fill(struct pd_contest *contest, struct pd_plan *plan, bool choose,
		 struct pd_warmup_limits *limits, struct pd_expected *expected_p)
{
	if (choose && plan->schedule == PD_SCHEDULE_1F1B)
		return pd_warmup_choose(plan, limits, expected_p, &contest->work);
	if (!pd_warmup_fit(plan, limits))
		return false;
	*expected_p = pd_contest_expect(plan);
	return true;
}

/* Returns the expected period of the last entry that refine.c will change, as far as is known. */
static int64_t worst_changed_ns(const struct pd_contest *contest)
{
	int64_t best[PD_CONTEST_CHANGED];
	int count = 0;

	for (size_t i = 0; i < contest->count; i++) {
		int64_t ns = contest->entries[i].expected.estimate_ns;
		int at;

		if (contest->entries[i].depth > 0)
			continue;
		at = count < PD_CONTEST_CHANGED ? count++ : PD_CONTEST_CHANGED;
		for (; at > 0 && best[at - 1] > ns; at--)
			if (at < PD_CONTEST_CHANGED)
				best[at] = best[at - 1];
		if (at < PD_CONTEST_CHANGED)
			best[at] = ns;
	}
	return count < PD_CONTEST_CHANGED ? PD_NEVER : best[PD_CONTEST_CHANGED - 1];
}

/*
 * Returns a limit: a plan that is expected to take longer can neither win nor lead to a winner; 0:
 * none.
 */
static int64_t limit_ns(const struct pd_contest *contest)
{
	int64_t ns = contest->changed_ns > 0 ? contest->changed_ns : worst_changed_ns(contest);

	return contest->most_ns > 0 && ns < PD_NEVER ? pd_max64(contest->most_ns, ns) : 0;
}

/*
 * Enters the plan at one placement; takes it.  Where memory is tight it enters it with recomputation,
 * too, since it may then have more in flight.
 */
static int64_t enter_at(struct pd_contest *contest, struct pd_plan *plan, bool choose)
{
	const struct pd_task *task = contest->task;
	struct pd_warmup_limits limits = { .limit_bytes = task->limit_bytes,
					   .most_ns = limit_ns(contest) };
	struct pd_expected expected, others;
	struct pd_plan *again = NULL;
	int64_t best;
	bool fits;

	contest->work += plan->stage_count * 64;
	pd_predict_stages(plan);
	fits = fill(contest, plan, choose, &limits, &expected);
	best = fits ? expected.estimate_ns : PD_NEVER;
	if (limits.tight && pd_recompute_free(task->request)) {
		limits.recompute = true;
		again = pd_candidate_copy(plan);
		if (fill(contest, again, choose, &limits, &others) && pd_recompute_any(again) &&
		    others.estimate_ns < best) {
			best = others.estimate_ns;
			pd_contest_add(contest, again, others);
			again = NULL;
		}
	}
	pd_candidate_drop(again);
	if (fits)
		pd_contest_add(contest, plan, expected);
	else
		pd_candidate_drop(plan);
	return best;
}

int64_t pd_contest_enter(struct pd_contest *contest, struct pd_partition *partition)
{
	struct pd_plan *plan;
	int64_t best = PD_NEVER;
	bool choose;

	if (!partition)
		return PD_NEVER;
	plan = pd_candidate_plan(contest->task, partition, &contest->why);
	choose = !partition->warmups;
	if (!plan) {
		contest->refused = true;
		pd_partition_free(partition);
		return PD_NEVER;
	}
	/* If all links are alike, placements differ only in the order of equal devices. */
	if (partition->ranks && (contest->few || plan->topology.levels > 1))
		best = enter_at(contest, pd_candidate_copy(plan), choose);
	for (int n = 0; n < PD_PLACEMENTS && !(partition->ranks && contest->work > FEW_WORK); n++)
		if (pd_placement_set(plan, n))
			best = pd_min64(best, enter_at(contest, pd_candidate_copy(plan), choose));
	pd_candidate_drop(plan);
	pd_partition_free(partition);
	return best;
}

static int by_expectation(const void *a, const void *b)
{
	const struct pd_entry *x = a, *y = b;

	if (x->likely_ns != y->likely_ns)
		return x->likely_ns < y->likely_ns ? -1 : 1;
	return pd_candidate_compare(x->plan, y->plan);
}

bool pd_contest_gains_little(const struct pd_contest *contest)
{
	int64_t most_ns = contest->most_ns;

	return most_ns > 0 && most_ns - most_ns / PD_CONTEST_LITTLE < contest->task->bound_ns;
}

void pd_contest_sort(struct pd_contest *contest)
{
	if (contest->count > 0)
		qsort(contest->entries, contest->count, sizeof(*contest->entries), by_expectation);
}
