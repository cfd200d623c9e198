/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/shape.h"

#include "schedule/pattern.h"
#include "schedule/tick.h"

#include <inttypes.h>
#include <string.h>

#define MOST_CHUNKS 4096        /* arrays of a rank's stages are on the stack */

static int check_kind(const struct pd_plan *plan, struct pd_error *err)
{
	char known[128] = "";

	if (plan->startup != PD_STARTUP_FRUGAL && !pd_schedule_has(plan->schedule, PD_FACT_LEADS))
		return pd_error_input(err, "%s: startup \"%s\" goes with schedule \"1f1b\", "
				      "found \"%s\"", pd_plan_name(plan), pd_startup_kind_name[plan->startup],
				      pd_schedule_kind_name[plan->schedule]);
	if (plan->round > 0 && !pd_schedule_has(plan->schedule, PD_FACT_ROUNDS))
		return pd_error_input(err, "%s: round: schedule \"%s\" has no rounds: expected it with \"interleaved\"",
				      pd_plan_name(plan), pd_schedule_kind_name[plan->schedule]);
	if (pd_schedule_goes_with(plan->schedule, plan->weights))
		return 0;
	for (int w = 0; w < PD_WEIGHT_KINDS; w++)
		if (pd_schedule_goes_with(plan->schedule, (enum pd_weight_kind)w))
			pd_list_name(known, sizeof(known), pd_weight_kind_name[w], "");
	return pd_error_input(err, "%s: schedule \"%s\" does not go with weights \"%s\""
			      ", but with %s", pd_plan_name(plan), pd_schedule_kind_name[plan->schedule],
			      pd_weight_kind_name[plan->weights], known);
}

/*
 * Checks the weights for agree: all ranks wait for each other once a group.  With other weights
 * that would be in every minibatch, and the last stage would wait for the first.
 */
static int check_agree(const struct pd_plan *plan, struct pd_error *err)
{
	if (!pd_plan_agrees(plan) || pd_weights_have(plan->weights, PD_WEIGHTS_GROUPS))
		return 0;
	return pd_error_input(err, "%s: agree: weights \"%s\" update after every minibatch, and all"
			      " stages would wait for each other in each; expected weights \"2bw\" or"
			      " \"flush\"", pd_plan_name(plan), pd_weight_kind_name[plan->weights]);
}

static int set_groups(struct pd_schedule *schedule, struct pd_error *err)
{
	const struct pd_plan *plan = schedule->plan;

	for (int s = 0; s < plan->stage_count; s++) {
		int64_t r = plan->stages[s].replicas;

		schedule->group[s] = pd_plan_group(plan, s);
		if (schedule->group[s] % r != 0)
			return pd_error_input(err, "%s: microbatches: expected a multiple of the %"
					      PRId64 " replicas of stages[%d], found %" PRId64,
					      pd_plan_name(plan), r, s, plan->microbatches);
		if (pd_schedule_has(plan->schedule, PD_FACT_STRAIGHT) && r != 1)
			return pd_error_input(err, "%s: stages[%d].replicas: schedule \"%s\" is"
					      " for unreplicated stages, found %" PRId64,
					      pd_plan_name(plan), s, pd_schedule_kind_name[plan->schedule], r);
	}
	return 0;
}

/* Sets the warm-ups that the schedule has in fact, from those of the plan. */
static int set_warmups(struct pd_schedule *schedule, struct pd_error *err)
{
	const struct pd_plan *plan = schedule->plan;
	int *first = schedule->startup;

	pd_plan_first(plan, first);
	for (int s = 0; s < plan->stage_count; s++) {
		int64_t local = schedule->group[s] / plan->stages[s].replicas;
		int64_t w = schedule->pattern->warmup(plan, s, local);

		if (schedule->drains && w > local)
			w = local;
		schedule->warmup[s] = (int)w;
		first[s] = schedule->admitted > 0 ? schedule->drains && first[s] > local
						    ? (int)local : first[s] : (int)w;
		schedule->slots[s] = (int)(schedule->drains && first[s] >= local
					   ? local : first[s] + 1);
	}
	for (int s = 1; s < plan->stage_count; s++) {
		int64_t before = schedule->warmup[s - 1] * pd_pattern_replicas(schedule, s - 1);

		if (schedule->warmup[s] * pd_pattern_replicas(schedule, s) > before)
			return pd_error_input(err, "%s: stages[%d].warmup: %d x %d replicas is more "
					      "than the %" PRId64 " minibatches that stage %d admits "
					      "before its first backward: the pipeline would deadlock",
					      pd_plan_name(plan), s, schedule->warmup[s], plan->stages[s].replicas, before,
					      s - 1);
	}
	if (pd_weights_have(plan->weights, PD_WEIGHTS_BEHIND) &&
	    schedule->warmup[0] * pd_pattern_replicas(schedule, 0) > pd_pattern_group(schedule))
		return pd_error_input(err, "%s: microbatches: 2bw needs at least the %" PRId64
				      " that are ahead at the first stage, found %" PRId64, pd_plan_name(plan),
				      schedule->warmup[0] * pd_pattern_replicas(schedule, 0),
				      plan->microbatches);
	return 0;
}

static int wrong_place(const struct pd_schedule *schedule, int s, int at, struct pd_error *err)
{
	const struct pd_plan *plan = schedule->plan;

	return pd_error_input(err, "%s: stages[%d].ranks: schedule \"%s\" puts it on the ranks of stages[%d], as "
			      "many everywhere", pd_plan_name(plan), s, pd_schedule_kind_name[plan->schedule], at);
}

/* Sets chunks and positions, each the rank of a path that has a stage of its own; checks who shares ranks. */
static int set_chunks(struct pd_schedule *schedule, struct pd_error *err)
{
	const struct pd_plan *plan = schedule->plan;
	bool ordered = pd_schedule_has(plan->schedule, PD_FACT_ORDERED);        /* stages are anywhere */
	int p = 0;

	for (int s = 0; s < plan->stage_count; s++)
		p += schedule->rank_stages[schedule->ranks[plan->stages[s].ranks[0]].first] == s;
	schedule->positions = p;
	for (int k = 0; k < plan->rank_count; k++)
		if (schedule->ranks[k].count > schedule->chunks)
			schedule->chunks = schedule->ranks[k].count;
	if (schedule->chunks > MOST_CHUNKS)
		return pd_error_input(err, "%s: stages: expected at most %d on a rank, found %d",
				      pd_plan_name(plan), MOST_CHUNKS, schedule->chunks);
	if (plan->stage_count % p != 0 && !ordered)
		return pd_error_input(err, "%s: stages: expected a multiple of the %d stages that "
				      "have ranks of their own, found %d", pd_plan_name(plan), p,
				      plan->stage_count);
	for (int s = 0; s < plan->stage_count; s++) {
		int at = ordered ? schedule->rank_stages[schedule->ranks[plan->stages[s].ranks[0]].first]
				 : pd_schedule_position(plan->schedule, p, s);
		const struct pd_stage *a = &plan->stages[at], *b = &plan->stages[s];

		if (b->replicas != plan->stages[0].replicas ||
		    memcmp(a->ranks, b->ranks, (size_t)a->replicas * sizeof(*a->ranks)) != 0)
			return wrong_place(schedule, s, at, err);
	}
	return 0;
}

static void set_agree(struct pd_schedule *schedule)
{
	int64_t most = pd_pattern_group(schedule) - 1;

	for (int s = 0; s < schedule->stage_count; s++) {
		int64_t ahead = pd_pattern_lead(schedule, 0) - pd_pattern_lead(schedule, s);

		/* The agree itself is later, by as much as the first stage is behind this one. */
		ahead = (ahead < most ? ahead : most) - (schedule->backwards_behind[0] - schedule->backwards_behind[s]);
		if (pd_weights_have(schedule->plan->weights, PD_WEIGHTS_BEHIND) && ahead > 0 &&
		    schedule->chunks == 1)
			schedule->delay[s] = ahead;
		if (pd_tick_of_allreduce(schedule, s, 0) >
		    pd_tick_of_allreduce(schedule, schedule->last, 0))
			schedule->last = s;
	}
}

int pd_shape_set(struct pd_schedule *schedule, struct pd_error *err)
{
	const struct pd_plan *plan = schedule->plan;
	bool shares = pd_schedule_has(plan->schedule, PD_FACT_SHARES);

	if (check_kind(plan, err) < 0 || check_agree(plan, err) < 0)
		return -1;
	schedule->pattern = pd_pattern_of(plan->schedule);
	schedule->chunks = 1;
	schedule->positions = plan->stage_count;
	schedule->drains = pd_weights_have(plan->weights, PD_WEIGHTS_DRAINS);
	schedule->splits = pd_plan_splits(plan);
	schedule->agrees = pd_plan_agrees(plan);
	schedule->admitted = pd_plan_admitted(plan);
	schedule->span = 32 * (int64_t)plan->stage_count;
	for (int s = 0; s < plan->stage_count; s++)
		schedule->kept[s] = 1;
	if (set_groups(schedule, err) < 0 || (shares ? set_chunks(schedule, err) : set_warmups(schedule, err)) < 0 ||
	    schedule->pattern->shape(schedule, err) < 0)
		return -1;
	if (pd_plan_agrees(plan))
		set_agree(schedule);
	return 0;
}
