/* SPDX-License-Identifier: Apache-2.0 */
/*
 * "What if": a plan under other conditions.  The cut (stages, replicas, ranks) stays; links,
 * times, schedule and weights change.
 */
#ifndef PD_REPLAY_WHATIF_H
#define PD_REPLAY_WHATIF_H

#include "plan/plan.h"
#include "trace/trace.h"

#include <stdbool.h>
#include <stdio.h>

struct pd_what_if {             /* NULL, 0: as it is */
	const char *topology;   /* a file or a string (pd_topology_read) */
	const char *schedule, *weights;
	int64_t microbatches;
	int64_t processors;     /* shared by all ranks (struct pd_replay_options) */
	double device_speed;    /* every device that many times as fast */
	/* "LAYER:FACTOR,STAGE:FACTOR,...": these so many times as fast, STAGE a number */
	const char *faster;
};

bool pd_what_if_any(const struct pd_what_if *what);

/*
 * Changes plan (its predictions are forgotten: they were of something else).  An error
 * (usage) leaves it in between.  Whether schedule and weights go together,
 * pd_schedule_new says.
 */
int pd_what_if_apply(const struct pd_what_if *what, struct pd_plan *plan, struct pd_error *err);
/* "topology 2@1GB/s, devices 2 x as fast", for people. */
void pd_what_if_print(const struct pd_what_if *what, FILE *out);

/*
 * A copy of a trace's plan whose profile has the times that were measured: the layers of a
 * stage take, together, the medians of the stage's forwards, backwards and steps over the
 * training operations of the trace, in the proportions of the profile (all to the first
 * layer where the profile has only zeros).  A stage without such an operation keeps its
 * own.  NULL where the plan cannot be copied.
 */
struct pd_plan *pd_plan_measured(const struct pd_trace *trace, struct pd_error *err);

#endif
