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

#include "plan/prediction.h"
#include "planner/search/candidate.h"
#include "planner/price/flow.h"
#include "planner/price/predict.h"
#include "planner/search/recompute.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MOST_JUDGED 4           /* points of the grid that are replayed: the best estimates */
#define MOST_TRIES 3            /* numbers of microbatches for the search */

struct point {                  /* a point of the grid */
	char *stages;
	int64_t microbatches, period_ns;
	int width, depth;
};

struct grid {
	struct pd_task task;            /* without a limit in its costs */
	int64_t batch;
	int count;
	struct point points[MOST_JUDGED + 1];   /* by period; one more while a point is added */
};

/* Returns the most microbatches that fit into a batch, in multiples of `unit`; 0: none. */
static int64_t microbatches_of(const struct pd_profile *profile, int64_t batch, int64_t unit)
{
	return batch / profile->batch_size / unit * unit;
}

static bool fit_point(const struct grid *grid, struct pd_plan *plan)
{
	struct pd_error err;

	if (pd_recompute_free(grid->task.request))
		return pd_recompute_fit(plan, grid->task.limit_bytes);
	return pd_recompute_asked(plan, grid->task.request, &err) && pd_candidate_weigh(plan, &err) &&
	       pd_candidate_fullest(plan, NULL) <= grid->task.limit_bytes;
}

/* Makes a plan of the point; NULL if it is impossible or does not fit. */
static struct pd_plan *plan_of(const struct grid *grid, const struct pd_partition *partition,
			       int width)
{
	struct pd_plan *plan;
	struct pd_schedule *schedule;
	struct pd_error err;
	bool fits;

	for (int s = 0; s < partition->stage_count; s++)
		partition->replicas[s] = width;
	plan = pd_candidate_plain(&grid->task, partition);
	plan->schedule = grid->task.request->schedule;
	plan->weights = grid->task.request->weights;
	plan->agree = pd_planner_agrees(grid->task.request, grid->task.profile, plan->weights);
	plan->microbatches = grid->batch ? microbatches_of(grid->task.profile, grid->batch, width)
					 : pd_planner_microbatches(plan);
	fits = plan->microbatches > 0 && fit_point(grid, plan);
	schedule = fits ? pd_schedule_new(plan, &err) : NULL;
	if (schedule)
		plan->predicted.period_ns = pd_flow_expect(schedule).estimate_ns;
	pd_schedule_free(schedule);
	if (schedule && plan->predicted.period_ns > 0)
		return plan;
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
	int64_t devices = grid->task.request->topology->devices;

	for (int depth = 1; depth <= devices && depth <= grid->task.costs.unit_count; depth++) {
		struct pd_partition *partition = pd_even_partition(&grid->task.costs, depth, 0);
		int width = grid->task.request->straight ? 1 : (int)(devices / depth);

		for (; partition && width > 0; width /= 2) {
			struct pd_plan *plan = plan_of(grid, partition, width);

			if (!plan)
				continue;
			add_point(grid, plan, width);
			pd_candidate_drop(plan);
		}
		pd_partition_free(partition);
	}
}

/*
 * The best plan so far.  Plans here share the caller's profile, though pd_planner_plan takes it
 * over.
 */
struct best {
	struct pd_plan *plan;           /* or NULL */
	struct pd_batch_choice *choice;
};

static void take(struct best *best, struct pd_plan *plan)
{
	if (!plan)
		return;
	if (best->plan && best->plan->predicted.samples_per_s >= plan->predicted.samples_per_s) {
		pd_candidate_drop(plan);
		return;
	}
	pd_candidate_drop(best->plan);
	best->plan = plan;
}

/* Finds the best point; errors are those of pd_planner_plan. */
static int best_of_grid(struct pd_profile *profile, const struct pd_plan_request *request,
			int64_t batch, struct best *best, struct pd_error *err)
{
	struct grid grid = { { .profile = profile, .request = request, .topology = request->topology,
			       .limit_bytes = pd_task_limit_bytes(profile, request) }, batch };
	struct pd_plan_request by_hand = *request;
	struct pd_plan *found = NULL;

	pd_costs_init(&grid.task.costs, profile, request->cost, INT64_MAX);
	fill(&grid);
	pd_costs_release(&grid.task.costs);
	for (int i = 0; i < grid.count; i++) {
		struct pd_plan *plan;

		by_hand.stages = grid.points[i].stages;
		by_hand.microbatches = grid.points[i].microbatches;
		plan = pd_planner_plan(profile, &by_hand, err);
		if (plan && (!found ||
			     plan->predicted.samples_per_s > found->predicted.samples_per_s)) {
			pd_candidate_drop(found);
			found = plan;
			best->choice->width = grid.points[i].width;
			best->choice->depth = grid.points[i].depth;
			best->choice->recomputed = pd_recompute_any(plan);
			best->choice->grid_samples_per_s = plan->predicted.samples_per_s;
		} else {
			pd_candidate_drop(plan);
		}
		free(grid.points[i].stages);
	}
	take(best, found);
	return found ? 0 : -1;
}

/*
 * Sets the numbers of microbatches for the search: all of the batch, and what many replicas can
 * share.
 */
static int tries_of(const struct pd_profile *profile, const struct pd_plan_request *request,
		    int64_t batch, int64_t *tries)
{
	int64_t all = batch ? microbatches_of(profile, batch, 1) : request->microbatches;
	int64_t two = 1, candidates[MOST_TRIES];
	int count = 0;

	if (!batch) {
		tries[0] = all;
		return 1;
	}
	while (two <= request->topology->devices / 2 && two <= all / 2)
		two *= 2;
	candidates[0] = all;
	candidates[1] = microbatches_of(profile, batch, request->topology->devices);
	candidates[2] = all / two * two;
	for (int i = 0; i < MOST_TRIES; i++) {
		bool again = candidates[i] == 0;

		for (int k = 0; k < count; k++)
			again |= tries[k] == candidates[i];
		if (!again)
			tries[count++] = candidates[i];
	}
	return count;
}

/* Returns the best plan of one profile, or NULL and why there is none. */
static struct pd_plan *plan_one(struct pd_profile *profile, const struct pd_plan_request *request,
				int64_t batch, struct pd_batch_choice *choice, struct pd_error *err)
{
	struct pd_plan_request with = *request;
	struct best best = { .choice = choice };
	int64_t tries[MOST_TRIES];
	int count = tries_of(profile, request, batch, tries);
	struct pd_error ignored;

	with.runs = true;               /* all plans that are compared share one profile */
	for (int i = 0; i < count; i++) {
		struct pd_plan *plan;

		with.microbatches = tries[i];
		plan = pd_planner_plan(profile, &with, i || best.plan ? &ignored : err);
		if (plan && plan->predicted.samples_per_s > choice->search_samples_per_s)
			choice->search_samples_per_s = plan->predicted.samples_per_s;
		take(&best, plan);
	}
	if (request->cost == PD_COST_SIMULATED && !request->stages && !request->chunks)
		best_of_grid(profile, request, batch, &best, &ignored);
	if (best.plan)
		choice->microbatches = best.plan->microbatches;
	return best.plan;
}

static int check(const struct pd_profile *const *profiles, int count, int64_t batch,
		 const struct pd_plan_request *request, struct pd_error *err)
{
	int64_t least = INT64_MAX;

	for (int i = 0; i < count; i++)
		least = profiles[i]->batch_size < least ? profiles[i]->batch_size : least;
	if (batch && request->microbatches)
		return pd_error_input(err, "--batch and --microbatches both say how many samples an "
				      "update is made of: give one of them");
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
	struct pd_error why, *first = err;
	int from = -1;

	if (check((const struct pd_profile *const *)profiles, count, batch, request, err) < 0)
		return NULL;
	for (int i = 0; i < count; i++) {
		struct pd_plan *plan;

		choices[i] = (struct pd_batch_choice){ .batch_size = profiles[i]->batch_size };
		if (batch && profiles[i]->batch_size > batch)
			continue;
		plan = plan_one(profiles[i], request, batch, &choices[i], first);
		first = &why;           /* report the first that fails */
		if (plan && (!best ||
			     plan->predicted.samples_per_s > best->predicted.samples_per_s)) {
			pd_candidate_drop(best);
			best = plan;
			from = i;
		} else {
			pd_candidate_drop(plan);
		}
	}
	if (best) {
		profiles[from] = NULL;
		choices[from].chosen = true;
	}
	return best;
}
