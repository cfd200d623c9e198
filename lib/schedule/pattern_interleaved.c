/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Interleaved (Megatron's order): stage c p + q is chunk c of v at position q of p, and microbatches go through each
 * chunk in rounds of g >= p, which is p unless the plan says more.  With
 * i = n div r, f = (i div g) g v + c g + i mod g, b = (i div g) g v + (v - 1 - c) g + i mod g,
 * w_q = 2 (p - 1 - q) + (v - 1) g, and slots of 64 ticks,
 *
 *     forward_cq(n)  = 64 (2 (f - w_q) + 2 (p - 1 - q)) + 4
 *     backward_cq(n) = 64 (2 b         + 2 (p - 1 - q) + 1) + 8
 *
 * A microbatch goes from a position to the next in 2 slots, and from the last to the first, of the next chunk, in
 * 2 (g - p + 1); where g > p, gradients of several may wait there.  If a group does not have a multiple of g
 * microbatches, those that are missing in its last round are left out.
 */
#include "schedule/pattern.h"

#include "schedule/count.h"

#include <inttypes.h>

#define SLOT PD_SLOT_TICKS

/*
 * A forward is ahead of its backward by less than 4 g v slots, and each 2 v slots have one more of
 * both.  So everything repeats after 2 g microbatches and a round of g.
 */
#define ENOUGH 8        /* rounds */

/* Returns g; in a round that is longer than a group the order is that of one as long. */
static int64_t round_of(const struct pd_schedule *schedule)
{
	int64_t local = pd_pattern_local(schedule), p = schedule->positions, said = schedule->plan->round;
	int64_t most = local > p ? local : p;

	return said == 0 ? p : said < most ? said : most;
}

/* Returns how many forwards of all its stages the rank of a stage does ahead of its backwards, if there are as many. */
static int64_t warmup_of(const struct pd_schedule *schedule, int s)
{
	int64_t p = schedule->positions;

	return 2 * (p - 1 - s % p) + (schedule->chunks - 1) * round_of(schedule);
}

static int shape(struct pd_schedule *schedule, struct pd_error *err)
{
	int64_t local = pd_pattern_local(schedule), p = schedule->positions, v = schedule->chunks;
	int64_t g = round_of(schedule), whole = (local + g - 1) / g * g * pd_pattern_replicas(schedule, 0);

	if (g < p)
		return pd_error_input(err, "%s: round: expected at least %" PRId64 ", the ranks of a path, found %" PRId64
				      ": a rank's next stage would wait for microbatches that are under way",
				      pd_plan_name(schedule->plan), p, g);
	schedule->round = 2 * g;
	/* forwards, backwards, and the way up and down */
	schedule->group_span = SLOT * 4 * (whole * v + v * g + p);
	for (int s = 0; s < schedule->stage_count; s++) {
		int64_t ahead = warmup_of(schedule, s) + 1;

		schedule->slots[s] = pd_count_in_flight(schedule, s, local < ENOUGH * g ? local : ENOUGH * g);
		schedule->pool[s] = (int)(ahead < local * v ? ahead : local * v);
		schedule->warmup[s] = schedule->startup[s] = schedule->slots[s] - 1;
	}
	return 0;
}

static int64_t tick(const struct pd_schedule *schedule, enum pd_compute what, int s, int64_t n)
{
	int64_t p = schedule->positions, v = schedule->chunks, q = s % p, c = s / p, g = round_of(schedule);
	int64_t i = n / pd_pattern_replicas(schedule, s), round = i / g * g * v + i % g;
	int64_t up = round + c * g, down = round + (v - 1 - c) * g;

	return what != PD_COMPUTE_FORWARD ? SLOT * (2 * down + 2 * (p - 1 - q) + 1) + 8
				       : SLOT * (2 * (up - warmup_of(schedule, s)) + 2 * (p - 1 - q)) + 4;
}

static int64_t unused(const struct pd_schedule *schedule, int s, int64_t n)
{
	return tick(schedule, PD_COMPUTE_BACKWARD, s, 0) + n * SLOT;
}

const struct pd_pattern pd_pattern_INTERLEAVED = { .shape = shape, .tick = tick, .crowds = true, .unused = unused };
