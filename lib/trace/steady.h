/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steady state of a pipeline: how long one minibatch takes while others are before and
 * behind it.
 *
 * e(b) is the time at which the input stage ends the last part of the backward of
 * minibatch b.  A stretch is a run of successive minibatches without an evaluation between
 * two of them; the longest counts.  Its last ones, as many as can be in flight, are left
 * out, for nothing is behind them, and so is the first half of the others, in which the
 * pipeline settles.
 *
 * If on what remains e(b + c) - e(b) is the same for all b, for a smallest cycle c (of at
 * most half of it), the pipeline is periodic and the period is that difference over c,
 * exactly.  Else it is the slope over a multiple of the least common multiple of all replica
 * counts, from where that is steepest: replicas that need not wait for each other, having no
 * parameters, drift apart, and the slowest counts.
 */
#ifndef PD_TRACE_STEADY_H
#define PD_TRACE_STEADY_H

#include "trace/trace.h"

#include <stdbool.h>
#include <stdint.h>

struct pd_steady {
	int64_t first, last;            /* minibatches; whole cycles apart */
	int64_t begin_ns, end_ns;       /* e(first), e(last) */
	int64_t cycle;                  /* in minibatches; 0: not periodic */
	double period_ns;               /* (end_ns - begin_ns) / (last - first) */
};

/* False when fewer than two minibatches have come back in a stretch; *out_p is untouched. */
bool pd_trace_steady(const struct pd_trace *trace, struct pd_steady *out_p);

/*
 * The same of successive minibatches that ended at ends[0] to ends[n - 1], from one start-up
 * on: minibatches are counted from the first.  `whole`: nothing comes behind the last.  False
 * when n is below two.
 */
bool pd_steady_of(const struct pd_plan *plan, const int64_t *ends, size_t n, bool whole,
		  struct pd_steady *out_p);

/*
 * How many microbatches of a plan show its start-up and enough of its steady state; how many whole
 * minibatches those are in.
 */
int64_t pd_steady_microbatches(const struct pd_plan *plan);
int64_t pd_steady_minibatches(const struct pd_plan *plan);
/* Does that have whole updates?  Not where one has thousands of microbatches: then what comes once
 * per update is not in the period. */
bool pd_steady_shows_updates(const struct pd_plan *plan);

/* The most minibatches that are in flight at a stage, all its replicas together. */
int64_t pd_steady_in_flight(const struct pd_plan *plan);

/* What is known of a pipeline while it is simulated. */
struct pd_progress {
	const int64_t *ends;            /* of backwards: minibatch b of stage s at s stride + b */
	int64_t stride;
	const uint64_t *marks;          /* NULL, or instead of those of later stages: per minibatch,
					   of how long before the first stage's each of them is */
	int stage_count;
	int64_t in_flight, turn;        /* minibatches: at most; until stages begin with their
					   first replica and a new update, all of them */
};

void pd_progress_init(struct pd_progress *progress, const struct pd_plan *plan,
		      const int64_t *ends, int64_t stride);

/*
 * Of n minibatches that came back: has everything repeated itself, some turns later, for a turn
 * and longer than a minibatch is in flight?  What happens next depends on nothing older, so it will
 * go on, and the period is known, exactly.  Minibatches that queue somewhere come back for a while
 * as fast as what is before the queue goes, so all stages are looked at.
 */
bool pd_steady_repeats(const struct pd_progress *progress, int64_t n, double *period_ns_p);

/* With how many that is worth a look, first and after a look at n. */
int64_t pd_progress_first(const struct pd_progress *progress);
int64_t pd_progress_next(const struct pd_progress *progress, int64_t n);

/* Keeps the operations of the first `minibatches` trained minibatches, and no evaluation. */
void pd_trace_limit(struct pd_trace *trace, int64_t minibatches);

/* Its period, or 0. */
double pd_trace_period_ns(const struct pd_trace *trace);

#endif
