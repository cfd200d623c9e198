/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/contest.h"

#include "base/mem.h"
#include "planner/judge.h"
#include "planner/place.h"
#include "planner/predict.h"
#include "planner/recompute.h"
#include "planner/warmup.h"

#include <stdlib.h>

#define NEAR 0.03               /* how much a plan may be slower than the best, at least, */
#define TRIED 4                 /* after so many, not to be looked at any deeper */
#define FEW_WORK 8000000        /* estimates above which a layout's own place is enough */

void pd_contest_init(struct pd_contest *contest, const struct pd_task *task)
{
	*contest = (struct pd_contest){ .task = task,
					.views = task->views ? task->views->count : 0 };
	pd_map_init(&contest->map, task->topology, (int)task->topology->devices);
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

static size_t find(const struct pd_contest *contest, const struct pd_plan *plan)
{
	size_t i = 0;

	while (i < contest->count && pd_candidate_compare(contest->entries[i].plan, plan) != 0)
		i++;
	return i;
}

void pd_contest_add(struct pd_contest *contest, struct pd_plan *plan, int64_t expected_ns)
{
	if (find(contest, plan) < contest->count) {
		pd_candidate_drop(plan);
		return;
	}
	contest->entries = pd_grow(contest->entries, &contest->capacity, contest->count + 1,
				   sizeof(*contest->entries));
	contest->entries[contest->count++] = (struct pd_entry){
		.plan = plan, .expected_ns = expected_ns, .time_ns = PD_NEVER };
}

/* With the warm-ups that it has. */
static int64_t expect(const struct pd_plan *plan)
{
	struct pd_error err;
	int64_t ns;

	return pd_judge_expect(plan, &ns, &err) < 0 ? PD_COST_MAX : ns;
}

/* The best that may be expected of it, its warm-ups being chosen or as they are; or -1. */
static int64_t fill(struct pd_contest *contest, struct pd_plan *plan, bool choose,
		    struct pd_warmup_room *room)
{
	if (choose && plan->schedule == PD_SCHEDULE_1F1B)
		return pd_warmup_choose(plan, room, &contest->work);
	return pd_warmup_fit(plan, room) ? expect(plan) : -1;
}

/* What is expected of the last of the entries that refine.c will change, as far as is known. */
static int64_t worst_changed_ns(const struct pd_contest *contest)
{
	int64_t best[PD_CONTEST_CHANGED];
	int count = 0;

	for (size_t i = 0; i < contest->count; i++) {
		int64_t ns = contest->entries[i].expected_ns;
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

/* A plan that is expected to take longer can neither win nor lead to one that does; 0: any may. */
static int64_t limit_ns(const struct pd_contest *contest)
{
	int64_t ns = contest->changed_ns > 0 ? contest->changed_ns : worst_changed_ns(contest);

	return contest->most_ns > 0 && ns < PD_NEVER ? pd_max64(contest->most_ns, ns) : 0;
}

/* Where memory is tight a plan whose stages recompute may have more in flight. */
static int64_t enter_again(struct pd_contest *contest, struct pd_plan *plan, bool choose,
			   int64_t ns)
{
	struct pd_warmup_room room = { .limit_bytes = contest->task->limit_bytes,
				       .recompute = true, .most_ns = limit_ns(contest) };
	struct pd_plan *again = pd_candidate_copy(plan);
	int64_t again_ns = fill(contest, again, choose, &room);

	if (again_ns < 0 || !pd_recompute_any(again) || (ns >= 0 && again_ns >= ns)) {
		pd_candidate_drop(again);
		return ns;
	}
	pd_contest_add(contest, again, again_ns);
	return again_ns;
}

/* At one place; takes the plan. */
static int64_t enter_at(struct pd_contest *contest, struct pd_plan *plan, bool choose)
{
	const struct pd_task *task = contest->task;
	struct pd_warmup_room room = { .limit_bytes = task->limit_bytes,
				       .most_ns = limit_ns(contest) };
	int64_t ns, best;

	contest->work += plan->stage_count * 64;
	pd_predict_stages(plan);
	best = ns = fill(contest, plan, choose, &room);
	if (room.tight && pd_recompute_free(task->request))
		best = enter_again(contest, plan, choose, ns);
	if (ns < 0)
		pd_candidate_drop(plan);
	else
		pd_contest_add(contest, plan, ns);
	return best < 0 ? PD_NEVER : best;
}

int64_t pd_contest_enter(struct pd_contest *contest, struct pd_layout *layout)
{
	struct pd_plan *plan;
	int64_t best = PD_NEVER;
	bool choose;

	if (!layout)
		return PD_NEVER;
	plan = pd_candidate_plan(contest->task, layout, &contest->why);
	choose = !layout->warmups;
	if (!plan) {
		contest->refused = true;
		pd_layout_free(layout);
		return PD_NEVER;
	}
	/* where all links are alike places differ in nothing but the order of what is equal */
	if (layout->ranks && (contest->few || plan->topology.levels > 1))
		best = enter_at(contest, pd_candidate_copy(plan), choose);
	for (int n = 0; n < PD_PLACES && !(layout->ranks && contest->work > FEW_WORK); n++)
		if (pd_place_differs(plan, n) && pd_place(plan, n)) {
			int64_t ns = enter_at(contest, pd_candidate_copy(plan), choose);

			best = ns < best ? ns : best;
		}
	pd_candidate_drop(plan);
	pd_layout_free(layout);
	return best;
}

static int by_expectation(const void *a, const void *b)
{
	const struct pd_entry *x = a, *y = b;

	if (x->expected_ns != y->expected_ns)
		return x->expected_ns < y->expected_ns ? -1 : 1;
	return pd_candidate_compare(x->plan, y->plan);
}

void pd_contest_sort(struct pd_contest *contest)
{
	if (contest->count > 0)
		qsort(contest->entries, contest->count, sizeof(*contest->entries), by_expectation);
}

/* May x still beat y, whose time is known? */
static bool may_beat(const struct pd_entry *x, const struct pd_entry *y)
{
	if (x->expected_ns != y->time_ns)
		return x->expected_ns < y->time_ns;
	return pd_candidate_compare(x->plan, y->plan) < 0;
}

static bool beats(const struct pd_entry *x, const struct pd_entry *y)
{
	if (x->time_ns != y->time_ns)
		return x->time_ns < y->time_ns;
	return pd_candidate_compare(x->plan, y->plan) < 0;
}

/* What makes a replay superfluous; where all plans are looked at none is. */
static int64_t rival_ns(const struct pd_contest *contest, int64_t best)
{
	return contest->few || best < 0 ? PD_NEVER : contest->entries[best].time_ns;
}

#define DEEPER 2                /* than pd_warmup_most: the replay says whether that helps */

/* Warm-ups that are deeper by one on every stage but the last. */
static struct pd_plan *deeper(const struct pd_contest *contest, const struct pd_plan *plan)
{
	struct pd_warmup_room room = { .limit_bytes = contest->task->limit_bytes };
	struct pd_plan *next = pd_candidate_copy(plan);
	int more = contest->few ? 0 : DEEPER;
	bool same = true;

	for (int s = 0; s + 1 < next->stage_count; s++)
		next->stages[s].warmup += next->stages[s].warmup < pd_warmup_most(next, s) + more;
	if (pd_warmup_fit(next, &room))
		for (int s = 0; s < next->stage_count; s++)
			same &= next->stages[s].warmup <= plan->stages[s].warmup;
	if (!same)
		return next;
	pd_candidate_drop(next);
	return NULL;
}

/* Can none win?  Where plans are few, all that are as good are compared. */
static bool is_proven(const struct pd_contest *contest, const struct pd_entry *entry)
{
	return !contest->few && pd_judge_work(entry->plan) <= PD_JUDGE_WORK &&
	       pd_task_proves(contest->task, entry->time_ns, entry->plan->rank_count);
}

/* Replays an entry, if it was not; how it compares with the best so far is in *best. */
static int judge(struct pd_contest *contest, size_t at, int64_t *most_work, int64_t *best,
		 struct pd_error *err)
{
	struct pd_entry *entry = &contest->entries[at];

	if (entry->time_ns != PD_NEVER)
		return 0;
	*most_work -= pd_judge_work(entry->plan);
	if (pd_judge_period(entry->plan, rival_ns(contest, *best), &entry->time_ns, err) < 0)
		return -1;
	if (*best < 0 || beats(entry, &contest->entries[*best])) {
		*best = (int64_t)at;
		contest->proven = is_proven(contest, entry);
	}
	return 0;
}

/*
 * Where links are crowded, more minibatches in flight help more than the bound knows.  The entry
 * that has those of another and so many more on every stage but the last, or as many more as there
 * may be.
 */
static size_t enter_deeper(struct pd_contest *contest, size_t from, int by)
{
	struct pd_plan *plan = pd_candidate_copy(contest->entries[from].plan), *next;
	int depth = contest->entries[from].depth;
	size_t at;

	for (; by > 0 && plan->schedule == PD_SCHEDULE_1F1B && plan->stage_count > 1 &&
	       (next = deeper(contest, plan)); by--) {
		pd_candidate_drop(plan);
		plan = next;
		depth++;
	}
	at = find(contest, plan);
	if (at < contest->count) {
		pd_candidate_drop(plan);
		return at;
	}
	pd_contest_add(contest, plan, expect(plan));
	contest->entries[at].depth = depth;
	return at;
}

/* Deeper ones than an entry, as long as each is faster by a part in PD_WARMUP_WORTH: they cost
 * memory.  In *least_ns the time of the fastest of them, if that is less. */
static int deepen(struct pd_contest *contest, size_t at, int64_t *most_work, int64_t *best,
		  int64_t *least_ns, struct pd_error *err)
{
	while (contest->entries[at].time_ns > contest->entries[at].expected_ns &&
	       *most_work > 0 && !contest->proven) {
		int64_t before_ns = contest->entries[at].time_ns;
		size_t next = enter_deeper(contest, at, 1);

		if (contest->entries[next].depth != contest->entries[at].depth + 1)
			break;
		if (judge(contest, next, most_work, best, err) < 0)
			return -1;
		at = next;
		*least_ns = pd_min64(*least_ns, contest->entries[at].time_ns);
		if (contest->entries[at].time_ns > before_ns - before_ns / PD_WARMUP_WORTH)
			break;
	}
	return 0;
}

/*
 * An entry, and deeper ones.  After a few, one that is as deep as the best so far, and slower than
 * it by more than any was that then turned out to be faster more or less deep, is not looked at
 * so: others can be instead.
 */
static int judge_entry(struct pd_contest *contest, size_t i, int64_t *most_work, int64_t *best,
		       struct pd_error *err)
{
	bool first = *best < 0;
	int64_t first_ns, least_ns;
	size_t at = i;

	if (!first && !contest->few) {
		int64_t best_ns = contest->entries[*best].time_ns;

		at = enter_deeper(contest, i, contest->entries[*best].depth);
		if (judge(contest, at, most_work, best, err) < 0)
			return -1;
		if (contest->tried >= TRIED && (double)contest->entries[at].time_ns >
					       (double)best_ns * (contest->gain + NEAR))
			return 0;
	}
	if (judge(contest, i, most_work, best, err) < 0)
		return -1;
	if (contest->all)
		return 0;
	first_ns = contest->entries[at].time_ns;
	least_ns = contest->entries[i].time_ns;
	if (deepen(contest, i, most_work, best, &least_ns, err) < 0)
		return -1;
	contest->tried++;
	if (!first && (double)first_ns > contest->gain * (double)least_ns)
		contest->gain = (double)first_ns / (double)least_ns;
	return 0;
}

int pd_contest_scout(struct pd_contest *contest, struct pd_error *err)
{
	int64_t best = -1, work = PD_JUDGE_WORK;

	if (contest->few || contest->count == 0)
		return 0;
	pd_contest_sort(contest);
	if (pd_judge_work(contest->entries[0].plan) > PD_JUDGE_WORK)
		return 0;
	if (judge_entry(contest, 0, &work, &best, err) < 0)
		return -1;
	contest->most_ns = contest->entries[best].time_ns;
	return 0;
}

int64_t pd_contest_judge(struct pd_contest *contest, int64_t most_work, struct pd_error *err)
{
	int64_t best = -1;
	size_t count = contest->count;

	pd_contest_sort(contest);
	for (size_t i = 0; i < count; i++)
		if (contest->entries[i].time_ns != PD_NEVER &&
		    (best < 0 || beats(&contest->entries[i], &contest->entries[best])))
			best = (int64_t)i;
	for (size_t i = 0; i < count && !contest->proven; i++) {
		if (contest->entries[i].time_ns != PD_NEVER)
			continue;
		/* one stage takes about what is expected, others may take far longer */
		if (best >= 0 && most_work <= 0 && contest->entries[i].plan->stage_count > 1)
			continue;
		if (best >= 0 && !may_beat(&contest->entries[i], &contest->entries[best]))
			continue;
		if (judge_entry(contest, i, &most_work, &best, err) < 0)
			return -1;
	}
	return best;
}
