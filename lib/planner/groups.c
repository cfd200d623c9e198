/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/groups.h"

#include "base/json.h"
#include "base/mem.h"
#include "estimate/estimate.h"
#include "plan/prediction.h"
#include "planner/search/gain.h"
#include "topology/contract.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct search {
	struct pd_profile **profiles;
	int count;
	int64_t batch;
	const struct pd_plan_request *request;
	struct pd_group_request *groups;
	struct pd_batch_choice *batch_choices;
	struct pd_alternative tensor;   /* the widest tensor parallelism found; stages NULL: none */
	int64_t tensor_batch;           /* samples of its microbatch */
};

/* Estimates a profile anew, for devices that are put together so. */
static struct pd_profile *variant(const struct pd_profile *profile,
				  const struct pd_group_choice *choice,
				  const struct pd_degrees *group, struct pd_error *err)
{
	int64_t sharded = profile->group.sharded > 1 ? profile->group.sharded : 1;
	struct pd_estimate how = { .batch_size = profile->batch_size / sharded, .dtype = profile->dtype,
				   .tf32 = profile->tf32, .group = *group, .elsewhere = true };
	struct pd_place place = pd_place_root(profile->name, profile->sheet);
	struct pd_sheet *sheet = pd_sheet_parse_at(&place, err);
	struct pd_profile *made;

	if (!sheet)
		return NULL;
	how.sheet = sheet;
	made = pd_estimate_profile(&how, profile->model, err);
	pd_sheet_free(sheet);
	if (!made)
		return NULL;
	if (profile->memory.model != PD_MEMORY_OWN)
		made->memory = profile->memory;
	made->memory.sharded |= choice->shards_optimizer;
	for (int l = 0; l < made->layer_count; l++)
		made->layers[l].joined = profile->layers[l].joined;
	return made;
}

static int variants(const struct search *s, const struct pd_group_choice *choice,
		    struct pd_profile **made, struct pd_error *err)
{
	struct pd_degrees group = choice->group;

	pd_estimate_links(s->request->topology, &group);
	for (int i = 0; i < s->count; i++) {
		made[i] = variant(s->profiles[i], choice, &group, err);
		if (!made[i])
			return -1;
	}
	return 0;
}

/* Plans for the machine of groups. */
static struct pd_plan *plan_for(const struct search *s, int64_t devices, struct pd_profile **profiles,
				struct pd_batch_choice *choices, struct pd_error *err)
{
	struct pd_plan_request with = *s->request;
	struct pd_topology topology;
	struct pd_plan *plan;

	if (pd_topology_contract(s->request->topology, devices, s->groups->spans, &topology, err) < 0)
		return NULL;
	with.topology = &topology;
	with.memory_bytes = pd_times(with.memory_bytes, devices);
	with.min_gain = expm1((double)devices * log1p(with.min_gain));
	if (s->count > 1 || s->batch)
		return pd_planner_batch(profiles, s->count, s->batch, &with, choices, err);
	plan = pd_planner_plan(profiles[0], &with, err);
	if (plan)
		profiles[0] = NULL;
	return plan;
}

/* Tells whether a plan brings more, and sets what it brings. */
static double value_of(const struct search *s, const struct pd_plan *plan)
{
	int devices = plan->rank_count * (int)pd_degrees_devices(&plan->profile->group);

	return plan->predicted.samples_per_s / pd_gain_weight(s->request->min_gain, devices);
}

/* Keeps data parallelism of the widest groups that share layers out: what is called tensor parallelism. */
static void keep_tensor(struct search *s, const struct pd_plan *plan)
{
	const struct pd_degrees *group = &plan->profile->group;

	if (group->tensor <= 1 || group->sharded > 1 || (s->tensor.stages && s->tensor.tensor >= group->tensor))
		return;
	for (int i = 0; i < plan->predicted.alternative_count; i++) {
		const struct pd_alternative *one = &plan->predicted.alternatives[i];

		if (one->kind != PD_ALTERNATIVE_DATA_PARALLEL)
			continue;
		free(s->tensor.stages);
		free(s->tensor.recompute);
		s->tensor = *one;
		s->tensor.kind = PD_ALTERNATIVE_TENSOR_PARALLEL;
		s->tensor.tensor = group->tensor;
		s->tensor.stages = pd_strdup(one->stages);
		s->tensor.recompute = one->recompute ? pd_strdup(one->recompute) : NULL;
		s->tensor_batch = plan->profile->batch_size;
	}
}

/* Adds it to what the plan is compared with, as for microbatches of the plan's size. */
static void add_tensor(struct search *s, struct pd_plan *plan)
{
	struct pd_prediction *predicted = &plan->predicted;
	double times = (double)plan->profile->batch_size / (double)s->tensor_batch;

	if (!s->tensor.stages || !predicted->alternatives)
		return;
	s->tensor.period_ns = llround((double)s->tensor.period_ns * times);
	predicted->alternatives[predicted->alternative_count++] = s->tensor;
	s->tensor.stages = s->tensor.recompute = NULL;
}

/* Keeps the first reason, but one that nothing fits rather than what is impossible. */
static void keep_reason(struct pd_error *err, const struct pd_error *why)
{
	if (err->status == PD_EXIT_YES || (err->status != PD_EXIT_NO && why->status == PD_EXIT_NO))
		*err = *why;
}

/* Tries one way; returns its plan. */
static struct pd_plan *try_one(struct search *s, struct pd_group_choice *choice, struct pd_batch_choice *choices,
			       struct pd_error *err)
{
	struct pd_profile **made = pd_calloc((size_t)s->count, sizeof(struct pd_profile *));
	int64_t devices = pd_degrees_devices(&choice->group);
	struct pd_plan *plan = NULL;
	struct pd_error why;

	if (devices > s->request->topology->devices)
		pd_error_input(&why, "the topology has no %lld devices", (long long)devices);
	else if (variants(s, choice, made, &why) == 0)
		plan = plan_for(s, devices, made, choices, &why);
	if (plan) {
		choice->samples_per_s = plan->predicted.samples_per_s;
		choice->ranks = plan->rank_count;
		keep_tensor(s, plan);
	} else {
		snprintf(choice->why, sizeof(choice->why), "%.250s", why.text);
		keep_reason(err, &why);
	}
	for (int i = 0; i < s->count; i++)
		pd_profile_free(made[i]);
	free(made);
	return plan;
}

static int check_estimated(const struct search *s, struct pd_error *err)
{
	for (int i = 0; i < s->count; i++)
		if (!s->profiles[i]->sheet || !s->profiles[i]->model)
			return pd_error_input(err, "profile \"%.60s\" was measured on devices of their own, and says nothing of "
					      "layers that several share out: expected one by a data sheet (pd-profile "
					      "--device=NAME), fitted to this one with pd-profile --fit", s->profiles[i]->name);
	return 0;
}

static struct pd_plan *try_all(struct search *s, struct pd_error *err)
{
	struct pd_batch_choice *choices = pd_calloc((size_t)s->count, sizeof(*choices));
	struct pd_plan *best = NULL;

	err->status = PD_EXIT_YES;
	for (int i = 0; i < s->groups->count; i++) {
		struct pd_plan *plan = try_one(s, &s->groups->choices[i], choices, err);
		bool better = plan && (!best || value_of(s, plan) > value_of(s, best));

		pd_plan_free(better ? best : plan);
		if (!better)
			continue;
		best = plan;
		memcpy(s->batch_choices, choices, (size_t)s->count * sizeof(*choices));
		for (int k = 0; k <= i; k++)
			s->groups->choices[k].chosen = k == i;
	}
	free(choices);
	if (best)
		add_tensor(s, best);
	free(s->tensor.stages);
	free(s->tensor.recompute);
	return best;
}

struct pd_plan *pd_planner_groups(struct pd_profile **profiles, int count, int64_t batch,
				  const struct pd_plan_request *request, struct pd_group_request *groups,
				  struct pd_batch_choice *batch_choices, struct pd_error *err)
{
	struct search s = { profiles, count, batch, request, groups, batch_choices, { .stages = NULL }, 0 };

	return check_estimated(&s, err) < 0 ? NULL : try_all(&s, err);
}
