/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steady state of a pipeline: how long one minibatch takes while others are before and
 * behind it, by what was recorded, of a run or in virtual time.  (recurrence.h says in virtual time that all
 * goes on as before, and schedule/compact.h where a list of operations repeats itself.)
 *
 * e(b) is the time at which a stage ends the last part of the backward of minibatch b.  A stretch is a run
 * of successive minibatches of one epoch, for the pipeline is empty between two; the longest counts, and of
 * several as long that of the median period.
 *
 * Where the pipeline drains for every update, the period is that of whole updates, of which e is when the
 * input stage's last backward ends: it contains the pipeline's fill and drain, the sum and the update.  About
 * the first half of a stretch is left out.
 *
 * Else the last minibatches of a stretch, as many as can be in flight, are left out, for nothing is behind them,
 * and so is the first half of the others, in which the pipeline settles.  A stage may run ahead of another for
 * as long as there is room between them, so the slowest stage counts.
 *
 * If on what remains e(b + c) - e(b) is the same for all b, for a smallest cycle c (of at
 * most half of it), the pipeline is periodic and the period is that difference over c,
 * exactly.  Else it is the slope over a multiple of the least common multiple of all replica
 * counts, from where that is steepest: replicas that need not wait for each other, having no
 * parameters, drift apart, and the slowest counts.
 */
#pragma once

#include "trace/trace.h"

#include <stdbool.h>
#include <stdint.h>

struct pd_steady {
	int64_t first, last;            /* minibatches; whole cycles apart */
	int64_t begin_ns, end_ns;       /* e(first), e(last) */
	int64_t cycle;                  /* in minibatches; 0: not periodic */
	double period_ns;               /* (end_ns - begin_ns) / (last - first) */
};

/*
 * Returns false, and leaves *out_p alone, if fewer than two minibatches, or whole updates of a pipeline that
 * drains, came back in a stretch, or all at one time.
 */
bool pd_trace_steady(const struct pd_trace *trace, struct pd_steady *out_p);

/*
 * Does the same for successive minibatches of one start-up that ended at ends[0] to ends[n - 1]. 
 * `whole` says that nothing follows the last.  Returns false if n is below two, or two updates of a pipeline that drains.
 */
bool pd_steady_of(const struct pd_plan *plan, const int64_t *ends, size_t n, bool whole,
		  struct pd_steady *out_p);

/*
 * These return how many microbatches of a plan show its start-up and enough of its steady state, two whole
 * updates at least, and how many minibatches have these.
 */
int64_t pd_steady_microbatches(const struct pd_plan *plan);
int64_t pd_steady_minibatches(const struct pd_plan *plan);
/* Returns how many show its start-up and what follows, of an update that is too long to be shown whole. */
int64_t pd_steady_part(const struct pd_plan *plan);
/*
 * A whole update takes a steady part for each microbatch and, whatever their number, the pipeline's fill and
 * drain, the sum and the update.  So two shorter updates tell what a long one takes.  pd_steady_shorter() makes
 * two plans of a plan, which borrow all of it, with shorter updates, the first of some `fill` microbatches of a
 * replica for each stage; false: the plan's updates are not longer than that, or what they take is no such form.
 * pd_steady_longer_ns() returns the plan's period by theirs.
 */
bool pd_steady_shorter(const struct pd_plan *plan, int64_t fill, struct pd_plan shorter[2]);
double pd_steady_longer_ns(const struct pd_plan *plan, const struct pd_plan shorter[2], const double periods_ns[2]);

/*
 * Returns the microbatches after which all stages begin again with their first replica and a new
 * update; 1 if there are too many to be of use.
 */
int64_t pd_steady_turn(const struct pd_plan *plan);
/* Returns the most minibatches in flight at a stage, all its replicas together. */
int64_t pd_steady_in_flight(const struct pd_plan *plan);

/*
 * Keeps the operations of the first minibatches, one at least, of which there are at most so many, and
 * returns how many minibatches that are; of a trace with fewer operations it keeps all.
 */
int64_t pd_trace_limit_operations(struct pd_trace *trace, size_t most);
/* Keeps the operations of the first `minibatches` trained minibatches, and no evaluation. */
void pd_trace_limit(struct pd_trace *trace, int64_t minibatches);

/* Returns the trace's period, or 0. */
double pd_trace_period_ns(const struct pd_trace *trace);
