/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recomputation as a choice.
 *
 * A stage that recomputes keeps, of all minibatches in flight but one, only what came in; it pays
 * with a forward for each.  It is never faster than the same stage without, so of plans with the
 * same stages and warm-ups the best is the one in which those recompute that would not fit
 * otherwise, and no others.  What is left to choose is how many are in flight: fewer without
 * recomputation, or more with it (warmup.c).
 *
 * Where a stage may recompute in part (plan->kept), layers are added one by one, those first that take
 * the least time for each byte that they need not keep, until the stage fits.
 */
#include "planner/search/recompute.h"

#include "base/mem.h"
#include "base/opt.h"
#include "base/sort.h"
#include "plan/recompute.h"
#include "planner/search/candidate.h"
#include "predict/predict.h"

#include <stdlib.h>
#include <string.h>

bool pd_recompute_free(const struct pd_plan_request *request)
{
	return (request->recompute == PD_RECOMPUTE_AUTO || request->recompute == PD_RECOMPUTE_SELECTIVE) &&
	       !request->recomputed && !request->recompute_kinds &&
	       request->cost == PD_COST_SIMULATED && !pd_weights_have(request->weights, PD_WEIGHTS_REREADS);
}

int pd_recompute_count(const struct pd_plan *plan)
{
	int count = 0;

	for (int s = 0; s < plan->stage_count; s++)
		count += plan->stages[s].recompute;
	return count;
}

static void clear(struct pd_plan *plan)
{
	for (int s = 0; s < plan->stage_count; s++)
		plan->stages[s].recompute = false;
}

/* Lets all stages recompute that can and have more than one minibatch in flight. */
static bool set_all(struct pd_plan *plan, struct pd_error *err)
{
	struct pd_schedule *schedule = pd_schedule_new(plan, err);

	if (!schedule)
		return false;
	for (int s = 0; s < plan->stage_count; s++)
		plan->stages[s].recompute = pd_schedule_in_flight(schedule, s, false) > 1;
	pd_schedule_free(schedule);
	return true;
}

/* Lets layers of some kinds recompute, and what overwrites their outputs, in all stages where that saves memory. */
static bool set_kinds(struct pd_plan *plan, const bool *kinds, struct pd_error *err)
{
	const struct pd_profile *profile = plan->profile;

	if (!set_all(plan, err))
		return false;
	for (int s = 0; s < plan->stage_count; s++) {
		struct pd_stage *stage = &plan->stages[s];

		for (int l = stage->first_layer; l < stage->first_layer + stage->layer_count; l++) {
			int over = pd_profile_overwrites(profile, l);
			bool follows = over >= stage->first_layer && !plan->kept[over];

			plan->kept[l] = !kinds[profile->model->layers[l].kind] && !follows;
		}
		stage->recompute = stage->recompute && pd_plan_rerun_count(plan, s) > 0;
	}
	return true;
}

static bool set_list(struct pd_plan *plan, const char *list, struct pd_error *err)
{
	char *text = pd_strdup(list), *next;
	bool good = true;

	for (char *one = text; one && good; one = next) {
		int64_t s;

		next = strchr(one, ',');
		if (next)
			*next++ = '\0';
		good = pd_parse_count(one, 0, plan->stage_count - 1, &s, err) == 0;
		if (good)
			plan->stages[s].recompute = true;
		else
			pd_error_prefix(err, "--recompute: a stage");
	}
	free(text);
	return good;
}

bool pd_recompute_asked(struct pd_plan *plan, const struct pd_plan_request *request,
			struct pd_error *err)
{
	if (request->recompute_kinds)
		return set_kinds(plan, request->recompute_kinds, err);
	if (request->recomputed)
		return set_list(plan, request->recomputed, err);
	return request->recompute != PD_RECOMPUTE_ALL || set_all(plan, err);
}

/* A layer, with those that overwrite its output. */
struct group {
	int first_layer;
	int64_t forward_ns, stash_bytes;
};

static int by_cost(const void *a, const void *b)
{
	const struct group *x = a, *y = b;
	double x_cost = (double)x->forward_ns * (double)y->stash_bytes;
	double y_cost = (double)y->forward_ns * (double)x->stash_bytes;

	PD_ORDER(x_cost, y_cost);
	PD_ORDER(x->first_layer, y->first_layer);
	return 0;
}

/* Sets the first layer of each layer's group, counted within the stage. */
static int *groups_of(const struct pd_plan *plan, const struct pd_stage *stage)
{
	int *group = pd_calloc((size_t)stage->layer_count, sizeof(*group));

	for (int l = 0; l < stage->layer_count; l++) {
		int over = pd_profile_overwrites(plan->profile, stage->first_layer + l) - stage->first_layer;

		group[l] = over >= 0 ? group[over] : l;
	}
	return group;
}

/*
 * Lets more layers of a stage recompute, the cheapest first, until so many bytes are saved; `fewer`
 * microbatches need not keep them.  Returns whether there were any.
 */
static bool rerun_more(struct pd_plan *plan, const struct pd_stage *stage, int64_t bytes, int fewer)
{
	size_t layers = (size_t)stage->layer_count;
	struct group *groups = pd_calloc(layers, sizeof(*groups));
	int *group = groups_of(plan, stage);
	bool *kept = plan->kept + stage->first_layer, *chosen = pd_calloc(layers, sizeof(*chosen));
	bool any = false;

	for (size_t l = 0; l < layers; l++) {
		const struct pd_profile_layer *layer = &plan->profile->layers[stage->first_layer + (int)l];
		struct group *one = &groups[group[l]];

		one->first_layer = group[l];
		one->forward_ns += layer->forward_ns;
		one->stash_bytes += layer->stash_bytes;
	}
	qsort(groups, layers, sizeof(*groups), by_cost);
	for (size_t g = 0; g < layers && bytes > 0; g++)
		if (groups[g].stash_bytes > 0 && kept[groups[g].first_layer]) {
			chosen[groups[g].first_layer] = any = true;
			bytes -= pd_times(fewer, groups[g].stash_bytes);
		}
	for (size_t l = 0; l < layers; l++)
		kept[l] &= !chosen[group[l]];
	free(chosen);
	free(group);
	free(groups);
	return any;
}

/* Lets a stage that does not fit recompute, or more of its layers; returns whether that saves anything. */
static bool stage_more(struct pd_plan *plan, const struct pd_schedule *schedule, int s, int64_t limit_bytes)
{
	struct pd_stage *stage = &plan->stages[s];
	bool before = stage->recompute;
	int fewer;

	if (before && !plan->kept)
		return false;
	stage->recompute = true;
	fewer = pd_schedule_in_flight(schedule, s, false) - pd_schedule_slots(schedule, s, false);
	for (int l = 0; l < stage->layer_count && plan->kept && !before; l++)
		plan->kept[stage->first_layer + l] = true;
	if (fewer > 0 && (!plan->kept || rerun_more(plan, stage, stage->memory_bytes - limit_bytes, fewer)))
		return true;
	stage->recompute = before;
	return false;
}

/* Lets one more stage recompute on each rank above the limit; returns whether there was any. */
static bool recompute_more(struct pd_plan *plan, const struct pd_schedule *schedule,
			   int64_t limit_bytes)
{
	bool *done = pd_calloc((size_t)plan->rank_count, sizeof(*done)), any = false;

	for (int s = 0; s < plan->stage_count; s++) {
		struct pd_stage *stage = &plan->stages[s];

		int64_t limit = pd_stage_limit(plan, s, limit_bytes);

		if (stage->memory_bytes > limit && !done[stage->ranks[0]] &&
		    stage_more(plan, schedule, s, limit))
			any = done[stage->ranks[0]] = true;
	}
	free(done);
	return any;
}

enum pd_fit pd_recompute_step(struct pd_plan *plan, int64_t limit_bytes, bool more,
			      struct pd_schedule **schedule_p)
{
	struct pd_error err;
	struct pd_schedule *schedule = pd_schedule_new(plan, &err);
	enum pd_fit how = PD_TOO_LARGE;

	if (!schedule)
		return PD_REFUSED;
	pd_predict_memory(plan, schedule);
	if (pd_candidate_keeps(plan, limit_bytes))
		how = PD_FITS;
	else if (more && recompute_more(plan, schedule, limit_bytes))
		how = PD_CHANGED;
	if (how == PD_FITS && schedule_p)
		*schedule_p = schedule;
	else
		pd_schedule_free(schedule);
	return how;
}

bool pd_recompute_fit(struct pd_plan *plan, int64_t limit_bytes)
{
	enum pd_fit how;

	clear(plan);
	do {
		how = pd_recompute_step(plan, limit_bytes, true, NULL);
	} while (how == PD_CHANGED);
	return how == PD_FITS;
}

bool pd_recompute_weigh(struct pd_plan *plan, const struct pd_plan_request *request,
			int64_t limit_bytes)
{
	struct pd_plan_request with = *request;
	struct pd_error err;

	with.weights = plan->weights;
	with.recomputed = NULL;
	if (pd_recompute_free(&with) && pd_recompute_fit(plan, limit_bytes))
		return true;
	clear(plan);
	return pd_recompute_asked(plan, &with, &err) && pd_candidate_weigh(plan, &err);
}
