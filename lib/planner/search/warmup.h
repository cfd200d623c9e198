/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses how many minibatches each stage admits before its first backward; private to this folder.
 */
#pragma once

#include "base/effort.h"
#include "predict/flow.h"

#include <stdbool.h>

#define PD_WARMUP_WORTH 1000

/* The limits of warm-ups. */
struct pd_warmup_limits {
	const struct pd_plan_request *request;
	int64_t limit_bytes;
	bool recompute;                 /* stages may recompute to fit */
	bool tight;                     /* set if some that were tried did not fit */
	bool capped;                    /* set if some were more than an update has microbatches, or than a stage before */
	int64_t most_ns;                /* slower plans are not wanted; 0: all are */
	struct pd_effort *effort;       /* is spent; NULL: nobody counts */
};

/*
 * Sets the warm-ups of a plan of 1f1b, of those that fit, to the fewest with which it is expected
 * to be as fast as with any, or to the usual ones or fewer where more are not faster by a part in
 * PD_WARMUP_WORTH; the stages' memory goes with them.  Stages that recompute already go on doing
 * so; where others may, those do that would not fit without.  Sets what pd_flow_expect says of it. 
 * Returns false where nothing fits, the warm-ups being then the least there are, or nothing can be of
 * interest.  *work grows by what was estimated: stages times minibatches.
 */
bool pd_warmup_choose(struct pd_plan *plan, struct pd_warmup_limits *limits,
		      struct pd_expected *expected_p, int64_t *work);

/*
 * Returns the most warm-ups of a stage that are considered: enough to fill what is behind it twice.
 */
int pd_warmup_most(const struct pd_plan *plan, int stage);
/*
 * Returns the most of the last stage that replays judge: with 2BW an update of several microbatches stands between
 * a backward and the next forward, and one may help.
 */
int pd_warmup_most_last(const struct pd_plan *plan);

/*
 * Lowers the plan's warm-ups until they fit; returns false if none do.  *schedule_p, which the caller frees, is NULL
 * or a schedule of the plan with other warm-ups, and becomes the plan's.
 */
bool pd_warmup_schedule(struct pd_plan *plan, struct pd_warmup_limits *limits,
			struct pd_schedule **schedule_p);
/* Does the same for a plan whose schedule is not needed. */
bool pd_warmup_fit(struct pd_plan *plan, struct pd_warmup_limits *limits);
