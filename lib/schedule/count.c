/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/count.h"

#include "base/minmax.h"
#include "schedule/pattern.h"
#include "schedule/tick.h"

/* Returns the tick at which a microbatch is done with. */
static int64_t end_of(const struct pd_schedule *schedule, int s, int64_t n)
{
	return schedule->splits ? pd_tick_of_backward_weight(schedule, s, n)
				: pd_tick_of_backward(schedule, s, n);
}

int pd_count_in_flight(const struct pd_schedule *schedule, int s, int64_t count)
{
	int64_t r = pd_pattern_replicas(schedule, s), f = 0, b = 0, in_flight = 0;

	/* Merge the two ascending sequences. */
	while (f < count) {
		if (b < f && end_of(schedule, s, b * r) < pd_tick_of_forward(schedule, false, s, f * r))
			b++;
		else
			f++;
		in_flight = pd_max(in_flight, f - b);
	}
	return (int)in_flight;
}

int pd_count_kept(const struct pd_schedule *schedule, int s, int64_t count)
{
	int64_t r = pd_pattern_replicas(schedule, s), f = 0, b = 0, w = 0, kept = 1;

	/* Merge the three; a forward works in a slot, too, perhaps between a recompute and its backward. */
	while (b < count) {
		int64_t back = pd_tick_of_recompute(schedule, s, b * r), next = back;

		if (f < count && pd_tick_of_forward(schedule, false, s, f * r) < next)
			next = pd_tick_of_forward(schedule, false, s, f * r);
		if (w < b && end_of(schedule, s, w * r) < next) {
			w++;
			continue;
		}
		kept = pd_max(kept, b - w + 1);
		if (next == back)
			b++;
		else
			f++;
	}
	return (int)kept;
}

/*
 * Returns n, or the first of the group's last microbatches that are looked at, if n is behind the `enough` first
 * and before those; INT64_MAX if there are none.
 */
static int64_t looked_at(const struct pd_schedule *schedule, int s, int64_t n, int64_t enough)
{
	int64_t last = schedule->group[s] - schedule->tail * pd_pattern_replicas(schedule, s);

	if (n < enough)
		return n;
	return schedule->tail == 0 ? INT64_MAX : n < last ? last : n;
}

/*
 * A gradient that skips stages leaves after the backward of the stage below which it arrives
 * (tick.c).  Those of several microbatches wait for that.  Outside of interleaved stages there is one
 * buffer more, so that the next are made while these leave.
 */
static int count_leaving(const struct pd_schedule *schedule, int stage)
{
	const struct pd_wiring *wiring = schedule->wiring;
	int64_t r = schedule->plan->stages[stage].replicas, rounds = schedule->round * r;
	int64_t last = schedule->drains ? schedule->group[stage] : INT64_MAX;
	int64_t held_most = 2;
	int spare = schedule->backwards_behind[0] > 0;

	for (int i = 0; i < wiring->in_count[stage]; i++) {
		int below = wiring->links[wiring->in[stage][i]].from + 1, held = 2;
		int64_t before = -r;

		for (int64_t n = 0; n < last; before = n, n = looked_at(schedule, stage, n + r, rounds)) {
			int64_t leaves = pd_tick_of_gradient(schedule, below - 1, n);

			/* Ticks ascend: all but the first that wait for one wait for the next as well. */
			held = n == before + r ? (int)pd_max(held - 1, 1) : 1;

			while (n + held * r < last &&
			       pd_tick_of_backward(schedule, stage, n + held * r) <= leaves)
				held++;
			held_most = pd_max(held_most, held + spare);
		}
	}
	return (int)held_most;
}

int pd_schedule_leaving(const struct pd_schedule *schedule, int stage)
{
	int *count = &schedule->leaving[stage];

	if (*count == 0)
		*count = count_leaving(schedule, stage);
	return *count;
}

/*
 * Returns the outboxes that a link needs, so that the sends of n are listed before the forward of n
 * + count r.  It is tried for as long as schedules take to repeat.
 */
static int64_t outboxes_of_link(const struct pd_schedule *schedule, const struct pd_link *link)
{
	int s = link->from, t = link->to;
	int64_t r = pd_pattern_replicas(schedule, s), count = 1;
	int64_t enough = (pd_schedule_inboxes(schedule, t, false) + schedule->round) * r;

	if (schedule->pattern->outboxes)
		return schedule->pattern->outboxes(schedule, link);
	for (int64_t n = 0; n < schedule->group[s]; n = looked_at(schedule, s, n + 1, enough))
		while (count < schedule->slots[s] &&
		       pd_tick_of_activation(schedule, false, s, t, n) >=
		       pd_tick_of_forward(schedule, false, s, n + count * r))
			count++;
	return count;
}

/* Sets at least two, so that one is sent while the next is made, but no more than are in flight. */
void pd_count_outboxes(struct pd_schedule *schedule)
{
	const struct pd_wiring *wiring = schedule->wiring;

	for (int s = 0; s < schedule->stage_count; s++) {
		int64_t count = wiring->out_count[s] > 0 ? 2 : 0;

		if (!schedule->plan->stages[s].recompute)
			schedule->outboxes[s] = 0;
		if (!schedule->plan->stages[s].recompute || schedule->outboxes[s] > 0)
			continue;
		for (int i = 0; i < wiring->out_count[s]; i++)
			count = pd_max(count, outboxes_of_link(schedule, &wiring->links[wiring->out[s][i]]));
		schedule->outboxes[s] = (int)(count < schedule->slots[s] ? count
									 : schedule->slots[s]);
	}
}
