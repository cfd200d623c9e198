/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Does a pipeline in virtual time come back to a state in which it was before?
 *
 * What happens is written down turn by turn (lib/trace/steady: after a turn all stages begin with
 * their first replica and a new update), with times counted from the beginning of the turn and
 * minibatches from its first.  What happens next follows from what goes on, and how far it is.
 * If nothing goes on at the end of a turn that had begun before the last few, and in these the same
 * happened as in as many turns before, then at the end of both the same goes on; so the same will
 * happen from then on, again and again.
 *
 * What goes on is not written down before it has ended: it is taken to last no longer than what has
 * ended in the last turn.
 */
#ifndef PD_TRACE_RECURRENCE_H
#define PD_TRACE_RECURRENCE_H

#include "trace/trace.h"

#include <stdbool.h>
#include <stdint.h>

struct pd_recurrence {
	int64_t turn;                   /* minibatches */
	int64_t count, room;            /* turns that have ended */
	struct pd_recurrence_turn {
		uint64_t mark;          /* of all that happened; that two that differ have the same
					   one is a chance of 1 in 2^64 */
		int64_t end_ns, longest_ns;     /* longest: that something took which ended here */
	} *turns;
	uint64_t mark;                  /* of the turn that goes on, so far */
	int64_t begin_ns, longest_ns;
};

void pd_recurrence_init(struct pd_recurrence *recurrence, int64_t turn);
void pd_recurrence_release(struct pd_recurrence *recurrence);

/* An operation has retired, of whatever rank; so many that this rank has issued have not. */
void pd_recurrence_note(struct pd_recurrence *recurrence, const struct pd_record *record,
			int64_t ahead);

/*
 * Another turn has ended, with what was noted last.  If what happens repeats itself from now on,
 * true, and *period_ns_p is how long that takes, per minibatch, exactly.
 */
bool pd_recurrence_turn(struct pd_recurrence *recurrence, int64_t now_ns, double *period_ns_p);

#endif
