/* SPDX-License-Identifier: Apache-2.0 */
/* Statistics of many measurements. */
#pragma once

#include "base/median.h"
#include "profile/profile.h"

#include <stdint.h>

#define PD_ROUNDS_LEAST 7               /* below this nothing is said of a spread */

/*
 * Returns the spread of n figures, one of each round, around their median; it sorts them.  0 and 0 if they
 * are too few.
 */
struct pd_spread pd_rounds_spread(double *figures, int64_t n);
/* Returns the number of rounds that so many timed steps make. */
int64_t pd_rounds_of(int64_t steps);
/* Returns the mean over the steps of a round. */
double pd_round_mean(const int64_t *values, int64_t steps, int64_t round);

/* The times of all layers in one go. */
struct pd_whole {
	double forward_ns, backward_ns, update_ns;
};

/*
 * Shares the times of whole steps out among the layers.  Workers run all layers of a stage in one
 * go, which takes some percent longer than one by one.  A layer's own time gives its part of the
 * whole.  The two parts of backward change as backward does, and the update into another buffer as
 * the one in place.
 */
void pd_share_whole(struct pd_profile *profile, const struct pd_whole *whole);
