/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/search/candidate.h"

#include "base/checksum.h"
#include "base/mem.h"
#include "base/sort.h"
#include "plan/sparse.h"
#include "planner/search/recompute.h"
#include "predict/predict.h"
#include "schedule/schedule.h"

#include <stdlib.h>
#include <string.h>

int64_t pd_candidate_fullest(const struct pd_plan *plan, int *stage_p)
{
	int64_t most = -1;

	for (int s = 0; s < plan->stage_count; s++)
		if (plan->stages[s].memory_bytes > most) {
			most = plan->stages[s].memory_bytes;
			if (stage_p)
				*stage_p = s;
		}
	return most;
}

int64_t pd_stage_limit(const struct pd_plan *plan, int stage, int64_t limit_bytes)
{
	const struct pd_stage *at = &plan->stages[stage];

	for (int r = 0; r < at->replicas && pd_plan_kinds(plan) > 1; r++) {
		int64_t own = pd_topology_memory_of(&plan->topology, at->ranks[r]);

		if (own > 0 && own < limit_bytes)
			limit_bytes = own;
	}
	return limit_bytes;
}

bool pd_candidate_keeps(const struct pd_plan *plan, int64_t limit_bytes)
{
	for (int s = 0; s < plan->stage_count; s++)
		if (plan->stages[s].memory_bytes > pd_stage_limit(plan, s, limit_bytes))
			return false;
	return true;
}

void pd_candidate_drop(struct pd_plan *plan)
{
	if (plan)
		plan->profile = NULL;
	pd_plan_free(plan);
}

struct pd_plan *pd_candidate_copy(const struct pd_plan *plan)
{
	struct pd_plan *copy = pd_zalloc(sizeof(*copy));
	size_t stages = (size_t)plan->stage_count;

	*copy = *plan;
	copy->order = plan->order ? pd_order_copy(plan->order) : NULL;
	copy->stages = pd_memdup(plan->stages, stages * sizeof(*copy->stages));
	if (plan->segment)
		copy->segment = pd_memdup(plan->segment, (size_t)plan->profile->layer_count *
							 sizeof(*copy->segment));
	for (size_t s = 0; s < stages; s++)
		copy->stages[s].ranks = pd_memdup(plan->stages[s].ranks,
						  (size_t)plan->stages[s].replicas * sizeof(int));
	return copy;
}

static int ascending(const void *a, const void *b)
{
	PD_ORDER(*(const int *)a, *(const int *)b);
	return 0;
}

/* Returns the profile in the partition's order, which inside a stage is the profile's own. */
static struct pd_profile *profile_of(const struct pd_task *task,
				     const struct pd_partition *partition)
{
	size_t bytes = (size_t)task->profile->layer_count * sizeof(int);
	struct pd_profile *profile;
	int *order;

	if (!partition->order)
		return task->profile;
	order = pd_memdup(partition->order, bytes);
	for (int s = 0, l = 0; s < partition->stage_count; l += partition->layers[s++])
		qsort(&order[l], (size_t)partition->layers[s], sizeof(*order), ascending);
	profile = pd_views_get(task->views, order);
	free(order);
	return profile;
}

/* Makes a plan with stages whose times and memory are not known. */
static struct pd_plan *plan_of_stages(const struct pd_task *task, const struct pd_partition *partition)
{
	struct pd_topology topology = *task->topology;
	int64_t places = 0;
	struct pd_error err;
	struct pd_plan *plan;

	for (int s = 0; s < partition->stage_count && task->request->chunks; s++)
		places += partition->replicas[s];       /* treat each stage as if it had devices of its own */
	topology.devices = pd_max(topology.devices, places);
	plan = pd_plan_new(profile_of(task, partition), &topology, partition->stage_count,
			   partition->layers, partition->replicas, &err);
	if (!plan)
		pd_bug("planner: made no valid plan: %s", err.text);
	plan->topology = *task->topology;
	plan->bucket_bytes = task->request->bucket_bytes;
	plan->gradient_dtype = task->request->gradient_dtype;
	plan->reducer = task->request->reducer;
	plan->chunk = task->request->chunk;
	plan->sparsity = task->request->sparsity;
	plan->sparsity_warmup = task->request->sparsity_warmup;
	if (task->request->recompute == PD_RECOMPUTE_SELECTIVE || task->request->segments)
		plan->segment = pd_calloc((size_t)plan->profile->layer_count, sizeof(*plan->segment));
	for (int s = 0; s < partition->stage_count; s++) {
		if (partition->ranks)
			memcpy(plan->stages[s].ranks, partition->ranks[s],
			       (size_t)partition->replicas[s] * sizeof(int));
		if (partition->warmups)
			plan->stages[s].warmup = partition->warmups[s];
	}
	return plan;
}

struct pd_plan *pd_candidate_plain(const struct pd_task *task, const struct pd_partition *partition)
{
	struct pd_plan *plan = plan_of_stages(task, partition);

	pd_predict_stages(plan);
	return plan;
}

struct pd_plan *pd_candidate_with(const struct pd_task *task, const struct pd_partition *partition,
				  enum pd_schedule_kind schedule, enum pd_weight_kind weights,
				  int64_t microbatches)
{
	struct pd_plan *plan = pd_candidate_plain(task, partition);

	plan->schedule = schedule;
	plan->weights = weights;
	plan->agree = pd_planner_agrees(task->request, plan->profile, weights);
	plan->microbatches = microbatches ? microbatches : pd_planner_microbatches(plan);
	return plan;
}

bool pd_candidate_lower_leads(struct pd_plan *plan)
{
	int64_t lead = pd_weights_have(plan->weights, PD_WEIGHTS_BEHIND) ? plan->microbatches : INT64_MAX;
	bool lowered = false;

	for (int s = 0; s < plan->stage_count; s++) {
		struct pd_stage *stage = &plan->stages[s];

		if ((int64_t)stage->warmup * stage->replicas > lead) {
			stage->warmup = (int)(lead / stage->replicas);
			lowered = true;
		}
		lead = (int64_t)stage->warmup * stage->replicas;
	}
	return lowered;
}

bool pd_candidate_weigh(struct pd_plan *plan, struct pd_error *err)
{
	struct pd_schedule *schedule = pd_schedule_new(plan, err);

	if (!schedule)
		return false;
	pd_predict_memory(plan, schedule);
	pd_schedule_free(schedule);
	return true;
}

bool pd_candidate_fits(struct pd_plan *plan, int64_t limit_bytes)
{
	struct pd_error err;

	return pd_candidate_weigh(plan, &err) && pd_candidate_keeps(plan, limit_bytes);
}

/* Puts stages on the ranks of their positions, replicas side by side; fails where stages have different numbers. */
static bool share_ranks(struct pd_plan *plan, int chunks, struct pd_error *err)
{
	int positions = plan->stage_count / chunks, replicas = plan->stages[0].replicas;

	for (int s = 0; s < plan->stage_count; s++) {
		struct pd_stage *stage = &plan->stages[s];

		if (stage->replicas != replicas) {
			pd_error_input(err, "--stages: expected as many replicas of every stage where ranks have several, found "
				       "%d of stage 0 and %d of stage %d", replicas, stage->replicas, s);
			return false;
		}
		for (int r = 0; r < replicas; r++)
			stage->ranks[r] = pd_schedule_position(plan->schedule, positions, s) * replicas + r;
	}
	plan->rank_count = positions * replicas;
	return true;
}

struct pd_plan *pd_candidate_plan(const struct pd_task *task, const struct pd_partition *partition,
				  struct pd_error *err)
{
	const struct pd_plan_request *request = task->request;
	struct pd_plan *plan = plan_of_stages(task, partition);

	pd_predict_times(plan);
	if (pd_plan_check_lanes(plan, "", err) < 0) {
		pd_candidate_drop(plan);
		return NULL;
	}
	plan->schedule = request->schedule;
	plan->weights = request->weights;
	/* If the weights do not allow this, the plan is refused when its schedule is made. */
	plan->agree = request->agree || pd_planner_agrees(request, task->profile, plan->weights);
	plan->startup = request->startup;
	plan->round = request->round;
	if (request->chunks && !share_ranks(plan, request->chunks, err)) {
		pd_candidate_drop(plan);
		return NULL;
	}
	plan->microbatches = request->microbatches ? request->microbatches
						   : pd_planner_microbatches(plan);
	if (pd_weights_have(plan->weights, PD_WEIGHTS_BEHIND) && !partition->warmups)
		pd_candidate_lower_leads(plan);
	if (pd_plan_check_sparse(plan, "--", err) == 0 && pd_recompute_asked(plan, request, err) &&
	    pd_candidate_weigh(plan, err))
		return plan;
	pd_candidate_drop(plan);
	return NULL;
}

struct pd_plan *pd_candidate_least(const struct pd_task *task, const struct pd_partition *partition,
				   struct pd_error *err)
{
	struct pd_plan *plan = pd_candidate_plan(task, partition, err);
	struct pd_error why;

	if (!plan)
		return NULL;
	for (int s = 0; s < plan->stage_count && pd_schedule_has(plan->schedule, PD_FACT_LEADS); s++)
		plan->stages[s].warmup = 0;
	if (pd_recompute_free(task->request))
		pd_recompute_fit(plan, task->request, 0);
	if (pd_candidate_weigh(plan, &why))
		return plan;
	pd_candidate_drop(plan);
	return NULL;
}

static int compare_stages(const struct pd_stage *x, const struct pd_stage *y)
{
	PD_ORDER(x->layer_count, y->layer_count);
	PD_ORDER(x->replicas, y->replicas);
	PD_ORDER(x->warmup, y->warmup);
	PD_ORDER(y->recompute, x->recompute);
	return memcmp(x->ranks, y->ranks, (size_t)x->replicas * sizeof(int));
}

int pd_candidate_compare(const struct pd_plan *x, const struct pd_plan *y)
{
	int order = 0;

	PD_ORDER(x->rank_count, y->rank_count);
	PD_ORDER(x->stage_count, y->stage_count);
	PD_ORDER(pd_recompute_count(x), pd_recompute_count(y));
	PD_ORDER(pd_candidate_fullest(x, NULL), pd_candidate_fullest(y, NULL));
	for (int s = 0; !order && s < x->stage_count; s++)
		order = compare_stages(&x->stages[s], &y->stages[s]);
	for (int l = 0; !order && x->profile != y->profile && l < x->profile->layer_count; l++)
		PD_ORDER(pd_profile_number(x->profile, l), pd_profile_number(y->profile, l));
	return order;
}

uint64_t pd_candidate_hash(const struct pd_plan *plan)
{
	uint64_t hash = 0;

	for (int s = 0; s < plan->stage_count; s++) {
		const struct pd_stage *stage = &plan->stages[s];
		int64_t numbers[] = { stage->layer_count, stage->warmup, stage->recompute };

		hash = pd_checksum(hash, numbers, sizeof(numbers));
		hash = pd_checksum(hash, stage->ranks, (size_t)stage->replicas * sizeof(int));
	}
	return hash;
}
