/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Networks in which each layer takes only the output of the one before.  The memory of a stage then
 * follows from sums up to its first and up to its last layer.  Private to this folder.
 */
#ifndef PD_PLANNER_CHAIN_H
#define PD_PLANNER_CHAIN_H

#include "plan/memory.h"

struct pd_chain;

/*
 * Returns NULL if the profile is no chain, has a model, or has figures whose sum exceeds 62 bits. 
 * Borrows profile.
 */
struct pd_chain *pd_chain_new(const struct pd_profile *profile);
void pd_chain_free(struct pd_chain *chain);

/*
 * Sets the sums over layers first to first + count - 1, count > 0, like pd_memory_of, in constant
 * time.
 */
void pd_chain_sums(const struct pd_chain *chain, int first, int count,
		   struct pd_memory_sums *sums_p);

#endif
