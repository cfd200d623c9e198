/* SPDX-License-Identifier: Apache-2.0 */
/* What a stage that recomputes keeps of a microbatch (segments.h), and how long it computes again. */
#pragma once

#include "memory/segments.h"
#include "plan/recompute.h"

/*
 * Places what a stage that recomputes keeps, by a profile; exact: as a device aligns it.  The caller
 * frees the layers.
 */
struct pd_segment_layer *pd_plan_segments(const struct pd_plan *plan, const struct pd_profile *profile,
					  int s, bool exact, struct pd_segments *out_p);

/* The times for which stage s computes again for each microbatch: in an operation, and in its backward. */
struct pd_again {
	int64_t before_ns, within_ns;
};

/* Returns those on a kind of device; 0 if the stage does not recompute. */
struct pd_again pd_plan_again_on(const struct pd_plan *plan, const struct pd_profile *profile, int s);
/* Returns the same on the slowest of its devices. */
struct pd_again pd_plan_again(const struct pd_plan *plan, int s);
/* Returns both times together. */
int64_t pd_plan_again_ns(const struct pd_plan *plan, int s);
