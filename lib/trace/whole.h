/* SPDX-License-Identifier: Apache-2.0 */
/* Is a trace whole?  It is held against the operations that its plan has for the microbatches in it. */
#pragma once

#include "trace/trace.h"

struct pd_trace_faults {
	int64_t expected;               /* operations of training that the plan has */
	int64_t missing, doubled, strange;
	struct pd_op first_missing;     /* of the earliest microbatch */
	/* Places among the records, in the order of the file. */
	size_t first_doubled, first_strange;
};

/*
 * Counts what a trace lacks, has twice, and has although its plan does not.  The records are in the order in
 * which they were read.  Of a plan whose profile has no model, as traces of other programs have one, only
 * forwards and backwards count.  Fails if the plan has no schedule.
 */
int pd_trace_find_faults(const struct pd_trace *trace, struct pd_trace_faults *out_p, struct pd_error *err);
/* Says on standard error what is wrong with a trace of that name, a line for each kind. */
void pd_trace_tell_faults(const struct pd_trace *trace, const char *name);
