/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search under the cost "simulated".
 *
 * Plans come from line.c, over the profile's order and over the states of the network: for the least time
 * it finds and for some above it, with which fewer devices, stages and minibatches in flight are needed;
 * without replicas; and, where memory has a limit, with one minibatch at a time.  Others are equal
 * pipelines and data parallelism.
 *
 * Each is entered at every place (placement.c) with warm-ups that are worth their memory (warmup.c), and
 * entries are replayed until none that is left can win (contest.c), or one is that no plan at all can
 * beat (bound.c).  The first ones that are found are replayed before others are looked for, and if one
 * is within half a percent of that bound none are.
 *
 * Then the best by their replays are changed a little (refine.c), the best by their estimates too, and
 * the best by their replays once more, for as long as is worth while (patience()).  Where plans are few
 * all of them are looked at then (exhaust.c).  A last descent has replays judge cuts and warm-ups
 * (pd_contest_descend()).  In the end devices that bring too little are left out (gain.h).
 */
#include "planner/search/simulated.h"

#include "base/mem.h"
#include "planner/search/contest.h"
#include "planner/search/gain.h"
#include "planner/search/line.h"
#include "planner/search/recompute.h"
#include "predict/judge.h"

#include <math.h>
#include <stdlib.h>

#define MOST_EQUAL 64           /* stages of equal pipelines */
#define PRECISION 4096          /* precision of line.c's time */
#define STATES_PRECISION 256    /* the same if there are many points */
/*
 * Work for each unit and device, and limits of it: estimates (stages times minibatches), and
 * operations that are replayed.
 */
#define ESTIMATED 10000
#define REPLAYED 10000
#define HOPELESS 3              /* part by which the line's plan may be slower than a replayed one */
#define LOOKED 3                /* plans that are replayed before others are searched */
#define CHANGED 4               /* part of the work for one plan's changes */
#define PATIENCE 2000000        /* operations that are replayed in vain, where the bound is far */
#define FAR_ABOVE 0.1           /* part of its time by which a plan is far above the bound */
#define FRUITLESS 20            /* changed plans in a row of which nothing comes that may be faster */
#define ESTIMATES 4             /* estimates that take as long as the replay of an operation */
#define FEWER 4                 /* most devices that are left out at once */
#define FEWER_LOOKED 4          /* plans that are replayed for that */
#define EXHAUSTED 200000000     /* operations, if all plans are tried */
#define SPEEDS 4                /* links are taken to be faster or slower by up to this factor */
#define LEAST_MEMORY 4000000    /* work for a plan of least memory */
#define FEW_RANKS 16            /* of which each number is looked at */
#define LEAST_WORK 20000
/* Parts of the effort for plans that are at hand, and for one of least memory. */
#define SIMPLE_PART 16
#define LEAST_PART 8
#define MOST_WORK 8000000
#define MOST_DESCENDED 2000000  /* operations that are replayed in the last descent */

/* By how many percent plans may be slower than the best of the line. */
static const int slower[] = { 2, 5, 10, 20, 40, 80 };

/* A way to search a line. */
struct way {
	bool straight, least;
	bool alone;                     /* take only the plan of least time */
	int devices;                    /* most devices; 0: all */
	int64_t most_ns;                /* the slowest plan that is wanted; 0: hopeful_ns() says */
};

/*
 * Returns a limit: changes of slower plans of the line cannot win, since they gain no more than the best plan is
 * above the bound; 0: there is none.
 */
static int64_t hopeful_ns(const struct pd_contest *contest)
{
	int64_t most_ns = pd_contest_best_ns(contest);

	return most_ns + pd_min(most_ns / HOPELESS, most_ns - pd_min(most_ns, contest->task->bound_ns));
}

static void enter_found(struct pd_contest *contest, const struct pd_line *line, bool alone)
{
	struct pd_partition *partition = pd_line_search(line);
	int64_t time;

	if (!partition)
		return;
	time = contest->line_ns = partition->cost_ns;
	pd_contest_enter(contest, partition, PD_CONTEST_ANY);
	for (size_t i = 0; i < PD_COUNT(slower) && time < PD_COST_MAX / 2 && !alone; i++) {
		int64_t at = time + time / 100 * slower[i];

		if ((line->most_ns > 0 && at > line->most_ns) || pd_effort_spent(line->effort))
			break;
		pd_contest_enter(contest, pd_line_at(line, at), PD_CONTEST_ANY);
	}
}

static void enter_points(struct pd_contest *contest, struct pd_points *points,
			 const struct way *way)
{
	const struct pd_task *task = contest->task;
	const struct pd_plan_request *request = task->request;
	bool mixed = pd_topology_mixed(task->topology);
	struct pd_line_kinds kinds = { .count = 0 };
	struct pd_line line = {
		.points = points, .kinds = mixed ? &kinds : NULL, .memory_limit_bytes = task->limit_bytes,
		.map = &contest->map,
		.devices = way->devices ? way->devices : (int)task->topology->devices,
		.straight = way->straight, .round = pd_profile_lane_round(task->profile),
		.weights = request->weights, .group = request->microbatches,
		.recompute = pd_recompute_free(request),
		.selective = request->recompute == PD_RECOMPUTE_SELECTIVE,
		.wire = (1 - request->sparsity) * (double)pd_dtype_bytes(request->gradient_dtype) /
			sizeof(float),
		.least = way->least, .bound_ns = task->bound_ns,
		.most_ns = way->most_ns ? way->most_ns : hopeful_ns(contest),
		.guess_ns = contest->line_ns, .effort = request->effort,
		.precision = points->states ? STATES_PRECISION : PRECISION,
	};

	pd_recompute_blocks(task, &line.block_part, &line.block_bytes);
	if (mixed)
		pd_line_kinds_init(&kinds, points, task->profile, task->topology);
	enter_found(contest, &line, way->alone);
	pd_line_kinds_release(&kinds);
	/* If ranks share processors, more ranks are rarely faster. */
	if (task->topology->processors > 0 && task->topology->processors < line.devices) {
		line.devices = (int)task->topology->processors;
		enter_found(contest, &line, false);
	}
}

/* Enters plans whose stages are runs of the profile's layers. */
static void enter_line(struct pd_contest *contest, const struct way *way)
{
	struct pd_points points;

	pd_points_of_units(&points, &contest->task->costs);
	enter_points(contest, &points, way);
	pd_points_release(&points);
}

/*
 * Enters plans by the other ways to search: without replicas and, where memory is limited, with the least
 * warm-ups.  `usual`: by the usual way, too.
 */
static void enter_others(struct pd_contest *contest, struct pd_points *points, bool usual)
{
	const struct pd_task *task = contest->task;

	for (int least = 0; least <= (task->limit_bytes != INT64_MAX); least++)
		for (int straight = task->straight; straight <= 1; straight++)
			if (usual || least > 0 || straight > task->straight)
				enter_points(contest, points, &(struct way){
						.straight = straight, .least = least });
}

static int64_t work_of(const struct pd_task *task, int64_t each)
{
	return pd_min(LEAST_WORK + each * task->costs.unit_count * task->topology->devices,
		      MOST_WORK);
}

/* Returns the next number of ranks that is looked at, below another: of a few each, else a quarter less. */
static int64_t fewer_ranks(int64_t ranks)
{
	return ranks <= FEW_RANKS ? ranks - 1 : ranks - ranks / 4;
}

/*
 * Enters a partition, which may be NULL, without replicas and, where ranks have several stages, with as many of every
 * stage as there are devices for, and with fewer; frees it.
 */
static void enter_widths(struct pd_contest *contest, struct pd_partition *partition)
{
	const struct pd_task *task = contest->task;
	int64_t devices = task->topology->devices, microbatches = task->request->microbatches;
	int64_t most = partition && task->request->chunks && !task->straight
		? devices * task->request->chunks / partition->stage_count : 1;

	for (int64_t width = most; width > 1; width = devices <= FEW_RANKS ? width - 1 : width / 2) {
		struct pd_partition *wide;

		if (microbatches % width != 0)
			continue;
		wide = pd_partition_new(partition->stage_count);
		for (int s = 0; s < wide->stage_count; s++) {
			wide->layers[s] = partition->layers[s];
			wide->replicas[s] = (int)width;
		}
		pd_contest_enter(contest, wide, PD_CONTEST_ANY);
	}
	pd_contest_enter(contest, partition, PD_CONTEST_ANY);
}

/*
 * Enters plans of as many ranks as there are and of fewer, with stages that would be fast on links of a bandwidth; 0:
 * with even ones, which are all that is looked at of fewer ranks than many.
 */
static void enter_ranks(struct pd_contest *contest, int64_t most, int64_t bandwidth_bytes_per_s)
{
	const struct pd_costs *costs = &contest->task->costs;
	int chunks = (int)pd_task_stages(contest->task, 1);
	struct pd_partition **partitions = pd_calloc((size_t)(most * chunks), sizeof(*partitions));
	struct pd_error err;

	pd_even_partitions(costs, (int)most * chunks, bandwidth_bytes_per_s, partitions);
	for (int64_t ranks = most; ranks >= 1; ranks = fewer_ranks(ranks)) {
		struct pd_partition **at = &partitions[ranks * chunks - 1];

		if (!*at && bandwidth_bytes_per_s == 0)
			*at = pd_chunks_partition(costs, chunks, ranks, 0, &err);
		enter_widths(contest, *at);
		*at = NULL;
		if (most > FEW_RANKS && bandwidth_bytes_per_s > 0)
			break;
	}
	for (int64_t i = 0; i < most * chunks; i++)
		pd_partition_free(partitions[i]);
	free(partitions);
}

/*
 * Enters plans with even stages and with those that would be fast on faster and slower links than there are.  A link may carry the traffic of several chunks of its rank, so only replays tell which of them are fast.
 */
static void enter_speeds(struct pd_contest *contest, int64_t most)
{
	const struct pd_topology *topology = contest->task->topology;
	int64_t slow = pd_slowest_link(topology, topology->levels - 1).bandwidth_bytes_per_s / SPEEDS;
	int64_t bandwidth = pd_times(SPEEDS, topology->level[0].bandwidth_bytes_per_s);

	for (; bandwidth >= slow && bandwidth > 0; bandwidth /= 2)
		enter_ranks(contest, most, bandwidth);
	enter_ranks(contest, most, 0);
}

/*
 * Enters equal pipelines, whose stages take about the same time and have equally many devices.  Some
 * devices may be idle.  One stage is data parallelism.
 */
static void enter_equal(struct pd_contest *contest)
{
	const struct pd_task *task = contest->task;
	int devices = (int)task->topology->devices;
	int most = (int)pd_min(pd_min(MOST_EQUAL, task->costs.unit_count), devices);
	struct pd_partition *partitions[MOST_EQUAL];

	pd_even_partitions(&task->costs, most, 0, partitions);
	for (int i = 0; i < most; i++) {
		for (int s = 0; partitions[i] && s <= i; s++)
			partitions[i]->replicas[s] = devices / (i + 1);
		pd_contest_enter(contest, partitions[i], PD_CONTEST_ANY);
	}
}

/* Returns a partition from which one of least memory may come: on so many ranks, with one stage or chunks each. */
static struct pd_partition *seed_of(const struct pd_task *task, int64_t ranks)
{
	struct pd_error err;

	return task->request->chunks ? pd_chunks_partition(&task->costs, task->request->chunks, ranks, 0, &err)
	     : pd_straight_least_memory(&task->costs, (int)ranks);
}

/*
 * Enters the plans of least memory that are found, of numbers of ranks, where they fit, and makes the least
 * *closest_p where none does; there is none for networks whose stages need more than can be counted.  It takes a
 * part of the effort, even where all of it is spent.
 */
static void enter_least_memory(struct pd_contest *contest, struct pd_plan **closest_p)
{
	const struct pd_task *task = contest->task;
	int64_t most = pd_min(task->topology->devices, task->costs.unit_count), work = LEAST_MEMORY;
	int64_t effort = pd_effort_share(task->request->effort, LEAST_PART);

	for (int64_t ranks = most; ranks >= 1; ranks = fewer_ranks(ranks)) {
		struct pd_partition *partition = seed_of(task, ranks);
		int64_t begin = contest->work;
		struct pd_plan *plan;

		if (!partition)
			continue;
		partition = pd_contest_least(contest, partition, work / 4);
		work -= contest->work - begin;
		if (!partition) {
			contest->refused = true;
			continue;
		}
		contest->planned = true;
		plan = pd_candidate_least(task, partition, &contest->why);
		if (!*closest_p || pd_candidate_fullest(plan, NULL) < pd_candidate_fullest(*closest_p, NULL)) {
			struct pd_plan *other = *closest_p;

			*closest_p = plan;
			plan = other;
		}
		pd_candidate_drop(plan);
		if (pd_schedule_has(task->request->schedule, PD_FACT_LEADS))
			partition->warmups = pd_calloc((size_t)partition->stage_count, sizeof(int));
		pd_contest_enter(contest, partition, PD_CONTEST_ANY);
	}
	pd_effort_return(task->request->effort, effort);
}

/* Enters plans of several stages on each rank, of as many ranks as there are and of fewer; in a V with even ranks, too. */
static int enter_chunks(struct pd_contest *contest, struct pd_error *err)
{
	const struct pd_task *task = contest->task;
	int chunks = task->request->chunks;
	int64_t most = pd_min(task->costs.unit_count / chunks, task->topology->devices);

	if (most == 0)
		return pd_error_input(err, "--chunks: the network can be cut into %d stages, expected at least %d",
				      task->costs.unit_count, chunks);
	enter_speeds(contest, most);
	for (int64_t ranks = most;
	     ranks >= 1 && pd_schedule_has(task->request->schedule, PD_FACT_V) && chunks == 2;
	     ranks = fewer_ranks(ranks))
		enter_widths(contest, pd_v_partition(&task->costs, (int)ranks));
	return pd_contest_look(contest, LOOKED, err);
}

/* Enters plans that are at hand without a search, and replays them. */
static int enter_simple(struct pd_contest *contest, struct pd_error *err)
{
	const struct pd_task *task = contest->task;
	const struct pd_topology *topology = task->topology;
	int64_t bandwidth = pd_slowest_link(topology, topology->levels - 1).bandwidth_bytes_per_s;
	int count = (int)pd_min(topology->devices, task->costs.unit_count);
	int64_t effort = pd_effort_share(task->request->effort, SIMPLE_PART);

	if (!task->straight)
		pd_contest_enter(contest, pd_data_parallel_partition(&task->costs, topology->devices), PD_CONTEST_ANY);
	pd_contest_enter(contest, pd_straight_most(&task->costs, count, bandwidth, task->limit_bytes), PD_CONTEST_ANY);
	pd_effort_return(task->request->effort, effort);
	return pd_contest_look(contest, LOOKED, err);
}

/* Enters what is found before the changes of plans. */
static int enter_all(struct pd_contest *contest, struct pd_error *err)
{
	const struct pd_task *task = contest->task;
	struct pd_points points;

	if (task->request->chunks)
		return enter_chunks(contest, err);
	enter_line(contest, &(struct way){ .straight = task->straight, .alone = true });
	if (pd_contest_look(contest, 1, err) < 0)
		return -1;
	if (contest->proven)
		return 0;
	enter_line(contest, &(struct way){ .straight = task->straight });
	if (pd_contest_look(contest, LOOKED, err) < 0)
		return -1;
	if (contest->nearly)
		return 0;
	if (!task->straight) {
		pd_contest_enter(contest, pd_data_parallel_partition(&task->costs, task->topology->devices),
				 PD_CONTEST_ANY);
		enter_equal(contest);
	}
	if (task->topology->devices <= FEW_RANKS)
		enter_speeds(contest, pd_min(task->topology->devices, task->costs.unit_count));
	pd_points_of_units(&points, &task->costs);
	enter_others(contest, &points, false);
	pd_points_release(&points);
	if (task->views && task->views->points.states)
		enter_others(contest, &task->views->points, true);
	if (pd_contest_look(contest, LOOKED, err) < 0)
		return -1;
	return pd_effort_spent(task->request->effort) ? enter_simple(contest, err) : 0;
}

static int64_t effort_of(const struct pd_contest *contest)
{
	return contest->replayed + contest->work / ESTIMATES;
}

/* Returns for how much effort the search goes on without a faster plan: longer where one may be far faster. */
static int64_t patience(const struct pd_contest *contest, int64_t best_ns)
{
	double above = 1 - (double)contest->task->bound_ns / (double)best_ns;

	return (int64_t)(PATIENCE * fmin(1, above / FAR_ABOVE));
}

/*
 * Judges and, if changes are to be tried, changes the winner as long as a change wins, and then the next entries, since a
 * slower one may be nearer to a faster plan; every other time by random changes.
 */
static int64_t judge_and_change(struct pd_contest *contest, bool changes, struct pd_error *err)
{
	const struct pd_task *task = contest->task;
	int64_t work = work_of(task, REPLAYED), winner = pd_contest_judge(contest, work, err);
	int64_t best_ns = winner < 0 ? 0 : contest->entries[winner].time_ns;
	int64_t since = effort_of(contest);
	bool at_random = false;
	int vain = 0;

	while (changes && winner >= 0 && !contest->nearly && vain < FRUITLESS && !pd_effort_spent(task->request->effort) &&
	       effort_of(contest) - since <= patience(contest, best_ns)) {
		int64_t most_work = contest->work + work_of(task, ESTIMATED) / CHANGED;
		int more = at_random ? pd_contest_shuffle(contest, (size_t)winner, most_work)
				     : pd_contest_refine_next(contest, (size_t)winner, most_work);

		at_random = !at_random;
		vain = more > 0 ? 0 : vain + 1;
		if (more > 0)
			winner = pd_contest_judge(contest, work / CHANGED, err);
		if (winner >= 0 && contest->entries[winner].time_ns < best_ns) {
			best_ns = contest->entries[winner].time_ns;
			since = effort_of(contest);
		}
	}
	return winner;
}

/*
 * Returns the entry that is preferred to the winner for having fewer devices, or the winner.  It goes by times
 * or, of what was not replayed, by estimates.  `whole`: only entries that were replayed to the end count.
 */
static size_t preferred(const struct pd_contest *contest, size_t winner, bool whole)
{
	double gain = contest->task->request->min_gain;
	const struct pd_entry *won = &contest->entries[winner];
	double least = pd_gain_of(gain, won->time_ns, won->plan->rank_count);
	size_t best = winner;

	for (size_t i = 0; i < contest->count; i++) {
		const struct pd_entry *entry = &contest->entries[i];
		double value = pd_gain_of(gain, entry->time_ns != PD_NEVER ? entry->time_ns
					  : entry->expected.estimate_ns, entry->plan->rank_count);

		if (entry->plan->rank_count < won->plan->rank_count && (entry->whole || !whole) &&
		    value < least) {
			least = value;
			best = i;
		}
	}
	return best;
}

/* Replays an entry to the end, since it may have been stopped when it was slower than another. */
static int replay_whole(struct pd_contest *contest, size_t i, struct pd_error *err)
{
	struct pd_entry *entry = &contest->entries[i];
	int64_t work = 0;

	entry->whole = true;
	return pd_judge_rival(entry->plan, contest->most_replayed, PD_NEVER, &entry->time_ns,
			      &entry->plan->predicted.period_from, &work, err);
}

/* Returns the winner, or a plan with fewer devices if the further ones bring too little. */
static int64_t leave_out(struct pd_contest *contest, size_t winner, struct pd_error *err)
{
	const struct pd_task *task = contest->task;
	double gain = task->request->min_gain;

	for (size_t before = SIZE_MAX; gain > 0 && winner != before;) {
		int64_t time_ns = contest->entries[winner].time_ns;
		int devices = contest->entries[winner].plan->rank_count;

		before = winner;
		for (int n = devices - 1; n >= 1 && n >= devices - FEWER; n--) {
			struct way way = { .straight = task->straight, .alone = true, .devices = n,
					   .most_ns = pd_gain_limit_ns(gain, time_ns, devices, n) };

			if (!pd_effort_spent(task->request->effort) && !task->request->chunks &&
			    pd_contest_fewest(contest, way.most_ns) <= n)
				enter_line(contest, &way);
		}
		for (int left = FEWER_LOOKED; left >= 0; left--) {
			winner = preferred(contest, before, left == 0);
			if (winner == before || contest->entries[winner].whole)
				break;
			if (replay_whole(contest, winner, err) < 0)
				return -1;
		}
	}
	return (int64_t)winner;
}

/* Notes the fastest plan on more ranks than the winner has. */
static void note_more(const struct pd_contest *contest, const struct pd_plan *plan,
		      struct pd_more *more)
{
	int64_t least_ns = PD_NEVER;

	for (size_t i = 0; i < contest->count; i++) {
		const struct pd_entry *entry = &contest->entries[i];

		if (!entry->plan || entry->plan->rank_count <= plan->rank_count ||
		    pd_entry_ns(entry) >= least_ns)
			continue;
		least_ns = pd_entry_ns(entry);
		*more = (struct pd_more){ entry->plan->rank_count,
					  (double)plan->profile->batch_size * 1e9 /
					  (double)pd_max(least_ns, 1) };
	}
}

struct pd_plan *pd_simulated_plan(const struct pd_task *task, int64_t *time_ns_p, struct pd_plan **closest_p,
				  struct pd_error *err)
{
	struct pd_contest contest;
	struct pd_plan *plan = NULL;
	int64_t winner;
	bool changes;

	*closest_p = NULL;
	pd_contest_init(&contest, task);
	contest.few = pd_contest_few(task);
	if (enter_all(&contest, err) < 0) {
		pd_contest_release(&contest);
		return NULL;
	}
	changes = contest.count > 0 && !contest.few;
	if (contest.count == 0 && (contest.planned || !contest.refused))
		enter_least_memory(&contest, closest_p);
	if (contest.count > 0) {
		winner = judge_and_change(&contest, changes, err);
		if (winner >= 0 && !contest.nearly) {
			pd_contest_refine(&contest, (size_t)winner, contest.work + work_of(task, ESTIMATED));
			winner = judge_and_change(&contest, changes, err);
		}
		if (winner >= 0 && !pd_effort_spent(task->request->effort))
			contest.all = pd_contest_exhaust(&contest, (size_t)winner);
		if (contest.all)
			winner = pd_contest_judge(&contest, EXHAUSTED, err);
		if (winner >= 0 && !contest.nearly && !contest.all)
			winner = pd_contest_descend(&contest, (size_t)winner, work_of(task, ESTIMATED),
						    pd_min(work_of(task, REPLAYED) / 2, MOST_DESCENDED), err);
		if (winner >= 0)
			winner = leave_out(&contest, (size_t)winner, err);
		if (winner >= 0) {
			plan = contest.entries[winner].plan;
			*time_ns_p = contest.entries[winner].time_ns;
			contest.entries[winner].plan = NULL;
			note_more(&contest, plan, &plan->predicted.more);
		}
	} else if (contest.refused && !contest.planned) {
		*err = contest.why;
	} else {
		pd_error_no(err, "no plan fits");
	}
	pd_contest_release(&contest);
	return plan;
}

struct pd_plan *pd_simulated_glance(const struct pd_task *task, int64_t *time_ns_p)
{
	struct pd_contest contest;
	struct pd_plan *plan = NULL;

	pd_contest_init(&contest, task);
	enter_line(&contest, &(struct way){ .straight = task->straight, .alone = true });
	pd_contest_sort(&contest);
	if (contest.count > 0 && contest.entries[0].expected.estimate_ns > 0) {
		plan = contest.entries[0].plan;
		*time_ns_p = contest.entries[0].expected.estimate_ns;
		plan->predicted.period_from = PD_PERIOD_ESTIMATE;
		contest.entries[0].plan = NULL;
	}
	pd_contest_release(&contest);
	return plan;
}

bool pd_simulated_fits(const struct pd_task *task)
{
	struct pd_plan *closest = NULL;
	struct pd_contest contest;
	bool fits;

	pd_contest_init(&contest, task);
	if (!task->request->chunks)
		enter_line(&contest, &(struct way){ .straight = task->straight, .alone = true, .least = true });
	if (contest.count == 0)
		enter_least_memory(&contest, &closest);
	pd_candidate_drop(closest);
	fits = contest.count > 0;
	pd_contest_release(&contest);
	return fits;
}
