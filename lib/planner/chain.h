/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Networks in which each layer takes what the one before it made, and nothing else: what a stage
 * holds follows from sums up to its first and up to its last layer.  Private to this folder.
 */
#ifndef PD_PLANNER_CHAIN_H
#define PD_PLANNER_CHAIN_H

#include "plan/memory.h"

struct pd_chain;

/* NULL where the profile is no chain, or has a model, or figures of which 62 bits do not hold the
 * sum.  Borrows profile. */
struct pd_chain *pd_chain_new(const struct pd_profile *profile);
void pd_chain_free(struct pd_chain *chain);

/* Of layers first to first + count - 1, count > 0: as pd_memory_of adds them up, in no time. */
void pd_chain_sums(const struct pd_chain *chain, int first, int count,
		   struct pd_memory_sums *sums_p);

#endif
