/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ZB-V (Qi et al., 2024): a rank has two stages, q and z = 2p - 1 - q, on a path of p ranks that goes there and
 * back again.  Where F, I and W, the gradients of inputs and of weights, take equally long, no rank waits
 * from its first forward to its last gradient, and none keeps more than 2p microbatches of a stage.
 *
 * Position q computes, each time the next microbatch of N = max(m, 2p - 1), of which those from m on are left
 * out then:
 *
 *     1. 2 (p - q) - 1 times F_q          2. q times F_z, F_q         3. p - q times F_z, I_z, W_z
 *     4. N - p times F_q (the first N - 2p + 1 + q times), I_q, W_q, F_z, I_z, W_z
 *     5. q times I_q, I_z                 6. p - q times I_q, W_q     7. all W_z left, 8. all W_q left
 *
 * The slot of a computation is q and its place in this list; a slot has 64 ticks, in which F is at 4, I at 8
 * and W at 12.  What needs another has a higher slot, and those of a rank are different.  What is below are the
 * slots in closed form, of microbatch i = n div r of a replica.  test/unit/schedule.c makes them of the list.
 */
#include "schedule/pattern.h"

/* Where parts 2 to 7 begin at a position, and which rounds of part 4 there are: j < full with F_q, j < rounds. */
struct parts {
	int64_t p, q, begin[8], rounds, full;
};

/* Returns the slot at which round j of part 4 begins. */
static int64_t round_at(const struct parts *at, int64_t j)
{
	return at->begin[4] + 6 * j - (j > at->full ? j - at->full : 0);
}

static struct parts parts_of(int64_t p, int64_t q, int64_t m)
{
	int64_t most = m > 2 * p - 1 ? m : 2 * p - 1;
	struct parts at = { .p = p, .q = q, .rounds = most - p, .full = most - 2 * p + 1 + q };

	at.begin[2] = q + 2 * (p - q) - 1;
	at.begin[3] = at.begin[2] + 2 * q;
	at.begin[4] = at.begin[3] + 3 * (p - q);
	at.begin[5] = round_at(&at, at.rounds);
	at.begin[6] = at.begin[5] + 2 * q;
	at.begin[7] = at.begin[6] + 2 * (p - q);
	return at;
}

/* Returns by how much F_q delays what is behind it in round j. */
static int64_t behind_forward(const struct parts *at, int64_t j)
{
	return j < at->full;
}

static int64_t first_forward(const struct parts *at, int64_t i)
{
	int64_t ahead = 2 * (at->p - at->q) - 1;

	return i < ahead ? at->q + i : i < ahead + at->q ? at->begin[2] + 2 * (i - ahead) + 1
							 : round_at(at, i - ahead - at->q);
}

static int64_t second_forward(const struct parts *at, int64_t i)
{
	int64_t j = i - at->p;

	return i < at->q ? at->begin[2] + 2 * i : i < at->p ? at->begin[3] + 3 * (i - at->q)
							    : round_at(at, j) + 2 + behind_forward(at, j);
}

static int64_t first_backward(const struct parts *at, int64_t i)
{
	int64_t j = i - at->rounds;

	return j < 0 ? round_at(at, i) + behind_forward(at, i)
		     : j < at->q ? at->begin[5] + 2 * j : at->begin[6] + 2 * (j - at->q);
}

static int64_t first_weights(const struct parts *at, int64_t i)
{
	int64_t j = i - at->rounds, beside = at->p - at->q;

	return j < 0 ? first_backward(at, i) + 1
		     : j < beside ? at->begin[6] + 2 * j + 1 : at->begin[7] + at->q + j - beside;
}

static int64_t second_backward(const struct parts *at, int64_t i)
{
	int64_t j = i - (at->p - at->q);

	return j < 0 ? at->begin[3] + 3 * i + 1
		     : j < at->rounds ? round_at(at, j) + 3 + behind_forward(at, j)
				      : at->begin[5] + 2 * (j - at->rounds) + 1;
}

static int64_t second_weights(const struct parts *at, int64_t i)
{
	int64_t j = i - (at->p - at->q);

	return j < at->rounds ? second_backward(at, i) + 1 : at->begin[7] + j - at->rounds;
}

static int64_t tick(const struct pd_schedule *schedule, enum pd_compute what, int s, int64_t n)
{
	static int64_t (*const slot[2][PD_COMPUTES])(const struct parts *at, int64_t i) = {
		{ first_forward, first_backward, first_weights },
		{ second_forward, second_backward, second_weights },
	};
	int64_t p = schedule->positions, chunk = s / p;
	struct parts at = parts_of(p, chunk ? 2 * p - 1 - s : s, pd_pattern_local(schedule));

	return PD_SLOT_TICKS * slot[chunk][what](&at, n / pd_pattern_replicas(schedule, s)) + 4 * (what + 1);
}

/*
 * All F_s precede the first W_s by 2p - s, and more are never in flight; of both stages together, 2p.  At the end,
 * I_q wait in parts 5 and 6, and I_z in part 5, until their W.
 */
static int shape(struct pd_schedule *schedule, struct pd_error *err)
{
	int64_t p = schedule->positions, m = pd_pattern_local(schedule), most = m > 2 * p - 1 ? m : 2 * p - 1;

	if (pd_pattern_check_v(schedule, err) < 0)
		return -1;
	schedule->round = schedule->tail = 4 * p;
	schedule->group_span = PD_SLOT_TICKS * (6 * most + p + 4);
	for (int s = 0; s < schedule->stage_count; s++) {
		int64_t held = 2 * p - s, q = s < p ? s : 2 * p - 1 - s;

		schedule->slots[s] = (int)(held < m ? held : m);
		schedule->pool[s] = 2 * (int)p;
		schedule->kept[s] = (int)(s < p ? q + 1 : q > 0 ? q : 1);
		schedule->warmup[s] = schedule->startup[s] = schedule->slots[s] - 1;
	}
	return 0;
}

const struct pd_pattern pd_pattern_ZB_V = { .shape = shape, .tick = tick, .crowds = true };
