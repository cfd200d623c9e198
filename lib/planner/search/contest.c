/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans are entered by their estimates, and replayed in this order, those that can win by their bound.
 */
#include "planner/search/contest.h"

#include "base/mem.h"
#include "planner/bound/bound.h"
#include "planner/search/placement.h"
#include "planner/search/recompute.h"
#include "planner/search/warmup.h"
#include "predict/judge.h"
#include "predict/links.h"
#include "predict/predict.h"

#include <math.h>
#include <stdlib.h>

/* Steps (base/effort.h) of a plan's rank that is copied, priced and placed, and of a replayed operation. */
#define COPY_STEPS 30
#define REPLAY_STEPS 400
#define REPLAYED_OF_LARGE \
	100000 /* operations of a replay, where one after the other would take too long */
#define DOUBTFUL 8              /* replays of plans whose estimate is above the best time */
#define UNLIKELY \
	8 /* plans that are likely to be slower by a larger part of their time than one in \
	     this are not tried */
#define DEEPER 2                /* beyond pd_warmup_most; the replay shows whether that helps */
#define NEARLY 200              /* part by which no plan is faster, so that a search is not worth
				   while */
#define PROVEN 100000           /* part by which no plan is faster than the best, nor as fast with fewer
				   devices */

void pd_contest_init(struct pd_contest *contest, const struct pd_task *task)
{
	*contest = (struct pd_contest){ .task = task, .most_replayed = pd_task_is_large(task) &&
					pd_weights_have(task->request->weights, PD_WEIGHTS_DRAINS)
					? REPLAYED_OF_LARGE : PD_JUDGE_WORK };
	pd_map_init(&contest->map, task->topology, (int)task->topology->devices,
		    task->request->gradient_dtype == PD_F32 && !pd_topology_mixed(task->topology)
		    ? task->profile->in_step.sum_bytes_per_s : 0);
}

void pd_contest_release(struct pd_contest *contest)
{
	for (size_t i = 0; i < contest->count; i++)
		pd_candidate_drop(contest->entries[i].plan);
	free(contest->entries);
	pd_map_release(&contest->map);
	pd_bound_free(contest->bound);
	*contest = (struct pd_contest){ 0 };
}

/* Returns the number of the entry of the plan that has this hash, or the number of entries. */
static size_t find_entry(const struct pd_contest *contest, const struct pd_plan *plan, uint64_t hash)
{
	size_t i = 0;

	while (i < contest->count && (contest->entries[i].hash != hash ||
				      pd_candidate_compare(contest->entries[i].plan, plan) != 0))
		i++;
	return i;
}

void pd_contest_add(struct pd_contest *contest, struct pd_plan *plan, struct pd_expected expected, double slower)
{
	uint64_t hash = pd_candidate_hash(plan);

	if (find_entry(contest, plan, hash) < contest->count) {
		pd_candidate_drop(plan);
		return;
	}
	contest->entries = pd_grow(contest->entries, &contest->capacity, contest->count + 1,
				   sizeof(*contest->entries));
	contest->entries[contest->count++] = (struct pd_entry){
		.plan = plan, .hash = hash, .expected = expected, .time_ns = PD_NEVER, .likely_ns = PD_COST_MAX };
	pd_contest_likely(contest, contest->count - 1, slower);
}

void pd_contest_likely(struct pd_contest *contest, size_t at, double slower)
{
	struct pd_entry *entry = &contest->entries[at];
	double ns = (double)entry->expected.estimate_ns * slower;

	entry->likely_ns = (int64_t)fmin((double)entry->likely_ns, ns);
}

struct pd_expected pd_contest_expect(const struct pd_contest *contest, const struct pd_plan *plan, bool bound)
{
	struct pd_expected expected = { PD_COST_MAX, PD_COST_MAX, 0 };
	struct pd_error err;

	pd_judge_expect(plan, bound, &expected, &err);
	pd_effort_spend(contest->task->request->effort, expected.steps);
	return expected;
}

/*
 * Fills in the plan, and chooses its warm-ups or takes them as they are; false if it does not fit.
 */
static bool fill(struct pd_contest *contest, struct pd_plan *plan, bool choose,
		 struct pd_warmup_limits *limits, struct pd_expected *expected_p)
{
	struct pd_schedule *schedule = NULL;
	bool fits;

	if (choose && !limits->request->equal && pd_schedule_has(plan->schedule, PD_FACT_LEADS))
		return pd_warmup_choose(plan, limits, expected_p, &contest->work);
	fits = pd_warmup_schedule(plan, limits, &schedule);
	if (fits) {
		*expected_p = pd_flow_expect(schedule, false, pd_links_busiest_ns(plan, schedule->wiring));
		pd_effort_spend(contest->task->request->effort, expected_p->steps);
	}
	pd_schedule_free(schedule);
	return fits;
}

/*
 * Enters the plan at one placement; takes it.  Where memory is tight it enters it with recomputation,
 * too, since it may then have more in flight.
 */
static int64_t enter_at(struct pd_contest *contest, struct pd_plan *plan, bool choose,
			const struct pd_contest_limits *wanted)
{
	const struct pd_task *task = contest->task;
	struct pd_warmup_limits limits = { .request = task->request,
					   .limit_bytes = task->limit_bytes, .most_ns = wanted->most_ns,
					   .effort = task->request->effort };
	struct pd_expected expected, others;
	bool may_recompute = task->limit_bytes < INT64_MAX && pd_recompute_free(task->request), fits;
	struct pd_plan *again;
	int64_t best;

	pd_effort_spend(task->request->effort, COPY_STEPS * plan->rank_count);
	/* The schedule of an interleaved plan is made microbatch by microbatch. */
	contest->work += plan->stage_count * (task->request->chunks ? pd_max(64, plan->microbatches) : 64);
	pd_predict_times(plan);
	again = may_recompute ? pd_candidate_copy(plan) : NULL;         /* with warm-ups that may not fit otherwise */
	fits = fill(contest, plan, choose, &limits, &expected);
	best = fits ? expected.estimate_ns : PD_NEVER;
	if (again && limits.tight) {
		limits.recompute = true;
		if (fill(contest, again, choose, &limits, &others) && pd_recompute_count(again) > 0 &&
		    others.estimate_ns - others.estimate_ns / UNLIKELY < best) {
			best = pd_min(best, others.estimate_ns);
			pd_contest_add(contest, again, others, wanted->slower);
			again = NULL;
		}
	}
	pd_candidate_drop(again);
	if (fits)
		pd_contest_add(contest, plan, expected, wanted->slower);
	else
		pd_candidate_drop(plan);
	return best;
}

int64_t pd_contest_enter(struct pd_contest *contest, struct pd_partition *partition,
			 const struct pd_contest_limits *limits)
{
	struct pd_placements seen = { 0 };
	struct pd_plan *plan, *own;
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
	contest->planned = true;
	if (contest->task->request->equal && !pd_plan_has_equal_replicas(plan)) {
		pd_candidate_drop(plan);
		pd_partition_free(partition);
		return PD_NEVER;
	}
	own = pd_candidate_copy(plan);
	for (int n = 0; n < PD_PLACEMENTS; n++)
		if (pd_placement_set(plan, n) && pd_placements_add(&seen, plan))
			best = pd_min(best, enter_at(contest, pd_candidate_copy(plan), choose, limits));
	if (partition->ranks && pd_placements_add(&seen, own))
		best = pd_min(best, enter_at(contest, pd_candidate_copy(own), choose, limits));
	pd_placements_release(&seen);
	pd_candidate_drop(own);
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

void pd_contest_sort(struct pd_contest *contest)
{
	if (contest->count > 0)
		qsort(contest->entries, contest->count, sizeof(*contest->entries), by_expectation);
}

static int64_t bound_of(const struct pd_contest *contest, struct pd_entry *entry)
{
	if (entry->expected.bound_ns < 0)
		entry->expected.bound_ns = pd_contest_expect(contest, entry->plan, true).bound_ns;
	return entry->expected.bound_ns;
}

/* Tells whether x may still beat y, whose time is known. */
static bool may_beat(const struct pd_contest *contest, struct pd_entry *x, const struct pd_entry *y)
{
	if (x->expected.estimate_ns < y->time_ns)
		return true;            /* the bound is no higher */
	if (bound_of(contest, x) != y->time_ns)
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

/* Whose warm-ups are one more: of every stage but the last, of every stage, of the last. */
enum deeper { EARLIER, ALL, LAST };

/* Returns a copy of a plan with deeper warm-ups; NULL: they do not fit. */
static struct pd_plan *deepen(const struct pd_contest *contest, const struct pd_plan *plan, enum deeper whose)
{
	struct pd_warmup_limits limits = { .request = contest->task->request,
					   .limit_bytes = contest->task->limit_bytes };
	struct pd_plan *next = pd_candidate_copy(plan);
	int more = contest->few ? 0 : DEEPER;
	bool same = true;

	for (int s = 0; s + 1 < next->stage_count && whose != LAST; s++)
		next->stages[s].warmup += next->stages[s].warmup < pd_warmup_most(next, s) + more;
	if (whose != EARLIER)
		next->stages[next->stage_count - 1].warmup++;
	if (pd_warmup_fit(next, &limits))
		for (int s = 0; s < next->stage_count; s++)
			same &= next->stages[s].warmup <= plan->stages[s].warmup;
	if (!same)
		return next;
	pd_candidate_drop(next);
	return NULL;
}

int pd_contest_fewest(struct pd_contest *contest, int64_t period_ns)
{
	const struct pd_task *task = contest->task;

	if (!contest->bound)
		contest->bound = pd_bound_new(&task->costs, task->request);
	return pd_bound_devices(contest->bound, period_ns);
}

/* Tells whether no plan has this period. */
static bool is_impossible(struct pd_contest *contest, int64_t period_ns)
{
	int64_t bound_ns = contest->task->bound_ns;

	return period_ns < bound_ns || (period_ns <= bound_ns + bound_ns / PD_BOUND_ROUGH &&
					pd_contest_fewest(contest, period_ns) > contest->task->topology->devices);
}

/*
 * Tells whether no plan can be faster than this period by more than this part.  If there are few
 * plans, all equally good ones are compared.
 */
static bool is_proven(struct pd_contest *contest, const struct pd_plan *plan, int64_t time_ns,
		      int64_t part)
{
	return !contest->few && pd_judge_work(plan) <= contest->most_replayed &&
	       is_impossible(contest, time_ns - pd_ceil_div(time_ns, part)) &&
	       pd_contest_fewest(contest, time_ns) >= plan->rank_count;
}

/* Replays an entry, if it was not; updates *best. */
static int judge(struct pd_contest *contest, size_t at, int64_t *most_work, int64_t *best,
		 struct pd_error *err)
{
	struct pd_entry *entry = &contest->entries[at];
	int64_t work = pd_judge_work(entry->plan), replayed = contest->replayed;

	if (entry->time_ns != PD_NEVER)
		return 0;
	*most_work -= work;
	entry->time_ns = entry->expected.estimate_ns;
	entry->plan->predicted.period_from = PD_PERIOD_ESTIMATE;
	if (work <= contest->most_replayed &&
	    pd_judge_rival(entry->plan, contest->most_replayed, rival_ns(contest, *best), &entry->time_ns,
			   &entry->plan->predicted.period_from, &contest->replayed, err) < 0)
		return -1;
	pd_effort_spend(contest->task->request->effort, REPLAY_STEPS * (contest->replayed - replayed));
	if (*best < 0 || beats(entry, &contest->entries[*best])) {
		*best = (int64_t)at;
		contest->nearly = is_proven(contest, entry->plan, entry->time_ns, NEARLY);
		contest->proven = contest->nearly &&
			is_proven(contest, entry->plan, entry->time_ns, PROVEN);
	}
	return 0;
}

/*
 * Enters a plan with more minibatches in flight.  If links are busy, this helps more than the bound knows.
 * Returns its entry, or the number of entries if there is no such plan.
 */
static size_t enter_deeper(struct pd_contest *contest, size_t from, enum deeper whose, double slower)
{
	const struct pd_plan *plan = contest->entries[from].plan;
	int depth = contest->entries[from].depth + 1, end = plan->stage_count - 1;
	struct pd_plan *next;
	size_t at;

	if (!pd_schedule_has(plan->schedule, PD_FACT_LEADS) || plan->stage_count == 1 ||
	    contest->task->request->equal ||
	    (whose != EARLIER && plan->stages[end].warmup >= pd_warmup_most_last(plan)) ||
	    !(next = deepen(contest, plan, whose)))
		return contest->count;
	at = find_entry(contest, next, pd_candidate_hash(next));
	if (at < contest->count) {
		pd_candidate_drop(next);
		return at;
	}
	pd_contest_add(contest, next, pd_contest_expect(contest, next, false), slower);
	contest->entries[at].depth = depth;
	return at;
}

/* Changes the warm-ups of a plan; returns false if it cannot. */
static bool vary(struct pd_plan *plan, int stage, enum pd_vary how)
{
	int from = how == PD_VARY_MORE_BEFORE ? 0 : stage;

	for (int s = stage; s >= 0; s--) {
		struct pd_stage *at = &plan->stages[s];
		int64_t lead = s + 1 < plan->stage_count ? (int64_t)at[1].warmup * at[1].replicas : 0;

		if (s >= from)
			at->warmup += how == PD_VARY_FEWER ? -1 : 1;
		if (at->warmup < 0 || at->warmup > pd_warmup_most(plan, s) + DEEPER)
			return false;
		at->warmup = (int)pd_max(at->warmup, how == PD_VARY_FEWER ? 0 : pd_ceil_div(lead, at->replicas));
	}
	return true;
}

size_t pd_contest_vary(struct pd_contest *contest, size_t from, int stage, enum pd_vary how, double slower)
{
	const struct pd_task *task = contest->task;
	struct pd_warmup_limits limits = { .request = task->request,
					   .limit_bytes = task->limit_bytes };
	struct pd_plan *plan = pd_candidate_copy(contest->entries[from].plan);
	size_t at = contest->count;

	limits.recompute = pd_recompute_free(task->request);
	for (int s = 0; s < plan->stage_count && limits.recompute; s++)
		plan->stages[s].recompute = false;
	if (!task->request->equal && vary(plan, stage, how) && pd_warmup_fit(plan, &limits)) {
		at = find_entry(contest, plan, pd_candidate_hash(plan));
		if (at == contest->count) {
			pd_contest_add(contest, plan, pd_contest_expect(contest, plan, false), slower);
			return at;
		}
	}
	pd_candidate_drop(plan);
	return at;
}

/* Tells whether deeper variants of an entry may win. */
static bool may_deepen(const struct pd_contest *contest, size_t at, int64_t most_work)
{
	struct pd_entry *entry = &contest->entries[at];

	return most_work > 0 && !contest->nearly && !contest->all &&
	       !pd_effort_spent(contest->task->request->effort) && entry->time_ns > bound_of(contest, entry);
}

/*
 * Replays deeper variants of an entry: until one is as deep as the best entry, and on while each is faster by
 * one part in PD_WARMUP_WORTH, since they cost memory.
 */
static int judge_deeper(struct pd_contest *contest, size_t at, enum deeper whose, double slower,
			int64_t *most_work, int64_t *best, struct pd_error *err)
{
	int64_t before_ns = PD_NEVER;

	while ((contest->entries[at].time_ns <= before_ns - before_ns / PD_WARMUP_WORTH ||
		contest->entries[at].depth < contest->entries[*best].depth) &&
	       may_deepen(contest, at, *most_work)) {
		before_ns = contest->entries[at].time_ns;
		at = enter_deeper(contest, at, whose, slower);
		if (at == contest->count || !may_beat(contest, &contest->entries[at], &contest->entries[*best]))
			break;
		if (judge(contest, at, most_work, best, err) < 0)
			return -1;
	}
	return 0;
}

/* Replays an entry, and deeper variants of it. */
static int judge_entry(struct pd_contest *contest, size_t at, double slower, int64_t *most_work,
		       int64_t *best, struct pd_error *err)
{
	if (judge(contest, at, most_work, best, err) < 0)
		return -1;
	for (enum deeper whose = EARLIER; whose <= LAST; whose++)
		if (judge_deeper(contest, at, whose, slower, most_work, best, err) < 0)
			return -1;
	return 0;
}

int pd_contest_try(struct pd_contest *contest, size_t at, double slower, size_t *winner_p, struct pd_error *err)
{
	struct pd_entry *entry = &contest->entries[at];
	int64_t best = (int64_t)*winner_p, work = PD_JUDGE_WORK;

	if (entry->time_ns != PD_NEVER || !may_beat(contest, entry, &contest->entries[best]) ||
	    entry->likely_ns - entry->likely_ns / UNLIKELY > contest->entries[best].time_ns)
		return 0;
	if (judge_entry(contest, at, slower, &work, &best, err) < 0)
		return -1;
	*winner_p = (size_t)best;
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

int64_t pd_contest_best_ns(const struct pd_contest *contest)
{
	int64_t best = best_of(contest);

	return best < 0 ? 0 : contest->entries[best].time_ns;
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
		struct pd_entry *entry = &contest->entries[i];

		if (entry->time_ns != PD_NEVER)
			continue;
		if (best >= 0 && !may_beat(contest, entry, &contest->entries[best]))
			break;
		if (judge_entry(contest, i, 1, &work, &best, err) < 0)
			return -1;
		left--;
	}
	return 0;
}

static bool is_doubtful(const struct pd_contest *contest, const struct pd_entry *entry, int64_t best)
{
	return best >= 0 && entry->likely_ns > contest->entries[best].time_ns;
}

/* Tells whether the entry needs a replay. */
static bool is_open(const struct pd_contest *contest, struct pd_entry *entry, int64_t best,
		    int64_t most_work)
{
	if (entry->passed || entry->time_ns != PD_NEVER)
		return false;
	if (best < 0)
		return true;
	if (pd_effort_spent(contest->task->request->effort))
		return false;
	if (contest->nearly &&
	    entry->plan->stage_count >= contest->entries[best].plan->stage_count)
		return false;
	/* One stage takes about as long as expected, others may take far longer. */
	if (most_work <= 0 && entry->plan->stage_count > 1)
		return false;
	return may_beat(contest, entry, &contest->entries[best]);
}

/*
 * Returns the next of the first `count` entries, which are sorted by estimate; -1: none.  Of those
 * whose estimate is above the best time only some are replayed, unless all plans may be tried.
 */
static int64_t next_of(const struct pd_contest *contest, size_t count, int64_t best,
		       int64_t most_work, int doubtful)
{
	for (size_t i = 0; i < count; i++) {
		struct pd_entry *entry = &contest->entries[i];

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
		if (judge_entry(contest, (size_t)next, 1, &most_work, &best, err) < 0)
			return -1;
	}
	return best;
}
