/* SPDX-License-Identifier: Apache-2.0 */
#include "memory/again.h"

#include "base/mem.h"
#include "memory/memory.h"

#include <stdlib.h>

/* Tells which layers of a stage others use behind it. */
static void find_leaving(const struct pd_profile *profile, int first, int end,
			 struct pd_segment_layer *layers)
{
	for (int l = end; l < profile->layer_count; l++)
		for (int i = 0; i < profile->layers[l].input_count; i++) {
			int from = profile->layers[l].inputs[i];

			if (from >= first && from < end)
				layers[from - first].leaves = true;
		}
}

/*
 * Describes a layer.  Another program keeps outputs that backward reads, and in a group of devices
 * that share layers each may have one.
 */
static struct pd_segment_layer describe(const struct pd_profile *profile, int l, int first,
					bool exact)
{
	const struct pd_profile_layer *layer = &profile->layers[l];
	bool own = profile->memory.model == PD_MEMORY_OWN,
	     there = layer->stash_bytes >= layer->activation_bytes;
	size_t stash = (size_t)(layer->stash_bytes - (own && exact ? pd_memory_carried(profile, l) : 0));
	size_t output = !there ? 0 : own ? (size_t)layer->activation_bytes : stash;
	int over = pd_profile_overwrites(profile, l);

	if (exact) {
		stash = pd_align(stash);
		output = pd_align(output);
	}
	return (struct pd_segment_layer){
		.input_count = layer->input_count, .inputs = layer->inputs,
		.over = over < 0 ? PD_OVER_NONE : over < first ? PD_OVER_OUTSIDE : over - first,
		.output_bytes = output, .more_bytes = stash > output ? stash - output : 0,
	};
}

struct pd_segment_layer *pd_plan_segments(const struct pd_plan *plan,
					  const struct pd_profile *profile, int s, bool exact,
					  struct pd_segments *out_p)
{
	int first = plan->stages[s].first_layer, count = plan->stages[s].layer_count;
	struct pd_segment_layer *layers = pd_calloc((size_t)count, sizeof(*layers));

	for (int i = 0; i < count; i++) {
		layers[i] = describe(profile, first + i, first, exact);
		layers[i].segment = plan->segment ? plan->segment[first + i] : 0;
	}
	find_leaving(profile, first, first + count, layers);
	pd_segments_place(layers, count, first, out_p);
	return layers;
}

struct pd_again pd_plan_again_on(const struct pd_plan *plan, const struct pd_profile *profile,
				 int s)
{
	const struct pd_stage *stage = &plan->stages[s];
	struct pd_again again = { 0, 0 };
	struct pd_segment_layer *layers;
	struct pd_segments segments;

	if (!stage->recompute)
		return again;
	if (!pd_plan_reruns_some(plan, s)) {
		for (int i = 0; i < stage->layer_count; i++)
			again.before_ns = pd_plus(again.before_ns,
						  profile->layers[stage->first_layer + i].forward_ns);
		return again;
	}
	layers = pd_plan_segments(plan, profile, s, false, &segments);
	for (int i = 0; i < stage->layer_count; i++) {
		int64_t *sum = layers[i].point == segments.first_point ? &again.before_ns
								       : &again.within_ns;

		if (layers[i].point >= 0)
			*sum = pd_plus(*sum, profile->layers[stage->first_layer + i].forward_ns);
	}
	free(layers);
	return again;
}

struct pd_again pd_plan_again(const struct pd_plan *plan, int s)
{
	struct pd_again most = { 0, 0 };

	if (plan->stages[s].recompute && !pd_plan_reruns_some(plan, s))
		return (struct pd_again){ plan->stages[s].forward_ns, 0 };
	for (int k = 0; k < pd_plan_kinds(plan) && plan->stages[s].recompute; k++) {
		struct pd_again one = pd_plan_again_on(plan, pd_profile_of_kind(plan->profile, k), s);

		if (one.before_ns + one.within_ns > most.before_ns + most.within_ns &&
		    (pd_plan_kinds(plan) == 1 || pd_plan_rank_of_kind(plan, s, k) >= 0))
			most = one;
	}
	return most;
}

int64_t pd_plan_again_ns(const struct pd_plan *plan, int s)
{
	struct pd_again again = pd_plan_again(plan, s);

	return pd_plus(again.before_ns, again.within_ns);
}
