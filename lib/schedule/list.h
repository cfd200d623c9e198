/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operations of every rank, held in memory: a schedule that was read, written by hand,
 * edited, or taken from the generator as a whole.  A list can be taken from one operation
 * at a time, as from a cursor.
 */
#ifndef PD_SCHEDULE_LIST_H
#define PD_SCHEDULE_LIST_H

#include "schedule/cursor.h"

/* What a document says of an operation beside what it is. */
struct pd_note {
	int64_t line;                   /* of the document, from 1 */
	int64_t duration_ns;            /* -1: not said */
	int64_t memory_delta_bytes;     /* INT64_MIN: not said */
};

/* Forwards behind a block read no version of the stage older than this. */
struct pd_behind {
	int stage;
	int64_t version;
};

/*
 * Operations first to first + length - 1 of a list, done `repeat` times: each time their
 * microbatches, versions and sequence numbers are that much further.
 */
struct pd_block {
	size_t first, length;
	int64_t repeat;
	int64_t microbatches, versions, numbers;
	int behind_count;
	struct pd_behind *behind;       /* by pd_lists_end */
};

struct pd_list {
	size_t count, capacity, noted;  /* operations stored: those of a block once */
	struct pd_op *ops;              /* microbatches and versions from 0 */
	struct pd_note *notes;          /* as many, or NULL: it was not read from a document */
	size_t block_count, block_room;
	struct pd_block *blocks;        /* ascending, apart */
};

/* A rank's part in a stage; a rank of an interleaved plan has several. */
struct pd_role {
	int rank, stage, replica;
};

struct pd_lists {
	char *name;                     /* of the document, for messages; owned */
	const struct pd_plan *plan;
	struct pd_plan *owned;          /* the same where the lists own it, or NULL */
	struct pd_wiring *wiring;       /* owned */
	int64_t minibatches;
	int64_t microbatches;           /* minibatches x those that the plan cuts them into */
	int rank_count;
	struct pd_list *ranks;          /* per rank */
	int role_count;
	struct pd_role *roles;          /* by rank, then stage */
	int *first_role;                /* per rank, and one more at the end: an index into roles */
};

/*
 * Empty lists for a plan; takes over `owned` (on failure too) where it is not NULL, else
 * borrows `plan`.  Fails where there are more microbatches than can be counted.
 */
struct pd_lists *pd_lists_new(const char *name, const struct pd_plan *plan, struct pd_plan *owned,
			      int64_t minibatches, struct pd_error *err);
/* Those that the generator makes; borrows the schedule's plan. */
struct pd_lists *pd_lists_make(const char *name, const struct pd_schedule *schedule,
			       int64_t minibatches, struct pd_error *err);
void pd_lists_free(struct pd_lists *lists);
/* Appends; note may be NULL, for all of a list or for none. */
void pd_list_add(struct pd_list *list, const struct pd_op *op, const struct pd_note *note);
/* Forgets a rank's operations. */
void pd_list_release(struct pd_list *list);

/* To the list of op->rank. */
void pd_lists_add(struct pd_lists *lists, const struct pd_op *op, const struct pd_note *note);
/* The last block->length operations of a rank are done block->repeat times. */
void pd_lists_repeat(struct pd_lists *lists, int rank, const struct pd_block *block);
/* After the last: fills in what a step says of the forwards after it (pd_op's keep). */
void pd_lists_end(struct pd_lists *lists);
/* The replica that a rank is in a stage, or -1. */
int pd_lists_replica(const struct pd_lists *lists, int rank, int stage);
/* Operations of all ranks. */
int64_t pd_lists_count(const struct pd_lists *lists);

/* Operations of a list, those of blocks as often as they are done. */
int64_t pd_list_length(const struct pd_list *list);

/* Takes operations from a list in order, as pd_cursor_next does from the generator. */
struct pd_list_cursor {
	const struct pd_list *list;
	struct pd_phase phase;
	size_t next, at;                /* at: where the one taken last is stored */
	size_t block;                   /* that it is in, or the next */
	int64_t repetition;             /* in it, from 0 */
	int64_t highest;
};

/*
 * Microbatches and versions count from phase->first, sequence numbers from phase->base.
 * The phase is as long as the list; it cannot be cut short.
 */
void pd_list_begin(struct pd_list_cursor *cursor, const struct pd_list *list,
		   const struct pd_phase *phase);
/* False at the end. */
bool pd_list_next(struct pd_list_cursor *cursor, struct pd_op *op_p);
/* The highest microbatch of which an operation has been taken, or phase.first - 1. */
int64_t pd_list_highest(const struct pd_list_cursor *cursor);

/* A rank's operations from wherever they come: the generator, or a list. */
struct pd_op_source {
	bool generated;                 /* the operations are the cursor's; else the list's */
	struct pd_cursor cursor;
	struct pd_list_cursor list;
};

/*
 * The operations of a phase: those of the list, or, where it is NULL, what the schedule generates
 * (floor: see pd_cursor_init).  A list's phase begins with microbatch 0 and cannot be cut short.
 * The source must not be moved in memory.
 */
void pd_op_source_init(struct pd_op_source *source, const struct pd_schedule *schedule,
		       const struct pd_list *list, int rank, const struct pd_phase *phase,
		       int64_t floor);

/*
 * From schedule, for microbatches from 0 to `microbatches` - 1, or from the lists where it is
 * NULL.  The source must not be moved in memory.
 */
void pd_op_source_begin(struct pd_op_source *source, const struct pd_schedule *schedule,
			const struct pd_lists *lists, int rank, int64_t microbatches);
bool pd_op_source_next(struct pd_op_source *source, struct pd_op *op_p);
int64_t pd_op_source_highest(const struct pd_op_source *source);
void pd_op_source_end(struct pd_op_source *source);

/* Does it go to or come from one other rank? */
static inline bool pd_op_transfers(enum pd_op_kind kind)
{
	return kind == PD_OP_recv_activation || kind == PD_OP_send_activation ||
	       kind == PD_OP_recv_gradient || kind == PD_OP_send_gradient;
}

/* Is the stage of such an operation the one to which its link's activations go? */
static inline bool pd_op_at_end(enum pd_op_kind kind)
{
	return kind == PD_OP_recv_activation || kind == PD_OP_send_gradient;
}

#endif
