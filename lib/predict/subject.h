/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A subject is what pd-replay shows: a trace as it is, or a replay of a plan, a schedule or a
 * trace.
 */
#pragma once

#include "predict/whatif.h"
#include "trace/trace.h"

struct pd_subject {
	struct pd_trace *trace;         /* the trace to be shown */
	bool measured;                  /* it was read, not replayed */
	bool listed;                    /* it was replayed in the order of lists */
	bool changed;                   /* some "what if" was asked for */
	/* If so, the figures before: */
	double measured_ns;             /* period of the trace that was read; 0: none was */
	double before_ns;               /* period of the replay under unchanged conditions */
};

/*
 * Reads a plan, a schedule (which must pass pd_check: PD_EXIT_NO) or a trace, and replays it if
 * needed.  minibatches is how many to replay, or to keep of a trace; 0: the usual number.
 */
int pd_subject_read(const char *file, const struct pd_what_if *what, int64_t minibatches,
		    struct pd_subject *out_p, struct pd_error *err);
/*
 * Does the same for two that are compared; only the first is changed or limited.  A plan is replayed
 * for the microbatches of the other one, in its phases if it has consecutive ones, and with as many
 * processors.  Of two plans the second is replayed like the first.
 */
int pd_subject_read_two(const char *const files[2], const struct pd_what_if *what,
			int64_t minibatches, struct pd_subject subjects[2], struct pd_error *err);
/* Tells whether both have layers of the same names, in any order. */
bool pd_subject_same_model(const struct pd_subject subjects[2]);
void pd_subject_release(struct pd_subject *subject);

/* Prints the periods before and after, for people, if something was changed. */
void pd_subject_print_change(const struct pd_subject *subject, const struct pd_what_if *what,
			     FILE *out);
