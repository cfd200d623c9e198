/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/chain.h"

int pd_chain_check_flush(const struct pd_plan *plan, const char *who, struct pd_error *err)
{
	if (pd_weights_have(plan->weights, PD_WEIGHTS_DRAINS))
		return 0;
	return pd_error_input(err, "%s: weights: \"%s\" cannot be said to %s, which trains by flush, and would do so "
			      "without a word: expected \"flush\", as pd-plan --weights=flush plans",
			      pd_plan_name(plan), pd_weight_kind_name[plan->weights], who);
}

int pd_chain_check_replicas(const struct pd_plan *plan, const char *who, struct pd_error *err)
{
	for (int s = 1; s < plan->stage_count; s++)
		if (plan->stages[s].replicas != plan->stages[0].replicas)
			return pd_error_input(err, "%s: stages[%d].replicas: data parallelism repeats the pipelines of "
					      "%s as a whole: expected %d replicas as of stage 0, found %d (pd-plan "
					      "--straight plans none)", pd_plan_name(plan), s, who,
					      plan->stages[0].replicas, plan->stages[s].replicas);
	return 0;
}

/*
 * Returns a tensor of the link that another stage made than the one from which the link goes, or that skips
 * stages; or -1.
 */
static int passed_on(const struct pd_plan *plan, const struct pd_link *link)
{
	for (int i = 0; i < link->tensor_count; i++)
		if (link->to > link->from + 1 ||
		    pd_plan_stage_of_layer(plan, link->tensors[i]) != link->from)
			return link->tensors[i];
	return -1;
}

int pd_chain_check_links(const struct pd_plan *plan, const struct pd_wiring *wiring, const char *who,
			 struct pd_error *err)
{
	for (int l = 0; l < wiring->link_count; l++) {
		int layer = passed_on(plan, &wiring->links[l]);

		if (layer >= 0)
			return pd_error_input(err, "%s: the output of layer \"%.60s\" goes from stage %d to stage %d, and "
					      "stages of %s send to the next stage alone: expected other cuts "
					      "(pd-plan --stages)", pd_plan_name(plan),
					      plan->profile->layers[layer].name,
					      pd_plan_stage_of_layer(plan, layer), wiring->links[l].to, who);
	}
	for (int s = 1; s < plan->stage_count; s++)
		if (wiring->in_count[s] == 0)
			return pd_error_input(err, "%s: stages[%d] takes nothing from stage %d, and stages of %s each "
					      "take what the one before makes: expected other cuts (pd-plan "
					      "--stages)", pd_plan_name(plan), s, s - 1, who);
	return 0;
}

int pd_chain_check_shares(const struct pd_plan *plan, const char *who, struct pd_error *err)
{
	for (int l = 0; l < plan->profile->layer_count; l++) {
		int owner = pd_profile_owner(plan->profile, l);

		if (pd_plan_stage_of_layer(plan, l) != pd_plan_stage_of_layer(plan, owner))
			return pd_error_input(err, "%s: layers \"%.60s\" and \"%.60s\" share parameters and are in "
					      "different stages, whose gradients %s does not add up: expected both in "
					      "one stage (pd-plan --stages)", pd_plan_name(plan),
					      plan->profile->layers[owner].name, plan->profile->layers[l].name,
					      who);
	}
	return 0;
}
