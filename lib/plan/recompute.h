/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which layers of a stage that recomputes are computed again: all at once, or by plan->segment.  What
 * that saves is memory/segments.h's.
 *
 * What is computed again first is an operation: a forward from the same inbox, issued before the
 * backward and with the weights that it reads: those of the first forward, but with latest.  The
 * rest is part of the backward, just before it is needed.  Inboxes are as many as ever; one slot
 * serves all, since the stream computes one thing after the other (where gradients of weights are
 * apart, one more for each that waits).  What leaves after a forward is copied to an outbox on the
 * same stream, so that the slot is free before it is sent.
 */
#pragma once

#include "plan/plan.h"

/* Tells whether a layer of stage s belongs to what is computed again. */
static inline bool pd_plan_reruns(const struct pd_plan *plan, int s, int layer)
{
	return plan->stages[s].recompute && !(plan->segment && plan->segment[layer] < 0);
}

/* Returns how many layers of stage s are computed again. */
int pd_plan_rerun_count(const struct pd_plan *plan, int s);
/* Tells whether stage s recomputes, but not all of its layers at once. */
bool pd_plan_reruns_some(const struct pd_plan *plan, int s);
/* Returns how many segments of stage s are computed again, each by itself; 0 where it does not recompute. */
int pd_plan_segment_count(const struct pd_plan *plan, int s);

/*
 * Returns the layer in whose memory the output of this one lies, as far as a profile tells: it keeps less
 * than its output.  -1: in its own, or in that of an input of the model.
 */
int pd_profile_overwrites(const struct pd_profile *profile, int layer);
/*
 * Checks that what overwrites the output of a layer which is computed again is computed again, too, and
 * that segments follow one another.  The message begins with `where`.
 */
int pd_plan_check_reruns(const struct pd_plan *plan, const char *where, struct pd_error *err);
