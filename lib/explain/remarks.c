/* SPDX-License-Identifier: Apache-2.0 */
#include "explain/remarks.h"

#include "base/minmax.h"
#include "plan/show.h"

#include <stdlib.h>
#include <string.h>

void pd_remark_memory(const struct pd_plan *plan, const char *system)
{
	const char *model = pd_memory_model_name[plan->profile->memory.model];

	pd_say("memory is that of %s, for %s: --memory-model=%s (or pd-run)", model, system, model);
}

void pd_remark_shared(const struct pd_plan *plan, const struct pd_plan_request *request)
{
	const struct pd_profile *profile = plan->profile;

	if (request->stages || request->cost != PD_COST_SIMULATED || plan->topology.devices == 1 ||
	    pd_weights_copy_shared(plan->weights))
		return;
	for (int l = 0; l < profile->layer_count; l++)
		if (pd_profile_owner(profile, l) != l) {
			pd_say("layers \"%.60s\" and \"%.60s\" share parameters and stay in one stage: "
			       "with --weights=2bw or flush each has a copy",
			       profile->layers[pd_profile_owner(profile, l)].name, profile->layers[l].name);
			return;
		}
}

void pd_remark_recompute(const struct pd_plan *plan, const struct pd_plan_request *request,
			 const char *asked)
{
	bool idle = request->segments_asked || request->recomputed ||
		    request->recompute == PD_RECOMPUTE_ALL;

	for (int s = 0; s < plan->stage_count; s++)
		idle &= !plan->stages[s].recompute;
	if (idle)
		pd_say("--recompute=%.60s: nothing is computed again, since that would save no memory: stages "
		       "with one microbatch in flight save some only by several blocks, modules or "
		       "layers, each of which keeps more than what it begins with", asked);
}

void pd_remark_order(const struct pd_plan *plan, const struct pd_topology *given)
{
	char *before = pd_show_devices(given), *now = pd_show_devices(&plan->topology);

	if (now && strcmp(before, now) != 0)
		pd_say("the devices are in another order than they were given, those that are not "
		       "used last: start %s",
		       now);
	free(before);
	free(now);
}

void pd_remark_formula(const struct pd_plan *plan)
{
	int64_t least_ns = INT64_MAX, most_ns = 0, each = plan->microbatches / plan->stages[0].replicas;
	int positions = plan->stage_count / PD_PLANNER_CHUNKS;

	if (!pd_schedule_has(plan->schedule, PD_FACT_V) || positions < 2 ||
	    !pd_weights_have(plan->weights, PD_WEIGHTS_DRAINS))
		return;
	for (int s = 0; s < plan->stage_count; s++) {
		int64_t ns = plan->stages[s].forward_ns + plan->stages[s].backward_ns;

		least_ns = pd_min(least_ns, ns);
		most_ns = pd_max(most_ns, ns);
	}
	if (each >= 2 * positions - 1 && most_ns <= least_ns + least_ns / 10)
		return;
	pd_say("the order of %s is by its formula, which %s; --schedule=zb-auto searches for a better one",
	       pd_schedule_kind_name[plan->schedule],
	       each < 2 * positions - 1 ? "wants more microbatches in each pipeline"
					: "wants stages that take equally long");
}
