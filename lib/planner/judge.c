/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/judge.h"

#include "base/mem.h"
#include "planner/cost.h"
#include "planner/flow.h"
#include "planner/predict.h"
#include "replay/replay.h"
#include "trace/steady.h"

#include <math.h>
#include <stdlib.h>

struct judge {
	const struct pd_plan *plan;
	int64_t *ends;                  /* of each minibatch's backward at the input stage */
	int32_t *missing;               /* parts of it that have not been seen */
	int64_t total, known;           /* minibatches; those of them whose end is known */
	int64_t check;                  /* how many must be known before the next look */
	bool enough;
	struct pd_steady steady;
};

/* Has it repeated itself for so long that it always will? */
static void look(struct judge *judge)
{
	struct pd_steady *steady = &judge->steady;

	judge->check += judge->check / 2;
	judge->enough = pd_steady_of(judge->plan, judge->ends, (size_t)judge->known, false, steady)
		&& steady->cycle > 0;
}

static void retired(void *context, const struct pd_record *record)
{
	struct judge *judge = context;
	const struct pd_op *op = &record->op;

	if (op->stage != 0 || (op->kind != PD_OP_backward && op->kind != PD_OP_backward_input &&
			       op->kind != PD_OP_backward_weight))
		return;
	if (record->end_ns > judge->ends[op->microbatch])
		judge->ends[op->microbatch] = record->end_ns;
	judge->missing[op->microbatch]--;
	while (judge->known < judge->total && judge->missing[judge->known] == 0)
		judge->known++;
	if (judge->known >= judge->check && !judge->enough)
		look(judge);
}

int64_t pd_judge_work(const struct pd_plan *plan)
{
	int64_t most = 0;

	for (int s = 0; s < plan->stage_count; s++)
		most += 8 + (plan->stages[s].replicas > 1 ? 4 * plan->stages[s].replicas : 0);
	return most * pd_steady_minibatches(plan);
}

static int by_replay(const struct pd_plan *plan, int64_t *period_ns_p, struct pd_error *err)
{
	struct judge judge = { .plan = plan, .total = pd_steady_minibatches(plan) };
	struct pd_replay_options options = {
		.minibatches = judge.total, .retired = retired, .context = &judge,
		.enough = &judge.enough,
	};
	int status;

	judge.check = pd_steady_in_flight(plan);
	judge.check = 4 * judge.check + 16;
	judge.ends = pd_calloc((size_t)judge.total, sizeof(*judge.ends));
	judge.missing = pd_calloc((size_t)judge.total, sizeof(*judge.missing));
	for (int64_t b = 0; b < judge.total; b++)
		judge.missing[b] = plan->schedule == PD_SCHEDULE_ZB_H1 ? 2 : 1;
	status = pd_replay_run(plan, &options, err);
	if (status == 0 && !judge.enough)
		pd_steady_of(plan, judge.ends, (size_t)judge.total, true, &judge.steady);
	*period_ns_p = judge.steady.period_ns < (double)PD_COST_MAX
		? (int64_t)ceil(judge.steady.period_ns) : PD_COST_MAX;
	free(judge.ends);
	free(judge.missing);
	return status;
}

static int without_replay(const struct pd_plan *plan, int64_t *period_ns_p, struct pd_error *err)
{
	struct pd_schedule *schedule = pd_schedule_new(plan, err);

	if (!schedule)
		return -1;
	*period_ns_p = pd_flow_knows(plan) ? pd_flow_bound_ns(schedule) : pd_predict_period_ns(plan);
	pd_schedule_free(schedule);
	return 0;
}

int pd_judge_period(const struct pd_plan *plan, int64_t *period_ns_p, struct pd_error *err)
{
	if (pd_judge_work(plan) > PD_JUDGE_WORK)
		return without_replay(plan, period_ns_p, err);
	return by_replay(plan, period_ns_p, err);
}
