/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every operation has a tick on one timeline, a closed form of its stage and microbatch.
 *
 * Claim: an operation comes later than all that it depends on, and those of one rank have different
 * keys.  So lists that are sorted by time cannot deadlock, even if transfers block.  The forms come
 * first, then the argument.
 *
 * S is the number of stages.  Stage s has r_s replicas.  Microbatches n count from 0.  When a stage computes
 * depends on the kind of schedule: the forms of forward_s(n), backward_s(n) and weights_s(n), the gradients
 * of the weights where these are apart, are in the kinds' files (pattern.h).
 *
 * The other operations follow from these:
 *
 *     load_s(n)       = when its inbox is free + 1; that is W_s(n - (slots_s + 1) r_s)
 *     activation_l(n) = max(forward_s(n) + 2, when the inbox at t is free + 3)     l: s -> t
 *     gradient_l(n)   = backward_{s+1}(n) + 2                                      l: s -> t
 *                       or backward_s(n - 2 r_s) + 3, when there is a buffer at s, where that can be later
 *     recompute_s(n)  = backward_s(n) - 5                       if the stage recomputes
 *     allreduce_s(u)  = the last W of group u + 4;  step_s(u) = that + 6
 *     norms_s(u)      = allreduce_s(u) + 1           if the stage's sums are sparse (plan/sparse.h)
 *
 * (W = weights where the gradients of weights are apart, else backward.)  With 2bw some steps come as late as the
 * next W, or right behind the next forward, lets them: pd_schedule_defers.
 *
 * If all ranks agree on an update (clipping by global norm, loss scaling; 2bw and flush), they do so
 * once a group, and the step waits for that:
 *
 *     agree(u)  = the latest allreduce_s(u) of all stages + 1
 *     step_s(u) = agree(u) + 1 + delay_s span,  delay_s = min(lead_0 - lead_s, G - 1) with 2bw
 *                                                       = 0 with flush
 *
 * (where stages are behind, less by behind_0 - behind_s, which agree(u) has already; in a V, pattern_block.c).
 *
 * So with 2bw a stage that is ahead of the first one in real time has work of the next group while
 * it waits.  It sums the gradients of that group in a second arena.
 *
 * Evaluation only goes up, with 32 S ticks for each microbatch.  An inbox is free after the forward
 * that used it; a load there comes 3 ticks later, after the send of what a layer that works in place has
 * left in it.  Where a tensor skips stages, or a rank has several, that timeline is slanted, too:
 *
 *     forward_s(n) = (n - leads_s) 32 S + 16 s + 4
 *
 * for leads_s see evaluation.c.  An activation may then be listed after the
 * next forwards, at most as many as what holds it, and the inbox is free after that.
 *
 * Buffers.  A stage has a slot for each microbatch in flight, and one inbox more.  The inbox of n is
 * free after the backward of the microbatch that had it before, (slots + 1) r earlier.  A transfer
 * thus comes where its data exist and its inbox is free.  A gradient that skips stages is listed as
 * if it came from the next stage, and not before there is one of two buffers where it arrives: where a rank has
 * one stage there is, since a stage is behind the next one by r_s at most.  Where it leaves, pd_schedule_leaving counts them.  A stage
 * that recomputes computes nothing else between recompute_s(n) and backward_s(n), and gradient(n)
 * comes before both, at least 14 ticks before the latter.  So one slot is enough (with ZB-H1, those of
 * the microbatches whose weight gradients wait, too).  What its forward sends waits in an outbox,
 * which count.c counts.
 *
 * Buckets.  Where a stage's gradients are summed in several (memory/buckets.h), the last backward of a
 * group is in parts, a bucket's layers each, and the sum of a bucket is listed right behind its
 * part: part 1, sum 1, part 2, sum 2 and so on, all at the tick of that backward, at which the rank
 * has nothing else.  A replica whose last backward of the group comes earlier has all parts there,
 * and all sums at the tick of the group's last.
 *
 * Argument.  Leads do not grow with s, nor do behind_s and lead_s - behind_s.  (SOSP's warm-ups
 * satisfy this: ceil(R/r) r - r is at least R - r, the ranks of all later stages, and less than R.)
 * Then every dependency points forward in time:
 *
 *     forward_s(n) < activation(n) < forward_t(n)         for s < t
 *     backward_t(n) < gradient(n) < backward_s(n)
 *     forward_s(n) < recompute_s(n) < backward_s(n)
 *     step that writes the version that recompute_s(n) reads < recompute_s(n)
 *     backwards of the group < allreduce < step
 *     allreduce < norms < the next allreduce
 *     allreduce of every stage < agree < step < the next agree
 *     step that writes the version that forward_s(n) reads < forward_s(n)
 *     what frees an inbox or a buffer < what fills it
 *
 * This holds with agree, too.  With 2bw, G >= lead_0, and agree(u) is 3 ticks before
 * ((u + 1) G + behind_0) span, so before every backward of the next group at the first stage.  Its
 * step comes at most lead_0 - lead_s spans after (u + 1) G + behind_s.  That is before (2 G + u G -
 * lead_s + behind_s) span, where the first forward begins that reads the new version, and before
 * agree(u + 1), since delay_s < G.  With flush, only loads of the next group, and room for them, come
 * before this group is done (group_span).
 *
 * A list is sorted by time, and an operation of several ranks has one time.  So the graph of all
 * orders and dependencies has no cycle.  Of the operations of one rank, only transfers over several
 * links can share a tick.  They are told apart by their link, so key = time * scale + link is unique
 * and ascending.  Where a tensor goes from one chunk to another of the same rank, sender and receiver
 * are one, and its two operations stand in one list with one number.
 */
#include "schedule/tick.h"

#include "base/mem.h"
#include "schedule/pattern.h"

/*
 * Returns how many forwards of stage s, all replicas together, are ahead of its backwards at
 * microbatch n.
 */
static int64_t lead_at(const struct pd_schedule *schedule, int s, int64_t n)
{
	return (n < schedule->admitted ? schedule->startup[s] : schedule->warmup[s]) *
	       pd_pattern_replicas(schedule, s);
}

/* Returns the beginning of n's group, in ticks, and makes *n_p the number within the group. */
static int64_t enter_group(const struct pd_schedule *schedule, int64_t *n_p)
{
	int64_t group = pd_pattern_group(schedule), t;

	if (!schedule->drains)
		return 0;
	t = *n_p / group;
	if (*n_p < 0 && *n_p % group)   /* a negative n belongs before the phase */
		t--;
	*n_p -= t * group;
	return t * schedule->group_span;
}

static int64_t tick_of(const struct pd_schedule *schedule, enum pd_compute what, int s, int64_t n)
{
	int64_t begin = enter_group(schedule, &n);

	return begin + schedule->pattern->tick(schedule, what, s, n);
}

int64_t pd_tick_of_forward(const struct pd_schedule *schedule, bool evaluate, int s, int64_t n)
{
	return evaluate ? (n - schedule->evaluation_leads[s]) * 32 * schedule->stage_count + 16 * s + 4
			: tick_of(schedule, PD_COMPUTE_FORWARD, s, n);
}

int64_t pd_tick_of_backward(const struct pd_schedule *schedule, int s, int64_t n)
{
	return tick_of(schedule, PD_COMPUTE_BACKWARD, s, n);
}

int64_t pd_tick_of_recompute(const struct pd_schedule *schedule, int s, int64_t n)
{
	return pd_tick_of_backward(schedule, s, n) - 5;
}

int64_t pd_tick_of_backward_weight(const struct pd_schedule *schedule, int s, int64_t n)
{
	return tick_of(schedule, PD_COMPUTE_WEIGHTS, s, n);
}

int64_t pd_tick_of_inbox(const struct pd_schedule *schedule, bool evaluate, int s, int64_t n)
{
	int64_t forward = pd_tick_of_forward(schedule, evaluate, s, n), first;

	n -= pd_schedule_inboxes(schedule, s, evaluate) * pd_pattern_replicas(schedule, s);
	if (evaluate)
		return pd_tick_of_forward(schedule, true, s, n) + schedule->evaluation_lingers[s];
	if (n < 0 && schedule->pattern->unused) {
		first = schedule->pattern->unused(schedule, s, n);
		return first < forward - 2 * PD_SLOT_TICKS ? first : forward - 2 * PD_SLOT_TICKS;
	}
	return schedule->splits ? pd_tick_of_backward_weight(schedule, s, n)
				: pd_tick_of_backward(schedule, s, n);
}

int64_t pd_tick_of_activation(const struct pd_schedule *schedule, bool evaluate, int from, int to,
			      int64_t n)
{
	int64_t ready = pd_tick_of_forward(schedule, evaluate, from, n) + 2;
	int64_t room = pd_tick_of_inbox(schedule, evaluate, to, n) + 3;

	return ready > room ? ready : room;
}

int64_t pd_tick_of_gradient(const struct pd_schedule *schedule, int s, int64_t n)
{
	int64_t ready = pd_tick_of_backward(schedule, s + 1, n) + 2, room;

	if (!schedule->pattern->crowds)
		return ready;
	room = pd_tick_of_backward(schedule, s, n - PD_PASSAGES * pd_pattern_replicas(schedule, s)) + 3;
	return ready > room ? ready : room;
}

int64_t pd_tick_of_buckets(const struct pd_schedule *schedule, int s, int64_t u)
{
	int64_t last = (u + 1) * schedule->group[s] - 1;

	return schedule->splits ? pd_tick_of_backward_weight(schedule, s, last)
				: pd_tick_of_backward(schedule, s, last);
}

int64_t pd_tick_of_allreduce(const struct pd_schedule *schedule, int s, int64_t u)
{
	return pd_tick_of_buckets(schedule, s, u) + 4;
}

int64_t pd_tick_of_norms(const struct pd_schedule *schedule, int s, int64_t u)
{
	return pd_tick_of_allreduce(schedule, s, u) + 1;
}

int64_t pd_tick_of_agree(const struct pd_schedule *schedule, int64_t u)
{
	return pd_tick_of_allreduce(schedule, schedule->last, u) + 1;
}

int64_t pd_tick_of_step(const struct pd_schedule *schedule, int s, int replica, int64_t u)
{
	if (schedule->agrees)
		return pd_tick_of_agree(schedule, u) + 1 + schedule->delay[s] * schedule->span;
	if (!pd_schedule_defers(schedule, s))
		return pd_tick_of_allreduce(schedule, s, u) + 2;
	return schedule->pattern->defer(schedule, s, replica, u);
}

int64_t pd_ticks_per_microbatch(const struct pd_schedule *schedule, bool evaluate)
{
	if (evaluate)
		return 32 * (int64_t)schedule->stage_count;
	return schedule->pitch;
}

int64_t pd_ticks_even_until(const struct pd_schedule *schedule, bool evaluate, int64_t n,
			    int64_t behind)
{
	int64_t until = INT64_MAX, local = n - behind;

	if (evaluate)
		return until;
	if (schedule->drains) {
		enter_group(schedule, &local);
		until = n + pd_pattern_group(schedule) - local;
	}
	if (local < schedule->admitted && n - local + schedule->admitted < until)
		until = n - local + schedule->admitted;
	return until;
}

bool pd_tick_beside(const struct pd_schedule *schedule, int s, int64_t n)
{
	enter_group(schedule, &n);
	return schedule->pattern->beside && schedule->pattern->beside(schedule, s, n);
}

bool pd_tick_whole(const struct pd_schedule *schedule, int s, int64_t n)
{
	enter_group(schedule, &n);
	return schedule->pattern->whole && schedule->pattern->whole(schedule, s, n);
}

/* Versions by the definition of the plan's weights, counted from the phase's beginning. */
int64_t pd_tick_version(const struct pd_schedule *schedule, int s, int64_t n, bool backward)
{
	int64_t r = pd_pattern_replicas(schedule, s), group = schedule->group[s], local = group / r;
	int64_t i = n / r - lead_at(schedule, s, n) / r, own, tag;
	enum pd_weight_kind weights = schedule->plan->weights;

	/* updates before this forward, where i can be negative */
	own = (i >= 0 ? i / local : -((-i + local - 1) / local)) * group;
	if (pd_schedule_has(schedule->plan->schedule, PD_FACT_MINIBATCHES))
		own = (n / group - schedule->plan->stages[s].warmup) * group;
	if (pd_weights_have(weights, PD_WEIGHTS_GROUPS))
		return (n / group - pd_weights_have(weights, PD_WEIGHTS_BEHIND)) * group;
	if (backward && pd_weights_have(weights, PD_WEIGHTS_REREADS))
		return n / r / local * group;
	if (s == 0 || !pd_weights_have(weights, PD_WEIGHTS_TAGS))
		return own;
	tag = pd_tick_version(schedule, 0, n, backward);
	/* Round down to a version of this stage, even if the tag is older than the phase. */
	tag -= (tag % group + group) % group;
	return tag < own ? tag : own;
}
