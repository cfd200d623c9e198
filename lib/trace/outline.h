/* SPDX-License-Identifier: Apache-2.0 */
/* What a timeline's windows are chosen by; private to window.c and outline.c. */
#pragma once

#include "trace/window.h"

#define PD_SLOW 8               /* times what is usual */

/* A moment at which an operation begins or ends. */
struct pd_moment {
	int64_t ns;
	int by;                         /* 1 or -1: the operations that run */
};

/* What is known of a timeline while its windows are chosen. */
struct pd_outline {
	const struct pd_timeline *timeline;
	struct pd_moment *moments;
	size_t count;
	struct pd_cut *slow;            /* when operations run that take much longer than others */
	size_t slow_count;
	/* Of computing operations that are not slow: those that are shorter take half of the time of all,
	   or next to nothing.  So it does not matter how many very short ones there are. */
	int64_t usual_ns, short_ns;
	int64_t operations;             /* that one rank computes before end_ns, at most */
	int64_t begin_ns, end_ns;       /* of training before the first evaluation */
	int64_t evaluate_ns, evaluated_ns;      /* of the evaluation; equal: there is none */
	bool goes_on;                   /* training, after the first evaluation */
};

/* Sets all of these; pd_outline_release frees them. */
void pd_outline_init(struct pd_outline *outline, const struct pd_timeline *timeline);
void pd_outline_release(struct pd_outline *outline);
