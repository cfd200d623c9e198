/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small changes to good plans: a cut moves, a replica goes from one stage to another, comes or
 * goes, all that are idle come, two stages become one, one becomes two.  Of each plan the best
 * change is taken until none is expected to help.  Where no one change of a plan helps, two or three
 * at random may, and, in a network with branches, a stage that ends at another state.
 *
 * Last, replays judge what estimates have led to: changes of the best plans of each number of stages, and one
 * warm-up more or fewer of each stage of the winner.
 */
#include "planner/search/contest.h"

#include "base/mem.h"
#include "base/rng.h"
#include "planner/search/plan_shape.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WORSE 10                /* part by which a plan worth trying may be slower */
#define FAR 2                   /* plans that are slower by a larger part of their time than one in this are
				   not changed */
#define SHUFFLED 32             /* plans with random changes that are tried of one plan */
#define CLOSE 10                /* plans that are slower by a larger part than one in this are not changed
				   at random */
#define MOVED_STATES 2          /* layers that a stage may have more or fewer at another state */
#define MOVED 8                 /* units that move at once, at most */
#define WANDERED 64             /* times that a winner is changed at random, and goes on from there */
#define KICKS 64                /* times that stages of least memory are changed at random */
#define DRAWS 8                 /* changes that are drawn until one is possible */
/* Steps (base/effort.h) of a stage, of a layer and of a rank of a plan whose memory is worked out. */
#define STAGE_STEPS 650
#define LAYER_STEPS 50
#define RANK_STEPS 15

/* What a climb wants less of. */
enum aim {
	EXPECTED,               /* ns of the period, by the estimate */
	REPLAYED,               /* the same, by a replay */
	BYTES,                  /* of memory */
};

/* A climb to better plans: the current one, its best change so far, the one being tried. */
struct climb {
	struct pd_contest *contest;
	int64_t most_work, most_replayed;       /* of the contest */
	const struct pd_costs *costs;   /* those of the profile of `at` */
	struct pd_costs own;            /* the same, if they are not the task's */
	int places;                     /* devices or, with chunks, stages on all of them */
	bool straight;
	enum aim aim;
	struct pd_plan_shape at, best, trial;
	int64_t best_ns;                /* or bytes */
	double slower;                  /* of changes of the current plan, as in pd_contest_limits */
	int64_t most_ns;                /* the winner's time: as fast ones are entered, even if they are no better */
	/* Where replays judge: */
	size_t winner;                  /* the best entry of the contest */
	struct pd_error *err;
	bool failed;
	/* Where less memory is better: */
	bool fits;                      /* `found` does */
	struct pd_plan_shape found;             /* of those that were tried, the one with the least bytes on its fullest rank */
	int64_t fullest_bytes;
};

/* Tells whether its computation alone takes much longer than the current plan. */
static bool too_slow(const struct climb *climb, const struct pd_plan_shape *shape)
{
	int64_t limit = climb->best_ns + climb->best_ns / WORSE;

	for (int s = 0, l = 0; s < shape->count; s++) {
		int64_t sum = 0;

		for (; l < shape->ends[s]; l++)
			sum += pd_passes_ns(shape->profile, l);
		if (sum / shape->replicas[s] > limit)
			return true;
	}
	return false;
}

static bool valid(const struct climb *climb, const struct pd_plan_shape *shape)
{
	int devices = 0, before = 0, chunks = climb->contest->task->request->chunks;

	if (chunks && shape->count % chunks != 0)
		return false;
	for (int s = 0; s < shape->count; s++) {
		if (shape->ends[s] <= before || shape->replicas[s] < 1 ||
		    (climb->straight && shape->replicas[s] > 1) || (chunks && shape->replicas[s] != shape->replicas[0]))
			return false;
		before = shape->ends[s];
		devices += shape->replicas[s];
	}
	return before == climb->costs->profile->layer_count && devices <= climb->places;
}

/*
 * Returns the bytes of the fullest ranks with the least warm-ups, and with recomputation if that is free;
 * PD_NEVER if the schedule refuses the partition.  The eighth power makes fewer of several full ranks less.
 */
static int64_t bytes_of(struct climb *climb, const struct pd_plan_shape *shape)
{
	const struct pd_task *task = climb->contest->task;
	struct pd_partition *partition = pd_plan_shape_partition(shape, task);
	struct pd_plan *plan = pd_candidate_least(task, partition, &climb->contest->why);
	double most, sum = 0;

	pd_partition_free(partition);

	if (!plan)
		return PD_NEVER;
	climb->contest->work += 16 * plan->stage_count + plan->rank_count / 4;
	pd_effort_spend(task->request->effort, STAGE_STEPS * plan->stage_count + RANK_STEPS * plan->rank_count +
			LAYER_STEPS * plan->profile->layer_count);
	if (pd_candidate_fullest(plan, NULL) < climb->fullest_bytes) {
		climb->fullest_bytes = pd_candidate_fullest(plan, NULL);
		pd_plan_shape_copy(&climb->found, shape);
		climb->fits = pd_candidate_keeps(plan, task->limit_bytes);
	}
	most = (double)pd_max(pd_candidate_fullest(plan, NULL), 1);
	for (int s = 0; s < plan->stage_count; s++)
		sum += pow((double)plan->stages[s].memory_bytes / most, 8);
	pd_candidate_drop(plan);
	return (int64_t)fmin(most * pow(sum, 1.0 / 8), (double)PD_COST_MAX);
}

/* Replays what may win of the entries with a shape; returns the least of their times, and sets its entry. */
static int64_t time_of(struct climb *climb, const struct pd_plan_shape *shape, size_t *entry_p)
{
	struct pd_contest *contest = climb->contest;
	int64_t least_ns = PD_NEVER;

	for (size_t i = 0; i < contest->count && !climb->failed; i++)
		if (pd_plan_shape_is_of(shape, contest->entries[i].plan)) {
			pd_contest_likely(contest, i, climb->slower);
			climb->failed = pd_contest_try(contest, i, climb->slower, &climb->winner, climb->err) < 0;
			if (contest->entries[i].time_ns < least_ns) {
				least_ns = contest->entries[i].time_ns;
				*entry_p = i;
			}
		}
	return least_ns;
}

/* Returns what the climb wants less of, for a shape. */
static int64_t value_of(struct climb *climb, const struct pd_plan_shape *shape)
{
	int64_t changed_ns = climb->best_ns + (climb->aim == REPLAYED ? climb->best_ns / WORSE : 0);
	struct pd_contest_limits limits = { climb->slower, pd_max(climb->most_ns, changed_ns) };
	int64_t expected_ns;
	size_t entry;

	if (climb->aim == BYTES)
		return bytes_of(climb, shape);
	expected_ns = pd_contest_enter(climb->contest, pd_plan_shape_partition(shape, climb->contest->task), &limits);
	return climb->aim == EXPECTED ? expected_ns : time_of(climb, shape, &entry);
}

static bool goes_on(const struct climb *climb)
{
	const struct pd_contest *contest = climb->contest;

	return !climb->fits && !climb->failed && contest->work < climb->most_work &&
	       contest->replayed < climb->most_replayed && !pd_effort_spent(contest->task->request->effort);
}

/* Tries `trial`, and resets it to the current plan. */
static void consider(struct climb *climb)
{
	int64_t value;

	climb->contest->work += climb->trial.count;
	if (valid(climb, &climb->trial) && goes_on(climb) &&
	    (climb->aim == BYTES || !too_slow(climb, &climb->trial))) {
		value = value_of(climb, &climb->trial);
		if (value < climb->best_ns) {
			climb->best_ns = value;
			pd_plan_shape_copy(&climb->best, &climb->trial);
		}
	}
	pd_plan_shape_copy(&climb->trial, &climb->at);
}

/* Returns where the unit `by` units further begins; 0, where no stage ends, if there is none. */
static int moved(const struct climb *climb, int layer, int by)
{
	int u = pd_costs_unit(climb->costs, layer) + by;

	return u < 0 || u > climb->costs->unit_count ? 0 : climb->costs->first[u];
}

static int idle_devices(const struct climb *climb, const struct pd_plan_shape *shape)
{
	int idle = climb->places;

	for (int s = 0; s < shape->count; s++)
		idle -= shape->replicas[s];
	return idle;
}

/* Returns the unit with which a stage begins. */
static int first_unit(const struct climb *climb, const struct pd_plan_shape *shape, int s)
{
	return s > 0 ? pd_costs_unit(climb->costs, shape->ends[s - 1]) : 0;
}

static void change_stage(struct climb *climb, int s)
{
	struct pd_plan_shape *trial = &climb->trial;
	int stages = climb->at.count, idle = idle_devices(climb, trial);
	int replicas = trial->replicas[s];

	for (int by = 1; by <= MOVED && s + 1 < stages; by *= 2)
		for (int sign = -1; sign <= 1; sign += 2) {
			trial->ends[s] = moved(climb, trial->ends[s], sign * by);
			consider(climb);
		}
	for (int t = 0; t < stages && replicas > 1; t++) {
		if (s == t)
			continue;
		pd_plan_shape_move_replica(trial, s, t);
		consider(climb);
	}
	trial->replicas[s]++;
	consider(climb);
	trial->replicas[s]--;
	consider(climb);
	if (idle > 1) {
		/*
		 * One more replica may have to share a link with others, where all of them fill a
		 * component.
		 */
		trial->replicas[s] += idle;
		consider(climb);
	}
	if (s + 1 < stages) {
		pd_plan_shape_join(trial, s, 0, climb->straight);
		consider(climb);
	}
	if (replicas > 1 || climb->straight || idle > 0) {
		int all = replicas > 1 ? replicas : 2;

		pd_plan_shape_split(trial, s, climb->costs->first[(first_unit(climb, trial, s) +
								   first_unit(climb, trial, s + 1)) / 2],
				    climb->straight ? 1 : (all + 1) / 2, climb->straight ? 1 : all / 2);
		consider(climb);
	}
}

/* Returns a random number below n. */
static int draw(struct pd_contest *contest, int n)
{
	return (int)(pd_random(0, 0, 0, contest->drawn++).v[0] % (uint32_t)n);
}

/* Makes a change of any kind, which may be impossible, to a trial. */
static void change_at_random(struct climb *climb)
{
	struct pd_contest *contest = climb->contest;
	struct pd_plan_shape *trial = &climb->trial;
	int s = draw(contest, trial->count), idle = idle_devices(climb, trial), replicas, begin, units;
	bool last = s + 1 == trial->count;

	switch (draw(contest, 5)) {
	case 0:
	case 1:
		if (!last)
			trial->ends[s] = moved(climb, trial->ends[s], draw(contest, 4) - 2);
		break;
	case 2:
		pd_plan_shape_move_replica(trial, s, draw(contest, trial->count));
		break;
	case 3:
		if (!last)
			pd_plan_shape_join(trial, s, draw(contest, 2), climb->straight);
		else if (idle > 0)
			trial->replicas[s] += 1 + draw(contest, idle);
		break;
	default:
		begin = first_unit(climb, trial, s);
		units = first_unit(climb, trial, s + 1) - begin;
		replicas = trial->replicas[s] + (idle > 0 ? draw(contest, idle + 1) : 0);
		if (units > 1 && replicas > 1) {
			int left = 1 + draw(contest, replicas - 1);

			pd_plan_shape_split(trial, s, climb->costs->first[begin + 1 + draw(contest, units - 1)],
					    climb->straight ? 1 : left, climb->straight ? 1 : replicas - left);
		}
	}
}

/* Goes to a shape; the possible cuts depend on the order of its layers. */
static void go_to(struct climb *climb, const struct pd_plan_shape *shape)
{
	const struct pd_task *task = climb->contest->task;

	if (shape != &climb->at)
		pd_plan_shape_copy(&climb->at, shape);
	if (climb->costs && climb->costs->profile == climb->at.profile)
		return;
	if (climb->costs == &climb->own)
		pd_costs_release(&climb->own);
	climb->costs = &task->costs;
	if (climb->at.profile == task->profile)
		return;
	pd_costs_init(&climb->own, climb->at.profile, task->costs.copies);
	climb->own.effort = task->costs.effort;
	climb->costs = &climb->own;
}

/* Tries every change of the current plan. */
static void change_once(struct climb *climb)
{
	pd_plan_shape_copy(&climb->trial, &climb->at);
	for (int s = 0; s < climb->at.count && goes_on(climb); s++)
		change_stage(climb, s);
}

/* Moves units from one stage to another; the stages between keep as many. */
static void transfer(const struct climb *climb, struct pd_plan_shape *shape, int from, int to, int units)
{
	for (int s = pd_min(from, to); s < pd_max(from, to); s++)
		shape->ends[s] = moved(climb, shape->ends[s], from < to ? -units : units);
}

/* Tries what a stage can give to each other. */
static void give_away(struct climb *climb, int s, int most_units)
{
	for (int to = 0; to < climb->at.count; to++)
		for (int units = 1; units <= most_units; units *= 2) {
			transfer(climb, &climb->trial, s, to, units);
			consider(climb);
		}
}

/* Tries what stages on the fullest ranks of the current plan can give, or any stages. */
static void give_all(struct climb *climb)
{
	const struct pd_task *task = climb->contest->task;
	struct pd_partition *partition = pd_plan_shape_partition(&climb->at, task);
	struct pd_plan *plan = pd_candidate_least(task, partition, &climb->contest->why);

	pd_partition_free(partition);
	if (!plan)
		return;
	for (int s = 0; s < climb->at.count && goes_on(climb); s++)
		if (climb->aim != BYTES || plan->stages[s].memory_bytes == pd_candidate_fullest(plan, NULL))
			give_away(climb, s, climb->aim == BYTES ? MOVED : 1);
	pd_candidate_drop(plan);
}

/* Takes the best change of the current plan, and of what comes of it, until none helps. */
static void climb_on(struct climb *climb)
{
	for (;;) {
		int64_t before = climb->best_ns;

		change_once(climb);
		if (climb->aim != EXPECTED && climb->best_ns == before)
			give_all(climb);
		if (climb->best_ns == before || !goes_on(climb))
			return;
		go_to(climb, &climb->best);
	}
}

static void climb_from(struct climb *climb, const struct pd_entry *entry)
{
	pd_plan_shape_of(&climb->at, entry->plan);
	go_to(climb, &climb->at);
	climb->best_ns = entry->expected.estimate_ns;
	climb_on(climb);
}

static void climb_init(struct climb *climb, struct pd_contest *contest, int64_t most_work)
{
	const struct pd_task *task = contest->task;

	*climb = (struct climb){ .contest = contest, .most_work = most_work, .most_replayed = INT64_MAX, .slower = 1,
				 .places = (int)pd_task_stages(task, task->topology->devices),
				 .straight = task->straight };
	pd_plan_shape_init(&climb->at, task->profile->layer_count);
	pd_plan_shape_init(&climb->best, task->profile->layer_count);
	pd_plan_shape_init(&climb->trial, task->profile->layer_count);
	pd_plan_shape_init(&climb->found, task->profile->layer_count);
	climb->fullest_bytes = INT64_MAX;
}

static void climb_release(struct climb *climb)
{
	if (climb->costs == &climb->own)
		pd_costs_release(&climb->own);
	pd_plan_shape_release(&climb->at);
	pd_plan_shape_release(&climb->best);
	pd_plan_shape_release(&climb->trial);
	pd_plan_shape_release(&climb->found);
}

void pd_contest_refine(struct pd_contest *contest, size_t winner, int64_t most_work)
{
	struct pd_entry first[PD_CONTEST_CHANGED];
	struct climb climb;
	int count = 0;

	climb_init(&climb, contest, most_work);
	climb.most_ns = contest->entries[winner].time_ns;
	pd_contest_sort(contest);
	for (size_t i = 0; i < contest->count && count < PD_CONTEST_CHANGED; i++)
		if (contest->entries[i].depth == 0)
			first[count++] = contest->entries[i];
	for (int i = 0; i < count; i++) {
		climb.most_work = contest->work + (most_work - contest->work) / (count - i);
		climb_from(&climb, &first[i]);
	}
	climb_release(&climb);
}

/* Climbs from a few random transfers of the current plan, to which it returns if that ends higher. */
static void kick(struct climb *climb)
{
	struct pd_contest *contest = climb->contest;
	int64_t before = climb->best_ns;
	struct pd_plan_shape home;

	pd_plan_shape_copy(&climb->trial, &climb->at);
	for (int n = 1 + draw(contest, 3); n > 0; n--)
		transfer(climb, &climb->trial, draw(contest, climb->at.count), draw(contest, climb->at.count),
			 1 + draw(contest, MOVED / 2));
	if (!valid(climb, &climb->trial))
		return;
	pd_plan_shape_init(&home, climb->at.count);
	pd_plan_shape_copy(&home, &climb->at);
	go_to(climb, &climb->trial);
	climb->best_ns = bytes_of(climb, &climb->at);
	climb_on(climb);
	if (climb->best_ns > before) {
		climb->best_ns = before;
		go_to(climb, &home);
	}
	pd_plan_shape_release(&home);
}

struct pd_partition *pd_contest_least(struct pd_contest *contest, struct pd_partition *from, int64_t most_work)
{
	struct pd_plan *plan = pd_candidate_plain(contest->task, from);
	struct pd_partition *least = NULL;
	struct climb climb;

	climb_init(&climb, contest, contest->work + most_work);
	climb.aim = BYTES;
	pd_plan_shape_of(&climb.at, plan);
	go_to(&climb, &climb.at);
	climb.best_ns = bytes_of(&climb, &climb.at);
	climb_on(&climb);
	for (int i = 0; i < KICKS && goes_on(&climb); i++)
		kick(&climb);
	if (climb.found.count > 0)
		least = pd_plan_shape_partition(&climb.found, contest->task);
	climb_release(&climb);
	pd_candidate_drop(plan);
	pd_partition_free(from);
	return least;
}

/* Tries one warm-up more or fewer of each stage of the current shape's fastest entry, as long as that helps. */
static void vary_warmups(struct climb *climb)
{
	struct pd_contest *contest = climb->contest;
	size_t from = contest->count, best;

	time_of(climb, &climb->at, &from);
	while (pd_schedule_has(contest->task->request->schedule, PD_FACT_LEADS) && from < contest->count &&
	       goes_on(climb)) {
		best = from;
		for (int s = 0; s < contest->entries[from].plan->stage_count; s++)
			for (enum pd_vary how = 0; how < PD_VARY_WAYS && goes_on(climb); how++) {
				size_t at = pd_contest_vary(contest, from, s, how, climb->slower);

				if (at == contest->count)
					continue;
				climb->failed = pd_contest_try(contest, at, climb->slower, &climb->winner, climb->err) < 0;
				if (contest->entries[at].time_ns < contest->entries[best].time_ns)
					best = at;
			}
		from = best == from ? contest->count : best;
	}
}

/* Lists the best entries of numbers of stages, at most `most`, that are not far slower than the winner. */
static int best_of_stages(const struct pd_contest *contest, size_t winner, size_t *list, int most)
{
	int count = 1;

	list[0] = winner;
	for (size_t i = 0; i < contest->count; i++) {
		const struct pd_entry *entry = &contest->entries[i];
		int64_t ns = pd_entry_ns(entry);
		int n = 0;

		if (ns - ns / WORSE > pd_entry_ns(&contest->entries[winner]))
			continue;
		while (n < count && contest->entries[list[n]].plan->stage_count != entry->plan->stage_count)
			n++;
		if (n == count && count < most)
			list[count++] = i;
		else if (n > 0 && n < count && ns < pd_entry_ns(&contest->entries[list[n]]))
			list[n] = i;
	}
	return count;
}

/* Climbs from a shape, as replays judge. */
static void climb_replayed(struct climb *climb, size_t from)
{
	struct pd_contest *contest = climb->contest;
	const struct pd_entry *entry = &contest->entries[from];

	pd_plan_shape_of(&climb->at, entry->plan);
	go_to(climb, &climb->at);
	climb->best_ns = pd_entry_ns(entry);
	climb->slower = (double)climb->best_ns / (double)pd_max(entry->expected.estimate_ns, 1);
	vary_warmups(climb);
	climb->best_ns = pd_min(climb->best_ns, time_of(climb, &climb->at, &from));
	climb_on(climb);
	vary_warmups(climb);
}

/* Makes a few random changes of a shape; returns false if they are impossible. */
static bool stray(struct climb *climb)
{
	struct pd_contest *contest = climb->contest;

	pd_plan_shape_copy(&climb->trial, &climb->at);
	for (int n = 2 + draw(contest, 2); n > 0; n--) {
		int from = draw(contest, climb->trial.count), to = draw(contest, climb->trial.count);

		if (draw(contest, 2) || contest->task->request->chunks)
			transfer(climb, &climb->trial, from, to, 1 + draw(contest, 2));
		else
			change_at_random(climb);
		if (!valid(climb, &climb->trial))
			return false;
	}
	return true;
}

/* Climbs by estimates from random changes of the winner, and replays where that leads. */
static void wander(struct climb *climb)
{
	struct pd_contest *contest = climb->contest;

	for (int i = 0; i < WANDERED && goes_on(climb); i++) {
		const struct pd_entry *winner = &contest->entries[climb->winner];

		pd_plan_shape_of(&climb->at, winner->plan);
		go_to(climb, &climb->at);
		climb->slower = (double)winner->time_ns / (double)pd_max(winner->expected.estimate_ns, 1);
		if (!stray(climb))
			continue;
		go_to(climb, &climb->trial);
		climb->aim = EXPECTED;
		climb->best_ns = winner->time_ns + winner->time_ns / WORSE;
		climb->best_ns = pd_min(climb->best_ns, value_of(climb, &climb->at));
		climb_on(climb);
		climb->aim = REPLAYED;
		vary_warmups(climb);
	}
}

/* Replays entries that were not, in the order of their likely times, as long as these are below the winner's. */
static void try_likely(struct climb *climb)
{
	struct pd_contest *contest = climb->contest;
	int64_t before_ns = -1;

	while (goes_on(climb)) {
		size_t next = contest->count;

		for (size_t i = 0; i < contest->count; i++)
			if (contest->entries[i].time_ns == PD_NEVER && contest->entries[i].likely_ns > before_ns &&
			    (next == contest->count || contest->entries[i].likely_ns < contest->entries[next].likely_ns))
				next = i;
		if (next == contest->count || contest->entries[next].likely_ns >= contest->entries[climb->winner].time_ns)
			return;
		before_ns = contest->entries[next].likely_ns;
		climb->failed = pd_contest_try(contest, next, climb->slower, &climb->winner, climb->err) < 0;
	}
}

int64_t pd_contest_descend(struct pd_contest *contest, size_t winner, int64_t most_work, int64_t most_replayed,
			   struct pd_error *err)
{
	size_t list[PD_CONTEST_CHANGED], before;
	int count = best_of_stages(contest, winner, list, PD_CONTEST_CHANGED);
	struct climb climb;

	climb_init(&climb, contest, contest->work + most_work);
	climb.aim = REPLAYED;
	climb.winner = winner;
	climb.most_ns = contest->entries[winner].time_ns;
	climb.err = err;
	climb.most_replayed = contest->replayed + most_replayed / 4;
	try_likely(&climb);
	list[0] = climb.winner;
	for (int i = 0; i < count && !climb.failed; i++) {
		climb.most_replayed = contest->replayed + most_replayed / (4 * count);
		climb_replayed(&climb, list[i]);
	}
	climb.most_replayed = contest->replayed + most_replayed / 2;
	wander(&climb);
	do {
		before = climb.winner;
		climb_replayed(&climb, before);
	} while (climb.winner != before && goes_on(&climb));
	climb_release(&climb);
	return climb.failed ? -1 : (int64_t)climb.winner;
}

static bool was_changed(const struct pd_contest *contest, const struct pd_plan *plan)
{
	for (size_t i = 0; i < contest->count; i++)
		if (contest->entries[i].changed && pd_plan_shape_same(contest->entries[i].plan, plan))
			return true;
	return false;
}

/* Returns another state for the end of stage s, with about as many layers; -1: there is none. */
static int other_state(struct pd_contest *contest, const int *ends, int s)
{
	const struct pd_states *states = &contest->task->views->states;
	const int *layers = states->layer_count;
	int before = s > 0 ? ends[s - 1] : 0, after = ends[s + 1], found = -1, close = 0;

	for (int i = 0; i < states->count; i++)
		if (i != ends[s] && abs(layers[i] - layers[ends[s]]) <= MOVED_STATES &&
		    layers[i] > layers[before] && layers[i] < layers[after] &&
		    pd_states_within(states, before, i) && pd_states_within(states, i, after) &&
		    draw(contest, ++close) == 0)
			found = i;
	return found;
}

/* Ends a stage of a network with branches at another state, if all stages end at states that are held. */
static void change_state(struct climb *climb, int s)
{
	struct pd_views *views = climb->contest->task->views;
	struct pd_plan_shape *trial = &climb->trial;
	int *ends = pd_calloc((size_t)trial->count, sizeof(*ends)), *layers, *order, found = 0;

	for (int t = 0; t < trial->count && found >= 0; t++)
		found = ends[t] = pd_plan_shape_state(&views->states, trial->profile, trial->ends[t]);
	if (found >= 0)
		found = other_state(climb->contest, ends, s);
	if (found >= 0) {
		ends[s] = found;
		pd_states_layers(&views->states, ends, trial->count, &layers, &order);
		trial->profile = pd_views_get(views, order);
		trial->ends[s] = views->states.layer_count[found];
		free(layers);
		free(order);
	}
	free(ends);
}

/* Starts from an entry that was replayed: its estimate is as far off as those of what comes of it. */
static void start(struct climb *climb, struct pd_contest *contest, const struct pd_entry *from,
		  size_t winner, int64_t most_work)
{
	climb_init(climb, contest, most_work);
	pd_plan_shape_of(&climb->at, from->plan);
	go_to(climb, &climb->at);
	climb->best_ns = climb->most_ns = contest->entries[winner].time_ns;
	climb->slower = (double)from->time_ns / (double)pd_max(from->expected.estimate_ns, 1);
}

/* Tells whether x is to be changed before y, of those of equal time that with more devices to move. */
static bool goes_before(const struct pd_entry *x, const struct pd_entry *y)
{
	if (x->time_ns != y->time_ns)
		return x->time_ns < y->time_ns;
	return x->plan->rank_count > y->plan->rank_count;
}

int pd_contest_refine_next(struct pd_contest *contest, size_t winner, int64_t most_work)
{
	int64_t before = (int64_t)contest->count, from = -1;
	struct climb climb;

	for (int64_t i = 0; i < before; i++) {
		const struct pd_entry *entry = &contest->entries[i];

		if (entry->time_ns - entry->time_ns / FAR <= contest->entries[winner].time_ns &&
		    (from < 0 || goes_before(entry, &contest->entries[from])) &&
		    !was_changed(contest, entry->plan))
			from = i;
	}
	if (from < 0)
		return 0;
	contest->entries[from].changed = true;
	start(&climb, contest, &contest->entries[from], winner, most_work);
	change_once(&climb);
	climb_release(&climb);
	return (int)((int64_t)contest->count - before);
}

int pd_contest_shuffle(struct pd_contest *contest, size_t winner, int64_t most_work)
{
	int64_t before = (int64_t)contest->count, from = (int64_t)winner;
	bool branches = contest->task->views && contest->task->views->points.states;
	struct climb climb;
	int close = 0;

	for (int64_t i = 0; i < before; i++) {
		const struct pd_entry *entry = &contest->entries[i];

		if (entry->time_ns - entry->time_ns / CLOSE <= contest->entries[winner].time_ns &&
		    draw(contest, ++close) == 0)
			from = i;
	}
	start(&climb, contest, &contest->entries[from], winner, most_work);
	for (int i = 0; i < SHUFFLED; i++) {
		pd_plan_shape_copy(&climb.trial, &climb.at);
		for (int changes = 2 + draw(contest, 2), left = DRAWS; changes > 0 && left > 0; left--) {
			pd_plan_shape_copy(&climb.best, &climb.trial);  /* kept, in case the change is impossible */
			change_at_random(&climb);
			if (valid(&climb, &climb.trial))
				changes--;
			else
				pd_plan_shape_copy(&climb.trial, &climb.best);
		}
		if (branches && climb.trial.count > 1 && draw(contest, 2) == 0)
			change_state(&climb, draw(contest, climb.trial.count - 1));
		climb.best_ns = climb.most_ns;
		consider(&climb);
	}
	climb_release(&climb);
	return (int)((int64_t)contest->count - before);
}
