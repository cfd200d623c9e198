/* SPDX-License-Identifier: Apache-2.0 */
/* How many minibatches each stage lets in before its first backward; private to this folder. */
#ifndef PD_PLANNER_WARMUP_H
#define PD_PLANNER_WARMUP_H

#include "plan/plan.h"

#include <stdbool.h>

#define PD_WARMUP_WORTH 1000

/* What warm-ups have to fit into. */
struct pd_warmup_room {
	int64_t limit_bytes;
	bool recompute;                 /* stages may recompute for it */
	bool tight;                     /* set where some that were tried did not fit */
	int64_t most_ns;                /* slower plans are of no interest; 0: all are */
};

/*
 * Sets the warm-ups of a plan of 1f1b, of those that fit, to the fewest with which it is expected
 * to be as fast as with any, or to the usual ones or fewer where more are not faster by a part in
 * PD_WARMUP_WORTH; the stages' memory goes with them.  Stages that recompute already go on doing
 * so; where others may, those do that would not fit without.  Returns the expected period
 * (pd_flow_bound_ns), or -1 where nothing fits, the warm-ups being then the least there are, or
 * nothing can be of interest.  *work grows by what was estimated: stages times minibatches.
 */
int64_t pd_warmup_choose(struct pd_plan *plan, struct pd_warmup_room *room, int64_t *work);

/* The most of a stage that are considered: enough for what is behind it to be full twice. */
int pd_warmup_most(const struct pd_plan *plan, int stage);

/* As many as fit, of those that the plan has; false where none do. */
bool pd_warmup_fit(struct pd_plan *plan, struct pd_warmup_room *room);

#endif
