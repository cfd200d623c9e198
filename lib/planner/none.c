/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Explains that no plan fits: which comes closest, by how much it does not fit, and what would
 * help.
 */
#include "planner/answers.h"

#include "base/mem.h"
#include "base/opt.h"
#include "plan/show.h"
#include "planner/search/candidate.h"
#include "planner/search/recompute.h"
#include "planner/search/simulated.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns the stage that has most bytes above its limit, and sets that. */
static int fullest(const struct pd_task *task, const struct pd_plan *plan, int64_t *limit_p)
{
	int64_t most = INT64_MIN;
	int at = 0;

	for (int s = 0; s < plan->stage_count; s++) {
		int64_t limit = pd_stage_limit(plan, s, task->limit_bytes), bytes = plan->stages[s].memory_bytes;

		if (bytes - limit > most) {
			most = bytes - limit;
			*limit_p = limit;
			at = s;
		}
	}
	return at;
}

/* Reports that the plan does not fit: which stage, and by how much. */
static int too_large(const struct pd_task *task, const struct pd_plan *plan, const char *what,
		     const char *advice, struct pd_error *err)
{
	const struct pd_degrees *group = &plan->profile->group;
	char need[32], have[32], more[32];
	int64_t limit = task->limit_bytes;
	int s = fullest(task, plan, &limit);
	const struct pd_stage *stage = &plan->stages[s];
	int64_t bytes = stage->memory_bytes;

	return pd_error_no(err, "%s %s (%" PRId64 " bytes) on stage %d (layers \"%.60s\" to "
			   "\"%.60s\"), %s more than the %s of a device%s", what,
			   pd_show_device_bytes(plan, bytes, need), pd_degrees_each(group, bytes), s,
			   plan->profile->layers[stage->first_layer].name,
			   plan->profile->layers[stage->first_layer + stage->layer_count - 1].name,
			   pd_show_device_bytes(plan, bytes - limit, more), pd_show_device_bytes(plan, limit, have),
			   advice);
}

/* Tells whether more recomputation would be possible and useful. */
static bool may_recompute(const struct pd_task *task)
{
	struct pd_plan_request request = *task->request;

	request.recompute = PD_RECOMPUTE_AUTO;
	request.recomputed = NULL;
	request.segments_asked = false;
	return !pd_recompute_free(task->request) && pd_recompute_free(&request);
}

#define RECOMPUTED "; --recompute=auto would fit"

int pd_none_hand(const struct pd_task *task, struct pd_plan *plan, const char *what,
		 struct pd_error *err)
{
	struct pd_plan *other = pd_candidate_copy(plan);
	bool fits = may_recompute(task) && pd_recompute_fit(other, task->request, task->limit_bytes);

	pd_candidate_drop(other);
	return too_large(task, plan, what, fits ? RECOMPUTED : "", err);
}

/*
 * Tells whether there would be a plan with other weights, or with `times` as many outer components.
 */
static bool would_fit(const struct pd_task *task, enum pd_weight_kind weights, int64_t times,
		      enum pd_recompute_kind recompute)
{
	struct pd_plan_request request = *task->request;
	struct pd_topology topology = *task->topology;
	struct pd_task other = *task;

	if (topology.devices * times > PD_MAX_RANKS || times > task->costs.unit_count)
		return false;
	topology.devices *= times;
	topology.level[topology.levels - 1].count *= times;
	request.weights = weights;
	request.recompute = recompute;
	request.topology = &topology;
	other.request = &request;
	other.topology = &topology;
	return pd_simulated_fits(&other);
}

/* Tells whether some of the search was left out. */
static bool ended_early(const struct pd_task *task)
{
	return task->request->effort && task->request->effort->early;
}

/* Says what would make a plan fit. */
static void advise(const struct pd_task *task, char *text, size_t room)
{
	enum pd_weight_kind weights = task->request->weights;
	enum pd_recompute_kind recompute = task->request->recompute;

	if (may_recompute(task) && would_fit(task, weights, 1, PD_RECOMPUTE_AUTO)) {
		snprintf(text, room, RECOMPUTED);
		return;
	}
	if (!pd_schedule_has(task->request->schedule, PD_FACT_LEADS))
		return;
	for (int lighter = 0; lighter < PD_WEIGHT_KINDS; lighter++)
		if (lighter != (int)weights && !pd_weights_have(weights, PD_WEIGHTS_DRAINS) &&
		    pd_weights_have((enum pd_weight_kind)lighter, PD_WEIGHTS_GROUPS) &&
		    would_fit(task, (enum pd_weight_kind)lighter, 1, recompute)) {
			snprintf(text, room, "; --weights=%s would fit", pd_weight_kind_name[lighter]);
			return;
		}
	/* Who has several kinds of devices may have more of any. */
	if (pd_topology_mixed(task->topology))
		return;
	for (int64_t times = 2; times <= 8; times *= 2)
		if (would_fit(task, weights, times, recompute)) {
			snprintf(text, room, "; %" PRId64 " devices would do",
				 task->topology->devices * times * pd_degrees_devices(&task->profile->group));
			return;
		}
	if (ended_early(task))
		return;
	snprintf(text, room, "; neither other weights, recomputation nor eight times as many "
		 "devices would do");
}

void pd_none_explain(const struct pd_task *task, const struct pd_plan *closest, struct pd_error *err)
{
	bool early = ended_early(task);
	char advice[128] = "";

	if (task->closest_bytes)
		*task->closest_bytes = closest ? pd_candidate_fullest(closest, NULL) : INT64_MAX;
	if (!closest && early) {
		pd_error_no(err, "no plan was found: the search ended early (--effort)");
		return;
	}
	if (!closest) {
		pd_error_no(err, "no plan fits: a stage would need more than 2^61 bytes");
		return;
	}
	advise(task, advice, sizeof(advice));
	too_large(task, closest, early ? "no plan was found, the search having ended early (--effort): the closest needs"
		  : "no plan fits: the closest needs", advice, err);
}
