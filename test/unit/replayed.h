/* SPDX-License-Identifier: Apache-2.0 */
/* The replay of a plan that a test makes up, and that can be replayed. */
#ifndef PD_TEST_REPLAYED_H
#define PD_TEST_REPLAYED_H

#include "base/mem.h"
#include "replay/replay.h"

/* Takes over the plan. */
static inline struct pd_trace *replayed_plan(struct pd_plan *plan, int64_t microbatches)
{
	struct pd_replay_options with = { .microbatches = microbatches };
	struct pd_error err;
	struct pd_trace *trace = pd_replay(plan, &with, &err);

	if (!trace)
		pd_bug("%s", err.text);
	pd_plan_free(plan);
	return trace;
}

#endif
