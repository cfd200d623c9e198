/* SPDX-License-Identifier: Apache-2.0 */
#include "predict/predict.h"

#include "base/mem.h"
#include "memory/again.h"
#include "memory/buckets.h"
#include "memory/memory.h"
#include "plan/wiring.h"
#include "predict/cost.h"
#include "schedule/buffer_counts.h"
#include "schedule/memory.h"

#include <stdlib.h>

/*
 * Sets the memory to the byte, if the profile says enough.  Else the searches' figures stay, with what
 * they do not know: gradients that skip stages have more than two buffers.
 */
static void exact_memory(struct pd_plan *plan)
{
	struct pd_error err;
	struct pd_schedule *schedule = pd_schedule_new(plan, &err);

	for (int s = 0; schedule && s < plan->stage_count; s++) {
		int64_t *bytes = &plan->stages[s].memory_bytes;
		int more = pd_schedule_leaving(schedule, s) - PD_PASSAGES;
		struct pd_memory memory;

		bool elsewhere = plan->profile->memory.model != PD_MEMORY_OWN;

		if ((plan->profile->model || elsewhere) &&
		    (pd_schedule_stage_memory(schedule, s, &pd_momentum, &memory) || elsewhere))
			*bytes = memory.total_bytes;
		else
			*bytes = pd_plus(*bytes, pd_times(more, pd_wiring_in_bytes(schedule->wiring, s)));
	}
	pd_schedule_free(schedule);
}

/* Makes times and bytes of a stage at least those on a kind of device. */
static void predict_on(const struct pd_profile *profile, struct pd_stage *stage, int64_t in_bytes,
		       int64_t out_bytes)
{
	int64_t forward_ns = 0, backward_ns = 0;
	struct pd_memory memory;

	for (int l = stage->first_layer; l < stage->first_layer + stage->layer_count; l++) {
		forward_ns += profile->layers[l].forward_ns;
		backward_ns += profile->layers[l].backward_ns;
	}
	pd_memory_of(profile, stage->first_layer, stage->layer_count, stage->replicas, stage->warmup, in_bytes,
		     out_bytes, &memory);
	stage->forward_ns = pd_max(stage->forward_ns, forward_ns);
	stage->backward_ns = pd_max(stage->backward_ns, backward_ns);
	stage->memory_bytes = pd_max(stage->memory_bytes, memory.total_bytes);
}

static void predict_wired(struct pd_plan *plan, const struct pd_wiring *wiring)
{
	for (int s = 0; s < plan->stage_count; s++) {
		struct pd_stage *stage = &plan->stages[s];
		struct pd_sum sum = pd_plan_stage_sum(plan, s);

		stage->forward_ns = stage->backward_ns = stage->memory_bytes = 0;
		for (int k = 0; k < pd_plan_kinds(plan); k++)
			if (pd_plan_kinds(plan) == 1 || pd_plan_rank_of_kind(plan, s, k) >= 0)
				predict_on(pd_profile_of_kind(plan->profile, k), stage, pd_wiring_in_bytes(wiring, s),
					   pd_wiring_out_bytes(wiring, s));
		stage->allreduce_ns = pd_sum_alone_ns(&sum);
	}
}

void pd_predict_times(struct pd_plan *plan)
{
	struct pd_wiring *wiring = pd_wiring_new(plan);

	predict_wired(plan, wiring);
	pd_wiring_free(wiring);
}

void pd_predict_stages(struct pd_plan *plan)
{
	struct pd_wiring *wiring = pd_wiring_new(plan);

	predict_wired(plan, wiring);
	if (plan->profile->model || pd_wiring_skips(wiring) || plan->profile->memory.model != PD_MEMORY_OWN)
		exact_memory(plan);
	pd_wiring_free(wiring);
}

/* Returns the first stage on the rank of a stage's first replica. */
static int first_stage_on_rank(const struct pd_plan *plan, int s)
{
	int first = 0;

	while (plan->stages[first].ranks[0] != plan->stages[s].ranks[0])
		first++;
	return first;
}

void pd_predict_memory(struct pd_plan *plan, const struct pd_schedule *schedule)
{
	for (int s = 0; s < plan->stage_count; s++) {
		int first = schedule->chunks > 1 && pd_plan_kinds(plan) == 1 ? first_stage_on_rank(plan, s) : s;
		struct pd_memory memory;

		if (first == s) {
			pd_schedule_stage_memory(schedule, s, &pd_momentum, &memory);
			plan->stages[s].memory_bytes = memory.total_bytes;
		} else {        /* it is the rank's */
			plan->stages[s].memory_bytes = plan->stages[first].memory_bytes;
		}
	}
}

int64_t pd_predict_turns_ns(const struct pd_plan *plan)
{
	int64_t processors = plan->topology.processors, most = 0;
	int64_t *busy;

	if (processors == 0 || processors >= plan->rank_count)
		return 0;
	busy = pd_calloc((size_t)processors, sizeof(*busy));
	for (int s = 0; s < plan->stage_count; s++) {
		const struct pd_stage *stage = &plan->stages[s];
		int64_t ns = stage->forward_ns + pd_plan_again_ns(plan, s) + stage->backward_ns;

		for (int r = 0; r < stage->replicas; r++)
			busy[stage->ranks[r] % processors] += ns / stage->replicas;
	}
	for (int64_t p = 0; p < processors; p++)
		most = pd_max(most, busy[p]);
	free(busy);
	return most;
}
