/* SPDX-License-Identifier: Apache-2.0 */
/* How far the period of a plan may be off, since the times of its profile may be. */
#pragma once

#include "plan/plan.h"
#include "profile/profile.h"

/*
 * Returns between which parts of the predicted period a run's lies in eight of ten cases, or 0 and 0 if the
 * profile does not say how far its times may be off (profile/spread.h), or the plan cannot be replayed.
 *
 * What all times have in common makes two replays, one with all of them at their low end and one at their
 * high end; transfers keep theirs.  What each layer has of its own, and the link, make PD_RANGE_SAMPLES replays
 * more, in which it is drawn at random, always the same: stages wait for the slowest of them, so that no formula
 * knows what their period does.  The mean and the deviation of their periods count.  Both are joined as
 * independent causes are.  A plan that takes long to replay is taken to follow what all times have in common
 * alone.
 *
 * `processors`, of one machine, are what all ranks share, and `threads` those of each; 0: as the plan says.
 */
#define PD_RANGE_SAMPLES 16
struct pd_spread pd_plan_range(const struct pd_plan *plan, int64_t processors, int64_t threads);
