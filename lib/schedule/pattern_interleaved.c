/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Interleaved (Megatron's order): stage c p + q is chunk c of v at position q of p.  With
 * i = n div r, f = (i div p) p v + c p + i mod p, b = (i div p) p v + (v - 1 - c) p + i mod p,
 * w_q = 2 (p - 1 - q) + (v - 1) p, and slots of 64 ticks,
 *
 *     forward_cq(n)  = 64 (2 (f - w_q) + 2 (p - 1 - q)) + 4
 *     backward_cq(n) = 64 (2 b         + 2 (p - 1 - q) + 1) + 8
 *
 * If a group does not have a multiple of p microbatches, those that are missing in its last round are left out.
 */
#include "schedule/pattern.h"

#include "schedule/count.h"

#define SLOT PD_SLOT_TICKS

/*
 * A forward is ahead of its backward by less than 4 p v slots, and each 2 v slots have one more of
 * both.  So everything repeats after 2 p microbatches and a round of p.
 */
#define ENOUGH 8        /* rounds */

static int shape(struct pd_schedule *schedule, struct pd_error *err)
{
	int64_t local = pd_pattern_local(schedule), p = schedule->positions, v = schedule->chunks;
	int64_t whole = (local + p - 1) / p * p * pd_pattern_replicas(schedule, 0);

	(void)err;
	schedule->round = 2 * p;
	/* forwards, backwards, and the way up and down */
	schedule->group_span = SLOT * 4 * (whole * v + v * p + p);
	for (int s = 0; s < schedule->stage_count; s++) {
		schedule->slots[s] = pd_count_in_flight(schedule, s, local < ENOUGH * p ? local : ENOUGH * p);
		schedule->warmup[s] = schedule->first[s] = schedule->slots[s] - 1;
	}
	return 0;
}

static int64_t tick(const struct pd_schedule *schedule, enum pd_compute what, int s, int64_t n)
{
	int64_t p = schedule->positions, v = schedule->chunks, q = s % p, c = s / p;
	int64_t i = n / pd_pattern_replicas(schedule, s), round = i / p * p * v + i % p;
	int64_t up = round + c * p, down = round + (v - 1 - c) * p;
	int64_t warmup = 2 * (p - 1 - q) + (v - 1) * p;

	return what != PD_COMPUTE_FORWARD ? SLOT * (2 * down + 2 * (p - 1 - q) + 1) + 8
				       : SLOT * (2 * (up - warmup) + 2 * (p - 1 - q)) + 4;
}

static int64_t unused(const struct pd_schedule *schedule, int s, int64_t n)
{
	return tick(schedule, PD_COMPUTE_BACKWARD, s, 0) + n * SLOT;
}

const struct pd_pattern pd_pattern_INTERLEAVED = { .shape = shape, .tick = tick, .unused = unused };
