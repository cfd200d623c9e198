/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds out whether a pipeline in virtual time returns to an earlier state.  (Of a run nobody can know that:
 * steady.h measures how long a minibatch takes by what was recorded.)
 *
 * Operations are recorded turn by turn (lib/trace/steady: after a turn all stages begin with their
 * first replica and a new update).  Times count from the beginning of the turn, and minibatches
 * from its first.  What happens next follows from the operations that are running, and how far they
 * are.  Suppose nothing runs at the end of a turn that began before the last few turns, and these
 * equal as many earlier turns.  Then the same operations run at the end of both, and the same will
 * happen again and again.
 *
 * An operation is recorded when it retires, which may be long after it has ended: those before it in
 * its rank's list retire first.  Until then it counts as running.  It is assumed to take no longer than those that
 * retired in the last turn.
 *
 * What is not made of operations (predict/flow.c) adds what tells its states apart, and for how long
 * what happened has an effect.
 */
#pragma once

#include "trace/trace.h"

#include <stdbool.h>
#include <stdint.h>

struct pd_recurrence {
	int64_t turn;                   /* minibatches; 0: there are none, and nothing is said to repeat */
	int64_t count, room;            /* turns that have ended */
	struct pd_recurrence_turn {
		uint64_t mark;          /* hash of all that happened; two different turns have the
					   same one with a chance of 1 in 2^64 */
		int64_t end_ns, longest_ns;     /* longest_ns: of the longest operation that retired */
	} *turns;
	uint64_t mark;                  /* hash of the current turn so far */
	int64_t begin_ns, longest_ns;
};

void pd_recurrence_init(struct pd_recurrence *recurrence, int64_t turn);
void pd_recurrence_release(struct pd_recurrence *recurrence);

/* Records an operation of any rank that retires at now_ns; `ahead` operations of the rank have not. */
void pd_recurrence_note(struct pd_recurrence *recurrence, const struct pd_record *record,
			int64_t ahead, int64_t now_ns);

/* Adds a number that is the same when a state comes back, in which what ended then was longest_ns under way. */
void pd_recurrence_add(struct pd_recurrence *recurrence, uint64_t number, int64_t longest_ns);

/*
 * Says that n minibatches have come back so far, with what was recorded last, and ends the turns that are
 * over with them.  Returns true if everything repeats from now on; *period_ns_p is then the exact time per
 * minibatch.  If period_ns_p is NULL, it is not asked.
 */
bool pd_recurrence_found(struct pd_recurrence *recurrence, int64_t n, int64_t now_ns, double *period_ns_p);
