/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which entries of a contest are replayed, and in which order: by estimate, those that can win by
 * their bound.
 */
#include "planner/search/contest.h"

#include "base/mem.h"
#include "planner/search/judge.h"
#include "planner/search/warmup.h"

#define NEAR 0.03               /* how much slower than the best a plan may be, at least */
#define TRIED 10                /* after so many tries, a plan that is not near the best is not
				   deepened */
#define DOUBTFUL 8              /* replays of plans whose estimate is above the best time */
#define NEARLY 200              /* part by which no plan is faster, so that a search is not worth
				   while */

#define PROVEN 100000           /* part by which no plan is faster than the best, nor as fast with fewer
				   devices */

/* Tells whether x may still beat y, whose time is known. */
static bool may_beat(const struct pd_entry *x, const struct pd_entry *y)
{
	if (x->expected.bound_ns != y->time_ns)
		return x->expected.bound_ns < y->time_ns;
	return pd_candidate_compare(x->plan, y->plan) < 0;
}

static bool beats(const struct pd_entry *x, const struct pd_entry *y)
{
	if (x->time_ns != y->time_ns)
		return x->time_ns < y->time_ns;
	return pd_candidate_compare(x->plan, y->plan) < 0;
}

/* Returns the time above which a replay is stopped; if all plans are tried, none is. */
static int64_t rival_ns(const struct pd_contest *contest, int64_t best)
{
	return contest->few || best < 0 ? PD_NEVER : contest->entries[best].time_ns;
}

#define DEEPER 2                /* beyond pd_warmup_most; the replay shows whether that helps */

/* Makes warm-ups deeper by one on every stage but the last. */
static struct pd_plan *deeper(const struct pd_contest *contest, const struct pd_plan *plan)
{
	struct pd_warmup_limits limits = { .limit_bytes = contest->task->limit_bytes };
	struct pd_plan *next = pd_candidate_copy(plan);
	int more = contest->few ? 0 : DEEPER;
	bool same = true;

	for (int s = 0; s + 1 < next->stage_count; s++)
		next->stages[s].warmup += next->stages[s].warmup < pd_warmup_most(next, s) + more;
	if (pd_warmup_fit(next, &limits))
		for (int s = 0; s < next->stage_count; s++)
			same &= next->stages[s].warmup <= plan->stages[s].warmup;
	if (!same)
		return next;
	pd_candidate_drop(next);
	return NULL;
}

/*
 * Tells whether no plan can be faster than this period by more than this part.  If there are few
 * plans, all equally good ones are compared.
 */
static bool is_proven(const struct pd_contest *contest, const struct pd_plan *plan, int64_t time_ns,
		      int64_t part)
{
	const struct pd_task *task = contest->task;

	return !contest->few && pd_judge_work(plan) <= PD_JUDGE_WORK &&
	       pd_task_needs(task, time_ns) >= plan->rank_count &&
	       pd_task_needs(task, time_ns - pd_ceil_div(time_ns, part)) > task->topology->devices;
}

/* Replays an entry, if it was not; updates *best. */
static int judge(struct pd_contest *contest, size_t at, int64_t *most_work, int64_t *best,
		 struct pd_error *err)
{
	struct pd_entry *entry = &contest->entries[at];

	if (entry->time_ns != PD_NEVER)
		return 0;
	*most_work -= pd_judge_work(entry->plan);
	if (pd_judge_period(entry->plan, rival_ns(contest, *best), &entry->time_ns,
			    &entry->plan->predicted.period_from, err) < 0)
		return -1;
	if (*best < 0 || beats(entry, &contest->entries[*best])) {
		*best = (int64_t)at;
		contest->nearly = is_proven(contest, entry->plan, entry->time_ns, NEARLY);
		contest->proven = contest->nearly &&
			is_proven(contest, entry->plan, entry->time_ns, PROVEN);
	}
	return 0;
}

/*
 * Enters a plan with `by` more minibatches in flight on every stage but the last, or as many more
 * as are possible.  If links are busy, this helps more than the bound knows.  Returns the old entry
 * if that is less than `least` more.
 */
static size_t enter_deeper(struct pd_contest *contest, size_t from, int least, int by)
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
	at = depth < contest->entries[from].depth + least ? from : pd_contest_find(contest, plan);
	if (at < contest->count) {
		pd_candidate_drop(plan);
		return at;
	}
	pd_contest_add(contest, plan, pd_contest_expect(plan));
	contest->entries[at].depth = depth;
	return at;
}

/* An entry and its deeper variants. */
struct deeper {
	size_t at;                      /* the one that was replayed last */
	int64_t least_ns;               /* time of the fastest */
};

/* Replays a variant if it may win; returns whether it was replayed, or -1 for an error. */
static int judge_deeper(struct pd_contest *contest, struct deeper *deeper, size_t next,
			int64_t *most_work, int64_t *best, struct pd_error *err)
{
	if (!may_beat(&contest->entries[next], &contest->entries[*best]))
		return 0;
	if (judge(contest, next, most_work, best, err) < 0)
		return -1;
	deeper->at = next;
	deeper->least_ns = pd_min64(deeper->least_ns, contest->entries[next].time_ns);
	return 1;
}

/* Tells whether other warm-ups of an entry may be faster. */
static bool may_deepen(const struct pd_contest *contest, size_t at, int64_t most_work)
{
	const struct pd_entry *entry = &contest->entries[at];

	return entry->time_ns > entry->expected.bound_ns && most_work > 0 && !contest->nearly;
}

/*
 * Tries deeper variants of an entry while each is faster by one part in PD_WARMUP_WORTH, since they
 * cost memory.
 */
static int deepen(struct pd_contest *contest, struct deeper *deeper, int64_t *most_work,
		  int64_t *best, struct pd_error *err)
{
	while (may_deepen(contest, deeper->at, *most_work)) {
		const struct pd_entry *entry = &contest->entries[deeper->at];
		int64_t before_ns = entry->time_ns;
		int depth = entry->depth, status;
		size_t next = enter_deeper(contest, deeper->at, 1, 1);

		if (contest->entries[next].depth != depth + 1)
			break;
		status = judge_deeper(contest, deeper, next, most_work, best, err);
		if (status <= 0)
			return status;
		if (contest->entries[next].time_ns > before_ns - before_ns / PD_WARMUP_WORTH)
			break;
	}
	return 0;
}

/*
 * Replays an entry and its deeper variants.  After a few, it skips the variants of an entry as deep
 * as the best that is slower by more than variants have gained so far.
 */
static int judge_entry(struct pd_contest *contest, size_t i, int64_t *most_work, int64_t *best,
		       struct pd_error *err)
{
	bool first = *best < 0;
	struct deeper deeper = { .at = i };
	int64_t first_ns;
	size_t at = i;

	if (!first && !contest->few) {
		int64_t best_ns = contest->entries[*best].time_ns;

		at = enter_deeper(contest, i, 0, contest->entries[*best].depth);
		if (!may_beat(&contest->entries[at], &contest->entries[*best]))
			at = i;
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
	deeper.least_ns = contest->entries[i].time_ns;
	if (deepen(contest, &deeper, most_work, best, err) < 0)
		return -1;
	contest->tried += contest->entries[i].plan->stage_count > 1;
	if (!first && (double)first_ns > contest->gain * (double)deeper.least_ns)
		contest->gain = (double)first_ns / (double)deeper.least_ns;
	return 0;
}

/* Returns the best of those that were replayed, or -1. */
static int64_t best_of(const struct pd_contest *contest)
{
	int64_t best = -1;

	for (size_t i = 0; i < contest->count; i++)
		if (contest->entries[i].time_ns != PD_NEVER &&
		    (best < 0 || beats(&contest->entries[i], &contest->entries[best])))
			best = (int64_t)i;
	return best;
}

int pd_contest_look(struct pd_contest *contest, int most, struct pd_error *err)
{
	int64_t best, work = most * PD_JUDGE_WORK;
	size_t count = contest->count;
	int left = most;

	if (contest->few)
		return 0;
	pd_contest_sort(contest);
	best = best_of(contest);
	for (size_t i = 0; i < count && left > 0 && !contest->nearly; i++) {
		const struct pd_entry *entry = &contest->entries[i];

		if (entry->time_ns != PD_NEVER)
			continue;
		if (best >= 0 && !may_beat(entry, &contest->entries[best]))
			break;
		if (judge_entry(contest, i, &work, &best, err) < 0)
			return -1;
		contest->most_ns = contest->entries[best].time_ns;
		left--;
	}
	return 0;
}

static bool is_doubtful(const struct pd_contest *contest, const struct pd_entry *entry, int64_t best)
{
	return best >= 0 && entry->likely_ns > contest->entries[best].time_ns;
}

/* Tells whether the entry needs a replay. */
static bool is_open(const struct pd_contest *contest, const struct pd_entry *entry, int64_t best,
		    int64_t most_work)
{
	if (entry->passed || entry->time_ns != PD_NEVER)
		return false;
	if (best < 0)
		return true;
	if (contest->nearly &&
	    entry->plan->stage_count >= contest->entries[best].plan->stage_count)
		return false;
	/* One stage takes about as long as expected, others may take far longer. */
	if (most_work <= 0 && entry->plan->stage_count > 1)
		return false;
	return may_beat(entry, &contest->entries[best]);
}

/*
 * Returns the next of the first `count` entries, which are sorted by estimate; -1: none.  Of those
 * whose estimate is above the best time only some are replayed, unless all plans may be tried.
 */
static int64_t next_of(const struct pd_contest *contest, size_t count, int64_t best,
		       int64_t most_work, int doubtful)
{
	for (size_t i = 0; i < count; i++) {
		const struct pd_entry *entry = &contest->entries[i];

		if (is_open(contest, entry, best, most_work))
			return doubtful < DOUBTFUL || contest->few ||
			       !is_doubtful(contest, entry, best) ? (int64_t)i : -1;
	}
	return -1;
}

int64_t pd_contest_judge(struct pd_contest *contest, int64_t most_work, struct pd_error *err)
{
	size_t count = contest->count;
	int64_t best, next;
	int doubtful = 0;

	pd_contest_sort(contest);
	best = best_of(contest);
	for (size_t i = 0; i < count; i++)
		contest->entries[i].passed = false;
	while (!contest->proven &&
	       (next = next_of(contest, count, best, most_work, doubtful)) >= 0) {
		contest->entries[next].passed = true;
		doubtful += is_doubtful(contest, &contest->entries[next], best);
		if (judge_entry(contest, (size_t)next, &most_work, &best, err) < 0)
			return -1;
	}
	return best;
}
