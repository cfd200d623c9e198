/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two traces side by side, operation by operation, and where the time of each went.
 *
 * Operations of training are the same where rank, kind, stage, microbatch, peer and link
 * are; those of evaluations are left out.  The order of a rank is that in which it
 * computes: what was asked of a stream is done in order, while transfers under way end as
 * the links allow.
 */
#ifndef PD_TRACE_COMPARE_H
#define PD_TRACE_COMPARE_H

#include "trace/report.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define PD_COMPARE_SHOWN 4

struct pd_residual {                    /* durations in the first trace less those in the second */
	enum pd_op_kind kind;
	int stage;
	int64_t count;
	int64_t median_ns[2];           /* in each */
	int64_t low_ns, middle_ns, high_ns;     /* of the differences: 5 %, 50 %, 95 % */
};

struct pd_disorder {                    /* the first operation of a rank that is another */
	int rank;
	int64_t position;               /* among those that both have, from 0 */
	struct pd_op op[2];
};

struct pd_compare {
	int64_t matched;
	/* operations that the other does not have; of them those whose microbatch it does have */
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
/* The same operations in the same order, as far as both go? */
bool pd_compare_same(const struct pd_compare *compare);
void pd_compare_print(const struct pd_compare *compare, const char *const names[2], FILE *out);

/*
 * Where the time went, per rank.  An idle moment is put down to what the next operation
 * waited for last.  While that was on its way it is a transfer exposed (an all-reduce
 * exposed), before that the rank waits for the one that makes it.
 */
enum pd_spent {
	PD_SPENT_COMPUTE,
	PD_SPENT_ACTIVATION,            /* for the rank that makes it */
	PD_SPENT_GRADIENT,
	PD_SPENT_TRANSFER,
	PD_SPENT_ALLREDUCE,
	PD_SPENT_OTHER,
	PD_SPENTS
};

struct pd_awaited {                     /* how long a rank waited for another */
	int rank, peer;
	bool gradient;
	int64_t ns;
};

struct pd_where {
	int64_t begin_ns, end_ns;       /* the steady period, or all where there is none */
	bool has_steady;
	int rank_count;
	int64_t (*ns)[PD_SPENTS];       /* per rank: they add up to the window */
	int awaited_count;
	struct pd_awaited *awaited;     /* by rank */
};

struct pd_where *pd_where_new(const struct pd_timeline *timeline);
void pd_where_free(struct pd_where *where);
/* For people, in percent of the window of each; the second may be NULL. */
void pd_where_print(const struct pd_timeline *timeline, const struct pd_where *first,
		    const struct pd_where *second, FILE *out);

/*
 * The phases of training in a trace: its microbatches divided wherever every rank had ended
 * all before a microbatch before it began anything of that or a later one.  Returns how
 * many; *bounds_p gets one more ascending microbatches, each the first of a phase and the
 * last the end, for the caller to free.  0 where nothing was trained, or not in a row:
 * *bounds_p is untouched.
 */
int pd_trace_phases(const struct pd_trace *trace, int64_t **bounds_p);

#endif
