/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes that one rank of a stage holds at once: the arenas of arenas.def, priced with a profile.
 *
 * A stage has sizes, one of each arena, and counts (memory/arenas.h), and the table of arenas is the ledger in which
 * both are entered.  pd_memory_of_stage gives the sizes that the device's pd_net_sizes will say, to the byte,
 * where the profile's layers tell what the device lays out by (pd_net_layer); lib/schedule/memory.h has the
 * schedule's counts.  A search takes sizes from a few sums over layers, and the counts of 1F1B with stashing:
 * pd_memory_of is linear in the warm-up.  What another program takes has other sizes (pd_profile.memory).
 */
#pragma once

#include "plan/wiring.h"

struct pd_memory {
	int64_t weights_bytes;          /* all versions */
	int64_t gradient_bytes;
	int64_t state_bytes;            /* running statistics */
	int64_t optimizer_bytes;        /* velocity: 1 x parameters; in 16 bits the master, too */
	int64_t stash_bytes;            /* (warmup + 1) slots, (warmup + 2) inboxes */
	int64_t transfer_bytes;         /* gradients arriving and leaving, two each; all-reduce staging */
	int64_t scratch_bytes;          /* gradients of activations, and a layer's workspace */
	int64_t margin_bytes;           /* what another program's allocator keeps */
	int64_t total_bytes;
};

/*
 * Prices layers first to first + count - 1 as one stage.  in_bytes and out_bytes arrive from
 * earlier stages and leave for later ones per microbatch.  A device may leave gaps in its scratch;
 * the figure is then a little low.
 */
void pd_memory_of(const struct pd_profile *profile, int first, int count, int replicas,
		  int warmup, int64_t in_bytes, int64_t out_bytes, struct pd_memory *out_p);

/* The sums over layers that pd_memory_of makes, and their price. */
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
 * Returns the bytes of one version of the weights, of full_bytes in f32 as in the profile's
 * parameter_bytes.  If the dtype has 16 bits, a version takes half as much, and there is a master
 * copy in f32, like the gradients.
 */
int64_t pd_memory_weights(const struct pd_profile *profile, int64_t full_bytes);
int64_t pd_memory_master(const struct pd_profile *profile, int64_t full_bytes);

/* The sizes of one of each buffer of a stage; like struct pd_net_sizes of lib/engine/device/device.h. */
struct pd_stage_memory {
	bool exact;                     /* false: the profile does not say enough, and the sizes are
					   estimates */
	int64_t weights_bytes;          /* one version */
	int64_t full_bytes;             /* gradients, velocity: f32 */
	int64_t master_bytes;
	int64_t state_bytes, inbox_bytes, slot_bytes, scratch_bytes;
	int64_t kept_bytes;             /* where it recomputes in part: what the other layers keep */
	int64_t outbox_bytes;           /* where it recomputes: the outputs that are sent */
	int64_t gradient_in_bytes, gradient_out_bytes;
	int64_t staging_bytes;          /* of the all-reduce */
	int64_t chunk_table_bytes;      /* of sparse sums */
};

/* Adds what another program's allocator keeps of that, to what is there. */
void pd_memory_margin(const struct pd_profile *profile, struct pd_memory *memory);

/* wiring is the plan's; profile is that of the device (pd_plan_profile_of). */
void pd_memory_of_stage(const struct pd_plan *plan, const struct pd_profile *profile,
			const struct pd_wiring *wiring, int stage, struct pd_stage_memory *out_p);

/*
 * Returns the layer's own parameters: none if it shares another layer's; or, copies, those with a copy of
 * what it shares (pd_plan_has_tied_weights).
 */
int64_t pd_memory_parameters(const struct pd_profile *profile, int layer, bool copies);
/* Returns the parameters that a layer shares with others; 0: none. */
int64_t pd_memory_shared(const struct pd_profile *profile, int layer);
/* Returns the parameters of a layer with such a copy. */
int64_t pd_memory_copy(const struct pd_profile *profile, int layer);
/*
 * Returns what a layer keeps in addition, for each microbatch in flight, if backward has two parts:
 * the gradient of its output, for that of its parameters; or the latter, if one kernel makes both
 * (batchnorm2d); or those of its gates (lstm); 0 without parameters.
 */
int64_t pd_memory_split(const struct pd_profile *profile, int layer);
/*
 * Returns what a layer with lanes keeps of each microbatch, of its stash_bytes: the state that it
 * began with.  A stage that recomputes has it in the inbox, since two forwards begin with it.
 */
int64_t pd_memory_carried(const struct pd_profile *profile, int layer);
