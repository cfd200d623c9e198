/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every operation has a tick on one timeline, a closed form of its stage and microbatch.
 *
 * Claim: an operation comes later than all that it depends on, and those of one rank have different
 * keys.  So lists that are sorted by time cannot deadlock, even if transfers block.  The forms come
 * first, then the argument.
 *
 * S is the number of stages.  Stage s has r_s replicas and a warm-up of w_s: a replica does so many
 * forwards before its first backward.  lead_s = w_s r_s.  Microbatches n count from 0.
 *
 * 1F1B (SOSP 2019, section 3.2; ICML 2021 for 2BW).  A microbatch has a span of 32 S ticks.  It goes
 * up through the stages and comes down again, with 16 ticks for each.  The forwards of a stage are
 * lead_s microbatches ahead of its backwards:
 *
 *     forward_s(n)  = (n - lead_s) span + 16 s + 4
 *     backward_s(n) =  n           span + 16 (2S - 1 - s) + 8
 *
 * Without pipelining every lead is 0.  With GPipe all forwards of a group are ahead.  Where the
 * pipeline drains after each group of G, n counts from the first of its group, and group t begins
 * t (G + lead_0 + S + 1) spans later.
 *
 * Where a tensor skips stages, the timeline is about as slanted as real time.  All that stage s does
 * comes behind_s spans later (set_behind in shape.c), and group t another t behind_0 spans:
 *
 *     forward_s(n)  = (n - lead_s + behind_s) span + 16 s + 4
 *     backward_s(n) = (n + behind_s)          span + 16 (2S - 1 - s) + 8
 *
 * The order of a rank's computations is the same, since all of a stage is moved alike.  (Where all
 * forwards of a group come first, they stay.)  But a transfer stands in the list of either rank near
 * the computations that are done at the same time: a transfer that is listed long before its other
 * end can be there would hold up all behind it, since operations retire in order.  So an activation
 * that skips stages waits in its slot, where it stays anyway, and its gradient in a buffer of those
 * that leave.
 *
 * ZB-H1 does the weight gradient of n right after backward_s(n + s r_s).  There a backward makes the
 * input gradient only.
 *
 * nF1B (the papers of TiMePReSt) has minibatches of N microbatches as units.  span' = (2N + 1) 32 S:
 *
 *     forward_s(n)  = (n div N - w_s) span' + (n mod N)     32 S + 16 s + 4
 *     backward_s(n) = (n div N)       span' + (n mod N + N) 32 S + 16 (2S - 1 - s) + 8
 *
 * Where a tensor skips stages, backwards are behind_s = S - 1 - s microbatches, 32 S ticks each, later,
 * and forwards as many as there are later stages with a smaller warm-up than the stage before them.
 * span' is longer by as many as the two differ at the first stage, so that the order of a rank's
 * computations is the same.
 *
 * An eager start-up (SOSP 2019, figure 4) has another lead, first_s r_s of lib/plan/plan.h, for the
 * microbatches that the input stage admits at once.  It is never less than lead_s, and both fall
 * with s, so the argument below holds for it, too.
 *
 * Interleaved (Megatron's order): stage c p + q is chunk c of v at position q of p.  With
 * i = n div r, f = (i div p) p v + c p + i mod p, b = (i div p) p v + (v - 1 - c) p + i mod p,
 * w_q = 2 (p - 1 - q) + (v - 1) p, and slots of 64 ticks,
 *
 *     forward_cq(n)  = 64 (2 (f - w_q) + 2 (p - 1 - q)) + 4
 *     backward_cq(n) = 64 (2 b         + 2 (p - 1 - q) + 1) + 8
 *
 * If a group has just p microbatches, all forwards come first:
 *
 *     forward_cq(n)  = 64 (2 (f - v p) + q) + 4
 *     backward_cq(n) = 64 (2 b + 2 (p - 1 - q) + 1 + p) + 8
 *
 * The other operations follow from these two:
 *
 *     load_s(n)       = when its inbox is free + 1
 *     activation_l(n) = max(forward_s(n) + 2, when the inbox at t is free + 3)     l: s -> t
 *     gradient_l(n)   = backward_{s+1}(n) + 2                                      l: s -> t
 *     recompute_s(n)  = backward_s(n) - 5                       if the stage recomputes
 *     allreduce_s(u)  = the last backward of group u + 4;  step_s(u) = that + 6
 *     norms_s(u)      = allreduce_s(u) + 1           if the stage's sums are sparse (plan/sparse.h)
 *
 * With 2bw the forward of n reads the version before that of its group.  So where a stage with replicas
 * has lead_s < G, the step comes behind the replica's next forward, and sums go on beside that:
 *
 *     step_s(u) = forward_s((u + 1) G + lead_s + replica) + 1
 *
 * This forward belongs to group u + 1, and reads version u G; the next backward of the replica, and what is
 * recomputed for it, comes later in the same span.
 *
 * If all ranks agree on an update (clipping by global norm, loss scaling; 2bw and flush), they do so
 * once a group, and the step waits for that:
 *
 *     agree(u)  = the latest allreduce_s(u) of all stages + 1
 *     step_s(u) = agree(u) + 1 + delay_s span,  delay_s = min(lead_0 - lead_s, G - 1) with 2bw
 *                                                       = 0 with flush
 *
 * (where stages are behind, less by behind_0 - behind_s, which agree(u) has already).
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
 * for leads_s see pd_shape_set_evaluation in shape.c.  An activation may then be listed after the
 * next forwards, at most as many as what holds it, and the inbox is free after that.
 *
 * Buffers.  A stage has a slot for each microbatch in flight, and one inbox more.  The inbox of n is
 * free after the backward of the microbatch that had it before, (slots + 1) r earlier.  A transfer
 * thus comes where its data exist and its inbox is free.  A gradient that skips stages is listed as
 * if it came from the next stage, so two buffers are enough where it arrives: a stage is behind the
 * next one by r_s at most.  Where it leaves, pd_schedule_leaving (schedule.c) counts them.  A stage
 * that recomputes computes nothing else between recompute_s(n) and backward_s(n), and gradient(n)
 * comes before both, at least 14 ticks before the latter.  So one slot is enough (with ZB-H1, those of
 * the microbatches whose weight gradients wait, too).  What its forward sends waits in an outbox,
 * which set_outboxes (schedule.c) counts.
 *
 * Buckets.  Where a stage's gradients are summed in several (plan/buckets.h), the last backward of a
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

#define SLOT 64

static int64_t replicas(const struct pd_schedule *schedule, int s)
{
	return schedule->plan->stages[s].replicas;
}

/*
 * Returns how many forwards of stage s, all replicas together, are ahead of its backwards at
 * microbatch n.
 */
static int64_t lead_at(const struct pd_schedule *schedule, int s, int64_t n)
{
	return (n < schedule->admitted ? schedule->first[s] : schedule->warmup[s]) *
	       replicas(schedule, s);
}

/* Tells whether all forwards of a group come before its first backward. */
static bool forwards_first(const struct pd_schedule *schedule, int s)
{
	return schedule->drains &&
	       schedule->warmup[s] * replicas(schedule, s) == schedule->group[s];
}

int64_t pd_tick_ahead(const struct pd_schedule *schedule, int s, int64_t n)
{
	return lead_at(schedule, s, n) - (forwards_first(schedule, s) ? 0 : schedule->behind[s]);
}

static bool interleaved(const struct pd_schedule *schedule)
{
	return schedule->plan->schedule == PD_SCHEDULE_INTERLEAVED;
}

/* Returns the microbatches per update, which are the same at every stage. */
static int64_t common_group(const struct pd_schedule *schedule)
{
	return schedule->group[0];
}

/* Returns the ticks from the beginning of one group to that of the next. */
static int64_t group_span(const struct pd_schedule *schedule)
{
	int64_t most = 1, lead = schedule->warmup[0] * replicas(schedule, 0);

	if (interleaved(schedule))      /* forwards, backwards, and the way up and down */
		return SLOT * 4 * (common_group(schedule) * schedule->chunks +
				   (int64_t)schedule->chunks * schedule->positions +
				   schedule->positions);
	for (int s = 0; s < schedule->stage_count && schedule->splits; s++)
		most = replicas(schedule, s) > most ? replicas(schedule, s) : most;
	lead += schedule->stage_count * most;   /* weight gradients come later by this */
	lead += schedule->behind[0];
	return (common_group(schedule) + lead + 1) * schedule->span;
}

/* Returns the beginning of n's group, in ticks, and makes *n_p the number within the group. */
static int64_t enter_group(const struct pd_schedule *schedule, int64_t *n_p)
{
	int64_t group = common_group(schedule), t;

	if (!schedule->drains)
		return 0;
	t = *n_p / group;
	if (*n_p < 0 && *n_p % group)   /* a negative n belongs before the phase */
		t--;
	*n_p -= t * group;
	return t * group_span(schedule);
}

/* Tells whether a group is so short that an interleaved rank does all its forwards first. */
static bool short_group(const struct pd_schedule *schedule, int s)
{
	return common_group(schedule) / replicas(schedule, s) == schedule->positions;
}

static int64_t interleaved_time(const struct pd_schedule *schedule, int s, int64_t n, bool backward)
{
	int64_t p = schedule->positions, v = schedule->chunks, q = s % p, c = s / p;
	int64_t i = n / replicas(schedule, s), round = i / p * p * v + i % p;
	int64_t up = round + c * p, down = round + (v - 1 - c) * p;
	int64_t warmup = 2 * (p - 1 - q) + (v - 1) * p;

	if (short_group(schedule, s))
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
	return backward ? t * schedule->span + (k + most + schedule->behind[s]) * 32 * stages +
				  16 * (2 * stages - 1 - s) + 8
			: (t - schedule->plan->stages[s].warmup) * schedule->span +
				  (k + schedule->forwards_behind[s]) * 32 * stages + 16 * s + 4;
}

int64_t pd_tick_of_forward(const struct pd_schedule *schedule, bool evaluate, int s, int64_t n)
{
	int64_t begin;

	if (evaluate)
		return (n - schedule->leads[s]) * 32 * schedule->stage_count + 16 * s + 4;
	if (schedule->plan->schedule == PD_SCHEDULE_NF1B)
		return minibatch_time(schedule, s, n, false);
	begin = enter_group(schedule, &n);
	if (interleaved(schedule))
		return begin + interleaved_time(schedule, s, n, false);
	return begin + (n - pd_tick_ahead(schedule, s, n)) * schedule->span + 16 * s + 4;
}

int64_t pd_tick_of_backward(const struct pd_schedule *schedule, int s, int64_t n)
{
	int64_t begin;

	if (schedule->plan->schedule == PD_SCHEDULE_NF1B)
		return minibatch_time(schedule, s, n, true);
	begin = enter_group(schedule, &n);
	if (interleaved(schedule))
		return begin + interleaved_time(schedule, s, n, true);
	return begin + (n + schedule->behind[s]) * schedule->span +
	       16 * (2 * (int64_t)schedule->stage_count - 1 - s) + 8;
}

int64_t pd_tick_of_recompute(const struct pd_schedule *schedule, int s, int64_t n)
{
	return pd_tick_of_backward(schedule, s, n) - 5;
}

int64_t pd_tick_of_backward_weight(const struct pd_schedule *schedule, int s, int64_t n)
{
	int64_t begin = enter_group(schedule, &n);

	return begin + (n + s * replicas(schedule, s) + schedule->behind[s]) * schedule->span +
	       16 * (2 * (int64_t)schedule->stage_count - 1 - s) + 8 + 4;
}

int64_t pd_tick_of_inbox(const struct pd_schedule *schedule, bool evaluate, int s, int64_t n)
{
	int64_t forward = pd_tick_of_forward(schedule, evaluate, s, n), first;

	n -= pd_schedule_inboxes(schedule, s, evaluate) * replicas(schedule, s);
	if (evaluate)
		return pd_tick_of_forward(schedule, true, s, n) + schedule->lingers[s];
	if (interleaved(schedule) && n < 0) {   /* nobody has used it; times ascend */
		first = pd_tick_of_backward(schedule, s, 0) + n * SLOT;
		return first < forward - 2 * SLOT ? first : forward - 2 * SLOT;
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
	return ((u + 1) * schedule->group[s] + replica + schedule->behind[s]) * schedule->span + 16 * s + 5;
}

int64_t pd_ticks_per_microbatch(const struct pd_schedule *schedule, bool evaluate)
{
	if (evaluate)
		return 32 * (int64_t)schedule->stage_count;
	return interleaved(schedule) || schedule->plan->schedule == PD_SCHEDULE_NF1B
		? 0 : schedule->span;
}

int64_t pd_ticks_even_until(const struct pd_schedule *schedule, bool evaluate, int64_t n,
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

/* Versions by the definition of the plan's weights, counted from the phase's beginning. */
int64_t pd_tick_version(const struct pd_schedule *schedule, int s, int64_t n, bool backward)
{
	int64_t r = replicas(schedule, s), group = schedule->group[s], local = group / r;
	int64_t i = n / r - lead_at(schedule, s, n) / r, own, tag;

	/* updates before this forward, where i can be negative */
	own = (i >= 0 ? i / local : -((-i + local - 1) / local)) * group;
	if (schedule->plan->schedule == PD_SCHEDULE_NF1B)
		own = (n / group - schedule->plan->stages[s].warmup) * group;
	switch (schedule->plan->weights) {
	case PD_WEIGHTS_STASH:
		return own;
	case PD_WEIGHTS_VERTICAL_SYNC:
		if (s == 0)
			return own;
		tag = pd_tick_version(schedule, 0, n, backward);
		/*
		 * Round down to a version of this stage, even if the tag is older than the phase.
		 */
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
