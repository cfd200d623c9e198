/* SPDX-License-Identifier: Apache-2.0 */
/* Figures of many measurements. */
#ifndef PD_MEASURE_FIGURES_H
#define PD_MEASURE_FIGURES_H

#include "profile/profile.h"

#include <stdint.h>

/* Both sort; n is 1 or more. */
int64_t pd_median(int64_t *values, int64_t n);
/*
 * A run adds up what its steps take, those that are disturbed too: not what is likely counts, but
 * the mean.  Without the eighth of them at each end.
 */
double pd_trimmed_mean(int64_t *values, int64_t n);

/* What all layers take in one go. */
struct pd_whole {
	double forward_ns, backward_ns, update_ns;
};

/*
 * Workers run all layers of a stage in one go.  That takes some percent longer than its layers do
 * one by one.  What was measured of each says in which proportion the whole is theirs; the parts
 * of backward change as backward does, and the update into another buffer as that in place.
 */
void pd_share_whole(struct pd_profile *profile, const struct pd_whole *whole);

#endif
