/* SPDX-License-Identifier: Apache-2.0 */
/* Goes through an order as it would run. */
#pragma once

#include "order/order.h"

struct pd_order_walk {
	const struct pd_order *order;
	size_t *next;                   /* per position: its next operation */
	int *done;                      /* [pass][stage]: how many microbatches have gone through it */
	int *waiting;                   /* positions that may be able to go on */
	bool *waits;                    /* per position: it is among them */
	int waiting_count;
};

/* An order whose operations ascend: see pd_order_certify(). */
struct pd_order_walk pd_order_walk_begin(const struct pd_order *order);
/*
 * Returns the next operation all of whose inputs have been returned, and takes it; a pair is returned as one,
 * its second half behind it.  NULL: there is none.
 */
const struct pd_order_op *pd_order_walk_next(struct pd_order_walk *walk, int *position_p);
/* Tells whether all inputs of an operation have been returned. */
bool pd_order_walk_ready(const struct pd_order_walk *walk, const struct pd_order_op *op);
void pd_order_walk_release(struct pd_order_walk *walk);
