/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long the computations of stages take, kind by kind, while they come: of the newest of each the mean
 * without an eighth at each end, as profiles have it.
 */
#pragma once

#include "profile/spread.h"
#include "trace/trace.h"

#include <jansson.h>

struct pd_durations;

/* Keeps those of these stages. */
struct pd_durations *pd_durations_new(const int *stages, int stage_count);
void pd_durations_free(struct pd_durations *durations);
/* Adds an operation, unless it is no computation of training.  It allocates nothing. */
void pd_durations_add(struct pd_durations *durations, const struct pd_record *record);
/* Returns the time of one such operation on stages[index], or 0 if there was none. */
double pd_durations_ns(const struct pd_durations *durations, int index, enum pd_op_kind kind);
/* Returns the durations of its stages for a message. */
json_t *pd_durations_json(const struct pd_durations *durations);
/* Tells whether durations of such operations are kept. */
bool pd_durations_has(enum pd_op_kind kind);

/* What a run is expected to take. */
struct pd_expected_run {
	double period_ns;               /* of a microbatch; 0: nothing is expected */
	struct pd_spread range;         /* of the period */
	double (*ns)[PD_OP_KINDS];      /* per stage, of one such operation; owned; 0: there is none */
	struct pd_spread (*spreads)[PD_OP_KINDS];       /* of these; owned */
};

void pd_expected_run_release(struct pd_expected_run *expected);
/* Tells whether a measured time lies where it is expected. */
static inline bool pd_spread_holds(struct pd_spread spread, double expected_ns, double ns)
{
	return ns >= expected_ns * spread.low && ns <= expected_ns * spread.high;
}
