/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/peaks.h"

/* Returns by how many an operation changes the activations that are held. */
static int held(const struct pd_op *op)
{
	if (op->kind == PD_OP_forward)
		return 1;
	return (op->kind == PD_OP_backward || op->kind == PD_OP_backward_weight) && !op->more ? -1 : 0;
}

void pd_peaks_of_rank(const struct pd_lists *lists, const struct pd_prices *prices, int rank,
		      struct pd_peaks *out_p)
{
	struct pd_op_source source;
	struct pd_account account;
	struct pd_peaks most = { .bytes = 0 };
	int64_t now = 0;
	struct pd_op op;

	pd_account_init(&account, prices, lists->microbatches);
	for (int pass = 0; pass < 2; pass++) {
		pd_op_source_begin(&source, NULL, lists, rank, lists->microbatches);
		while (pd_op_source_next(&source, &op)) {
			if (pass == 0) {
				pd_account_expect(&account, &op);
				continue;
			}
			pd_account_enter(&account, &op);
			now += held(&op);
			most.activations = now > most.activations ? now : most.activations;
			if (account.held_bytes > most.bytes)
				most.bytes = account.held_bytes < INT64_MAX ? (int64_t)account.held_bytes
									    : INT64_MAX;
		}
		pd_op_source_end(&source);
	}
	pd_account_release(&account);
	*out_p = most;
}
