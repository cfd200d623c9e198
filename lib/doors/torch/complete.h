/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Completes the lists of a table: what its ranks exchange gets its place and its sequence number by
 * doing all of it once, as if every transfer blocked both its ranks.  Lists that cannot be done to
 * their end would deadlock.
 */
#pragma once

#include "doors/torch/table.h"
#include "schedule/list.h"

/*
 * Puts transfers into lists of computations (PD_LACK_TRANSFERS) that pd_check has found right
 * otherwise: each as soon as it can be after what it carries is made, but so that at a rank no more
 * than one activation of a link waits to be used, and PD_PASSAGES gradients, unless its next
 * computation needs another. Fails (PD_EXIT_NO) at a deadlock.
 */
int pd_torch_add_transfers(struct pd_lists *lists, struct pd_error *err);
/*
 * Numbers the exchanges that lists have (PD_LACK_NUMBERS), which were made of the table.  Fails
 * (PD_EXIT_NO) at a deadlock, and says under which assumption it is one.
 */
int pd_torch_number(struct pd_lists *lists, const struct pd_torch_table *table,
		    struct pd_error *err);

/*
 * Numbers what ranks sum and agree on, which is at the end of their lists, from seq on: stage after
 * stage. The lists then lack nothing.
 */
void pd_torch_number_ends(struct pd_lists *lists, int64_t seq);

/* Where a rank is that can do nothing more, and what it waits for. */
struct pd_torch_wait {
	size_t n;                       /* the operation in its list that it is at */
	int rank; /* of the other one, that is to come first; -1: it waits for nothing */
	struct pd_op op;                /* this one */
};
/*
 * Says why ranks wait for each other: "deadlock: it waits for 2B0 of rank 2, which is at 2F3 and
 * waits for ...", and then `assumed`.  waits has an entry for each rank, one of which waits.
 */
int pd_torch_deadlock(const struct pd_lists *lists, const struct pd_torch_wait *waits,
		      const char *assumed, struct pd_error *err);
