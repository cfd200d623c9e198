/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/plan.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdlib.h>

const char *const pd_startup_kind_name[PD_STARTUP_KINDS + 1] = {
#define STARTUP_KIND(symbol, name, what) name,
#include "plan/startup_kind.def"
#undef STARTUP_KIND
	NULL
};

void pd_plan_free(struct pd_plan *plan)
{
	if (!plan)
		return;
	for (int s = 0; s < plan->stage_count; s++)
		free(plan->stages[s].ranks);
	free(plan->stages);
	free(plan->segment);
	pd_order_free(plan->order);
	pd_prediction_clear(&plan->predicted);
	pd_profile_free(plan->profile);
	free(plan->document);
	free(plan);
}

const char *pd_plan_name(const struct pd_plan *plan)
{
	return plan->document ? plan->document : "the plan";
}

bool pd_plan_has_equal_replicas(const struct pd_plan *plan)
{
	for (int s = 1; s < plan->stage_count; s++)
		if (plan->stages[s].replicas != plan->stages[0].replicas)
			return false;
	return true;
}

int pd_plan_warmup(const struct pd_plan *plan, int stage)
{
	int64_t ranks = 0, replicas = plan->stages[stage].replicas;

	for (int s = stage; s < plan->stage_count; s++)
		ranks += plan->stages[s].replicas;
	return (int)((ranks + replicas - 1) / replicas) - 1;
}

void pd_plan_first(const struct pd_plan *plan, int *first)
{
	int64_t behind = 0;

	for (int s = 0; s < plan->stage_count; s++) {
		first[s] = plan->stages[s].warmup;
		behind += plan->stages[s].replicas;
	}
	for (int s = 0; s < plan->stage_count && plan->startup == PD_STARTUP_EAGER; s++) {
		int64_t r = plan->stages[s].replicas, arrives, reach;

		behind -= r;
		reach = 3 * behind / r;
		arrives = s > 0 ? first[s - 1] * (int64_t)plan->stages[s - 1].replicas / r : 0;
		arrives = arrives < reach ? arrives : reach;
		first[s] = arrives > first[s] ? (int)arrives : first[s];
	}
}

int64_t pd_plan_admitted(const struct pd_plan *plan)
{
	return plan->startup == PD_STARTUP_EAGER
		? (plan->stages[0].warmup + INT64_C(1)) * plan->stages[0].replicas : 0;
}

bool pd_weights_copy_shared(enum pd_weight_kind weights)
{
	return pd_weights_have(weights, PD_WEIGHTS_GROUPS);
}

bool pd_plan_has_tied_weights(const struct pd_plan *plan)
{
	return plan->profile->shared_count > 0 && pd_weights_copy_shared(plan->weights);
}

bool pd_plan_agrees(const struct pd_plan *plan)
{
	return plan->agree || pd_plan_has_tied_weights(plan);
}

bool pd_plan_splits(const struct pd_plan *plan)
{
	return plan->order ? plan->order->splits : pd_schedule_has(plan->schedule, PD_FACT_SPLITS);
}

int pd_plan_open_groups(const struct pd_plan *plan, int stage)
{
	const struct pd_stage *first = &plan->stages[0], *at = &plan->stages[stage];
	bool ahead = plan->microbatches > 1 &&
		     (int64_t)at->warmup * at->replicas < (int64_t)first->warmup * first->replicas;

	return pd_plan_agrees(plan) && pd_weights_have(plan->weights, PD_WEIGHTS_BEHIND) &&
	       (ahead || pd_schedule_has(plan->schedule, PD_FACT_SHARES)) ? 2 : 1;
}

const char *pd_plan_unit(const struct pd_plan *plan)
{
	return plan->microbatches > 1 ? "microbatch" : "minibatch";
}

int pd_plan_rank_of_kind(const struct pd_plan *plan, int stage, int kind)
{
	const struct pd_stage *at = &plan->stages[stage];

	for (int r = 0; r < at->replicas; r++)
		if (pd_topology_kind_of(&plan->topology, at->ranks[r]) == kind)
			return at->ranks[r];
	return -1;
}

int64_t pd_plan_direct_bytes_per_s(const struct pd_plan *plan, int stage)
{
	int64_t least = INT64_MAX;

	if (pd_plan_kinds(plan) == 1)
		return plan->profile->in_step.sum_bytes_per_s;
	for (int k = 0; k < pd_plan_kinds(plan); k++) {
		int64_t own = pd_profile_of_kind(plan->profile, k)->in_step.sum_bytes_per_s;

		if (own < least && pd_plan_rank_of_kind(plan, stage, k) >= 0)
			least = own;
	}
	return least;
}

struct pd_members pd_plan_members(const struct pd_plan *plan, int stage)
{
	const struct pd_stage *at = &plan->stages[stage];

	return (struct pd_members){ &plan->topology, at->ranks, at->replicas, plan->gradient_dtype,
				    pd_plan_direct_bytes_per_s(plan, stage) };
}

int pd_plan_stage_of_layer(const struct pd_plan *plan, int layer)
{
	int low = 0, high = plan->stage_count - 1;

	while (low < high) {
		int middle = (low + high + 1) / 2;

		if (plan->stages[middle].first_layer <= layer)
			low = middle;
		else
			high = middle - 1;
	}
	return low;
}

int pd_plan_stage_of_rank(const struct pd_plan *plan, int rank, int *replica_p)
{
	/* Ranks are nearly always given out in order, so look there first. */
	for (int s = 0; s < plan->stage_count; s++) {
		const struct pd_stage *stage = &plan->stages[s];
		int guess = rank - stage->ranks[0];

		if (guess >= 0 && guess < stage->replicas && stage->ranks[guess] == rank) {
			if (replica_p)
				*replica_p = guess;
			return s;
		}
	}
	for (int s = 0; s < plan->stage_count; s++)
		for (int r = 0; r < plan->stages[s].replicas; r++)
			if (plan->stages[s].ranks[r] == rank) {
				if (replica_p)
					*replica_p = r;
				return s;
			}
	return -1;
}

int pd_plan_check_shares(const struct pd_plan *plan, const char *where, struct pd_error *err)
{
	const struct pd_profile *profile = plan->profile;

	for (int l = 0; l < profile->layer_count && !pd_plan_has_tied_weights(plan); l++) {
		int owner = pd_profile_owner(profile, l);

		if (pd_plan_stage_of_layer(plan, l) != pd_plan_stage_of_layer(plan, owner))
			return pd_error_input(err, "%slayers \"%.60s\" and \"%.60s\" share "
					      "parameters: expected both in one stage, or weights "
					      "\"2bw\" or \"flush\"", where, profile->layers[l].name,
					      profile->layers[owner].name);
	}
	return 0;
}

bool pd_plan_carries(const struct pd_plan *plan, int stage)
{
	const struct pd_stage *at = &plan->stages[stage];

	return plan->profile->model &&
	       pd_model_carries(plan->profile->model, at->first_layer, at->layer_count);
}

bool pd_plan_deals_lanes(const struct pd_plan *plan, int stage)
{
	return plan->stages[stage].replicas > 1 && pd_plan_carries(plan, stage);
}

int pd_plan_check_lanes(const struct pd_plan *plan, const char *where, struct pd_error *err)
{
	int64_t round = pd_profile_lane_round(plan->profile);

	for (int s = 0; s < plan->stage_count; s++) {
		const struct pd_stage *stage = &plan->stages[s];

		if (pd_plan_deals_lanes(plan, s) && round % stage->replicas != 0)
			return pd_error_input(err, "%sstage %d has %d replicas: expected a divisor of "
					      "%" PRId64 ", the microbatches of %" PRId64 " samples that "
					      "%" PRId64 " lanes make, so that a lane stays with a replica",
					      where, s, stage->replicas, round,
					      plan->profile->batch_size,
					      pd_model_lanes(plan->profile->model));
	}
	return 0;
}

/* Checks that layers and ranks add up before anything is laid out. */
static int check_counts(const struct pd_plan *plan, const int *layer_counts, const int *replicas,
			struct pd_error *err)
{
	int64_t layers = 0, ranks = 0;

	for (int s = 0; s < plan->stage_count; s++) {
		if (layer_counts[s] < 1 || replicas[s] < 1)
			return pd_error_input(err, "stage %d has %d layers and %d replicas: "
					      "expected at least one of each", s, layer_counts[s], replicas[s]);
		layers += layer_counts[s];
		ranks += replicas[s];
	}
	if (layers != plan->profile->layer_count)
		return pd_error_input(err, "the stages have %" PRId64 " layers, the profile has %d",
				      layers, plan->profile->layer_count);
	if (ranks > plan->topology.devices)
		return pd_error_input(err, "the stages have %" PRId64 " ranks, the topology has "
				      "%" PRId64 " devices", ranks, plan->topology.devices);
	return 0;
}

static void fill_stages(struct pd_plan *plan, const int *layer_counts, const int *replicas)
{
	int layer = 0;

	for (int s = 0; s < plan->stage_count; s++) {
		struct pd_stage *stage = &plan->stages[s];

		stage->first_layer = layer;
		stage->layer_count = layer_counts[s];
		layer += layer_counts[s];
		stage->replicas = replicas[s];
		stage->ranks = pd_calloc((size_t)replicas[s], sizeof(*stage->ranks));
		for (int r = 0; r < replicas[s]; r++)
			stage->ranks[r] = plan->rank_count++;
	}
	for (int s = 0; s < plan->stage_count; s++)
		plan->stages[s].warmup = pd_plan_warmup(plan, s);
}

struct pd_plan *pd_plan_new(struct pd_profile *profile, const struct pd_topology *topology,
			    int stage_count, const int *layer_counts, const int *replicas,
			    struct pd_error *err)
{
	struct pd_plan *plan = pd_zalloc(sizeof(*plan));
	int result;

	plan->profile = profile;
	plan->topology = *topology;
	plan->schedule = PD_SCHEDULE_1F1B;
	plan->weights = PD_WEIGHTS_STASH;
	plan->microbatches = 1;
	if (stage_count < 1 || stage_count > profile->layer_count) {
		result = pd_error_input(err, "%d stages: expected 1 to %d, the number of layers",
					stage_count, profile->layer_count);
	} else {
		plan->stage_count = stage_count;
		plan->stages = pd_calloc((size_t)stage_count, sizeof(*plan->stages));
		result = check_counts(plan, layer_counts, replicas, err);
		if (result == 0)
			fill_stages(plan, layer_counts, replicas);
	}
	if (result < 0) {
		pd_plan_free(plan);
		return NULL;
	}
	return plan;
}
