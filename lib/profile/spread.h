/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far the times of a profile may be off.  A time varies with all others (the clock, what else the
 * machine does), and by itself.  What all have in common does not average out, and what each has of its
 * own does: a sum of times has the former whole, and the latter as the root of a sum of squares.
 *
 * Who wants a range asks pd_plan_range() (predict/range.h, a period) or pd_spread_of() (an
 * operation) for factors, and multiplies what it shows, so that plans, replays and runs cannot say
 * different things.  The ranks of a run keep the newest durations of each kind
 * (trace/durations.h); at its end the supervisor compares them with what the plan replayed takes
 * (predict/expect.h).
 */
#pragma once

#include "profile/profile.h"

#define PD_SPREAD_DEVIATIONS 1.2816     /* of a normal distribution, to its tenth and ninetieth percentile */

/* Times of a layer or of several. */
enum pd_timed { PD_TIMED_FORWARD, PD_TIMED_BACKWARD, PD_TIMED_UPDATE, PD_TIMEDS };

/* Tells whether the profile says how far its times may be off. */
bool pd_profile_has_spread(const struct pd_profile *profile);
/* Returns what all times have in common; 1 and 1 if the profile says nothing. */
struct pd_spread pd_spread_common(const struct pd_profile *profile);
/* Returns what a part of one layer has of its own; 1 and 1 if the profile says nothing. */
struct pd_spread pd_spread_own(const struct pd_profile_layer *layer, enum pd_timed part);
/* Returns how far a part of successive layers may be off together. */
struct pd_spread pd_spread_of(const struct pd_profile *profile, int first, int count, enum pd_timed part);
/* Returns what both make of a time, of which neither depends on the other. */
struct pd_spread pd_spread_both(struct pd_spread a, struct pd_spread b);
