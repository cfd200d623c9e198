/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/planner.h"

#include "base/mem.h"
#include "plan/sparse.h"
#include "planner/answers.h"
#include "planner/bound/bound.h"
#include "planner/formula/published.h"
#include "planner/idle.h"
#include "planner/kinds.h"
#include "planner/ordered.h"
#include "planner/search/candidate.h"
#include "planner/search/gain.h"
#include "planner/search/simulated.h"
#include "planner/sums.h"
#include "planner/top.h"
#include "predict/judge.h"
#include "predict/predict.h"
#include "predict/range.h"
#include "predict/replay.h"
#include "predict/step.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ENOUGH 200              /* part by which no plan in another order of kinds is faster */

/* Returns a bound for every plan with these options, or most_ns, if it is no less. */
static int64_t task_bound_ns(struct pd_task *task, int64_t most_ns)
{
	const struct pd_plan_request *request = task->request;
	int64_t ns = task->bound_ns;

	if (ns == 0)
		ns = request->cost != PD_COST_SIMULATED ? pd_published_bound_ns(task->profile, request)
							: pd_bound_ns(&task->costs, request, most_ns);
	if (ns < most_ns)
		task->bound_ns = ns;
	return pd_min(ns, most_ns);
}

int pd_task_period(const struct pd_task *task, const struct pd_plan *plan, int64_t *period_ns_p,
		   enum pd_period_kind *from_p, struct pd_error *err)
{
	if (task->request->cost == PD_COST_SIMULATED)
		return pd_judge_period(plan, period_ns_p, from_p, err);
	*period_ns_p = pd_published_ns(task->request->cost, &task->costs, plan);
	*from_p = PD_PERIOD_FORMULA;
	return 0;
}

/* Sets how far the period may be off, where the profile says it of its times. */
static void set_range(struct pd_plan *plan)
{
	struct pd_prediction *predicted = &plan->predicted;
	struct pd_spread range = pd_plan_range(plan, 0, 0);

	if (range.high <= 0)
		return;
	predicted->period_low_ns = llround((double)predicted->period_ns * range.low);
	predicted->period_high_ns = llround((double)predicted->period_ns * range.high);
}

/* Makes sure that no period is below what its busiest rank or link takes, or what any plan does. */
static void check_period(const struct pd_plan *plan, int64_t period_ns, int64_t bound_ns)
{
	int64_t least_ns = pd_judge_least_ns(plan);

	if (period_ns < pd_max(least_ns, bound_ns))
		pd_bug("a period of %" PRId64 " ns is below %s %" PRId64 " ns", period_ns, period_ns < least_ns
		       ? "what its busiest rank or link takes," : "the bound of all plans,",
		       period_ns < least_ns ? least_ns : bound_ns);
}

/* Fills in the figures of the plan as a whole. */
static int finish(const struct pd_task *task, struct pd_plan *plan, int64_t period,
		  int64_t bound, struct pd_error *err)
{
	struct pd_prediction *predicted = &plan->predicted;

	if (period >= PD_COST_MAX)
		return pd_error_input(err, "the best plan found takes more than 73 years: expected "
				      "faster links or layers");
	if (predicted->period_from != PD_PERIOD_FORMULA &&
	    pd_judge_whole(plan, PD_REPLAY_WORK, &period, &predicted->period_from, err) < 0)
		return -1;
	if (predicted->period_from == PD_PERIOD_ESTIMATE)
		period = pd_max(period, bound);
	if (task->request->stages)      /* by hand there may be what no search looks at */
		bound = pd_min(bound, period);
	if (predicted->period_from != PD_PERIOD_FORMULA)
		check_period(plan, period, bound);
	predicted->period_ns = period;
	predicted->memory_bytes = pd_candidate_fullest(plan, NULL);
	predicted->ended_early = !task->request->stages && task->request->effort &&
				 (task->request->effort->early ||
				  pd_effort_stopped(task->request->effort));
	predicted->lower_bound_ns = bound;
	if (predicted->period_from != PD_PERIOD_FORMULA)
		set_range(plan);
	if (pd_alternatives_find(plan, task, err) < 0)
		return -1;
	if (period > 0) {
		predicted->samples_per_s = (double)task->profile->batch_size * 1e9 / (double)period;
		if (predicted->period_from != PD_PERIOD_ESTIMATE)
			predicted->gap = 1 - (double)predicted->lower_bound_ns / (double)period;
		predicted->speedup_over_data_parallel =
			(double)predicted->data_parallel_period_ns / (double)period;
		predicted->step = pd_step_at(plan, period);
	}
	return 0;
}

/* Gives a plan the sums that are asked for, and sets its period; false if it does not fit with them. */
static bool take_sums(const struct pd_task *task, struct pd_plan *plan, int64_t *time_ns_p)
{
	const struct pd_plan_request *request = task->request;
	struct pd_error err;

	plan->reducer = request->reducer;
	plan->chunk = request->chunk;
	plan->sparsity = request->sparsity;
	plan->sparsity_warmup = request->sparsity_warmup;
	pd_predict_stages(plan);
	return pd_plan_check_sparse(plan, "", &err) == 0 &&
	       pd_candidate_fits(plan, task->limit_bytes) &&
	       pd_judge_period(plan, time_ns_p, &plan->predicted.period_from, &err) == 0;
}

static struct pd_plan *plan_by_replays(const struct pd_task *task, int64_t *time_ns_p, struct pd_error *err)
{
	struct pd_plan *closest, *plan = pd_simulated_plan(task, time_ns_p, &closest, err);

	if (!plan && err->status == PD_EXIT_NO)
		pd_none_explain(task, closest, err);
	pd_candidate_drop(closest);
	return plan;
}

/*
 * Searches with the sums that are asked for and, where these are others than dense ones, with dense ones,
 * too, of which it knows most: the faster plan is taken.
 */
static struct pd_plan *search(struct pd_task *task, int64_t *time_ns_p, struct pd_error *err)
{
	struct pd_plan *plan = plan_by_replays(task, time_ns_p, err), *other, *closest;
	struct pd_plan_request dense = *task->request;
	struct pd_task with = *task;
	struct pd_error why;
	int64_t time_ns;

	if ((!plan && err->status != PD_EXIT_NO) || (dense.reducer == PD_REDUCER_dense && dense.sparsity == 0))
		return plan;
	dense.reducer = PD_REDUCER_dense;
	dense.sparsity = 0;
	dense.chunk = dense.sparsity_warmup = 0;
	with.request = &dense;
	with.bound_ns = 0;
	pd_effort_begin(dense.effort);
	task_bound_ns(&with, PD_NEVER);
	other = pd_simulated_plan(&with, &time_ns, &closest, &why);
	pd_candidate_drop(closest);
	if (!other || !take_sums(task, other, &time_ns) ||
	    (plan && pd_gain_of(dense.min_gain, time_ns, other->rank_count) >=
	     pd_gain_of(dense.min_gain, *time_ns_p, plan->rank_count))) {
		pd_candidate_drop(other);
		return plan;
	}
	pd_candidate_drop(plan);
	*time_ns_p = time_ns;
	return other;
}


/* Refuses an order with weights that none has. */
static int check_ordered(const struct pd_plan_request *request, struct pd_error *err)
{
	if (!pd_schedule_has(request->schedule, PD_FACT_ORDERED) ||
	    pd_schedule_goes_with(request->schedule, request->weights))
		return 0;
	return pd_error_input(err, "schedule \"%s\" does not go with weights \"%s\", but with %s",
			      pd_schedule_kind_name[request->schedule], pd_weight_kind_name[request->weights],
			      pd_weight_kind_name[PD_WEIGHTS_FLUSH]);
}

/* Plans what a task asks for, of which nothing is open but its stages. */
static struct pd_plan *solve(struct pd_task *task, int64_t *time_ns_p, struct pd_error *err)
{
	const struct pd_plan_request *request = task->request;

	if (request->cost != PD_COST_SIMULATED && !request->stages)
		return pd_formula_plan(task, time_ns_p, err);
	if (request->stages)
		return pd_schedule_has(request->schedule, PD_FACT_ORDERED) ? pd_ordered_hand_plan(task, time_ns_p, err)
									   : pd_hand_plan(task, time_ns_p, err);
	task_bound_ns(task, PD_NEVER);
	return search(task, time_ns_p, err);
}

/* A search for the best plan of all variants of a request. */
struct planner {
	const struct pd_planner_ask *ask;
	struct pd_variants variants;
	struct pd_best best;
	bool thorough;                  /* there is so little that all of it is searched */
};

#define SMALL 512               /* units times devices up to which all variants are searched */
#define SEARCHED 2              /* variants of a field that are searched otherwise */
#define SEARCH_PART 133         /* part of the effort that such a search may take */
#define SINGLE_PART 16          /* the same where there is only one variant, and that is large */
/* How much slower than the best another variant may look, when it gains as much by a search, to be searched. */
#define FAR 1.1
#define ALIKE 2                 /* searches that show how far: when they gained little, so will others */
#define FAR_IF_LARGE 0.995
#define UPDATES 4               /* numbers of microbatches of an update that are searched for */
#define KEPT 256                /* best plans, of which replays find the best */

/* Tells whether nothing is open but stages. */
static bool is_single(const struct planner *planner)
{
	const struct pd_planner_ask *ask = planner->ask;

	return ask->request->stages || ask->request->cost != PD_COST_SIMULATED ||
	       (planner->variants.count == 1 && ask->batch == 0 && !ask->request->any_chunks &&
		!pd_task_is_large(&planner->variants.list[0].task));
}

/* Tells whether equal pipelines of a variant are looked at. */
static bool is_looked_at(const struct planner *planner, const struct pd_variant *variant)
{
	return variant->named || !variant->request.straight || planner->ask->request->straight;
}

/* Until then variants are searched, then orders; before, equal pipelines are looked at. */
#define SEARCHED_PART 0.9

/* Says that one of several things begins that lie between two parts of the search. */
static void begin_part(struct planner *planner, double from, double to, int which, int of)
{
	struct pd_search_progress *progress = planner->ask->progress;
	const struct pd_best_entry *best = planner->best.entries;
	double each = (to - from) / of;

	if (!progress)
		return;
	progress->variants = 0;
	for (int i = 0; i < planner->variants.count && !is_single(planner); i++)
		progress->variants += is_looked_at(planner, &planner->variants.list[i]);
	progress->looked = planner->best.looked;
	if (planner->best.count > 0) {
		double batch = (double)best->variant->field->profile->batch_size;

		progress->samples_per_s = batch * 1e9 / (double)pd_max(best->time_ns, 1);
		progress->schedule = best->plan->schedule;
	}
	progress->part = fmax(progress->part, fmin(from + each * which, to));
	progress->next = fmax(progress->part, fmin(from + each * (which + 1), to));
	pd_effort_tell(planner->ask->request->effort);
}

/* Tells whether somebody asked for the best so far, and there is one. */
static bool is_stopped(const struct planner *planner)
{
	return planner->best.count > 0 && pd_effort_stopped(planner->ask->request->effort);
}

/* Tells whether all variants are searched: there is one, or all are small. */
static bool is_thorough(const struct planner *planner)
{
	const struct pd_variants *variants = &planner->variants;

	for (int i = 0; i < variants->field_count && !is_single(planner); i++) {
		const struct pd_task *task = &variants->fields[i].task;

		if (!pd_topology_mixed(task->topology) && task->costs.unit_count * task->topology->devices > SMALL)
			return false;
	}
	return true;
}

/* Lists the numbers of microbatches of an update that are searched for; returns how many. */
static int list_updates(const struct planner *planner, const struct pd_variant *variant, int64_t list[UPDATES])
{
	const struct pd_plan_request *request = &variant->request;
	int64_t all = request->batch_microbatches, devices = request->topology->devices, two = 1;
	int64_t tries[UPDATES] = { variant->microbatches, all, all / devices * devices };
	int count = 0;

	list[0] = request->microbatches;
	if (all == 0)
		return 1;
	while (two <= devices / 2 && two <= all / 2)
		two *= 2;
	tries[3] = all / two * two;
	for (int i = 0; i < UPDATES; i++) {
		bool known = tries[i] == 0 || (count > 0 && !planner->thorough);

		for (int k = 0; k < count; k++)
			known |= list[k] == tries[i];
		if (!known)
			list[count++] = tries[i];
	}
	return count;
}

/* Takes a plan that was found; those that were not asked for wait until orders were searched for their stages. */
static void take_found(struct planner *planner, struct pd_variant *variant, struct pd_plan *plan, int64_t time_ns)
{
	bool waits = !variant->named || (variant->field->ordered && plan->weights == PD_WEIGHTS_FLUSH);

	if (waits && (!variant->plan || time_ns < variant->time_ns)) {
		pd_candidate_drop(variant->plan);
		variant->plan = pd_candidate_copy(plan);
		variant->time_ns = time_ns;
	}
	if (variant->named)
		pd_best_offer(&planner->best, variant, plan, time_ns, PD_BEST_SEARCHED);
	else
		pd_candidate_drop(plan);
}

/*
 * Searches with a limit of memory, which may be none: then what is found counts only if it keeps to the variant's own. 
 * Returns whether something was found that counts.
 */
static bool search_within(struct planner *planner, struct pd_variant *variant, const struct pd_plan_request *request,
			  int64_t limit_bytes)
{
	struct pd_task task = variant->task;
	struct pd_best *best = &planner->best;
	struct pd_plan *plan;
	struct pd_error why;
	int64_t time_ns;

	task.request = request;
	task.bound_ns = 0;
	task.limit_bytes = limit_bytes;
	variant->field->closest_bytes = INT64_MAX;
	pd_effort_begin(request->effort);
	plan = check_ordered(request, &why) < 0 ? NULL : solve(&task, &time_ns, &why);
	if (request->cost != PD_COST_SIMULATED)         /* which may have brought the profile into another order */
		variant->task.costs = variant->field->task.costs = task.costs;
	if (plan && pd_candidate_keeps(plan, variant->task.limit_bytes)) {
		take_found(planner, variant, plan, time_ns);
		return true;
	}
	if (!plan && limit_bytes == variant->task.limit_bytes)
		pd_best_refuse(best, variant, &why, variant->field->closest_bytes);
	task.limit_bytes = variant->task.limit_bytes;
	if (plan && variant->named && pd_candidate_fullest(plan, NULL) < best->closest_bytes) {
		pd_none_explain(&task, plan, &why);
		pd_best_refuse(best, variant, &why, pd_candidate_fullest(plan, NULL));
	}
	pd_candidate_drop(plan);
	return false;
}

/*
 * Searches a variant.  Stages for orders are at least as fast without a limit as those for which memory was looked at,
 * where they fit all the same.
 */
static void search_variant(struct planner *planner, struct pd_variant *variant, bool unlimited)
{
	struct pd_plan_request request = variant->request;
	int64_t updates[UPDATES], most = request.effort ? request.effort->most : 0;
	int chunks[] = { variant->chunks ? variant->chunks : request.chunks, request.chunks };
	int count = list_updates(planner, variant, updates);
	int chunk_count = request.any_chunks && planner->thorough && chunks[0] != chunks[1] ? 2 : 1;
	bool single = planner->variants.count == 1, large = pd_task_is_large(&variant->task);
	bool limited = request.effort && (single ? large : large || !planner->thorough);
	bool free_first = unlimited || (!variant->named && !pd_topology_mixed(variant->task.topology));

	pd_field_view(variant->field);
	variant->task.views = pd_field_task(variant->field, request.weights)->views;
	for (int i = 0; i < count * chunk_count; i++) {
		request.microbatches = updates[i % count];
		request.chunks = chunks[i / count];
		if (limited)
			request.effort->most = most / (single ? SINGLE_PART : SEARCH_PART);
		if (!free_first || variant->task.limit_bytes == INT64_MAX ||
		    !search_within(planner, variant, &request, INT64_MAX))
			if (!unlimited)
				search_within(planner, variant, &request, variant->task.limit_bytes);
		if (limited) {
			request.effort->most = most;
			request.effort->early &= single;
		}
	}
	planner->best.searched++;
}

/* Tells whether no plan in another order of kinds can be much faster. */
static bool is_enough(struct planner *planner)
{
	const struct pd_best_entry *best = planner->best.entries;

	return planner->variants.orders.count > 1 && planner->best.count > 0 &&
	       best->time_ns - best->time_ns / ENOUGH <= task_bound_ns(&best->variant->task, PD_NEVER);
}

static bool is_ordered(const struct pd_variant *variant)
{
	return pd_schedule_has(variant->request.schedule, PD_FACT_ORDERED) && !variant->request.stages;
}

/* Searches all variants, in their order. */
static void search_all(struct planner *planner)
{
	struct pd_variants *variants = &planner->variants;

	for (int i = 0; i < variants->count && !is_stopped(planner); i++) {
		struct pd_variant *variant = &variants->list[i];

		begin_part(planner, PD_SEARCH_LOOKED, SEARCHED_PART, i, variants->count);
		if (!is_ordered(variant) && !(variant->field != variants->list[0].field && is_enough(planner)))
			search_variant(planner, variant, false);
	}
}

static int by_value(const void *a, const void *b)
{
	const struct pd_variant *const *x = a, *const *y = b;
	double left = (*x)->value > 0 ? (*x)->value : INFINITY, right = (*y)->value > 0 ? (*y)->value : INFINITY;

	if (left != right)
		return left < right ? -1 : 1;
	return *x < *y ? -1 : 1;
}

/* Tells whether another variant of the schedule, with the same field, was searched that looked alike. */
static bool was_searched(struct pd_variant *const *list, int count, const struct pd_variant *variant)
{
	for (int i = 0; i < count; i++)
		if (list[i]->looked == variant->looked && list[i]->searched && list[i]->field == variant->field &&
		    list[i]->request.schedule == variant->request.schedule)
			return true;
	return false;
}

/* Tells whether stages may differ most in it: in replicas, in forwards ahead, in what they recompute. */
static bool is_free(const struct pd_variant *variant)
{
	return pd_schedule_has(variant->request.schedule, PD_FACT_LEADS) &&
	       (variant->named || (variant->field->ordered && !variant->request.straight));
}

/* Returns how much slower a variant may look, when so many searches have gained so much at most. */
static double how_far(const struct pd_variant *variant, int searched, double gained)
{
	if (pd_task_is_large(&variant->task))
		return FAR_IF_LARGE;
	return searched < ALIKE ? FAR : fmin(FAR, 1 + ALIKE * (1 - gained));
}

/*
 * Searches the variants that look best: as far as one gained by its search, others may.  They look as equal pipelines
 * do, which says little of 1F1B where memory is tight: the best of its fields is always searched, also for orders.
 */
static void search_best(struct planner *planner)
{
	struct pd_variants *variants = &planner->variants;
	struct pd_variant **list = pd_calloc((size_t)variants->count, sizeof(*list));
	bool any_free = false;
	double gained = 1;

	for (int i = 0; i < variants->count; i++) {
		list[i] = &variants->list[i];
		list[i]->looked = list[i]->value;
	}
	qsort(list, (size_t)variants->count, sizeof(*list), by_value);
	for (int i = 0; i < variants->count && !is_stopped(planner); i++) {
		struct pd_variant *variant = list[i];
		double far = how_far(variant, planner->best.searched, gained);
		bool shares = pd_schedule_has(variant->request.schedule, PD_FACT_SHARES);
		bool first_free = !any_free && is_free(variant);

		if (!first_free &&
		    (is_ordered(variant) || !variant->named || variant->field->searched >= SEARCHED ||
		     (shares && variant->looked > 0 && pd_task_is_large(&variant->task)) ||
		     (planner->best.searched > 0 && planner->best.count > 0 &&
		      (shares || variant->looked == 0 || was_searched(list, i, variant) ||
		       variant->looked * gained > far * pd_best_least(&planner->best)))))
			continue;
		any_free |= first_free;
		begin_part(planner, PD_SEARCH_LOOKED, SEARCHED_PART, planner->best.searched,
			   pd_min(variants->count, SEARCHED * variants->field_count + 1));
		variant->field->searched++;
		variant->searched = true;
		search_variant(planner, variant, false);
		if (variant->looked > 0)
			gained = fmin(gained, variant->value / variant->looked);
	}
	free(list);
}

/* Searches for orders, of the stages of what was found, and of equal pipelines. */
static void search_orders(struct planner *planner, struct pd_variant *ordered)
{
	struct pd_variants *variants = &planner->variants;

	for (int i = 0; i < variants->count; i++) {
		struct pd_variant *variant = &variants->list[i];
		struct pd_plan *plan = variant->plan;

		if (variant->field != ordered->field || !plan)
			continue;
		if (pd_ordered_is_equal(plan) && pd_ordered_is_short(plan))
			pd_ordered_offer(&planner->best, ordered, pd_candidate_copy(plan));
		variant->plan = NULL;
		if (variant->named)
			pd_candidate_drop(plan);
		else
			pd_best_offer(&planner->best, variant, plan, variant->time_ns, PD_BEST_SEARCHED);
	}
	pd_ordered_offer_shapes(&planner->best, ordered, planner->thorough);
}

/* Where nothing that fits was found, takes the plan that there would be without a limit, if that fits. */
static void search_without_limit(struct planner *planner)
{
	struct pd_variants *variants = &planner->variants;
	const struct pd_plan_request *asked = planner->ask->request;

	for (int i = 0; i < variants->count && planner->best.why.status == PD_EXIT_NO; i++) {
		struct pd_variant *variant = &variants->list[i];

		if (asked->stages || asked->cost != PD_COST_SIMULATED || variant->task.limit_bytes == INT64_MAX ||
		    pd_topology_mixed(variant->task.topology) || is_ordered(variant) || !variant->named)
			continue;
		if (planner->thorough || variant->field->searched++ < 2 * SEARCHED)
			search_variant(planner, variant, true);
	}
}

static void find_best(struct planner *planner)
{
	struct pd_variants *variants = &planner->variants;

	for (int i = 0; i < variants->count && !is_single(planner) && !is_stopped(planner); i++) {
		struct pd_variant *variant = &variants->list[i];

		begin_part(planner, 0, PD_SEARCH_LOOKED, i, variants->count);
		if (is_looked_at(planner, variant))
			pd_scout(&planner->best, variant);
	}
	if (planner->thorough)
		search_all(planner);
	else
		search_best(planner);
	for (int i = 0; i < variants->count && !is_stopped(planner); i++)
		if (is_ordered(&variants->list[i])) {
			begin_part(planner, SEARCHED_PART, 1, i, variants->count);
			search_orders(planner, &variants->list[i]);
		}
	if (planner->best.count == 0)
		search_without_limit(planner);
	pd_best_settle(&planner->best);
}

/* Returns a bound for all plans of a field, with the microbatches of the one that won. */
static int64_t field_bound_ns(struct planner *planner, const struct pd_field *field, int64_t microbatches)
{
	int64_t least_ns = PD_NEVER;

	for (int i = 0; i < planner->variants.count; i++) {
		struct pd_variant *variant = &planner->variants.list[i];

		if (variant->field != field || !variant->named)
			continue;
		if (variant->request.batch_microbatches)
			variant->request.microbatches = microbatches;
		pd_effort_begin(variant->request.effort);
		least_ns = task_bound_ns(&variant->task, least_ns);
	}
	return least_ns;
}

/* Numbers a plan's ranks as the machine was given, if it is as fast and fits so. */
static void restore(struct planner *planner, struct pd_best_entry *won)
{
	struct pd_field *field = won->variant->field;
	struct pd_task task = won->variant->task;
	const struct pd_topology *machine = planner->ask->request->topology;
	struct pd_plan *plan = field->kinds->was ? pd_kinds_restore(won->plan, field->kinds, machine) : NULL;
	enum pd_period_kind from;
	struct pd_error err;
	int64_t time_ns;

	if (!plan)
		return;
	pd_predict_stages(plan);
	task.topology = machine;
	if (pd_candidate_fits(plan, task.limit_bytes) && pd_task_period(&task, plan, &time_ns, &from, &err) == 0 &&
	    time_ns <= won->time_ns) {
		struct pd_plan *other = won->plan;

		won->plan = plan;
		plan = other;
		won->plan->predicted.period_from = from;
		won->time_ns = time_ns;
		field->topology = *machine;
	}
	pd_candidate_drop(plan);
}

/* Compares the plan with tensor parallelism of the most devices, and data parallelism of these. */
static void add_tensor(struct planner *planner, struct pd_plan *plan, const struct pd_field *field)
{
	const struct pd_variant *widest = NULL;

	for (int i = 0; i < planner->variants.count && planner->ask->groups; i++) {
		const struct pd_variant *variant = &planner->variants.list[i];
		const struct pd_degrees *group = &variant->field->profile->group;

		if (group->tensor > 1 && group->sharded <= 1 && variant->field->size == field->size &&
		    (!widest || group->tensor > widest->field->profile->group.tensor))
			widest = variant;
	}
	if (widest)
		pd_alternatives_add_tensor(plan, &widest->task);
}

/* Fills in what only the best plan has; returns it, or NULL. */
static struct pd_plan *complete(struct planner *planner, struct pd_error *err)
{
	struct pd_best_entry won = planner->best.entries[0];
	struct pd_variant *variant = won.variant;
	struct pd_field *field = variant->field;
	struct pd_plan_request *request = &variant->request;
	int64_t bound_ns = field_bound_ns(planner, field, won.plan->microbatches);

	planner->best.entries[0].plan = NULL;
	if (!request->stages && request->cost == PD_COST_SIMULATED)
		pd_idle_look(&planner->best, &planner->variants, variant, won.plan);
	if (request->chunks && won.plan->rank_count > 0)
		request->chunks = won.plan->stage_count * won.plan->stages[0].replicas / won.plan->rank_count;
	if (pd_sums_choose(&variant->task, won.plan, &won.time_ns, &bound_ns, err) < 0) {
		pd_candidate_drop(won.plan);
		return NULL;
	}
	restore(planner, &won);
	pd_field_take_order(field, won.plan);
	variant->task.costs = pd_field_task(field, won.plan->weights)->costs;
	if (planner->variants.count > 1)
		memcpy(won.plan->predicted.schedules, field->tried, sizeof(field->tried));
	if (finish(&variant->task, won.plan, won.time_ns, bound_ns, err) < 0) {
		pd_candidate_drop(won.plan);
		return NULL;
	}
	add_tensor(planner, won.plan, field);
	return won.plan;
}

/* Hands the profile of a plan over to it. */
static void give_profile(struct planner *planner, struct pd_field *field)
{
	if (field->fastest == field->profile)
		field->fastest = NULL;
	if (!field->owned)
		planner->ask->profiles[field->size] = NULL;
	field->owned = false;
}

struct pd_plan *pd_planner_choose(const struct pd_planner_ask *ask, struct pd_error *err)
{
	struct planner planner = { .ask = ask };
	struct pd_plan *plan = NULL;
	struct pd_error why;

	if (ask->request->effort)
		ask->request->effort->early = false;
	if (pd_variants_init(&planner.variants, ask, &why, err) < 0)
		return NULL;
	pd_best_init(&planner.best, KEPT);
	planner.thorough = is_thorough(&planner);
	planner.best.why = why;
	find_best(&planner);
	if (planner.best.count > 0) {
		struct pd_field *field = planner.best.entries[0].variant->field;

		if (ask->top)
			pd_top_fill(ask->top, &planner.best);
		plan = complete(&planner, err);
		if (plan) {
			pd_variants_tell(&planner.variants, field, plan);
			give_profile(&planner, field);
		}
	} else {
		*err = planner.best.why;
	}
	pd_best_release(&planner.best);
	pd_variants_release(&planner.variants);
	return plan;
}

struct pd_plan *pd_planner_plan(struct pd_profile *profile, const struct pd_plan_request *request, struct pd_error *err)
{
	struct pd_planner_ask ask = { .profiles = &profile, .count = 1, .request = request };

	return pd_planner_choose(&ask, err);
}
