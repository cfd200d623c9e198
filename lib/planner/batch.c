/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The planner of PipeDream-2BW (ICML 2021, section 4 and appendix A): of several microbatch
 * sizes, for each of which there is a profile, of width times depth, and of the microbatches
 * that are added up, whatever gives most samples per second with at most `batch` samples in an
 * update.
 *
 * As in the paper, w pipelines side by side of d equal stages each are all tried, with as many
 * microbatches as the batch allows, m = batch / b rounded down to a multiple of w; a stage's
 * replicas sum their gradients.  Where we depart:
 *   - "Equal" means that the times of the stages have the least variance: networks need not be
 *     made of equal blocks.  For those that are it is the same.
 *   - Of the widths for a depth only the largest is tried, and its halves.
 *   - Memory is that of the worker, to the byte where the profile says enough, not
 *     2|W|/d + ..., and time that of a replay, not the largest stage's.
 *   - Other cuts compete: pd_planner_plan with the same number of microbatches.
 *   - Recomputation, on or off there, is off where the point fits without, for it only takes time;
 *     else it is on where stages would not fit, and on none of the others (recompute.c).
 */
#include "planner/planner.h"

#include "base/mem.h"
#include "plan/prediction.h"
#include "planner/search/candidate.h"
#include "planner/search/recompute.h"
#include "predict/judge.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MOST_JUDGED 4           /* points of the grid that are replayed: the best estimates */

struct point {                  /* a point of the grid */
	char *stages;
	int64_t microbatches, period_ns;
	int width, depth;
};

struct grid {
	struct pd_task task;
	int64_t batch;
	int count;
	struct point points[MOST_JUDGED + 1];   /* by period; one more while a point is added */
};

/* Returns the most microbatches that fit into a batch, in multiples of `unit`; 0: none. */
static int64_t microbatches_of(const struct pd_profile *profile, int64_t batch, int64_t unit)
{
	return batch / profile->batch_size / unit * unit;
}

/* Makes a plan of the point; NULL if it is impossible or does not fit. */
static struct pd_plan *plan_of(const struct grid *grid, const struct pd_partition *partition,
			       int width)
{
	const struct pd_task *task = &grid->task;
	const struct pd_plan_request *request = task->request;
	int64_t microbatches = microbatches_of(task->profile, grid->batch, width);
	struct pd_expected expected;
	struct pd_plan *plan;
	struct pd_error err;

	if (grid->batch && !microbatches)
		return NULL;
	for (int s = 0; s < partition->stage_count; s++)
		partition->replicas[s] = width;
	plan = pd_candidate_with(task, partition, request->schedule, request->weights, microbatches);
	if (pd_recompute_weigh(plan, request, task->limit_bytes) &&
	    pd_candidate_keeps(plan, task->limit_bytes) &&
	    pd_judge_expect(plan, false, &expected, &err) == 0 && expected.estimate_ns > 0) {
		plan->predicted.period_ns = expected.estimate_ns;
		return plan;
	}
	pd_candidate_drop(plan);
	return NULL;
}

static void add_point(struct grid *grid, const struct pd_plan *plan, int width)
{
	struct point new = {
		.stages = pd_plan_stages_text(plan), .microbatches = plan->microbatches,
		.period_ns = plan->predicted.period_ns, .width = width,
		.depth = plan->stage_count,
	};
	int at = grid->count++;

	for (; at > 0 && grid->points[at - 1].period_ns > new.period_ns; at--)
		grid->points[at] = grid->points[at - 1];
	grid->points[at] = new;
	if (grid->count > MOST_JUDGED)
		free(grid->points[--grid->count].stages);
}

static void fill(struct grid *grid)
{
	int devices = (int)grid->task.request->topology->devices;
	int most = (int)pd_min(devices, grid->task.costs.unit_count);
	struct pd_partition **partitions = pd_calloc((size_t)most, sizeof(*partitions));

	pd_even_partitions(&grid->task.costs, most, 0, partitions);
	for (int depth = 1; depth <= most; depth++) {
		struct pd_partition *partition = partitions[depth - 1];
		int width = grid->task.request->straight ? 1 : devices / depth;

		for (; partition && width > 0; width /= 2) {
			struct pd_plan *plan = plan_of(grid, partition, width);

			if (!plan)
				continue;
			add_point(grid, plan, width);
			pd_candidate_drop(plan);
		}
		pd_partition_free(partition);
	}
	free(partitions);
}

/*
 * Keeps the plan (or NULL) with more samples per second; returns whether it is the new one.  Plans here
 * share the caller's profile, though pd_planner_plan takes it over.
 */
static bool keep_better(struct pd_plan **best, struct pd_plan *plan)
{
	bool better = plan && (!*best || plan->predicted.samples_per_s >
					 (*best)->predicted.samples_per_s);

	pd_candidate_drop(better ? *best : plan);
	if (better)
		*best = plan;
	return better;
}

/* Returns the best point's plan, or NULL. */
static struct pd_plan *best_of_grid(struct pd_profile *profile, const struct pd_plan_request *request,
				    int64_t batch, struct pd_batch_choice *choice)
{
	struct grid grid = { { .profile = profile, .fastest = profile, .request = request, .topology = request->topology,
			       .limit_bytes = pd_task_limit_bytes(profile, request) }, batch };
	struct pd_plan_request by_hand = *request;
	struct pd_plan *best = NULL;
	struct pd_error ignored;

	pd_costs_init(&grid.task.costs, profile, false);
	fill(&grid);
	pd_costs_release(&grid.task.costs);
	for (int i = 0; i < grid.count; i++) {
		by_hand.stages = grid.points[i].stages;
		by_hand.microbatches = grid.points[i].microbatches;
		if (keep_better(&best, pd_planner_plan(profile, &by_hand, &ignored))) {
			choice->width = grid.points[i].width;
			choice->depth = grid.points[i].depth;
			choice->recomputed = pd_recompute_count(best) > 0;
			choice->grid_samples_per_s = best->predicted.samples_per_s;
		}
		free(grid.points[i].stages);
	}
	return best;
}

/* Keeps the first reason, but one that nothing fits rather than what is impossible. */
static void keep_reason(struct pd_error *err, const struct pd_error *why)
{
	if (err->status == PD_EXIT_YES || (err->status != PD_EXIT_NO && why->status == PD_EXIT_NO))
		*err = *why;
}

/* Returns the best plan of one profile, or NULL and adds why there is none to err. */
static struct pd_plan *plan_one(struct pd_profile *profile, const struct pd_plan_request *request,
				int64_t batch, struct pd_batch_choice *choice, struct pd_error *err)
{
	struct pd_plan_request with = *request;
	/* numbers of microbatches: all of the batch, and what many replicas can share */
	int64_t all = batch ? microbatches_of(profile, batch, 1) : request->microbatches, two = 1;
	int64_t tries[3] = { all };
	struct pd_plan *best = NULL, *plan;
	struct pd_error why;

	while (batch && two <= request->topology->devices / 2 && two <= all / 2)
		two *= 2;
	if (batch) {
		tries[1] = microbatches_of(profile, batch, request->topology->devices);
		tries[2] = all / two * two;
	}
	with.runs = true;               /* all plans that are compared share one profile */
	for (int i = 0; i < 3; i++) {
		with.microbatches = tries[i];
		if (i > 0 && (tries[i] == 0 || tries[i] == tries[0] || tries[i] == tries[i - 1]))
			continue;
		plan = pd_planner_plan(profile, &with, &why);
		if (!plan)
			keep_reason(err, &why);
		keep_better(&best, plan);
	}
	if (best)
		choice->search_samples_per_s = best->predicted.samples_per_s;
	if (request->cost == PD_COST_SIMULATED && !request->stages && !request->chunks)
		keep_better(&best, best_of_grid(profile, request, batch, choice));
	if (best)
		choice->microbatches = best->microbatches;
	return best;
}

static int check(const struct pd_profile *const *profiles, int count, int64_t batch,
		 const struct pd_plan_request *request, struct pd_error *err)
{
	int64_t least = INT64_MAX;

	for (int i = 0; i < count; i++)
		least = profiles[i]->batch_size < least ? profiles[i]->batch_size : least;
	if (batch && request->cost != PD_COST_SIMULATED)
		return pd_error_input(err, "--batch: --cost=%s prices no update of several "
				      "microbatches", pd_cost_kind_name[request->cost]);
	if (batch && batch < least)
		return pd_error_input(err, "--batch: expected at least the %" PRId64 " samples of a "
				      "minibatch of profile \"%.60s\", found %" PRId64, least,
				      profiles[0]->name, batch);
	return 0;
}

struct pd_plan *pd_planner_batch(struct pd_profile **profiles, int count, int64_t batch,
				 const struct pd_plan_request *request,
				 struct pd_batch_choice *choices, struct pd_error *err)
{
	struct pd_plan *best = NULL;
	int from = -1;

	if (check((const struct pd_profile *const *)profiles, count, batch, request, err) < 0)
		return NULL;
	err->status = PD_EXIT_YES;
	for (int i = 0; i < count; i++) {
		choices[i] = (struct pd_batch_choice){ .batch_size = profiles[i]->batch_size };
		if (batch && profiles[i]->batch_size > batch)
			continue;
		if (keep_better(&best, plan_one(profiles[i], request, batch, &choices[i], err)))
			from = i;
	}
	if (best) {
		profiles[from] = NULL;
		choices[from].chosen = true;
	}
	return best;
}
