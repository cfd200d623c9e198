/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes that one rank of a stage holds at once: the list in contrib/HACKING, "Who
 * owns which memory", priced with a profile.
 *
 * Two prices.  pd_memory_of is the planner's while it searches: of 1F1B with stashing, from
 * a few sums, linear in the warm-up.  pd_memory_of_stage gives the sizes that the device's
 * pd_net_sizes will say, to the byte, where the profile's layers tell what the device lays
 * out by (pd_net_layer); lib/schedule/memory.h multiplies them by the schedule's counts.
 */
#ifndef PD_PLAN_MEMORY_H
#define PD_PLAN_MEMORY_H

#include "plan/wiring.h"

struct pd_memory {
	int64_t weights_bytes;          /* all versions: (warmup + 1) x parameters */
	int64_t gradient_bytes;
	int64_t state_bytes;            /* running statistics */
	int64_t optimizer_bytes;        /* velocity: 1 x parameters; in 16 bits the master, too */
	int64_t stash_bytes;            /* (warmup + 1) slots, (warmup + 2) inboxes */
	int64_t transfer_bytes;         /* gradients arriving and leaving, two each; all-reduce staging */
	int64_t scratch_bytes;          /* gradients of activations, and a layer's workspace */
	int64_t total_bytes;
};

/*
 * Layers first to first + count - 1 as one stage; in_bytes and out_bytes: what arrives
 * from earlier stages and leaves for later ones per microbatch.  A device may lay out its
 * scratch with gaps: there the figure can be a little low.
 */
void pd_memory_of(const struct pd_profile *profile, int first, int count, int replicas,
		  int warmup, int64_t in_bytes, int64_t out_bytes, struct pd_memory *out_p);

/* What that adds up of the layers, and the price of it. */
struct pd_memory_sums {
	int64_t parameters, stash, state;       /* bytes */
	int64_t loaded;                 /* of the model's inputs */
	int64_t scratch;                /* at one time */
};

void pd_memory_add_up(const struct pd_profile *profile, int first, int count,
		      struct pd_memory_sums *sums_p);
void pd_memory_price(const struct pd_profile *profile, const struct pd_memory_sums *sums,
		     int replicas, int warmup, int64_t in_bytes, int64_t out_bytes,
		     struct pd_memory *out_p);

/*
 * Where a profile's dtype has 16 bits, a version of the weights is half as large as the f32 that
 * the gradients are, and the parameters that are updated (the master) are beside it.  full_bytes:
 * of parameters in f32, as the profile's parameter_bytes.
 */
int64_t pd_memory_weights(const struct pd_profile *profile, int64_t full_bytes);
int64_t pd_memory_master(const struct pd_profile *profile, int64_t full_bytes);

/* What a stage needs one of; like struct pd_net_sizes of lib/device/device.h. */
struct pd_stage_memory {
	bool exact;                     /* else the profile does not say enough: about so much */
	int64_t weights_bytes;          /* one version */
	int64_t full_bytes;             /* gradients, velocity: f32 */
	int64_t master_bytes;
	int64_t state_bytes, inbox_bytes, slot_bytes, scratch_bytes;
	int64_t outbox_bytes;           /* where it recomputes: what leaves after a forward */
	int64_t gradient_in_bytes, gradient_out_bytes;
	int64_t staging_bytes;          /* of the all-reduce */
};

/* wiring: the plan's. */
void pd_memory_of_stage(const struct pd_plan *plan, const struct pd_wiring *wiring, int stage,
			struct pd_stage_memory *out_p);

/* The parameters of a layer that has a copy of what it shares (pd_plan_ties). */
int64_t pd_memory_copy(const struct pd_profile *profile, int layer);
/*
 * What a layer keeps more, for each microbatch in flight, where backward comes in two parts:
 * the gradient of its output, from which that of its parameters is made later; those of its
 * parameters themselves, where one kernel makes all (batchnorm2d); 0 without parameters.
 */
int64_t pd_memory_split(const struct pd_profile *profile, int layer);

#endif
