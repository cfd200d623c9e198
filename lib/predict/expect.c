/* SPDX-License-Identifier: Apache-2.0 */
#include "predict/expect.h"

#include "base/mem.h"
#include "predict/range.h"
#include "predict/replay.h"

#include <stdlib.h>

static enum pd_timed timed_of(enum pd_op_kind kind)
{
	return kind == PD_OP_forward || kind == PD_OP_recompute ? PD_TIMED_FORWARD
	     : kind == PD_OP_step ? PD_TIMED_UPDATE : PD_TIMED_BACKWARD;
}

static void expect_operations(const struct pd_trace *trace, struct pd_expected_run *expected)
{
	const struct pd_plan *plan = trace->plan;
	size_t count = (size_t)plan->stage_count;
	int *stages = pd_calloc(count, sizeof(*stages));
	struct pd_durations *durations;

	for (int s = 0; s < plan->stage_count; s++)
		stages[s] = s;
	durations = pd_durations_new(stages, plan->stage_count);
	for (size_t i = 0; i < trace->count; i++)
		pd_durations_add(durations, &trace->records[i]);
	expected->ns = pd_calloc(count, sizeof(*expected->ns));
	expected->spreads = pd_calloc(count, sizeof(*expected->spreads));
	for (int s = 0; s < plan->stage_count; s++)
		for (int kind = 0; kind < PD_OP_KINDS; kind++) {
			const struct pd_profile *profile = pd_plan_profile_of(plan, plan->stages[s].ranks[0]);

			if (!pd_durations_has((enum pd_op_kind)kind))
				continue;
			expected->ns[s][kind] = pd_durations_ns(durations, s, (enum pd_op_kind)kind);
			expected->spreads[s][kind] = pd_spread_of(profile, plan->stages[s].first_layer,
								  plan->stages[s].layer_count,
								  timed_of((enum pd_op_kind)kind));
		}
	pd_durations_free(durations);
	free(stages);
}

void pd_expect_run(const struct pd_plan *plan, const struct pd_lists *lists, int64_t processors,
		   int64_t threads, struct pd_expected_run *out_p)
{
	struct pd_replay_options with = { .lists = lists, .processors = processors, .threads = threads };
	struct pd_spread range = pd_plan_range(plan, processors, threads);
	struct pd_trace *trace;
	struct pd_error err;

	*out_p = (struct pd_expected_run){ .range = range };
	trace = range.high > 0 ? pd_replay(plan, &with, &err) : NULL;
	if (!trace)
		return;
	out_p->period_ns = pd_replay_period_ns(trace);
	expect_operations(trace, out_p);
	pd_trace_free(trace);
}
