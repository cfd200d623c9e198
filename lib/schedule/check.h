/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Is a schedule right?  Judged by what a schedule must be, without the generator:
 *
 *   complete   every microbatch forward and backward once on every stage, on the rank of its
 *              replica; every link's transfers; every update
 *   in order   an operation's inputs stand before it in its rank's list; an update stands
 *              after the backwards of its group and before those of the next
 *   versions   forward and backward of a microbatch see the same weights (but for "latest"),
 *              those that the plan's policy names, and they have been written by then
 *   exchanges   whatever meets another rank has a sequence number, equal at all its parties,
 *              ascending in every list: executed by ascending number nothing ever waits for
 *              what comes later, so there is no deadlock even if every transfer blocks
 *   memory     what is in flight fits the plan's memory for the rank, and the device's
 *
 * Versions need no further limit on how many are kept: a version that somebody will read is
 * kept, and is part of the memory.
 */
#pragma once

#include "schedule/list.h"

/*
 * Returns 0, or -1 (PD_EXIT_NO) with "FILE:LINE: rank R, OPERATION: what is wrong, what was
 * expected" for the first wrong line.
 */
int pd_check(const struct pd_lists *lists, struct pd_error *err);
/*
 * Checks in the same way what the generator makes for a number of minibatches; lines are those that
 * pd_schedule_write would write.  Operations are made again for each check and not kept; only a few
 * bytes per microbatch are, for one rank at a time.  Sets *count_p to the number of operations of
 * all ranks.
 */
int pd_check_schedule(const char *name, const struct pd_schedule *schedule, int64_t minibatches,
		      int64_t *count_p, struct pd_error *err);

/* A check's state, private to this folder. */
struct pd_prices;
struct pd_fault {
	const struct pd_lists *lists;
	const struct pd_schedule *schedule;     /* makes the operations; NULL: those of the lists */
	int64_t *first;                 /* per rank, and one more: the first line, if the document
					   has none */
	int64_t line;                   /* the first wrong line so far; INT64_MAX: none */
	int *startup;                   /* per stage: pd_plan_first */
	struct pd_error *err;
};
/* Records a fault at a rank's n-th operation, op, or at its end if op is NULL. */
void pd_fault(struct pd_fault *fault, int rank, size_t n, const struct pd_op *op, const char *fmt,
	      ...) __attribute__((format(printf, 5, 6)));
/* Checks one rank by itself. */
void pd_check_rank(struct pd_fault *fault, const struct pd_prices *prices, int rank);
/*
 * Checks that exactly the operations in which several ranks take part have numbers, and that they
 * ascend.
 */
bool pd_check_numbers(struct pd_fault *fault, int rank);
/* Checks all ranks together, whose numbers ascend. */
void pd_check_exchanges(struct pd_fault *fault);
