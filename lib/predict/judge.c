/* SPDX-License-Identifier: Apache-2.0 */
#include "predict/judge.h"

#include "base/cost.h"
#include "base/mem.h"
#include "predict/cost.h"
#include "predict/flow.h"
#include "predict/links.h"
#include "predict/replay.h"
#include "trace/recurrence.h"
#include "trace/steady.h"

#include <math.h>
#include <stdlib.h>

/*
 * By how much minibatches may take longer, in the second half of what has come back so far, than in
 * the end.  The first figure is what has come back, in quarters of those in flight and a turn. 
 * (This holds in 99 % of 18,000 checks in replays of random plans and of published profiles.)
 */
static const struct { int quarters; double part; } unsettled[] = {
	{ 5, 0.45 }, { 8, 0.35 }, { 10, 0.25 }, { 12, 0.15 }, { 16, 0.12 }, { 24, 0.08 },
	{ 32, 0.04 }, { 0, 0.02 },
};

/* Microbatches for each stage of a shorter update (pd_steady_shorter), as many as time allows. */
#define MOST_FILL 16
#define LEAST_FILL 1

struct judge {
	const struct pd_plan *plan;
	int64_t total;                  /* minibatches */
	int64_t *ends;                  /* by stage and minibatch: end of the backward */
	int32_t *missing;               /* parts of it that have not ended */
	int64_t *known;                 /* per stage: minibatches whose end is known */
	struct pd_recurrence recurrence;
	int64_t turn, in_flight;        /* microbatches (trace/steady.h) */
	int64_t check;                  /* minibatches that must be known before the next check */
	int64_t rival_ns;
	bool enough, too_long;
	double period_ns;
};

/* Finds the slowest stage if the minibatches do not repeat. */
static void look(struct judge *judge, int64_t n, bool whole)
{
	judge->period_ns = 0;
	for (int s = 0; s < judge->plan->stage_count; s++) {
		struct pd_steady stage = { .cycle = 0 };

		pd_steady_of(judge->plan, judge->ends + s * judge->total, (size_t)n, whole, &stage);
		if (stage.period_ns > judge->period_ns)
			judge->period_ns = stage.period_ns;
	}
}

/*
 * Tells whether the plan is slower than the rival by more than a pipeline that has not settled can
 * still gain.
 */
static bool is_slower(struct judge *judge, int64_t n)
{
	int64_t filled = judge->in_flight + judge->turn;
	int i = 0;

	if (judge->rival_ns == PD_NEVER || n < filled)
		return false;
	while (unsettled[i].quarters > 0 && 4 * n >= unsettled[i].quarters * filled)
		i++;
	look(judge, n, false);
	return judge->period_ns > (double)judge->rival_ns * (1 + unsettled[i].part);
}

/*
 * Tells whether a turn ends: all stages then begin with their first replica and a new update. 
 * Turns with too many minibatches do not count (lib/trace/steady).
 */
static bool has_turns(const struct judge *judge)
{
	int64_t turn = judge->turn;

	for (int s = 0; s < judge->plan->stage_count; s++)
		if (turn % judge->plan->stages[s].replicas != 0)
			return false;
	return turn % judge->plan->microbatches == 0;
}

/* Tells whether n minibatches that have come back are enough. */
static bool knows(struct judge *judge, int64_t n, int64_t now_ns)
{
	if (pd_recurrence_found(&judge->recurrence, n, now_ns, &judge->period_ns))
		return true;
	if (n < judge->check)
		return false;
	judge->check = n + pd_max(judge->in_flight / 4 + 1, judge->turn);
	return is_slower(judge, n);
}

static void retired(void *context, const struct pd_record *record)
{
	struct judge *judge = context;
	const struct pd_op *op = &record->op;
	int64_t at = op->stage * judge->total + op->microbatch, *known = &judge->known[op->stage];

	if (op->more || (op->kind != PD_OP_backward && op->kind != PD_OP_backward_input &&
			 op->kind != PD_OP_backward_weight))
		return;
	if (record->end_ns > judge->ends[at])
		judge->ends[at] = record->end_ns;
	judge->missing[at] = op->kind == PD_OP_backward ? 0 : judge->missing[at] - 1;
	while (*known < judge->total && judge->missing[op->stage * judge->total + *known] == 0)
		++*known;
	/* the first stage ends last */
	if (op->stage == 0 && !judge->enough)
		judge->enough = knows(judge, *known, record->end_ns);
}

static int by_estimate(const struct pd_plan *plan, int64_t *period_ns_p, enum pd_period_kind *from_p,
		       struct pd_error *err)
{
	struct pd_expected expected;

	if (pd_judge_expect(plan, false, &expected, err) < 0)
		return -1;
	*period_ns_p = expected.estimate_ns;
	*from_p = PD_PERIOD_ESTIMATE;
	return 0;
}

/* Replays so many microbatches, at most. */
static int by_replay(const struct pd_plan *plan, int64_t total, int64_t rival_ns,
		     int64_t *period_ns_p, enum pd_period_kind *from_p, int64_t *work_p,
		     struct pd_error *err)
{
	struct judge judge = { .plan = plan, .total = total,
			       .turn = pd_steady_turn(plan), .in_flight = pd_steady_in_flight(plan),
			       .rival_ns = rival_ns };
	size_t room = (size_t)judge.total * (size_t)plan->stage_count;
	struct pd_replay_options options = {
		.microbatches = judge.total, .retired = retired, .context = &judge,
		.enough = &judge.enough, .too_long = &judge.too_long,
		.recurrence = &judge.recurrence,
	};
	int status;

	judge.ends = pd_calloc(room, sizeof(*judge.ends));
	judge.missing = pd_calloc(room, sizeof(*judge.missing));
	pd_recurrence_init(&judge.recurrence, has_turns(&judge) ? judge.turn : 0);
	judge.check = judge.in_flight + judge.turn;
	judge.known = pd_calloc((size_t)plan->stage_count, sizeof(*judge.known));
	for (size_t i = 0; i < room; i++)
		judge.missing[i] = pd_plan_splits(plan) ? 2 : 1;
	status = pd_replay_run(plan, &options, err);
	if (status == 0 && !judge.enough) {
		look(&judge, judge.total, true);
		judge.period_ns = fmax(judge.period_ns, (double)pd_judge_least_ns(plan));
	}
	*period_ns_p = judge.period_ns < (double)PD_COST_MAX ? (int64_t)ceil(judge.period_ns)
							     : PD_COST_MAX;
	*work_p += pd_replay_work(plan, judge.known[0]);
	pd_recurrence_release(&judge.recurrence);
	free(judge.ends);
	free(judge.missing);
	free(judge.known);
	*from_p = PD_PERIOD_REPLAY;
	return judge.too_long ? by_estimate(plan, period_ns_p, from_p, err) : status;
}

int64_t pd_judge_work(const struct pd_plan *plan)
{
	int64_t length = pd_replay_length(plan, PD_JUDGE_WORK);

	return pd_replay_work(plan, length ? length : pd_steady_microbatches(plan));
}

int64_t pd_judge_least_ns(const struct pd_plan *plan)
{
	struct pd_error err;
	struct pd_schedule *schedule = pd_schedule_new(plan, &err);
	int64_t ns = schedule ? pd_flow_least_ns(schedule, pd_links_busiest_ns(plan, schedule->wiring)) : 0;

	pd_schedule_free(schedule);
	return ns;
}

int pd_judge_expect(const struct pd_plan *plan, bool bound, struct pd_expected *expected_p,
		    struct pd_error *err)
{
	struct pd_schedule *schedule = pd_schedule_new(plan, err);

	if (!schedule)
		return -1;
	*expected_p = pd_flow_expect(schedule, bound, pd_links_busiest_ns(plan, schedule->wiring));
	pd_schedule_free(schedule);
	return 0;
}

int pd_judge_rival(const struct pd_plan *plan, int64_t most_work, int64_t rival_ns,
		   int64_t *period_ns_p, enum pd_period_kind *from_p, int64_t *work_p,
		   struct pd_error *err)
{
	int64_t length = pd_replay_length(plan, most_work);

	if (length == 0)
		return by_estimate(plan, period_ns_p, from_p, err);
	return by_replay(plan, length, rival_ns, period_ns_p, from_p, work_p, err);
}

int pd_judge_period(const struct pd_plan *plan, int64_t *period_ns_p, enum pd_period_kind *from_p,
		    struct pd_error *err)
{
	int64_t work = 0;

	return pd_judge_rival(plan, PD_JUDGE_WORK, PD_NEVER, period_ns_p, from_p, &work, err);
}

int pd_judge_about(const struct pd_plan *plan, int64_t most_work, int64_t *period_ns_p,
		   enum pd_period_kind *from_p, struct pd_error *err)
{
	int64_t work = 0;

	if (pd_judge_rival(plan, most_work, PD_NEVER, period_ns_p, from_p, &work, err) < 0)
		return -1;
	return *from_p == PD_PERIOD_REPLAY ? 0 : pd_judge_form(plan, most_work, period_ns_p, err);
}

int pd_judge_form(const struct pd_plan *plan, int64_t most_work, int64_t *period_ns_p,
		  struct pd_error *err)
{
	struct pd_plan shorter[2];
	int64_t lengths[2] = { 0 };
	double periods_ns[2];

	for (int fill = MOST_FILL; fill >= LEAST_FILL && !(lengths[0] && lengths[1]); fill /= 2)
		for (int i = 0; i < 2 && pd_steady_shorter(plan, fill, shorter); i++)
			lengths[i] = pd_replay_length(&shorter[i], most_work / 2);
	if (!lengths[0] || !lengths[1])
		return 0;
	for (int i = 0; i < 2; i++) {
		int64_t work = 0, period_ns;
		enum pd_period_kind from;

		if (by_replay(&shorter[i], lengths[i], PD_NEVER, &period_ns, &from, &work, err) < 0)
			return -1;
		if (from != PD_PERIOD_REPLAY)
			return 0;
		periods_ns[i] = (double)period_ns;
	}
	*period_ns_p = pd_max(pd_cost_of(pd_steady_longer_ns(plan, shorter, periods_ns)), pd_judge_least_ns(plan));
	return 0;
}

int pd_judge_whole(const struct pd_plan *plan, int64_t most_work, int64_t *period_ns_p,
		   enum pd_period_kind *from_p, struct pd_error *err)
{
	int64_t length = pd_replay_length(plan, most_work), work = 0;

	if (length == 0)
		return pd_judge_form(plan, most_work, period_ns_p, err);
	if (*from_p == PD_PERIOD_REPLAY && length == pd_replay_length(plan, PD_JUDGE_WORK))
		return 0;
	return by_replay(plan, length, PD_NEVER, period_ns_p, from_p, &work, err);
}
