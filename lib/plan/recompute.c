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

/* Tells whether a stage that recomputes does so in one piece. */
static bool is_whole(const struct pd_plan *plan, int s)
{
	const struct pd_stage *stage = &plan->stages[s];
	bool whole = true;

	for (int l = 0; l < stage->layer_count && plan->segment && whole; l++)
		whole = plan->segment[stage->first_layer + l] == 0;
	return whole;
}

bool pd_plan_reruns_some(const struct pd_plan *plan, int s)
{
	return plan->stages[s].recompute && !is_whole(plan, s);
}

int pd_plan_segment_count(const struct pd_plan *plan, int s)
{
	const struct pd_stage *stage = &plan->stages[s];
	int last = -1, count = 0;

	if (!stage->recompute || !plan->segment)
		return stage->recompute;
	for (int l = stage->first_layer; l < stage->first_layer + stage->layer_count; l++)
		if (plan->segment[l] >= 0 && plan->segment[l] != last) {
			last = plan->segment[l];
			count++;
		}
	return count;
}

int pd_profile_overwrites(const struct pd_profile *profile, int layer)
{
	const struct pd_profile_layer *at = &profile->layers[layer];

	if (profile->memory.model != PD_MEMORY_OWN)     /* others may keep nothing of a layer, and overwrite nothing */
		return -1;
	return at->stash_bytes < at->activation_bytes && at->input_count > 0 ? at->inputs[0] : -1;
}

/* Checks that no segment begins before another has ended. */
static int check_order(const struct pd_plan *plan, int s, const char *where, struct pd_error *err)
{
	const struct pd_stage *stage = &plan->stages[s];
	int last = -1;

	for (int l = stage->first_layer; l < stage->first_layer + stage->layer_count; l++) {
		if (plan->segment[l] >= 0 && plan->segment[l] < last)
			return pd_error_input(err, "%s[%d].recompute: expected lists of layers that follow "
					      "one another, and \"%.60s\" lies inside of a later list", where, s,
					      plan->profile->layers[l].name);
		last = plan->segment[l] >= 0 ? plan->segment[l] : last;
	}
	if (pd_plan_splits(plan) && pd_plan_segment_count(plan, s) > 1)
		return pd_error_input(err, "%s[%d].recompute: schedule \"%s\" has backward in two parts, and "
				      "between them is kept what a list of layers frees: expected one list",
				      where, s, pd_schedule_kind_name[plan->schedule]);
	return 0;
}

/* Checks that what overwrites outputs of a stage is computed again with them. */
static int check_overwritten(const struct pd_plan *plan, int s, const char *where,
			     struct pd_error *err)
{
	const struct pd_stage *stage = &plan->stages[s];
	const struct pd_profile *profile = plan->profile;

	for (int l = stage->first_layer + 1; l < stage->first_layer + stage->layer_count; l++) {
		int over = pd_profile_overwrites(profile, l);

		if (over >= stage->first_layer && pd_plan_reruns(plan, s, over) &&
		    !pd_plan_reruns(plan, s, l))
			return pd_error_input(err, "%s[%d].recompute: expected layer \"%.60s\", too, which "
					      "overwrites the output of \"%.60s\"", where, s,
					      profile->layers[l].name, profile->layers[over].name);
	}
	return 0;
}

int pd_plan_check_reruns(const struct pd_plan *plan, const char *where, struct pd_error *err)
{
	for (int s = 0; s < plan->stage_count && plan->segment; s++)
		if (plan->stages[s].recompute && (check_order(plan, s, where, err) < 0 ||
						  check_overwritten(plan, s, where, err) < 0))
			return -1;
	return 0;
}
