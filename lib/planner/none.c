/* SPDX-License-Identifier: Apache-2.0 */
/* When no plan fits: which is closest, and by how much it does not. */
#include "planner/candidate.h"

#include "base/opt.h"

#include <inttypes.h>

int pd_none_too_large(const struct pd_task *task, const struct pd_plan *plan, const char *what,
		      struct pd_error *err)
{
	const struct pd_stage *stage;
	char need[32], have[32], more[32];
	int s = 0;
	int64_t limit = task->limit_bytes, bytes = pd_candidate_fullest(plan, &s);

	stage = &plan->stages[s];
	return pd_error_no(err, "%s %s (%" PRId64 " bytes) on stage %d (layers \"%.60s\" to "
			   "\"%.60s\"), %s more than the %s of a device", what,
			   pd_show_bytes(bytes, need), bytes, s,
			   plan->profile->layers[stage->first_layer].name,
			   plan->profile->layers[stage->first_layer + stage->layer_count - 1].name,
			   pd_show_bytes(bytes - limit, more), pd_show_bytes(limit, have));
}

void pd_none_explain(const struct pd_task *task, struct pd_error *err)
{
	struct pd_flat flat = pd_task_flat(task, &task->costs, task->straight);
	struct pd_layout *layout = pd_flat_least_memory(&flat);
	struct pd_plan *plan = pd_candidate_plan(task, layout, err);

	if (plan)
		pd_none_too_large(task, plan, "no plan fits: the closest needs", err);
	pd_candidate_drop(plan);
	pd_layout_free(layout);
}
