/* SPDX-License-Identifier: Apache-2.0 */
/* What a run took, beside what its plan, replayed, lets be expected; where the profile says how far that may be off. */
#pragma once

#include "trace/durations.h"

#include <jansson.h>

struct pd_run_times {
	const struct pd_plan *plan;     /* NULL: nothing is kept */
	int64_t epoch, next;            /* microbatches: of an epoch; the next to be trained */
	int64_t *ends;                  /* of the microbatches since the pipeline was empty */
	size_t count, capacity;
	size_t longest;                 /* such a stretch so far, with this period */
	double period_ns;               /* of a microbatch; 0: not known */
	double (*sums_ns)[PD_OP_KINDS]; /* per stage, of its replicas' durations */
	int (*replicas)[PD_OP_KINDS];   /* that told one */
	int64_t *pulses_ns;             /* per rank (base/pulse.h); 0: not known */
};

/* Begins with a microbatch, before which the pipeline is empty, as it is after every `epoch`. */
void pd_run_times_begin(struct pd_run_times *times, const struct pd_plan *plan, int64_t epoch, int64_t first);
void pd_run_times_release(struct pd_run_times *times);
/* Takes note that another microbatch is trained. */
void pd_run_times_add(struct pd_run_times *times, int64_t now_ns);
/* Takes note of what a rank says when it is done: its durations, by pd_durations_json(), and its pulse. */
void pd_run_times_hear(struct pd_run_times *times, int rank, const json_t *message);
/*
 * Adds to a report the period and the operations, what was expected of them, and whether they lay inside.
 */
void pd_run_times_report(struct pd_run_times *times, const struct pd_expected_run *expected, json_t *event);
