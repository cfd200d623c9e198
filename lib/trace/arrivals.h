/* SPDX-License-Identifier: Apache-2.0 */
/* Finds what an operation of a trace waited for. */
#pragma once

#include "trace/timeline.h"

/* Records of all but computing, by rank, kind, evaluation, microbatch and end. */
struct pd_arrivals {
	size_t count;
	const struct pd_record **list;  /* the caller frees it */
};

struct pd_arrivals pd_arrivals_of(const struct pd_trace *trace);

/* Returns the record that an operation of computing waited for last, or NULL. */
const struct pd_record *pd_arrivals_awaited(const struct pd_arrivals *arrivals,
					    const struct pd_record *record);
/* Returns when the transfer of a receive began: when both its sides were ready. */
int64_t pd_arrivals_began_ns(const struct pd_arrivals *arrivals, const struct pd_record *recv);
