/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/shape.h"

#include "schedule/tick.h"

#include <inttypes.h>
#include <string.h>

#define MOST_CHUNKS 4096        /* arrays of a rank's stages are on the stack */

static int64_t replicas(const struct pd_schedule *schedule, int s)
{
	return schedule->plan->stages[s].replicas;
}

/* Returns the microbatches per update, which are the same at every stage. */
static int64_t common_group(const struct pd_schedule *schedule)
{
	return schedule->group[0];
}

static int64_t lead_of(const struct pd_schedule *schedule, int s)
{
	return schedule->warmup[s] * replicas(schedule, s);
}

static int check_kind(const struct pd_plan *plan, struct pd_error *err)
{
	char known[128] = "";

	if (plan->startup != PD_STARTUP_FRUGAL && !pd_schedule_has(plan->schedule, PD_FACT_LEADS))
		return pd_error_input(err, "%s: startup \"%s\" goes with schedule \"1f1b\", "
				      "found \"%s\"", pd_plan_name(plan), pd_startup_kind_name[plan->startup],
				      pd_schedule_kind_name[plan->schedule]);
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
	if (!pd_plan_agrees(plan) || plan->weights == PD_WEIGHTS_2BW || plan->weights == PD_WEIGHTS_FLUSH)
		return 0;
	return pd_error_input(err, "%s: agree: weights \"%s\" update after every minibatch, and all"
			      " stages would wait for each other in each; expected weights \"2bw\" or"
			      " \"flush\"", pd_plan_name(plan), pd_weight_kind_name[plan->weights]);
}

static void set_agree(struct pd_schedule *schedule)
{
	int64_t most = common_group(schedule) - 1;

	for (int s = 0; s < schedule->stage_count; s++) {
		int64_t ahead = lead_of(schedule, 0) - lead_of(schedule, s);

		/* The agree itself is later, by as much as the first stage is behind this one. */
		ahead = (ahead < most ? ahead : most) - (schedule->behind[0] - schedule->behind[s]);
		if (schedule->plan->weights == PD_WEIGHTS_2BW && ahead > 0)
			schedule->delay[s] = ahead;
		if (pd_tick_of_allreduce(schedule, s, 0) >
		    pd_tick_of_allreduce(schedule, schedule->last, 0))
			schedule->last = s;
	}
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
		if (plan->schedule == PD_SCHEDULE_NF1B && r != 1)
			return pd_error_input(err, "%s: stages[%d].replicas: schedule \"nf1b\" is"
					      " for unreplicated stages, found %" PRId64,
					      pd_plan_name(plan), s, r);
	}
	return 0;
}

/* Sets the warm-ups that the schedule has in fact, from those of the plan. */
static int set_warmups(struct pd_schedule *schedule, struct pd_error *err)
{
	const struct pd_plan *plan = schedule->plan;
	int *first = schedule->first;

	schedule->admitted = pd_plan_admitted(plan);
	pd_plan_first(plan, first);
	for (int s = 0; s < plan->stage_count; s++) {
		int64_t local = schedule->group[s] / plan->stages[s].replicas;
		int64_t w = plan->stages[s].warmup;

		if (plan->schedule == PD_SCHEDULE_NONE)
			w = 0;
		if (plan->schedule == PD_SCHEDULE_NF1B)
			w = (w + 1) * plan->microbatches - 1;
		/*
		 * All forwards of a group come before its first backward: the lead is the same
		 * everywhere.
		 */
		if (plan->schedule == PD_SCHEDULE_GPIPE || (schedule->drains && w > local))
			w = local;
		schedule->warmup[s] = (int)w;
		first[s] = schedule->admitted > 0 ? schedule->drains && first[s] > local
						    ? (int)local : first[s] : (int)w;
		schedule->slots[s] = (int)(schedule->drains && first[s] >= local
					   ? local : first[s] + 1);
	}
	for (int s = 1; s < plan->stage_count && plan->schedule != PD_SCHEDULE_INTERLEAVED; s++) {
		int64_t before = schedule->warmup[s - 1] * replicas(schedule, s - 1);

		if (schedule->warmup[s] * replicas(schedule, s) > before)
			return pd_error_input(err, "%s: stages[%d].warmup: %d x %d replicas is more "
					      "than the %" PRId64 " minibatches that stage %d admits "
					      "before its first backward: the pipeline would deadlock",
					      pd_plan_name(plan), s, schedule->warmup[s], plan->stages[s].replicas, before,
					      s - 1);
	}
	if (plan->weights == PD_WEIGHTS_2BW &&
	    schedule->warmup[0] * replicas(schedule, 0) > common_group(schedule))
		return pd_error_input(err, "%s: microbatches: 2bw needs at least the %" PRId64
				      " that are ahead at the first stage, found %" PRId64, pd_plan_name(plan),
				      schedule->warmup[0] * replicas(schedule, 0),
				      plan->microbatches);
	return 0;
}

/* With ZB-H1 a microbatch is kept until its weight gradient, s microbatches after its backward. */
static void hold_for_weights(struct pd_schedule *schedule)
{
	for (int s = 0; s < schedule->stage_count; s++) {
		int64_t local = common_group(schedule) / replicas(schedule, s);
		int64_t held = schedule->warmup[s] + 1 + s;

		schedule->slots[s] = (int)(held < local ? held : local);
	}
}

static bool skips(const struct pd_wiring *wiring)
{
	for (int l = 0; l < wiring->link_count; l++)
		if (wiring->links[l].to > wiring->links[l].from + 1)
			return true;
	return false;
}

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/*
 * Sets how far a stage's backwards are behind those of the last one.  Half of a lead is for the way
 * up, half for the way down.  A stage is at most one backward of each replica behind the next one,
 * and just that where all forwards come first.  Neither this nor what remains of the lead is less
 * than at the next stage.
 */
static void set_behind(struct pd_schedule *schedule)
{
	int64_t *behind = schedule->behind;

	for (int s = schedule->stage_count - 2; s >= 0; s--) {
		int64_t r = replicas(schedule, s), next = replicas(schedule, s + 1);
		int64_t lead = lead_of(schedule, s), more = lead - lead_of(schedule, s + 1);

		more = least(more, schedule->first[s] * r - schedule->first[s + 1] * next);
		behind[s] = least(lead / 2, behind[s + 1] + least(more, r));
		if (schedule->drains && more == 0 && lead == common_group(schedule))
			behind[s] = behind[s + 1] + r;
	}
}

/* Sets `behind` for nF1B, where a stage's forwards and its backwards are moved apart (tick.c). */
static void set_behind_of_minibatches(struct pd_schedule *schedule)
{
	const struct pd_stage *stages = schedule->plan->stages;

	for (int s = schedule->stage_count - 2; s >= 0; s--) {
		schedule->behind[s] = schedule->behind[s + 1] + 1;
		schedule->forwards_behind[s] = schedule->forwards_behind[s + 1] +
					       (stages[s].warmup > stages[s + 1].warmup);
	}
}

static int64_t evaluation_span(const struct pd_schedule *schedule)
{
	return 32 * (int64_t)schedule->stage_count;
}

/*
 * Returns the microbatches that a replica has in flight in an evaluation if every stage up to the
 * farthest that it sends to works on one, and the next arrives.
 */
static int64_t needed(const struct pd_schedule *schedule, int s)
{
	const struct pd_wiring *wiring = schedule->wiring;
	int64_t r = replicas(schedule, s), between = r;
	int far = s + 1;

	for (int i = 0; i < wiring->out_count[s]; i++)
		if (wiring->links[wiring->out[s][i]].to > far)
			far = wiring->links[wiring->out[s][i]].to;
	for (int t = s + 1; t < far; t++)
		between += replicas(schedule, t);
	return (between + r - 1) / r + 1;
}

/*
 * Returns how many ticks after a forward with that lead its activation finds room where it goes, whose
 * leads_s and lingers_s are set.
 */
static int64_t room_after(const struct pd_schedule *schedule, const struct pd_link *link, int64_t lead)
{
	int s = link->from, t = link->to;
	int64_t inboxes = pd_schedule_inboxes(schedule, t, true) * replicas(schedule, t);

	return (lead - schedule->leads[t] - inboxes) * evaluation_span(schedule) +
	       16 * (int64_t)(t - s) + schedule->lingers[t] + 3;
}

/* Returns the most lead with which that is before the forward that needs the same slot or outbox. */
static int64_t most_lead(const struct pd_schedule *schedule, const struct pd_link *link)
{
	int s = link->from;
	int64_t span = evaluation_span(schedule), held = schedule->evaluated[s];

	if (schedule->plan->stages[s].recompute)
		held = least(held, schedule->outboxes[s]);
	return (held * replicas(schedule, s) * span - 1 - room_after(schedule, link, 0)) / span;
}

/*
 * In an evaluation a stage is ahead of the next one by one forward of each replica, or less where
 * an activation that skips stages could not be held for as long: neither has more than training.
 * Going down, leads never fall: lingers_s are less than what all inboxes but one take, so most_lead is
 * more than the lead of the stage that the link goes to, and all that it skips have at most that.
 */
void pd_shape_set_evaluation(struct pd_schedule *schedule)
{
	const struct pd_wiring *wiring = schedule->wiring;
	bool slants = skips(wiring) || schedule->chunks > 1;
	int64_t *leads = schedule->leads, *lingers = schedule->lingers;

	for (int s = 0; s < schedule->stage_count; s++) {
		schedule->evaluated[s] = (int)least(schedule->slots[s], needed(schedule, s));
		leads[s] = INT64_MAX;
	}
	for (int s = schedule->stage_count - 1; s >= 0; s--) {
		leads[s] = slants && s < schedule->stage_count - 1
			? least(leads[s], leads[s + 1] + replicas(schedule, s)) : 0;
		for (int i = 0; i < wiring->out_count[s] && slants; i++) {
			const struct pd_link *link = &wiring->links[wiring->out[s][i]];

			if (room_after(schedule, link, leads[s]) - 2 > lingers[s])
				lingers[s] = room_after(schedule, link, leads[s]) - 2;
		}
		for (int i = 0; i < wiring->in_count[s]; i++) {
			const struct pd_link *link = &wiring->links[wiring->in[s][i]];

			for (int u = link->from; u < s; u++)
				leads[u] = least(leads[u], most_lead(schedule, link));
		}
	}
}

/* Stages p apart are on the same ranks. */
static int set_chunks(struct pd_schedule *schedule, struct pd_error *err)
{
	const struct pd_plan *plan = schedule->plan;
	int p;

	for (p = 1; p < plan->stage_count; p++)
		if (plan->stages[p].ranks[0] == plan->stages[0].ranks[0])
			break;
	schedule->positions = p;
	schedule->chunks = plan->stage_count / p;
	if (schedule->chunks > MOST_CHUNKS)
		return pd_error_input(err, "%s: stages: expected at most %d on a rank, found %d",
				      pd_plan_name(plan), MOST_CHUNKS, schedule->chunks);
	if (plan->stage_count % p != 0)
		return pd_error_input(err, "%s: stages: expected a multiple of the %d stages that "
				      "have ranks of their own, found %d", pd_plan_name(plan), p,
				      plan->stage_count);
	for (int s = 0; s < plan->stage_count; s++) {
		const struct pd_stage *a = &plan->stages[s % p], *b = &plan->stages[s];

		if (b->replicas != plan->stages[0].replicas ||
		    memcmp(a->ranks, b->ranks, (size_t)a->replicas * sizeof(*a->ranks)) != 0)
			return pd_error_input(err, "%s: stages[%d].ranks: schedule \"interleaved\" "
					      "puts stage s on the ranks of stage s mod %d, as many "
					      "everywhere", pd_plan_name(plan), s, p);
	}
	return 0;
}

/*
 * A forward is ahead of its backward by less than 4 p v slots, and each 2 v slots have one more of
 * both (tick.c).  So everything repeats after 2 p microbatches and a round of p.
 */
#define ENOUGH 8        /* rounds */

/*
 * Returns the most of the first `count` microbatches of a replica in flight, by the times of their
 * forwards and backwards.
 */
static int most_in_flight(const struct pd_schedule *schedule, int s, int64_t count)
{
	int64_t r = replicas(schedule, s), f = 0, b = 0, most = 0;

	/* Merge the two ascending sequences. */
	while (f < count) {
		if (b < f && pd_tick_of_backward(schedule, s, b * r) <
			     pd_tick_of_forward(schedule, false, s, f * r))
			b++;
		else
			f++;
		most = f - b > most ? f - b : most;
	}
	return (int)most;
}

static int set_interleaved(struct pd_schedule *schedule, struct pd_error *err)
{
	int64_t local = common_group(schedule) / replicas(schedule, 0);
	int p;

	if (set_chunks(schedule, err) < 0)
		return -1;
	p = schedule->positions;
	if (local % p != 0)
		return pd_error_input(err, "%s: microbatches: schedule \"interleaved\" needs a "
				      "multiple of %d (stages on a rank's path x replicas), found %"
				      PRId64, pd_plan_name(schedule->plan), p * (int)replicas(schedule, 0),
				      schedule->plan->microbatches);
	for (int s = 0; s < schedule->stage_count; s++) {
		schedule->slots[s] = most_in_flight(schedule, s, local < ENOUGH * p ? local
										    : ENOUGH * p);
		schedule->warmup[s] = schedule->first[s] = schedule->slots[s] - 1;
	}
	return 0;
}

int pd_shape_set(struct pd_schedule *schedule, struct pd_error *err)
{
	const struct pd_plan *plan = schedule->plan;

	if (check_kind(plan, err) < 0 || check_agree(plan, err) < 0)
		return -1;
	schedule->chunks = 1;
	schedule->positions = plan->stage_count;
	schedule->drains = plan->weights == PD_WEIGHTS_FLUSH;
	schedule->splits = pd_schedule_has(plan->schedule, PD_FACT_SPLITS);
	schedule->agrees = pd_plan_agrees(plan);
	if (set_groups(schedule, err) < 0 || set_warmups(schedule, err) < 0)
		return -1;
	schedule->span = 32 * (int64_t)plan->stage_count;
	if (skips(schedule->wiring) && plan->schedule == PD_SCHEDULE_NF1B)
		set_behind_of_minibatches(schedule);
	else if (skips(schedule->wiring) && plan->schedule != PD_SCHEDULE_INTERLEAVED)
		set_behind(schedule);
	if (plan->schedule == PD_SCHEDULE_NF1B)
		schedule->span *= 2 * plan->microbatches + 1 + schedule->behind[0] -
				  schedule->forwards_behind[0];
	if (schedule->splits)
		hold_for_weights(schedule);
	if (plan->schedule == PD_SCHEDULE_INTERLEAVED && set_interleaved(schedule, err) < 0)
		return -1;
	if (pd_plan_agrees(plan))
		set_agree(schedule);
	return 0;
}
