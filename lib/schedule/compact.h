/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes a list of operations short: a prologue, a body that is repeated, an epilogue.  Numbers repeat here, to
 * the last operation, and no times: when a pipeline settles is told by trace/steady.h and trace/recurrence.h.
 */
#pragma once

#include "schedule/list.h"

/*
 * Returns the number of microbatches after which a rank does the same operations with the same
 * peers.  It is a multiple of the groups and replicas of its stages and of those with which they
 * exchange data.  Returns 0 if the number is too large.
 */
int64_t pd_compact_period(const struct pd_lists *lists, int rank);
/*
 * Returns the fewest microbatches, a multiple of the period less than `microbatches`, with which
 * the generator's lists still have a steady state of a few periods; or `microbatches`.
 */
int64_t pd_compact_fewer(const struct pd_schedule *schedule, int64_t period,
			  int64_t microbatches);
/*
 * Makes blocks of what repeats in a list without blocks.  Adds `more` repetitions to the longest
 * block, of equal ones the first, and moves what is behind it accordingly.  Returns false, and
 * changes nothing, if repetitions are to be added and there is no block.
 */
bool pd_compact(struct pd_list *list, int64_t period, int64_t more);
