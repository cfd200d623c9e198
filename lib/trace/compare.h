/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares two traces operation by operation, and divides the time of each rank.
 *
 * Two operations of training are the same if they have the same rank, kind, stage, microbatch, peer
 * and link.  Evaluations are left out.  The order of a rank is the order in which it computes: a
 * stream works in order, while transfers end as the links allow.
 */
#pragma once

#include "trace/report.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define PD_COMPARE_SHOWN 4

struct pd_residual {                    /* durations in the first trace less those in the second */
	enum pd_op_kind kind;
	int stage;
	int64_t count;
	int64_t median_ns[2];           /* in each trace */
	int64_t low_ns, middle_ns, high_ns;     /* percentiles 5, 50 and 95 of the differences */
};

struct pd_disorder {                    /* the first operation of a rank with another order */
	int rank;
	int64_t position;               /* among those that both have, from 0 */
	struct pd_op op[2];
};

struct pd_compare {
	int64_t matched;
	/* Operations that the other does not have; those of them whose microbatch the other has. */
	int64_t only[2], missing[2];
	int shown[2];
	struct pd_op some[2][PD_COMPARE_SHOWN];
	int disorder_count;
	struct pd_disorder *disorders;  /* by rank */
	int residual_count;
	struct pd_residual *residuals;  /* by kind, then stage */
};

struct pd_compare *pd_compare_new(const struct pd_timeline *first,
				  const struct pd_timeline *second);
void pd_compare_free(struct pd_compare *compare);
/* Tells whether both have the same operations in the same order, as far as both go. */
bool pd_compare_same(const struct pd_compare *compare);
void pd_compare_print(const struct pd_compare *compare, const char *const names[2], FILE *out);

/*
 * The parts of a rank's time.  An idle moment counts for what the next operation waited for last. 
 * While that is on its way, a transfer (or an all-reduce) is exposed; before that, the rank waits
 * for the rank that sends it.
 */
enum pd_spent {
	PD_SPENT_COMPUTE,
	PD_SPENT_ACTIVATION,            /* for the rank that sends it */
	PD_SPENT_GRADIENT,
	PD_SPENT_TRANSFER,
	PD_SPENT_ALLREDUCE,
	PD_SPENT_LAUNCH,                /* all was there, and the operation did not begin yet */
	PD_SPENT_OTHER,
	PD_SPENTS
};

struct pd_awaited {                     /* how long a rank waited for another */
	int rank, peer;
	bool gradient;
	int64_t ns;
};

struct pd_time_spent {
	int64_t begin_ns, end_ns;       /* the steady period, or the whole trace without one */
	bool has_steady;
	int rank_count;
	int64_t (*ns)[PD_SPENTS];       /* per rank: they add up to the window */
	int awaited_count;
	struct pd_awaited *awaited;     /* by rank */
};

struct pd_time_spent *pd_time_spent_new(const struct pd_timeline *timeline);
void pd_time_spent_free(struct pd_time_spent *spent);
/* Prints both for people, in percent of their windows; the second may be NULL. */
void pd_time_spent_print(const struct pd_timeline *timeline, const struct pd_time_spent *first,
			 const struct pd_time_spent *second, FILE *out);
