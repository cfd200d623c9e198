/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The predicted cost of an operation: its time, and the memory of its rank.
 *
 * A rank holds some memory from beginning to end: its gradients, the optimizer's arenas, buffers
 * for gradients that arrive and leave, scratch, and one version of its weights (lib/memory/arenas.def
 * has the bytes of each).  Other memory comes and goes with operations.  A tensor that arrives or
 * is loaded stays until the end of the microbatch's backward, as does what forward keeps (with
 * recomputation: recompute, but forward for what lib/memory/segments keeps).  With recomputation, a
 * tensor that leaves stays from forward until it is sent.  Each further version of the weights stays from the step that writes it, as long as an
 * older one will still be read.
 */
#pragma once

#include "schedule/list.h"

/* One bucket of a stage: its part of backward, and its sum. */
struct pd_bucket_price {
	int64_t backward_ns, backward_weight_ns, allreduce_ns;
};

struct pd_stage_price {
	int64_t forward_ns, backward_ns, backward_input_ns, backward_weight_ns;
	int64_t again_ns;               /* of a recompute; backward has the rest of them */
	int64_t update_ns, update_apart_ns;     /* in place; into another buffer */
	int64_t allreduce_ns;
	int64_t norms_ns;               /* of sparse sums */
	struct pd_bucket_price *buckets;        /* in their order, if there are several; or NULL */
	int64_t weights_bytes;          /* of one version */
	int64_t full_bytes;             /* of its gradients */
	int64_t slot_bytes;             /* what one microbatch keeps from forward to backward, or from
					   recompute */
	int64_t kept_bytes;             /* with recomputation: what it keeps from forward on */
	int64_t loaded_bytes;           /* inputs of the model, of one microbatch */
	int64_t arriving_bytes;         /* what other stages send, of one microbatch */
	int64_t carried_bytes;          /* what two forwards of one microbatch begin with */
	int64_t leaving_bytes;          /* what it sends to other stages, of one microbatch */
	int leaving;                    /* buffers for gradients on their way out; those of a run, or
					   two if the generator has no schedule for the plan */
	int64_t fixed_bytes;            /* all that the rank always holds */
	int64_t norm_bytes;             /* the part of that for agreeing on updates */
};

struct pd_prices {
	const struct pd_plan *plan;             /* borrowed */
	const struct pd_wiring *wiring;         /* borrowed */
	struct pd_stage_price *stages;          /* on the first kind of device; then those on the others */
};

/* Returns the price of a stage on a rank's device. */
static inline const struct pd_stage_price *pd_price_on(const struct pd_prices *prices, int stage, int rank)
{
	return &prices->stages[pd_topology_kind_of(&prices->plan->topology, rank) * prices->plan->stage_count +
			       stage];
}

void pd_prices_init(struct pd_prices *prices, const struct pd_plan *plan,
		    const struct pd_wiring *wiring);
void pd_prices_release(struct pd_prices *prices);

/*
 * Counts the memory of one rank.  A version of the weights stays while somebody will read it.  So
 * all operations are announced (expect) before the first is entered (enter).
 */
struct pd_account {
	const struct pd_prices *prices;
	int64_t microbatches;
	int stage_count;
	int32_t **reads;                /* per stage: reads of each version to come; or NULL */
	int64_t *newest;                /* per stage */
	__int128 held_bytes;            /* at the moment */
};

void pd_account_init(struct pd_account *account, const struct pd_prices *prices,
		     int64_t microbatches);
void pd_account_release(struct pd_account *account);
/* The microbatches and versions of these operations are from 0 to `microbatches`. */
void pd_account_expect(struct pd_account *account, const struct pd_op *op);
/*
 * Returns the duration of an operation that has not been entered; a step may have to keep a
 * version.
 */
int64_t pd_account_duration_ns(const struct pd_account *account, const struct pd_op *op);
/* Returns the bytes that the operation adds, negative if it frees memory. */
int64_t pd_account_enter(struct pd_account *account, const struct pd_op *op);
