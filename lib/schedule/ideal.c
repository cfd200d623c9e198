/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The schedules as closed forms.
 *
 * Let S be the number of stages, r_s the replicas of stage s, w_s its warm-up (forwards of
 * a replica before its first backward), lead_s = w_s r_s, and n a microbatch from 0.
 *
 * 1F1B (SOSP 2019, section 3.2; ICML 2021 for 2BW).  A microbatch has a span of 32 S ticks,
 * in which it goes up through the stages and comes down again, 16 ticks each; the forwards
 * of a stage run ahead of its backwards by lead_s:
 *
 *     forward_s(n)  = (n - lead_s) span + 16 s + 4
 *     backward_s(n) =  n           span + 16 (2S - 1 - s) + 8
 *
 * Model parallelism without pipelining is the same with every lead 0; GPipe is the same
 * with every forward of a group ahead.  Where the pipeline drains after each group of G,
 * n counts from the group's first and group t begins t (G + lead_0 + S + 1) spans later.
 * ZB-H1 does the weight gradient of n right after backward_s(n + s r_s), which is only the
 * input gradient then.  nF1B (papers of TiMePReSt) takes a minibatch of N microbatches for
 * the unit: with span' = (2N + 1) 32 S,
 *
 *     forward_s(n)  = (n div N - w_s) span' + (n mod N)     32 S + 16 s + 4
 *     backward_s(n) = (n div N)       span' + (n mod N + N) 32 S + 16 (2S - 1 - s) + 8
 *
 * An eager start-up (SOSP 2019, figure 4) has another lead, first_s r_s of lib/plan/plan.h, for
 * the microbatches that the input stage admits at once; both leads fall with s, and the one of
 * start-up is never less, so all below holds with it too.
 *
 * Interleaved (Megatron's order): stage c p + q is chunk c of v on position q of p.  With
 * i = n div r, f = (i div p) p v + c p + i mod p, b = (i div p) p v + (v - 1 - c) p + i mod p,
 * w_q = 2 (p - 1 - q) + (v - 1) p, and slots of 64 ticks,
 *
 *     forward_cq(n)  = 64 (2 (f - w_q) + 2 (p - 1 - q)) + 4
 *     backward_cq(n) = 64 (2 b         + 2 (p - 1 - q) + 1) + 8
 *
 * and where a group is just p microbatches, all forwards come first:
 *
 *     forward_cq(n)  = 64 (2 (f - v p) + q) + 4
 *     backward_cq(n) = 64 (2 b + 2 (p - 1 - q) + 1 + p) + 8
 *
 * All the rest follows from these two:
 *
 *     load_s(n)       = when its inbox is free + 1
 *     activation_l(n) = max(forward_s(n) + 2, when the inbox at t is free + 3)     l: s -> t
 *     gradient_l(n)   = backward_{s+1}(n) + 2                                      l: s -> t
 *     recompute_s(n)  = backward_s(n) - 5                       where the stage recomputes
 *     allreduce_s(u)  = the last backward of group u + 4;  step_s(u) = that + 6
 *
 * Where all ranks agree on an update (clipping by global norm, loss scaling; 2bw and flush),
 * they meet once a group, and the step waits for that:
 *
 *     agree(u)  = the latest allreduce_s(u) of all stages + 1
 *     step_s(u) = agree(u) + 1 + delay_s span,  delay_s = min(lead_0 - lead_s, G - 1) with 2bw
 *                                                       = 0 with flush
 *
 * With 2bw a stage that is ahead of the first one in real time thus has other work, of the next
 * group, while it waits: it adds those gradients up in a second place.
 *
 * A stage has as many slots as microbatches in flight, and an inbox more: the inbox of n is
 * free after the backward of the microbatch that had it, (slots + 1) r before.  So a transfer
 * is listed where its data exist and its inbox is free.  A gradient that skips stages is
 * listed as if it came from the next one: two buffers are enough.
 *
 * A stage that recomputes computes nothing else between recompute_s(n) and backward_s(n), and
 * gradient(n), at least 14 ticks before the latter, is listed before both: one slot is enough
 * (with ZB-H1 those of the microbatches whose weight gradients wait, too).  What forward makes
 * for others stays in an outbox until it has left: set_outboxes (schedule.c)
 * counts them.
 *
 * If lead is non-increasing in s (SOSP's warm-ups are: ceil(R/r) r - r >= R - r, the
 * ranks of all later stages, and less than R), every dependency points forward in time:
 *
 *     forward_s(n) < activation(n) < forward_t(n)         for s < t
 *     backward_t(n) < gradient(n) < backward_s(n)
 *     forward_s(n) < recompute_s(n) < backward_s(n)
 *     step that writes the version that recompute_s(n) reads < recompute_s(n)
 *     backwards of the group < allreduce < step
 *     allreduce of every stage < agree < step < the next agree
 *     step that writes the version that forward_s(n) reads < forward_s(n)
 *     what frees an inbox or a buffer < what fills it
 *
 * With agree, too.  Of 2bw, where G >= lead_0: agree(u) is 3 ticks before (u + 1) G span, so
 * before every backward of the next group.  Its step, at most lead_0 - lead_s spans later, is
 * before (2 G + u G - lead_s) span, where the first forward begins that reads what it writes;
 * and before agree(u + 1), since delay_s < G.  Of flush: nothing of the next group but loads
 * and room for them comes before all of this one is done (group_span).
 *
 * A list is sorted by time, and an operation of several ranks has one time, so the graph
 * of all orders and dependencies has no cycle: no deadlock, even if transfers block.
 * Of the operations of one rank only transfers of several links can share a tick; they
 * are told apart by their link, so key = time * scale + link is unique and ascending.
 *
 * Where a tensor goes from one chunk to another of the same rank, sender and receiver are
 * one: its two operations stand in one list with one number.
 *
 * Evaluation goes up only: every lead is 0, and an inbox is free after the forward that
 * used it.
 */
#include "schedule/ideal.h"

#include "base/mem.h"

#include <inttypes.h>
#include <string.h>

#define SLOT 64

static int64_t replicas(const struct pd_schedule *schedule, int s)
{
	return schedule->plan->stages[s].replicas;
}

/* Forwards of stage s ahead of its backwards, all replicas together, at microbatch n. */
static int64_t lead_at(const struct pd_schedule *schedule, int s, int64_t n)
{
	return (n < schedule->admitted ? schedule->first[s] : schedule->warmup[s]) *
	       replicas(schedule, s);
}

static bool interleaved(const struct pd_schedule *schedule)
{
	return schedule->plan->schedule == PD_SCHEDULE_INTERLEAVED;
}

/* Microbatches per update, where every stage has the same. */
static int64_t common_group(const struct pd_schedule *schedule)
{
	return schedule->group[0];
}

/* Ticks from the beginning of one group to that of the next. */
static int64_t group_span(const struct pd_schedule *schedule)
{
	int64_t most = 1, lead = schedule->warmup[0] * replicas(schedule, 0);

	if (interleaved(schedule))      /* forwards, backwards, and the way up and down */
		return SLOT * 4 * (common_group(schedule) * schedule->chunks +
				   (int64_t)schedule->chunks * schedule->positions +
				   schedule->positions);
	for (int s = 0; s < schedule->stage_count && schedule->splits; s++)
		most = replicas(schedule, s) > most ? replicas(schedule, s) : most;
	lead += schedule->stage_count * most;   /* weight gradients come that much later */
	return (common_group(schedule) + lead + 1) * schedule->span;
}

/* Splits n into its group's beginning (returned, in ticks) and its number there. */
static int64_t enter_group(const struct pd_schedule *schedule, int64_t *n_p)
{
	int64_t group = common_group(schedule), t;

	if (!schedule->drains)
		return 0;
	t = *n_p / group;
	if (*n_p < 0 && *n_p % group)   /* what comes before a phase belongs before it */
		t--;
	*n_p -= t * group;
	return t * group_span(schedule);
}

/* Is a group so short that an interleaved rank does all its forwards first? */
static bool forwards_first(const struct pd_schedule *schedule, int s)
{
	return common_group(schedule) / replicas(schedule, s) == schedule->positions;
}

static int64_t interleaved_time(const struct pd_schedule *schedule, int s, int64_t n, bool backward)
{
	int64_t p = schedule->positions, v = schedule->chunks, q = s % p, c = s / p;
	int64_t i = n / replicas(schedule, s), round = i / p * p * v + i % p;
	int64_t up = round + c * p, down = round + (v - 1 - c) * p;
	int64_t warmup = 2 * (p - 1 - q) + (v - 1) * p;

	if (forwards_first(schedule, s))
		return backward ? SLOT * (2 * down + 2 * (p - 1 - q) + 1 + p) + 8
				: SLOT * (2 * (up - v * p) + q) + 4;
	return backward ? SLOT * (2 * down + 2 * (p - 1 - q) + 1) + 8
			: SLOT * (2 * (up - warmup) + 2 * (p - 1 - q)) + 4;
}

static int64_t minibatch_time(const struct pd_schedule *schedule, int s, int64_t n, bool backward)
{
	int64_t stages = schedule->stage_count, most = common_group(schedule);
	int64_t t = n / most, k = n % most;

	if (k < 0) {
		k += most;
		t--;
	}
	return backward ? t * schedule->span + (k + most) * 32 * stages +
				  16 * (2 * stages - 1 - s) + 8
			: (t - schedule->plan->stages[s].warmup) * schedule->span +
				  k * 32 * stages + 16 * s + 4;
}

int64_t pd_ideal_forward(const struct pd_schedule *schedule, bool evaluate, int s, int64_t n)
{
	int64_t begin;

	if (evaluate)
		return n * 32 * schedule->stage_count + 16 * s + 4;
	if (schedule->plan->schedule == PD_SCHEDULE_NF1B)
		return minibatch_time(schedule, s, n, false);
	begin = enter_group(schedule, &n);
	if (interleaved(schedule))
		return begin + interleaved_time(schedule, s, n, false);
	return begin + (n - lead_at(schedule, s, n)) * schedule->span + 16 * s + 4;
}

int64_t pd_ideal_backward(const struct pd_schedule *schedule, int s, int64_t n)
{
	int64_t begin;

	if (schedule->plan->schedule == PD_SCHEDULE_NF1B)
		return minibatch_time(schedule, s, n, true);
	begin = enter_group(schedule, &n);
	if (interleaved(schedule))
		return begin + interleaved_time(schedule, s, n, true);
	return begin + n * schedule->span + 16 * (2 * (int64_t)schedule->stage_count - 1 - s) + 8;
}

int64_t pd_ideal_recompute(const struct pd_schedule *schedule, int s, int64_t n)
{
	return pd_ideal_backward(schedule, s, n) - 5;
}

int64_t pd_ideal_backward_weight(const struct pd_schedule *schedule, int s, int64_t n)
{
	int64_t begin = enter_group(schedule, &n);

	return begin + (n + s * replicas(schedule, s)) * schedule->span +
	       16 * (2 * (int64_t)schedule->stage_count - 1 - s) + 8 + 4;
}

int64_t pd_ideal_inbox(const struct pd_schedule *schedule, bool evaluate, int s, int64_t n)
{
	int64_t forward = pd_ideal_forward(schedule, evaluate, s, n), first;

	n -= pd_schedule_inboxes(schedule, s, evaluate) * replicas(schedule, s);
	if (evaluate)
		return pd_ideal_forward(schedule, true, s, n);
	if (interleaved(schedule) && n < 0) {   /* nobody has used it: ascending, and in time */
		first = pd_ideal_backward(schedule, s, 0) + n * SLOT;
		return first < forward - 2 * SLOT ? first : forward - 2 * SLOT;
	}
	return schedule->splits ? pd_ideal_backward_weight(schedule, s, n)
				: pd_ideal_backward(schedule, s, n);
}

int64_t pd_ideal_activation(const struct pd_schedule *schedule, bool evaluate, int from, int to,
			    int64_t n)
{
	int64_t ready = pd_ideal_forward(schedule, evaluate, from, n) + 2;
	int64_t room = pd_ideal_inbox(schedule, evaluate, to, n) + 3;

	return ready > room ? ready : room;
}

int64_t pd_ideal_allreduce(const struct pd_schedule *schedule, int s, int64_t u)
{
	int64_t last = (u + 1) * schedule->group[s] - 1;

	return (schedule->splits ? pd_ideal_backward_weight(schedule, s, last)
				 : pd_ideal_backward(schedule, s, last)) + 4;
}

int64_t pd_ideal_agree(const struct pd_schedule *schedule, int64_t u)
{
	return pd_ideal_allreduce(schedule, schedule->last, u) + 1;
}

int64_t pd_ideal_step(const struct pd_schedule *schedule, int s, int64_t u)
{
	return schedule->agrees
		? pd_ideal_agree(schedule, u) + 1 + schedule->delay[s] * schedule->span
		: pd_ideal_allreduce(schedule, s, u) + 2;
}

int64_t pd_ideal_pitch(const struct pd_schedule *schedule, bool evaluate)
{
	if (evaluate)
		return 32 * (int64_t)schedule->stage_count;
	return interleaved(schedule) || schedule->plan->schedule == PD_SCHEDULE_NF1B
		? 0 : schedule->span;
}

int64_t pd_ideal_even_until(const struct pd_schedule *schedule, bool evaluate, int64_t n,
			    int64_t behind)
{
	int64_t until = INT64_MAX, local = n - behind;

	if (evaluate)
		return until;
	if (schedule->drains) {
		enter_group(schedule, &local);
		until = n + common_group(schedule) - local;
	}
	if (local < schedule->admitted && n - local + schedule->admitted < until)
		until = n - local + schedule->admitted;
	return until;
}

/* Versions, as pipelines with these weights are defined; counted from the phase's beginning. */
int64_t pd_ideal_version(const struct pd_schedule *schedule, int s, int64_t n, bool backward)
{
	int64_t r = replicas(schedule, s), group = schedule->group[s], local = group / r;
	int64_t i = n / r - lead_at(schedule, s, n) / r, own, tag;

	/* updates before this forward: i can be negative */
	own = (i >= 0 ? i / local : -((-i + local - 1) / local)) * group;
	if (schedule->plan->schedule == PD_SCHEDULE_NF1B)
		own = (n / group - schedule->plan->stages[s].warmup) * group;
	switch (schedule->plan->weights) {
	case PD_WEIGHTS_STASH:
		return own;
	case PD_WEIGHTS_VERTICAL_SYNC:
		if (s == 0)
			return own;
		tag = pd_ideal_version(schedule, 0, n, backward);
		/* down to a version of this stage, also where the tag is older than the phase */
		tag -= (tag % group + group) % group;
		return tag < own ? tag : own;
	case PD_WEIGHTS_2BW:
		return (n / group - 1) * group;
	case PD_WEIGHTS_FLUSH:
		return n / group * group;
	case PD_WEIGHTS_LATEST:
		return backward ? n / r / local * group : own;
	default:
		pd_bug("schedule: weights %d", (int)schedule->plan->weights);
	}
}

/* Which weights a schedule can be combined with. */
static bool goes_with(enum pd_schedule_kind schedule, enum pd_weight_kind weights)
{
	switch (schedule) {
	case PD_SCHEDULE_1F1B:
		return true;
	case PD_SCHEDULE_NONE:
		return weights == PD_WEIGHTS_FLUSH || weights == PD_WEIGHTS_STASH;
	case PD_SCHEDULE_NF1B:
		return weights == PD_WEIGHTS_VERTICAL_SYNC || weights == PD_WEIGHTS_STASH ||
		       weights == PD_WEIGHTS_LATEST;
	default:
		return weights == PD_WEIGHTS_FLUSH;
	}
}

static int check_kind(const struct pd_plan *plan, struct pd_error *err)
{
	char known[128] = "";

	if (plan->startup != PD_STARTUP_FRUGAL && plan->schedule != PD_SCHEDULE_1F1B)
		return pd_error_input(err, "plan: startup \"%s\" goes with schedule \"1f1b\", "
				      "found \"%s\"", pd_startup_kind_name[plan->startup],
				      pd_schedule_kind_name[plan->schedule]);
	if (goes_with(plan->schedule, plan->weights))
		return 0;
	for (int w = 0; w < PD_WEIGHT_KINDS; w++)
		if (goes_with(plan->schedule, (enum pd_weight_kind)w)) {
			if (*known)
				strcat(known, ", ");
			strcat(known, pd_weight_kind_name[w]);
		}
	return pd_error_input(err, "plan: schedule \"%s\" does not go with weights \"%s\"; expected"
			      " one of %s", pd_schedule_kind_name[plan->schedule],
			      pd_weight_kind_name[plan->weights], known);
}

/*
 * All ranks wait for each other once a group: with other weights that would be in every
 * minibatch, and the last stage would wait for the first.
 */
static int check_agree(const struct pd_plan *plan, struct pd_error *err)
{
	if (!pd_plan_agrees(plan) || plan->weights == PD_WEIGHTS_2BW || plan->weights == PD_WEIGHTS_FLUSH)
		return 0;
	return pd_error_input(err, "plan: agree: weights \"%s\" update after every minibatch, and all"
			      " stages would wait for each other in each; expected weights \"2bw\" or"
			      " \"flush\"", pd_weight_kind_name[plan->weights]);
}

static void set_agree(struct pd_schedule *schedule)
{
	int64_t lead = schedule->warmup[0] * replicas(schedule, 0);

	for (int s = 0; s < schedule->stage_count; s++) {
		int64_t ahead = lead - schedule->warmup[s] * replicas(schedule, s);

		if (schedule->plan->weights == PD_WEIGHTS_2BW)
			schedule->delay[s] = ahead < common_group(schedule)
				? ahead : common_group(schedule) - 1;
		if (pd_ideal_allreduce(schedule, s, 0) >
		    pd_ideal_allreduce(schedule, schedule->last, 0))
			schedule->last = s;
	}
}

static int set_groups(struct pd_schedule *schedule, struct pd_error *err)
{
	const struct pd_plan *plan = schedule->plan;
	bool common = schedule->drains || plan->weights == PD_WEIGHTS_2BW ||
		      plan->schedule == PD_SCHEDULE_NF1B;

	for (int s = 0; s < plan->stage_count; s++) {
		int64_t r = plan->stages[s].replicas;

		schedule->group[s] = plan->microbatches > 1 || common ? plan->microbatches : r;
		if (schedule->group[s] % r != 0)
			return pd_error_input(err, "plan: microbatches: expected a multiple of the %"
					      PRId64 " replicas of stages[%d], found %" PRId64, r, s,
					      plan->microbatches);
		if (plan->schedule == PD_SCHEDULE_NF1B && r != 1)
			return pd_error_input(err, "plan: stages[%d].replicas: schedule \"nf1b\" is"
					      " for unreplicated stages, found %" PRId64, s, r);
	}
	return 0;
}

/* The warm-ups that the schedule really has, from those of the plan. */
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
		/* all forwards of a group before its first backward: the same lead everywhere */
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
			return pd_error_input(err, "plan: stages[%d].warmup: %d x %d replicas is more "
					      "than the %" PRId64 " minibatches that stage %d admits "
					      "before its first backward: the pipeline would deadlock",
					      s, schedule->warmup[s], plan->stages[s].replicas, before,
					      s - 1);
	}
	if (plan->weights == PD_WEIGHTS_2BW &&
	    schedule->warmup[0] * replicas(schedule, 0) > common_group(schedule))
		return pd_error_input(err, "plan: microbatches: 2bw needs at least the %" PRId64
				      " that are ahead at the first stage, found %" PRId64,
				      schedule->warmup[0] * replicas(schedule, 0),
				      plan->microbatches);
	return 0;
}

/* ZB-H1 keeps a microbatch until its weight gradient, s microbatches after its backward. */
static void hold_for_weights(struct pd_schedule *schedule)
{
	for (int s = 0; s < schedule->stage_count; s++) {
		int64_t local = common_group(schedule) / replicas(schedule, s);
		int64_t held = schedule->warmup[s] + 1 + s;

		schedule->slots[s] = (int)(held < local ? held : local);
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
	if (plan->stage_count % p != 0)
		return pd_error_input(err, "plan: stages: expected a multiple of the %d stages that "
				      "have ranks of their own, found %d", p, plan->stage_count);
	for (int s = 0; s < plan->stage_count; s++) {
		const struct pd_stage *a = &plan->stages[s % p], *b = &plan->stages[s];

		if (b->replicas != plan->stages[0].replicas ||
		    memcmp(a->ranks, b->ranks, (size_t)a->replicas * sizeof(*a->ranks)) != 0)
			return pd_error_input(err, "plan: stages[%d].ranks: schedule \"interleaved\" "
					      "puts stage s on the ranks of stage s mod %d, as many "
					      "everywhere", s, p);
	}
	return 0;
}

static int set_interleaved(struct pd_schedule *schedule, struct pd_error *err)
{
	int64_t local = common_group(schedule) / replicas(schedule, 0);
	int p;

	if (set_chunks(schedule, err) < 0)
		return -1;
	p = schedule->positions;
	if (local % p != 0)
		return pd_error_input(err, "plan: microbatches: schedule \"interleaved\" needs a "
				      "multiple of %d (stages on a rank's path x replicas), found %"
				      PRId64, p * (int)replicas(schedule, 0), schedule->plan->microbatches);
	for (int s = 0; s < schedule->stage_count; s++) {
		int64_t r = replicas(schedule, s), f = 0, b = 0;
		int most = 0;

		/* merge the two ascending sequences of times */
		while (f < local) {
			if (b < f && interleaved_time(schedule, s, b * r, true) <
				     interleaved_time(schedule, s, f * r, false))
				b++;
			else
				f++;
			most = f - b > most ? (int)(f - b) : most;
		}
		schedule->slots[s] = most;
		schedule->warmup[s] = schedule->first[s] = most - 1;
	}
	return 0;
}

int pd_ideal_new(struct pd_schedule *schedule, struct pd_error *err)
{
	const struct pd_plan *plan = schedule->plan;

	if (check_kind(plan, err) < 0 || check_agree(plan, err) < 0)
		return -1;
	schedule->chunks = 1;
	schedule->positions = plan->stage_count;
	schedule->drains = plan->weights == PD_WEIGHTS_FLUSH;
	schedule->splits = plan->schedule == PD_SCHEDULE_ZB_H1;
	schedule->agrees = pd_plan_agrees(plan);
	if (set_groups(schedule, err) < 0 || set_warmups(schedule, err) < 0)
		return -1;
	schedule->span = 32 * (int64_t)plan->stage_count;
	if (plan->schedule == PD_SCHEDULE_NF1B)
		schedule->span *= 2 * plan->microbatches + 1;
	if (schedule->splits)
		hold_for_weights(schedule);
	if (plan->schedule == PD_SCHEDULE_INTERLEAVED && set_interleaved(schedule, err) < 0)
		return -1;
	if (pd_plan_agrees(plan))
		set_agree(schedule);
	return 0;
}
