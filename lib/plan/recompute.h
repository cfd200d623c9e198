/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which layers of a stage that recomputes are computed again before backward: all, or those that
 * plan->kept leaves out.  What a layer keeps for backward is there for one microbatch if it is computed
 * again, else for each that is in flight.
 *
 * A recompute is an operation: a forward from the same inbox, issued before the backward and with
 * the weights that it reads: those of the first forward, but with latest.  Inboxes are as many as
 * ever; one slot serves all, since the stream computes one thing after the other (where gradients
 * of weights are apart, one more for each that waits).  What leaves after a forward is copied to
 * an outbox on the same stream, so that the slot is free before it is sent.
 */
#pragma once

#include "plan/plan.h"

/* Tells whether a layer of stage s is computed again. */
static inline bool pd_plan_reruns(const struct pd_plan *plan, int s, int layer)
{
	return plan->stages[s].recompute && !(plan->kept && plan->kept[layer]);
}

/* Returns how many layers of stage s are computed again. */
int pd_plan_rerun_count(const struct pd_plan *plan, int s);
/* Tells whether stage s recomputes, but not all of its layers. */
bool pd_plan_reruns_some(const struct pd_plan *plan, int s);
/* Returns the time for which stage s computes again for each microbatch on a kind of device; 0 if it does not. */
int64_t pd_plan_again_on(const struct pd_plan *plan, const struct pd_profile *profile, int s);
/* Returns the same on the slowest of its devices. */
int64_t pd_plan_again_ns(const struct pd_plan *plan, int s);
/* Returns the stash_bytes of the layers of a stage that recomputes which are not computed again. */
int64_t pd_plan_kept_bytes(const struct pd_plan *plan, const struct pd_profile *profile, int s);

/*
 * Returns the layer in whose memory the output of this one lies, as far as a profile tells: it keeps less
 * than its output.  -1: in its own, or in that of an input of the model.
 */
int pd_profile_overwrites(const struct pd_profile *profile, int layer);
/*
 * Checks that what overwrites the output of a layer which is computed again is computed again, too.  The
 * message begins with `where`.
 */
int pd_plan_check_reruns(const struct pd_plan *plan, const char *where, struct pd_error *err);
