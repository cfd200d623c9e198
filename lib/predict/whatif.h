/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes a plan for "what if".  The cut (stages, replicas, ranks) stays; links, times, schedule
 * and weights change.
 */
#pragma once

#include "plan/plan.h"
#include "schedule/table_door.h"
#include "trace/trace.h"

#include <stdbool.h>
#include <stdio.h>

/* NULL or 0: unchanged, but for sparsity; all of PD_WHAT_IF_NOTHING is. */
#define PD_WHAT_IF_NOTHING { .sparsity = -1 }
struct pd_what_if {
	const char *topology;   /* a file or a string (pd_topology_read) */
	const char *schedule, *weights; /* the schedule may be the file of a table */
	int64_t microbatches;
	int64_t bucket_bytes;   /* as in a plan */
	double sparsity;        /* as in a plan, behind its warm-up; below 0: unchanged */
	int64_t chunk;          /* 0: the plan's, or the usual one */
	const char *reducer, *gradient_dtype;
	int64_t processors;     /* shared by all ranks (struct pd_replay_options) */
	double device_speed;    /* speed of every device */
	double pairs;           /* as in a profile */
	/* Speeds of layers and stages: "LAYER:FACTOR,STAGE:FACTOR,...", where STAGE is a number. */
	const char *faster;
	const struct pd_table_door *const *tables;      /* who reads tables; no change */
};

bool pd_what_if_any(const struct pd_what_if *what);
/* Tells whether the schedule is a table: its name ends in ".csv". */
bool pd_what_if_table(const struct pd_what_if *what);

/*
 * Changes the plan, and drops its predictions.  An error (usage) leaves it partly changed. 
 * pd_schedule_new checks whether schedule and weights go together.
 */
int pd_what_if_apply(const struct pd_what_if *what, struct pd_plan *plan, struct pd_error *err);
/* Prints "topology 2@1GB/s, devices 2 x as fast", for people. */
void pd_what_if_print(const struct pd_what_if *what, FILE *out);

/*
 * Returns a copy of a trace's plan with the times that were measured.  The layers of a stage
 * together take the medians of the stage's forwards, backwards and steps over the training
 * operations of the trace, in the proportions of the profile (all in the first layer if the profile
 * has only zeros).  A stage without such an operation keeps its times.  Returns NULL if the plan
 * cannot be copied.
 */
struct pd_plan *pd_plan_measured(const struct pd_trace *trace, struct pd_error *err);
