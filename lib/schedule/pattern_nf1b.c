/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nF1B (the papers of TiMePReSt) has minibatches of N microbatches as units.  span' = (2N + 1) 32 S:
 *
 *     forward_s(n)  = (n div N - w_s) span' + (n mod N)     32 S + 16 s + 4
 *     backward_s(n) = (n div N)       span' + (n mod N + N) 32 S + 16 (2S - 1 - s) + 8
 *
 * Where a tensor skips stages, backwards are behind_s = S - 1 - s microbatches, 32 S ticks each, later,
 * and forwards as many as there are later stages with a smaller warm-up than the stage before them.
 * span' is longer by as many as the two differ at the first stage, so that the order of a rank's
 * computations is the same.
 */
#include "schedule/pattern.h"

/* Warm-ups count minibatches here. */
static int64_t warmup(const struct pd_plan *plan, int s, int64_t local)
{
	(void)local;
	return (plan->stages[s].warmup + INT64_C(1)) * plan->microbatches - 1;
}

/* Sets how far a stage's forwards and its backwards are moved apart. */
static void set_behind(struct pd_schedule *schedule)
{
	const struct pd_stage *stages = schedule->plan->stages;

	for (int s = schedule->stage_count - 2; s >= 0; s--) {
		schedule->backwards_behind[s] = schedule->backwards_behind[s + 1] + 1;
		schedule->forwards_behind[s] = schedule->forwards_behind[s + 1] +
					       (stages[s].warmup > stages[s + 1].warmup);
	}
}

static int shape(struct pd_schedule *schedule, struct pd_error *err)
{
	(void)err;
	schedule->round = pd_pattern_group(schedule);
	if (pd_wiring_skips(schedule->wiring))
		set_behind(schedule);
	schedule->span *= 2 * schedule->plan->microbatches + 1 + schedule->backwards_behind[0] -
			  schedule->forwards_behind[0];
	return 0;
}

static int64_t tick(const struct pd_schedule *schedule, enum pd_compute what, int s, int64_t n)
{
	int64_t stages = schedule->stage_count, most = pd_pattern_group(schedule);
	int64_t t = n / most, k = n % most;

	if (k < 0) {
		k += most;
		t--;
	}
	return what != PD_COMPUTE_FORWARD
		? t * schedule->span + (k + most + schedule->backwards_behind[s]) * 32 * stages +
		  16 * (2 * stages - 1 - s) + 8
		: (t - schedule->plan->stages[s].warmup) * schedule->span +
		  (k + schedule->forwards_behind[s]) * 32 * stages + 16 * s + 4;
}

const struct pd_pattern pd_pattern_NF1B = { .warmup = warmup, .shape = shape, .tick = tick };
