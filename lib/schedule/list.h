/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operations of every rank, held in memory: a schedule that was read, written by hand, edited,
 * or taken from the generator as a whole.  Operations can be taken from a list one at a time, as
 * from a cursor.
 */
#pragma once

#include "schedule/cursor.h"

/* A document may say this of an operation, besides what it does. */
struct pd_note {
	int64_t line;                   /* of the document, from 1 */
	int64_t cell;                   /* of that line, from 1; 0: lines have no cells */
	int64_t duration_ns;            /* -1: not given */
	int64_t memory_delta_bytes;     /* INT64_MIN: not given */
};

/* Forwards behind a block read no version of the stage older than this. */
struct pd_behind {
	int stage;
	int64_t version;
};

/*
 * Operations first to first + length - 1 of a list, done `repeat` times.  In each repetition their
 * microbatches, versions and sequence numbers advance by a fixed amount.
 */
struct pd_block {
	size_t first, length;
	int64_t repeat;
	int64_t microbatches, versions, numbers;
	int behind_count;
	struct pd_behind *behind;       /* set by pd_lists_end */
};

struct pd_list {
	size_t count, capacity, noted;  /* operations stored; those of a block count once */
	struct pd_op *ops;              /* microbatches and versions from 0 */
	struct pd_note *notes;          /* one for each, or NULL if the list was not read from a
					   document */
	size_t block_count, block_capacity;
	struct pd_block *blocks;        /* ascending, not overlapping */
};

/* A rank's part in a stage; a rank of an interleaved plan has several. */
struct pd_role {
	int rank, stage, replica;
};

/* What is not in the lists yet. */
enum pd_lack {
	PD_LACK_NOTHING,
	PD_LACK_NUMBERS,                /* the sequence numbers of exchanges */
	PD_LACK_TRANSFERS,              /* transfers, and all exchanges */
};

struct pd_lists {
	char *name;                     /* name of the document, for messages; owned */
	const struct pd_plan *plan;
	struct pd_plan *owned;          /* the same if the lists own it, or NULL */
	struct pd_wiring *wiring;       /* owned */
	int64_t minibatches;
	int64_t microbatches;           /* minibatches x microbatches of each */
	int rank_count;
	enum pd_lack lack;
	bool any_wait;                  /* any number of gradients may wait for their transfer or use */
	struct pd_list *ranks;          /* per rank */
	int role_count;
	struct pd_role *roles;          /* by rank, then stage */
	int *first_role;                /* per rank, and one more at the end: an index into roles */
};

/*
 * Makes empty lists for a plan.  Takes over `owned` (on failure too) if it is not NULL, else
 * borrows `plan`.  Fails if there are too many microbatches to count.
 */
struct pd_lists *pd_lists_new(const char *name, const struct pd_plan *plan, struct pd_plan *owned,
			      int64_t minibatches, struct pd_error *err);
void pd_lists_free(struct pd_lists *lists);
/* Appends an operation; note is NULL for all of a list or for none. */
void pd_list_add(struct pd_list *list, const struct pd_op *op, const struct pd_note *note);
/* Frees a rank's operations. */
void pd_list_release(struct pd_list *list);

/* Appends an operation to the list of op->rank. */
void pd_lists_add(struct pd_lists *lists, const struct pd_op *op, const struct pd_note *note);
/* Repeats the last block->length operations of a rank block->repeat times. */
void pd_lists_repeat(struct pd_lists *lists, int rank, const struct pd_block *block);
/* Has every rank do its whole list, of one minibatch, so many times in all; the pipeline drains in between. */
void pd_lists_do_again(struct pd_lists *lists, int64_t minibatches);
/* Call this after the last operation: it sets pd_op's keep, which depends on later forwards. */
void pd_lists_end(struct pd_lists *lists);
/* Returns the replica that a rank is in a stage, or -1. */
int pd_lists_replica(const struct pd_lists *lists, int rank, int stage);
/* Returns the number of operations of all ranks. */
int64_t pd_lists_count(const struct pd_lists *lists);

/* Returns the number of operations of a list, with all repetitions. */
int64_t pd_list_length(const struct pd_list *list);

/* Takes operations from a list in order, as pd_cursor_next does from the generator. */
struct pd_list_cursor {
	const struct pd_list *list;
	struct pd_phase phase;
	size_t next, at;                /* at: where the last one taken is stored */
	size_t block;                   /* the current block, or the next */
	int64_t repetition;             /* the number of its repetition, from 0 */
	int64_t highest;
};

/*
 * Microbatches and versions count from phase->first, sequence numbers from phase->base.  The phase
 * is as long as the list and cannot be shortened.
 */
void pd_list_begin(struct pd_list_cursor *cursor, const struct pd_list *list,
		   const struct pd_phase *phase);
/* Returns false at the end. */
bool pd_list_next(struct pd_list_cursor *cursor, struct pd_op *op_p);

/* A rank's operations, from the generator or from a list. */
struct pd_op_source {
	bool generated;                 /* the operations are the cursor's; else the list's */
	struct pd_cursor cursor;
	struct pd_list_cursor list;
};

/*
 * Takes the operations of a phase from the list or, if it is NULL, from the schedule's generator
 * (floor: see pd_cursor_init).  A list's phase begins with microbatch 0 and cannot be cut short.
 * The source must not be moved in memory.
 */
void pd_op_source_init(struct pd_op_source *source, const struct pd_schedule *schedule,
		       const struct pd_list *list, int rank, const struct pd_phase *phase,
		       int64_t floor);

/*
 * Takes operations from schedule, for microbatches from 0 to `microbatches` - 1, or from the lists
 * if it is NULL.  The source must not be moved in memory.
 */
void pd_op_source_begin(struct pd_op_source *source, const struct pd_schedule *schedule,
			const struct pd_lists *lists, int rank, int64_t microbatches);
bool pd_op_source_next(struct pd_op_source *source, struct pd_op *op_p);
int64_t pd_op_source_highest(const struct pd_op_source *source);
void pd_op_source_end(struct pd_op_source *source);

/* Tells whether the operation goes to or comes from one other rank. */
static inline bool pd_op_transfers(enum pd_op_kind kind)
{
	return kind == PD_OP_recv_activation || kind == PD_OP_send_activation ||
	       kind == PD_OP_recv_gradient || kind == PD_OP_send_gradient;
}

/* Tells whether a transfer is its sender's side. */
static inline bool pd_op_sends(enum pd_op_kind kind)
{
	return kind == PD_OP_send_activation || kind == PD_OP_send_gradient;
}

/* Tells whether a transfer is of gradients. */
static inline bool pd_op_of_gradient(enum pd_op_kind kind)
{
	return kind == PD_OP_send_gradient || kind == PD_OP_recv_gradient;
}

/* Tells whether the stage of such an operation is the one to which its link's activations go. */
static inline bool pd_op_at_end(enum pd_op_kind kind)
{
	return kind == PD_OP_recv_activation || kind == PD_OP_send_gradient;
}
