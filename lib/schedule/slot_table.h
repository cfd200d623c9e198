/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slots of computations in a table, for kinds of schedules whose orders are lists (order/order.h).  Each
 * computation of a group has a slot, by which its order was certified: slots ascend along each rank's list and
 * from what is needed to what needs it.  Slots of 64 ticks leave room between for all that follows from
 * computations:
 *
 *     forward_s(n) = 64 slot(F) + 4,  backward_s(n) = 64 slot(I) + 8,  weights_s(n) = 64 slot(W) + 12
 *
 * A replica's i-th microbatch of a group is n = i r + replica.  The two of a pair have one slot, and the forward the
 * tick before the backward, 64 slot + 7: so nothing of the rank is between them, and all that either needs is before
 * both, which may begin together.
 */
#pragma once

#include "order/order.h"
#include "schedule/pattern.h"

struct pd_slot_table {
	struct pd_order_times slots;
	struct pd_order *made;          /* by pd_slot_table_make(), which takes it again; NULL: the caller's order has them */
	bool *pairs;                    /* [stage][microbatch]: its forward is beside a backward; NULL: no forward is */
	/* From `middle` on, `more` microbatches are put in that are not in slots, each `step` slots behind the last. */
	int64_t middle, more, step;
};

/* Certifies an order of all microbatches of a group, unless it made the table, and sets what pd_pattern.shape does. */
int pd_slot_table_shape(struct pd_schedule *schedule, const struct pd_order *order, struct pd_error *err);
/*
 * Does that with orders of any number of microbatches.  A long group has the slots of a short one, whose middle
 * is repeated: there each microbatch comes as many slots behind the one before.
 */
int pd_slot_table_make(struct pd_schedule *schedule, struct pd_order *(*make)(int positions, int microbatches),
		       struct pd_error *err);
int64_t pd_slot_table_tick(const struct pd_schedule *schedule, enum pd_compute what, int s, int64_t n);
bool pd_slot_table_beside(const struct pd_schedule *schedule, int s, int64_t n);
bool pd_slot_table_whole(const struct pd_schedule *schedule, int s, int64_t n);
void pd_slot_table_free(struct pd_slot_table *table);
