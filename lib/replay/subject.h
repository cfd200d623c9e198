/* SPDX-License-Identifier: Apache-2.0 */
/* What pd-replay looks at: a trace as it is, or what a plan, a schedule or a trace
 * gives in virtual time. */
#ifndef PD_REPLAY_SUBJECT_H
#define PD_REPLAY_SUBJECT_H

#include "replay/whatif.h"
#include "trace/trace.h"

struct pd_subject {
	struct pd_trace *trace;         /* to be shown */
	bool measured;                  /* a trace as it was written */
	bool changed;                   /* something was asked with "what if" */
	/* where it was, of what it was before: */
	double measured_ns;             /* the period of the trace that was read; 0: none was */
	double before_ns;               /* of the replay under unchanged conditions */
};

/*
 * Reads a plan, a schedule (which must pass pd_check: PD_EXIT_NO) or a trace, and replays it
 * where that is asked for.  minibatches: to replay,
 * of a trace as it is to keep; 0: as many as usual.
 */
int pd_subject_read(const char *file, const struct pd_what_if *what, int64_t minibatches,
		    struct pd_subject *out_p, struct pd_error *err);
/*
 * The same for what a trace is compared with: a plan is replayed for the microbatches of
 * `like`, in its phases, where that has a row of them, on as many processors.
 */
int pd_subject_read_like(const char *file, const struct pd_trace *like,
			 struct pd_subject *out_p, struct pd_error *err);
void pd_subject_release(struct pd_subject *subject);

/* Periods before and after, for people; nothing where nothing was changed. */
void pd_subject_print_change(const struct pd_subject *subject, const struct pd_what_if *what,
			     FILE *out);

#endif
