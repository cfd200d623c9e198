/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a plan in virtual time: the schedule and the workers of a real run, on devices and links
 * that only take time.
 */
#pragma once

#include "plan/plan.h"
#include "schedule/list.h"
#include "trace/recurrence.h"
#include "trace/steady.h"
#include "trace/trace.h"

#include <stdint.h>

struct pd_replay_options {
	/*
	 * Microbatches to train; 0: `minibatches`.  If both are 0, as many as show the steady
	 * state: whole minibatches, or a part of one if two take more than PD_REPLAY_WORK.
	 */
	int64_t microbatches, minibatches;
	/*
	 * If phase_count > 0, these replace the above: phase p trains bounds[p] to bounds[p + 1] -
	 * 1, and the pipeline is empty in between.
	 */
	const int64_t *bounds;
	int phase_count;
	/*
	 * Lists to use instead of the generator's, for all their microbatches, or NULL.  They must
	 * be of the same plan, and right (pd_check).
	 */
	const struct pd_lists *lists;
	/*
	 * Processors of one machine that all ranks share, and threads of each rank
	 * (pd_sim_set_processors).  processors 0: as in the plan's topology; threads 0: as in the
	 * profile.
	 */
	int64_t processors, threads;
	/* Called for every operation as it retires, in the order of each rank; may be NULL. */
	void (*retired)(void *context, const struct pd_record *record);
	void *context;
	const bool *enough;             /* `retired` sets this to end the replay; or NULL */
	struct pd_recurrence *recurrence;       /* records every operation first; or NULL */
	/*
	 * Set if virtual time ends first (PD_COST_MAX), in a replay of one phase; NULL: that is
	 * an error.
	 */
	bool *too_long;
};

/* Returns about how many operations a replay of so many microbatches has. */
int64_t pd_replay_work(const struct pd_plan *plan, int64_t microbatches);
/* The operations of some ten seconds: longer replays are not made unless they are asked for. */
#define PD_REPLAY_WORK INT64_C(20000000)
/*
 * Returns how many microbatches show the steady state: as many as show it well, or else two whole updates, in at most
 * so many operations; 0: that takes more.
 */
int64_t pd_replay_length(const struct pd_plan *plan, int64_t most_work);

/*
 * Trains.  Returns 0, or -1: this version cannot run the plan (usage), or the pipeline stalls,
 * which is a bug; the sentence then names each rank's oldest unfinished operation.
 */
int pd_replay_run(const struct pd_plan *plan, const struct pd_replay_options *options,
		  struct pd_error *err);

/*
 * Does the same and returns a trace of device "sim", with times from 0, sorted, with a copy of the
 * plan.  `options` (or NULL) has no `retired`.
 */
struct pd_trace *pd_replay(const struct pd_plan *plan, const struct pd_replay_options *options,
			   struct pd_error *err);

/* Returns the steady period of a replay (lib/trace/steady.h), exact if it is periodic. */
static inline double pd_replay_period_ns(const struct pd_trace *trace)
{
	return pd_trace_period_ns(trace);
}
