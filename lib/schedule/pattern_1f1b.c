/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pipelines with a stage on each rank, whose forwards are some microbatches ahead of their backwards: 1F1B,
 * GPipe, ZB-H1, ZB-H2, and none, where they are 0.
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
 * comes behind_s spans later (set_behind), and group t another t behind_0 spans:
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
 * An eager start-up (SOSP 2019, figure 4) has another lead, first_s r_s of lib/plan/plan.h, for the
 * microbatches that the input stage admits at once.  It is never less than lead_s, and both fall
 * with s.
 *
 * ZB-H1 (Qi et al., 2023) does the weight gradient of n right after backward_s(n + s r_s).  There a backward makes
 * the input gradient only.  ZB-H2 has twice the lead, and does it after backward_s(n + 2 s r_s).
 *
 * With 2bw the forward of n reads the version before that of its group.  So where a stage with replicas
 * has lead_s < G, the step comes behind the replica's next forward, and sums go on beside that:
 *
 *     step_s(u) = forward_s((u + 1) G + lead_s + replica) + 1
 *
 * This forward belongs to group u + 1, and reads version u G; the next backward of the replica, and what is
 * recomputed for it, comes later in the same span.
 */
#include "base/minmax.h"
#include "schedule/pattern.h"

static int64_t planned(const struct pd_plan *plan, int s, int64_t local)
{
	(void)local;
	return plan->stages[s].warmup;
}

static int64_t twice(const struct pd_plan *plan, int s, int64_t local)
{
	return 2 * planned(plan, s, local);
}

static int64_t whole_group(const struct pd_plan *plan, int s, int64_t local)
{
	(void)plan;
	(void)s;
	return local;
}

static int64_t alone(const struct pd_plan *plan, int s, int64_t local)
{
	(void)plan;
	(void)s;
	(void)local;
	return 0;
}

/*
 * Sets how far a stage's backwards are behind those of the last one.  Half of a lead is for the way
 * up, half for the way down.  A stage is at most one backward of each replica behind the next one,
 * and just that where all forwards come first.  Neither this nor what remains of the lead is less
 * than at the next stage.
 */
static void set_behind(struct pd_schedule *schedule)
{
	int64_t *behind = schedule->backwards_behind;

	for (int s = schedule->stage_count - 2; s >= 0; s--) {
		int64_t r = pd_pattern_replicas(schedule, s), next = pd_pattern_replicas(schedule, s + 1);
		int64_t lead = pd_pattern_lead(schedule, s), more = lead - pd_pattern_lead(schedule, s + 1);

		more = pd_min(more, schedule->startup[s] * r - schedule->startup[s + 1] * next);
		behind[s] = pd_min(lead / 2, behind[s + 1] + pd_min(more, r));
		if (schedule->drains && more == 0 && lead == pd_pattern_group(schedule))
			behind[s] = behind[s + 1] + r;
	}
}

/* Returns by how many spans weight gradients come after the backwards of their microbatches. */
static int64_t late(const struct pd_schedule *schedule, int s)
{
	return (schedule->kept[s] - 1) * pd_pattern_replicas(schedule, s);
}

static int shape(struct pd_schedule *schedule, struct pd_error *err)
{
	(void)err;
	schedule->round = 1;
	schedule->pitch = schedule->span;
	for (int s = 0; s < schedule->stage_count && !schedule->splits; s++)
		schedule->kept[s] = 1;
	if (pd_wiring_skips(schedule->wiring))
		set_behind(schedule);
	schedule->group_span = (pd_pattern_group(schedule) + pd_pattern_lead(schedule, 0) + schedule->stage_count +
				schedule->backwards_behind[0] + 1) * schedule->span;
	return 0;
}

/* A microbatch is kept until its weight gradient, `times` s microbatches after its backward. */
static int shape_split(struct pd_schedule *schedule, int times, struct pd_error *err)
{
	int64_t most = 1, group = pd_pattern_group(schedule);

	for (int s = 0; s < schedule->stage_count; s++) {
		int64_t r = pd_pattern_replicas(schedule, s), held = schedule->warmup[s] + 1 + (int64_t)times * s;

		schedule->kept[s] = times * s + 1;
		schedule->slots[s] = (int)pd_min(held, group / r);
		most = r > most ? r : most;
	}
	if (shape(schedule, err) < 0)
		return -1;
	schedule->group_span += (times * most - 1) * schedule->stage_count * schedule->span;
	return 0;
}

static int shape_zb_h1(struct pd_schedule *schedule, struct pd_error *err)
{
	return shape_split(schedule, 1, err);
}

static int shape_zb_h2(struct pd_schedule *schedule, struct pd_error *err)
{
	return shape_split(schedule, 2, err);
}

/* Tells whether all forwards of a group come before its first backward. */
static bool forwards_first(const struct pd_schedule *schedule, int s)
{
	return schedule->drains && pd_pattern_lead(schedule, s) == schedule->group[s];
}

/* Returns by how many spans the forward of n is ahead of the last stage's backward. */
static int64_t ahead(const struct pd_schedule *schedule, int s, int64_t n)
{
	int64_t lead = (n < schedule->admitted ? schedule->startup[s] : schedule->warmup[s]) *
		       pd_pattern_replicas(schedule, s);

	return lead - (forwards_first(schedule, s) ? 0 : schedule->backwards_behind[s]);
}

static int64_t tick(const struct pd_schedule *schedule, enum pd_compute what, int s, int64_t n)
{
	if (what == PD_COMPUTE_FORWARD)
		return (n - ahead(schedule, s, n)) * schedule->span + 16 * s + 4;
	if (what == PD_COMPUTE_WEIGHTS)
		n += late(schedule, s);
	return (n + schedule->backwards_behind[s]) * schedule->span + 16 * (2 * (int64_t)schedule->stage_count - 1 - s) +
	       (what == PD_COMPUTE_WEIGHTS ? 12 : 8);
}

/*
 * The inbox at t, which must be free first, is that of n - (slots_t + 1) r_t, and everything in between is
 * whole spans.  Where the pipeline drains, groups are only farther apart.
 */
static int64_t outboxes(const struct pd_schedule *schedule, const struct pd_link *link)
{
	int s = link->from, t = link->to;
	int64_t r = pd_pattern_replicas(schedule, s), far = pd_pattern_replicas(schedule, t);
	int64_t spans = ahead(schedule, s, 0) + schedule->backwards_behind[t] + late(schedule, t) + 1 -
			pd_schedule_inboxes(schedule, t, false) * far;

	return spans > 0 ? (spans + r - 1) / r : 1;
}

static int64_t defer(const struct pd_schedule *schedule, int s, int replica, int64_t u)
{
	return ((u + 1) * schedule->group[s] + replica + schedule->backwards_behind[s]) * schedule->span + 16 * s + 5;
}

const struct pd_pattern pd_pattern_1F1B = {
	.warmup = planned, .shape = shape, .tick = tick, .outboxes = outboxes, .defer = defer,
};

const struct pd_pattern pd_pattern_GPIPE = {
	.warmup = whole_group, .shape = shape, .tick = tick, .outboxes = outboxes,
};

const struct pd_pattern pd_pattern_NONE = {
	.warmup = alone, .shape = shape, .tick = tick, .outboxes = outboxes,
};

const struct pd_pattern pd_pattern_ZB_H1 = {
	.warmup = planned, .shape = shape_zb_h1, .tick = tick, .outboxes = outboxes,
};

const struct pd_pattern pd_pattern_ZB_H2 = {
	.warmup = twice, .shape = shape_zb_h2, .tick = tick, .outboxes = outboxes,
};
