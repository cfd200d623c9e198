/* SPDX-License-Identifier: Apache-2.0 */
/* A steady state as what it is: a prologue, a body that is repeated, an epilogue. */
#ifndef PD_SCHEDULE_PERIOD_H
#define PD_SCHEDULE_PERIOD_H

#include "schedule/list.h"

/*
 * After so many microbatches a rank does the same again with the same peers: a multiple of
 * the groups and replicas of its stages and of those with which they exchange anything.
 * 0: of more than can be.
 */
int64_t pd_period_of(const struct pd_lists *lists, int rank);
/*
 * The fewest microbatches, a multiple of the period less than `microbatches`, after which the
 * generator's lists still have a steady state of a few periods; or as many.
 */
int64_t pd_period_shorter(const struct pd_schedule *schedule, int64_t period,
			  int64_t microbatches);
/*
 * Makes blocks of what repeats in a list without any, and lengthens the longest, where there
 * is a choice the first, by so many repetitions; what is behind it moves on by them.  False,
 * and nothing changes, where there are repetitions to be added and no block to add them to.
 */
bool pd_period_fold(struct pd_list *list, int64_t period, int64_t more);

#endif
