/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/variants.h"

#include "base/json.h"
#include "base/mem.h"
#include "estimate/estimate.h"
#include "planner/search/candidate.h"
#include "planner/sums.h"
#include "topology/contract.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Estimates a profile anew, for devices that are put together so. */
static struct pd_profile *estimate_degree(const struct pd_profile *profile,
					  const struct pd_group_choice *choice,
					  const struct pd_degrees *group, struct pd_error *err)
{
	int64_t sharded = profile->group.sharded > 1 ? profile->group.sharded : 1;
	struct pd_profile *made = pd_estimate_again(profile, profile->batch_size / sharded, group,
						    true, err);

	if (made)
		made->memory.sharded |= choice->shards_optimizer;
	return made;
}

static int check_estimated(const struct pd_planner_ask *ask, struct pd_error *err)
{
	for (int i = 0; i < ask->count && ask->groups; i++)
		if (!ask->profiles[i]->sheet || !ask->profiles[i]->model)
			return pd_error_input(err, "profile \"%.60s\" was measured on devices of their own, and says "
					      "nothing of layers that several share out: expected one by a data sheet "
					      "(pd-profile --device=NAME), fitted to this one with pd-profile --fit",
					      ask->profiles[i]->name);
	return 0;
}

static int check_batch(const struct pd_planner_ask *ask, struct pd_error *err)
{
	const struct pd_plan_request *request = ask->request;
	int64_t least = INT64_MAX;

	for (int i = 0; i < ask->count; i++)
		least = pd_min(least, ask->profiles[i]->batch_size);
	if (ask->batch && request->microbatches)
		return pd_error_input(err, "--batch and --microbatches both say how many samples "
					   "an update is made of: "
					   "give one of them");
	if (ask->batch && request->cost != PD_COST_SIMULATED)
		return pd_error_input(err, "--batch: --cost=%s prices no update of several microbatches",
				      pd_cost_kind_name[request->cost]);
	if (ask->batch && ask->batch < least)
		return pd_error_input(err, "--batch: expected at least the %" PRId64 " samples of a minibatch of profile "
				      "\"%.60s\", found %" PRId64, least, ask->profiles[0]->name, ask->batch);
	return 0;
}

/* Makes the tasks of a field, whose profile and topology are set. */
static void field_begin(struct pd_field *field, const struct pd_planner_ask *ask)
{
	struct pd_plan_request *request = &field->request;
	struct pd_profile *profile = field->profile;

	*request = *ask->request;
	request->topology = &field->topology;
	request->memory_bytes = pd_times(request->memory_bytes, field->devices);
	if (field->devices > 1)
		request->min_gain = expm1((double)field->devices * log1p(request->min_gain));
	field->one_order = ask->count > 1 ||
			   ask->batch > 0; /* all plans that are compared share one profile */
	request->batch_microbatches = ask->batch / profile->batch_size;
	if (request->any_bucket)
		request->bucket_bytes = pd_bucket_usual(profile);
	field->fastest = profile->other_count > 0 ? pd_profile_fastest(profile) : profile;
	field->closest_bytes = INT64_MAX;
	field->task = (struct pd_task){ .profile = profile, .fastest = field->fastest, .request = request,
					.topology = &field->topology,
					.limit_bytes = pd_task_limit_bytes(profile, request),
					.straight = pd_planner_straight(request),
					.closest_bytes = &field->closest_bytes };
	field->copied = field->task;
	for (int copies = 0; copies < 2; copies++) {
		struct pd_task *task = copies ? &field->copied : &field->task;

		if (copies && (request->cost != PD_COST_SIMULATED || profile->shared_count == 0))
			break;
		pd_costs_init(&task->costs, field->fastest, copies);
		task->costs.worth = pd_kinds_worth(profile, field->fastest, task->topology);
		if (request->cost == PD_COST_SIMULATED && !request->runs && !request->stages)
			task->costs.effort = request->effort;
		if (copies)
			field->task.copied = task;
	}
}

void pd_field_view(struct pd_field *field)
{
	const struct pd_plan_request *request = &field->request;

	if (field->viewed || field->one_order || request->cost != PD_COST_SIMULATED ||
	    request->runs || request->stages)
		return;
	field->viewed = true;
	pd_views_init(&field->views[0], field->profile, field->fastest, PD_STATES_ALL);
	field->task.views = &field->views[0];
	if (!field->task.copied)
		return;
	pd_views_init(&field->views[1], field->profile, field->fastest, PD_STATES_COPIES);
	field->copied.views = &field->views[1];
}

static void cuts_release(struct pd_cuts *cuts)
{
	for (int i = 0; i < cuts->most; i++)
		pd_partition_free(cuts->even[i]);
	free(cuts->even);
}

static void field_release(struct pd_field *field)
{
	for (int i = 0; i < 2; i++) {
		if (field->viewed && (i == 0 || field->task.copied))
			pd_views_release(&field->views[i]);
		cuts_release(&field->cuts[i]);
	}
	if (field->task.copied)
		pd_costs_release(&field->copied.costs);
	pd_costs_release(&field->task.costs);
	if (field->fastest != field->profile)
		pd_profile_free(field->fastest);
	if (field->owned)
		pd_profile_free(field->profile);
}

/* Keeps the first reason why a degree is impossible. */
static void keep_why(struct pd_variants *variants, int degree, const struct pd_error *why,
		     struct pd_error *why_p)
{
	struct pd_group_choice *choice = &variants->ask->groups->choices[degree];

	snprintf(choice->why, sizeof(choice->why), "%.250s", why->text);
	if (why_p->status == PD_EXIT_YES)
		*why_p = *why;
}

/* Adds the fields of a degree, or of devices as they are (-1), one for each size that the batch has room for. */
static int add_sizes(struct pd_variants *variants, int degree, int order, struct pd_error *why)
{
	const struct pd_planner_ask *ask = variants->ask;
	const struct pd_group_choice *choice = degree < 0 ? NULL : &ask->groups->choices[degree];
	struct pd_degrees group = choice ? choice->group : (struct pd_degrees){ 0 };
	int64_t devices = choice ? pd_degrees_devices(&group) : 1;
	struct pd_topology topology = variants->orders.list[order].topology;
	int before = variants->field_count;

	if (devices > topology.devices)
		return pd_error_input(why, "the topology has no %" PRId64 " devices", devices);
	if (choice)
		pd_estimate_links(ask->request->topology, &group);
	for (int size = 0; size < ask->count; size++) {
		struct pd_field *field = &variants->fields[variants->field_count];

		*field = (struct pd_field){ .degree = degree, .size = size, .devices = devices, .owned = choice,
					    .kinds = &variants->orders.list[order], .topology = topology };
		field->profile = choice ? estimate_degree(ask->profiles[size], choice, &group, why) : ask->profiles[size];
		if (!field->profile)
			return -1;
		if ((ask->batch && field->profile->batch_size > ask->batch) ||
		    (choice && pd_topology_contract(&topology, devices, ask->groups->spans,
						    &field->topology, why) < 0)) {
			bool small = ask->batch && field->profile->batch_size > ask->batch;

			if (field->owned)
				pd_profile_free(field->profile);
			if (!small)
				return -1;
			pd_error_input(why, "a microbatch of %" PRId64 " samples is more than --batch=%" PRId64,
				       field->profile->batch_size, ask->batch);
			continue;
		}
		field_begin(field, ask);
		variants->field_count++;
	}
	return variants->field_count > before ? 0 : -1;
}

struct pd_task *pd_field_task(struct pd_field *field, enum pd_weight_kind weights)
{
	return field->task.copied && pd_weights_copy_shared(weights) ? &field->copied : &field->task;
}

const struct pd_cuts *pd_variant_cuts(const struct pd_variant *variant)
{
	struct pd_field *field = variant->field;
	bool copies = variant->task.costs.copies;
	struct pd_cuts *cuts = &field->cuts[copies];
	const struct pd_costs *costs = copies ? &field->copied.costs : &field->task.costs;

	if (cuts->even)
		return cuts;
	cuts->most = (int)pd_min(PD_CUTS_MOST, costs->unit_count);
	cuts->even = pd_calloc((size_t)cuts->most, sizeof(*cuts->even));
	pd_even_partitions(costs, cuts->most, 0, cuts->even);
	return cuts;
}

/*
 * Tells whether a combination is asked for.  Open weights are those with which backward reads what its forward read, and
 * open schedules those that a pipeline gains from.
 */
static bool is_named(const struct pd_plan_request *request, enum pd_schedule_kind schedule,
		     enum pd_weight_kind weights)
{
	if (!request->any_schedule ? schedule != request->schedule : !pd_schedule_has(schedule, PD_FACT_OPEN))
		return false;
	if (request->any_schedule && request->schedules && !(request->schedules & 1u << schedule))
		return false;
	if (!request->any_weights)
		return weights == request->weights &&
		       (!request->any_schedule || pd_schedule_goes_with(schedule, weights));
	return !pd_weights_have(weights, PD_WEIGHTS_REREADS) && pd_schedule_goes_with(schedule, weights);
}

/* Tells whether a schedule's stages are of use to orders that are searched for, which may be those of the request. */
static bool is_of_use(const struct pd_field *field, enum pd_schedule_kind schedule)
{
	int chunks = field->request.chunks;
	bool v = pd_schedule_has(schedule, PD_FACT_V);

	if (!pd_schedule_goes_with(schedule, PD_WEIGHTS_FLUSH) ||
	    pd_schedule_has(schedule, PD_FACT_ORDERED) ||
	    pd_schedule_has(schedule, PD_FACT_ALONE) ||
	    (pd_schedule_has(schedule, PD_FACT_PAIRS) && field->profile->pairs == 0))
		return false;
	if (!pd_schedule_has(schedule, PD_FACT_SHARES))
		return chunks <= 1;
	return chunks != 1 && (!v || chunks == 0 || chunks == PD_PLANNER_CHUNKS);
}

static void add_variant(struct pd_variants *variants, struct pd_field *field,
			enum pd_schedule_kind schedule, enum pd_weight_kind weights, bool named)
{
	struct pd_variant *variant = &variants->list[variants->count++];
	const struct pd_plan_request *asked = &field->request;
	struct pd_plan_request *request = &variant->request;
	bool shares = pd_schedule_has(schedule, PD_FACT_SHARES), v = pd_schedule_has(schedule, PD_FACT_V);

	*variant = (struct pd_variant){ .field = field, .request = *asked, .named = named };
	request->schedule = schedule;
	request->weights = weights;
	request->any_schedule = request->any_weights = false;
	request->any_chunks &= shares && !v && !pd_schedule_has(schedule, PD_FACT_ORDERED);
	request->chunks = !shares ? 0 : v ? PD_PLANNER_CHUNKS
			: asked->chunks || pd_schedule_has(schedule, PD_FACT_ORDERED) ? asked->chunks : PD_PLANNER_CHUNKS;
	request->round = pd_schedule_has(schedule, PD_FACT_ROUNDS) ? asked->round : 0;
	variant->task = *pd_field_task(field, weights);
	variant->task.request = request;
	variant->task.straight = pd_planner_straight(request);
}

/* Adds all variants of a field; beside orders that are searched for those whose stages these may have. */
static void add_variants(struct pd_variants *variants, struct pd_field *field)
{
	const struct pd_plan_request *request = &field->request;

	for (int k = 0; k < PD_SCHEDULE_KINDS * PD_WEIGHT_KINDS; k++) {
		enum pd_schedule_kind schedule = (enum pd_schedule_kind)(k / PD_WEIGHT_KINDS);
		enum pd_weight_kind weights = (enum pd_weight_kind)(k % PD_WEIGHT_KINDS);

		if (!is_named(request, schedule, weights))
			continue;
		field->ordered |= pd_schedule_has(schedule, PD_FACT_ORDERED) && !request->stages;
		add_variant(variants, field, schedule, weights, true);
	}
	for (int k = 0; k < 2 * PD_SCHEDULE_KINDS && field->ordered; k++) {
		enum pd_schedule_kind schedule = (enum pd_schedule_kind)(k / 2);
		bool straight = k % 2;

		if (!is_of_use(field, schedule) || (straight ? request->straight || request->topology->devices == 1
						    : is_named(request, schedule, PD_WEIGHTS_FLUSH)))
			continue;
		add_variant(variants, field, schedule, PD_WEIGHTS_FLUSH, false);
		variants->list[variants->count - 1].request.straight |= straight;
		variants->list[variants->count - 1].task.straight |= straight;
	}
}

int pd_variants_init(struct pd_variants *variants, const struct pd_planner_ask *ask,
		     struct pd_error *why_p, struct pd_error *err)
{
	int degrees = ask->groups ? ask->groups->count : 1;
	size_t fields;

	*variants = (struct pd_variants){ .ask = ask };
	why_p->status = PD_EXIT_YES;
	if (check_estimated(ask, err) < 0 || check_batch(ask, err) < 0)
		return -1;
	pd_kinds_orders_init(&variants->orders, ask->request->topology, !ask->request->stages);
	fields = (size_t)degrees * (size_t)ask->count * (size_t)variants->orders.count;
	variants->fields = pd_calloc(fields, sizeof(*variants->fields));
	variants->list = pd_calloc(fields * 3 * PD_SCHEDULE_KINDS * PD_WEIGHT_KINDS,
				   sizeof(*variants->list));
	for (int degree = 0; degree < degrees; degree++)
		for (int order = 0; order < variants->orders.count; order++) {
			struct pd_error why;

			if (add_sizes(variants, ask->groups ? degree : -1, order, &why) < 0)
				keep_why(variants, degree, &why, why_p);
		}
	for (int i = 0; i < variants->field_count; i++)
		add_variants(variants, &variants->fields[i]);
	return 0;
}

void pd_variants_release(struct pd_variants *variants)
{
	for (int i = 0; i < variants->count; i++)
		pd_candidate_drop(variants->list[i].plan);
	for (int i = 0; i < variants->field_count; i++)
		field_release(&variants->fields[i]);
	pd_kinds_orders_release(&variants->orders);
	free(variants->fields);
	free(variants->list);
}

void pd_field_take_order(struct pd_field *field, struct pd_plan *plan)
{
	struct pd_task *task = pd_field_task(field, plan->weights);
	int *order = task->views ? pd_views_order(task->views, plan->profile) : NULL;

	plan->profile = field->profile;
	if (!order)
		return;
	pd_profile_reorder(field->profile, order);
	if (field->fastest != field->profile)
		pd_profile_reorder(field->fastest, order);
	free(order);
	for (int copies = 0; copies < 1 + (field->task.copied != NULL); copies++) {
		struct pd_costs *costs = copies ? &field->copied.costs : &field->task.costs;
		struct pd_effort *effort = costs->effort;

		pd_costs_release(costs);
		pd_costs_init(costs, field->fastest, copies);
		costs->effort = effort;
	}
}

void pd_variants_tell(struct pd_variants *variants, const struct pd_field *won,
		      const struct pd_plan *plan)
{
	const struct pd_planner_ask *ask = variants->ask;

	for (int i = 0; i < ask->count && ask->choices; i++)
		ask->choices[i] = (struct pd_batch_choice){ .batch_size = ask->profiles[i]->batch_size };
	for (int i = 0; i < variants->field_count; i++) {
		const struct pd_field *field = &variants->fields[i];
		struct pd_group_choice *degree = ask->groups ? &ask->groups->choices[field->degree] : NULL;
		bool chosen = field == won;
		double samples_per_s = chosen ? plan->predicted.samples_per_s : field->samples_per_s;

		if (degree && samples_per_s > degree->samples_per_s && !degree->chosen) {
			degree->samples_per_s = samples_per_s;
			degree->ranks = chosen ? plan->rank_count : field->ranks;
		}
		if (degree && chosen) {
			degree->samples_per_s = samples_per_s;
			degree->ranks = plan->rank_count;
			degree->chosen = true;
		}
		if (degree && samples_per_s == 0 && !degree->why[0])
			snprintf(degree->why, sizeof(degree->why), "%.250s",
				 field->why.status == PD_EXIT_YES ? "no equal pipelines fit" : field->why.text);
		if (ask->choices && field->degree == won->degree && (chosen || field->size != won->size))
			ask->choices[field->size] = (struct pd_batch_choice){
				.batch_size = field->profile->batch_size, .search_samples_per_s = samples_per_s,
				.microbatches = chosen ? plan->microbatches : field->microbatches,
				.grid_samples_per_s = field->look_samples_per_s, .width = field->width,
				.depth = field->depth, .recomputed = field->recomputed, .chosen = chosen };
	}
}
