/* SPDX-License-Identifier: Apache-2.0 */
/* Finds what an operation of a trace waited for. */
#pragma once

#include "trace/timeline.h"

/* Records of all but computing, by rank, kind, evaluation, microbatch and end. */
struct pd_arrivals {
	size_t count;
	const struct pd_record **list;
	size_t left_count;
	const struct pd_record **left;  /* of what gives back a buffer where it ends, by rank and end */
	int64_t most_launch_ns;         /* in virtual time the profile knows it; else INT64_MAX */
};

struct pd_arrivals pd_arrivals_of(const struct pd_trace *trace);        /* borrows the trace */
void pd_arrivals_release(struct pd_arrivals *arrivals);
/*
 * Returns for how long an operation, for which all had arrived and whose rank computed nothing since
 * from_ns, was only not begun yet: since then, or since a buffer came back that it may have waited for.
 */
int64_t pd_arrivals_launch_ns(const struct pd_arrivals *arrivals, const struct pd_record *record,
			      int64_t from_ns);

/* Returns the record that an operation of computing waited for last, or NULL. */
const struct pd_record *pd_arrivals_awaited(const struct pd_arrivals *arrivals,
					    const struct pd_record *record);
/* Returns when the transfer of a receive began: when both its sides were ready. */
int64_t pd_arrivals_began_ns(const struct pd_arrivals *arrivals, const struct pd_record *recv);
