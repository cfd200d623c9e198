/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes that one rank of a stage holds at once: the list in contrib/HACKING, "Who
 * owns which memory", priced with a profile.
 */
#ifndef PD_PLAN_MEMORY_H
#define PD_PLAN_MEMORY_H

#include "plan/plan.h"

struct pd_memory {
	int64_t weights_bytes;          /* all versions: (warmup + 1) x parameters */
	int64_t gradient_bytes;
	int64_t optimizer_bytes;        /* velocity: 1 x parameters */
	int64_t stash_bytes;            /* (warmup + 1) slots, (warmup + 2) inboxes */
	int64_t transfer_bytes;         /* gradients arriving and leaving, two each; all-reduce staging */
	int64_t scratch_bytes;          /* gradients of activations, and a layer's workspace */
	int64_t total_bytes;
};

/*
 * Layers first to first + count - 1 as one stage; in_bytes and out_bytes: what arrives
 * from earlier stages and leaves for later ones per minibatch.  A device may lay out its
 * scratch with gaps: there the figure can be a little low.
 */
void pd_memory_of(const struct pd_profile *profile, int first, int count, int replicas,
		  int warmup, int64_t in_bytes, int64_t out_bytes, struct pd_memory *out_p);

#endif
