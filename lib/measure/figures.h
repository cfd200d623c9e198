/* SPDX-License-Identifier: Apache-2.0 */
/* Statistics of many measurements. */
#pragma once

#include "profile/profile.h"

#include <stdint.h>

/* Both functions sort the values; n is 1 or more. */
int64_t pd_median(int64_t *values, int64_t n);
/*
 * Returns the mean without an eighth of the values at each end.  A run adds up the times of all its
 * steps, also disturbed ones, so the mean counts, and not the likeliest value.
 */
double pd_trimmed_mean(int64_t *values, int64_t n);

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
