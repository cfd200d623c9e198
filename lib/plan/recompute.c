/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/recompute.h"

#include "base/mem.h"

int pd_plan_rerun_count(const struct pd_plan *plan, int s)
{
	const struct pd_stage *stage = &plan->stages[s];
	int count = 0;

	for (int l = stage->first_layer; l < stage->first_layer + stage->layer_count; l++)
		count += pd_plan_reruns(plan, s, l);
	return count;
}

bool pd_plan_reruns_some(const struct pd_plan *plan, int s)
{
	return plan->stages[s].recompute && plan->kept &&
	       pd_plan_rerun_count(plan, s) < plan->stages[s].layer_count;
}

int64_t pd_plan_again_on(const struct pd_plan *plan, const struct pd_profile *profile, int s)
{
	const struct pd_stage *stage = &plan->stages[s];
	int64_t ns = 0;

	for (int l = stage->first_layer; l < stage->first_layer + stage->layer_count; l++)
		if (pd_plan_reruns(plan, s, l))
			ns = pd_plus(ns, profile->layers[l].forward_ns);
	return ns;
}

int64_t pd_plan_again_ns(const struct pd_plan *plan, int s)
{
	const struct pd_stage *stage = &plan->stages[s];
	int64_t most = 0;

	if (!stage->recompute || !plan->kept)
		return stage->recompute ? stage->forward_ns : 0;
	for (int k = 0; k < pd_plan_kinds(plan); k++) {
		int64_t ns = pd_plan_again_on(plan, pd_profile_of_kind(plan->profile, k), s);

		if (ns > most && (pd_plan_kinds(plan) == 1 || pd_plan_rank_of_kind(plan, s, k) >= 0))
			most = ns;
	}
	return most;
}

int64_t pd_plan_kept_bytes(const struct pd_plan *plan, const struct pd_profile *profile, int s)
{
	const struct pd_stage *stage = &plan->stages[s];
	int64_t bytes = 0;

	for (int l = stage->first_layer; l < stage->first_layer + stage->layer_count; l++)
		if (stage->recompute && !pd_plan_reruns(plan, s, l))
			bytes = pd_plus(bytes, profile->layers[l].stash_bytes);
	return bytes;
}

int pd_profile_overwrites(const struct pd_profile *profile, int layer)
{
	const struct pd_profile_layer *at = &profile->layers[layer];

	if (profile->memory.model != PD_MEMORY_OWN)     /* others may keep nothing of a layer, and overwrite nothing */
		return -1;
	return at->stash_bytes < at->activation_bytes && at->input_count > 0 ? at->inputs[0] : -1;
}

int pd_plan_check_reruns(const struct pd_plan *plan, const char *where, struct pd_error *err)
{
	const struct pd_profile *profile = plan->profile;

	for (int s = 0; s < plan->stage_count && plan->kept; s++)
		for (int l = plan->stages[s].first_layer + 1;
		     l < plan->stages[s].first_layer + plan->stages[s].layer_count; l++) {
			int over = pd_profile_overwrites(profile, l);

			if (over >= plan->stages[s].first_layer && pd_plan_reruns(plan, s, over) &&
			    !pd_plan_reruns(plan, s, l))
				return pd_error_input(err, "%s[%d].recompute: expected layer \"%.60s\", too, which "
						      "overwrites the output of \"%.60s\"", where, s,
						      profile->layers[l].name, profile->layers[over].name);
		}
	return 0;
}
