/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plan, run in virtual time: the schedule and the workers of a real run on devices and
 * links that only take time.
 */
#ifndef PD_REPLAY_REPLAY_H
#define PD_REPLAY_REPLAY_H

#include "plan/plan.h"
#include "schedule/list.h"
#include "trace/recurrence.h"
#include "trace/steady.h"
#include "trace/trace.h"

#include <stdint.h>

struct pd_replay_options {
	/* Microbatches trained; 0: so many minibatches.  Where both are 0, those that show the steady
	 * state: whole minibatches, or where one of them is too long for that, a part of one. */
	int64_t microbatches, minibatches;
	/* Where phase_count > 0, instead of those: bounds[p] to bounds[p + 1] - 1, the
	 * pipeline empty in between. */
	const int64_t *bounds;
	int phase_count;
	/* These lists instead of the generator's, for all their microbatches, or NULL: of the
	 * same plan, and right (pd_check). */
	const struct pd_lists *lists;
	/* All ranks on one machine with so many processors, each with so many threads
	 * (pd_sim_set_processors); 0: as the plan's topology says.  threads 0: the profile's. */
	int64_t processors, threads;
	/* Every operation as it retires, each rank's in its order; may be NULL. */
	void (*retired)(void *context, const struct pd_record *record);
	void *context;
	const bool *enough;             /* set in `retired`: end here; or NULL */
	struct pd_recurrence *recurrence;       /* every operation is noted there first; or NULL */
	/* Set where virtual time ends first (PD_SIM_MOST_NS), in the one phase that there is; NULL:
	 * that is an error. */
	bool *too_long;
};

/*
 * Trains; 0, or -1: the plan cannot be run by this version (usage), or the pipeline stalls,
 * which is a defect of ours: the sentence names each rank's oldest unfinished operation.
 */
int pd_replay_run(const struct pd_plan *plan, const struct pd_replay_options *options,
		  struct pd_error *err);

/*
 * The same, gathered: a trace of device "sim" with times from 0, sorted, with a copy of the
 * plan.  `options` (or NULL) without `retired`.
 */
struct pd_trace *pd_replay(const struct pd_plan *plan, const struct pd_replay_options *options,
			   struct pd_error *err);

/* The steady period of one (lib/trace/steady.h says what that is), exact where periodic. */
static inline double pd_replay_period_ns(const struct pd_trace *trace)
{
	return pd_trace_period_ns(trace);
}

#endif
