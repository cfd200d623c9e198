/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recomputation as a choice.
 *
 * A stage that recomputes keeps, of all minibatches in flight but one, only what came in; it pays
 * with a forward for each.  It is never faster than the same stage without, so of plans with the
 * same stages and warm-ups the best is the one in which those recompute that would not fit
 * otherwise, and no others.  What is left to choose is how many are in flight: fewer without
 * recomputation, or more with it (warmup.c).
 */
#include "planner/search/recompute.h"

#include "base/mem.h"
#include "base/opt.h"
#include "planner/search/candidate.h"
#include "planner/price/predict.h"

#include <stdlib.h>
#include <string.h>

bool pd_recompute_free(const struct pd_plan_request *request)
{
	return request->recompute == PD_RECOMPUTE_AUTO && !request->recomputed &&
	       request->cost == PD_COST_SIMULATED && request->weights != PD_WEIGHTS_LATEST;
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
	if (request->recomputed)
		return set_list(plan, request->recomputed, err);
	return request->recompute != PD_RECOMPUTE_ALL || set_all(plan, err);
}

/* Lets one more stage recompute on each rank above the limit; returns whether there was any. */
static bool recompute_more(struct pd_plan *plan, const struct pd_schedule *schedule,
			   int64_t limit_bytes)
{
	bool *done = pd_calloc((size_t)plan->rank_count, sizeof(*done)), any = false;

	for (int s = 0; s < plan->stage_count; s++) {
		struct pd_stage *stage = &plan->stages[s];
		int slots = pd_schedule_slots(schedule, s, false);

		if (stage->memory_bytes <= limit_bytes || stage->recompute ||
		    done[stage->ranks[0]])
			continue;
		stage->recompute = true;
		if (pd_schedule_slots(schedule, s, false) == slots)
			stage->recompute = false;
		else
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
	if (pd_candidate_fullest(plan, NULL) <= limit_bytes)
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
