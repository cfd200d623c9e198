/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an operation is predicted to take: time, and memory of its rank.
 *
 * From beginning to end a rank holds its gradients, the optimizer's memory, buffers for
 * gradients that arrive and leave, scratch and one version of its weights, as
 * lib/plan/memory.h prices them.  What comes and goes is told by operation: what arrives or
 * is loaded from there to the end of the microbatch's backward, what forward (with
 * recomputation: recompute) keeps likewise, with recomputation what leaves from forward until
 * it is sent, and each further version of the weights from the step that writes it while an
 * older one will still be read.
 */
#ifndef PD_SCHEDULE_PRICE_H
#define PD_SCHEDULE_PRICE_H

#include "schedule/list.h"

struct pd_stage_price {
	int64_t forward_ns, backward_ns, backward_input_ns, backward_weight_ns;
	int64_t update_ns, update_apart_ns;     /* in place; where the version it reads stays */
	int64_t allreduce_ns;
	int64_t weights_bytes;          /* one version */
	int64_t full_bytes;             /* its gradients */
	int64_t slot_bytes;             /* what one microbatch keeps from forward to backward */
	int64_t loaded_bytes;           /* inputs of the model, of one microbatch */
	int64_t arriving_bytes;         /* what other stages send, of one microbatch */
	int64_t leaving_bytes;          /* what it sends to other stages, of one microbatch */
	int64_t fixed_bytes;            /* all that is held from beginning to end */
	int64_t agree_bytes;            /* of that, what agreeing on updates takes */
};

struct pd_prices {
	const struct pd_plan *plan;             /* borrowed */
	const struct pd_wiring *wiring;         /* borrowed */
	struct pd_stage_price *stages;
};

void pd_prices_init(struct pd_prices *prices, const struct pd_plan *plan,
		    const struct pd_wiring *wiring);
void pd_prices_release(struct pd_prices *prices);

/* Of an operation alone; a transfer's is that of one that meets no other on its way. */
int64_t pd_price_duration_ns(const struct pd_prices *prices, const struct pd_op *op);

/*
 * The account of one rank.  A version of weights stays while somebody will read it, so all
 * operations are shown to the account (expect) before the first is entered (enter).
 */
struct pd_account {
	const struct pd_prices *prices;
	int64_t microbatches;
	int stage_count;
	int32_t **reads;                /* per stage: of each version, those to come; or NULL */
	int64_t *newest;                /* per stage */
	__int128 held_bytes;            /* now */
};

void pd_account_init(struct pd_account *account, const struct pd_prices *prices,
		     int64_t microbatches);
void pd_account_release(struct pd_account *account);
/* Of operations whose microbatch and version are from 0 to `microbatches`. */
void pd_account_expect(struct pd_account *account, const struct pd_op *op);
/* Of an operation that has not been entered: a step may have to leave a version where it is. */
int64_t pd_account_duration_ns(const struct pd_account *account, const struct pd_op *op);
/* What the operation adds, or takes away where negative. */
int64_t pd_account_enter(struct pd_account *account, const struct pd_op *op);

#endif
