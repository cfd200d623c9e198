/* SPDX-License-Identifier: Apache-2.0 */
/* The operations of one rank in a phase, in order, made one at a time. */
#pragma once

#include "schedule/schedule.h"

#define PD_CURSOR_STREAMS 8             /* enough for most ranks; more are allocated */

struct pd_cursor_stream {
	int64_t next;                   /* its next microbatch (allreduce, step: group), from 0 */
	int64_t until;                  /* keys are evenly spaced below this microbatch: stride
					   times the cursor's pitch */
	int stage, link;
	int stride;                     /* from one value of `next` to the one after */
	int bucket;                     /* pd_op.bucket of its next operation */
	int peer;                       /* peer of all its transfers; -1: it varies */
	enum pd_op_kind kind;
};

struct pd_cursor {
	const struct pd_schedule *schedule;
	struct pd_phase phase;
	int64_t floor, highest, pitch;
	int rank, replica;
	int stream_count;
	/* The key of each stream's next operation; INT64_MAX at the end. */
	int64_t *keys, few_keys[PD_CURSOR_STREAMS];
	struct pd_cursor_stream *streams, few[PD_CURSOR_STREAMS];
};

/*
 * floor is the oldest version of the stage's weights that may be read.  That is phase->first,
 * unless the phase continues after a checkpoint inside an epoch, which holds older ones.  The
 * cursor must not be moved in memory.
 */
void pd_cursor_init(struct pd_cursor *cursor, const struct pd_schedule *schedule, int rank,
		    const struct pd_phase *phase, int64_t floor);
void pd_cursor_release(struct pd_cursor *cursor);
/* Returns false at the end. */
bool pd_cursor_next(struct pd_cursor *cursor, struct pd_op *op_p);
/* Ends the phase earlier; no operation of a microbatch >= last may have been taken yet. */
void pd_cursor_limit(struct pd_cursor *cursor, int64_t last);
/* Returns the highest microbatch of which an operation has been taken, or phase.first - 1. */
int64_t pd_cursor_highest(const struct pd_cursor *cursor);

/* Returns the oldest version of a stage that microbatches from `at` on read. */
int64_t pd_cursor_oldest(const struct pd_cursor *cursor, int stage, int64_t at);
bool pd_cursor_reads(const struct pd_cursor *cursor, int stage, int64_t at, int64_t version);
