/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations with the times at which they ran: the document pd-trace(5), JSON Lines.
 * pd-run writes it, pd-replay reads it and makes one of its own in virtual time.
 */
#pragma once

#include "plan/plan.h"
#include "schedule/schedule.h"
#include "schedule/table_door.h"

#include <stdio.h>

struct pd_record {
	struct pd_op op;
	int64_t start_ns, end_ns;       /* on a clock common to all ranks */
	int64_t bytes;                  /* moved by a transfer, summed by an all-reduce; else 0 */
	int64_t sent_bytes, messages;   /* what the rank sent for an all-reduce; else 0 */
};

struct pd_trace {
	struct pd_plan *plan;           /* owned */
	char *device;                   /* such as "cpu" or "sim" */
	/* Processors that the ranks shared on one machine, and threads of each rank; 0: unknown. */
	int64_t processors, threads;
	bool shared;                    /* a replay in which they shared processors */
	/* The pipeline was empty after so many, counted from the beginning of training; 0: never. */
	int64_t epoch_minibatches;
	int64_t start_ns;               /* beginning of training; records' times count from the same
					   zero */
	size_t count, capacity;
	struct pd_record *records;
};

extern const struct pd_key_row pd_trace_rows[], pd_trace_record_rows[];     /* of the header; of a record */
struct pd_trace *pd_trace_new(struct pd_plan *plan, const char *device, int64_t start_ns);
void pd_trace_free(struct pd_trace *trace);
void pd_trace_add(struct pd_trace *trace, const struct pd_record *record);
/* Orders the records by start, then end, then rank. */
void pd_trace_sort(struct pd_trace *trace);

/* Returns the microbatches of an epoch; INT64_MAX: the pipeline was never empty in between. */
int64_t pd_trace_epoch(const struct pd_trace *trace);
/*
 * Returns how many phases of training a trace has, between which the pipeline was empty.  Sets
 * *bounds_p to one more ascending microbatches, the first of each phase and the end of the last,
 * for the caller to free.  If nothing was trained, or not in a row, it returns 0 and leaves
 * *bounds_p alone.
 */
int pd_trace_phases(const struct pd_trace *trace, int64_t **bounds_p);

/*
 * Makes both sides of a transfer begin when the later one does: a receive that was posted ahead, or
 * a send without a receiver, only waited until then.  This is for showing a run; in virtual time it
 * is already so.
 */
void pd_trace_join_transfers(struct pd_trace *trace);

/*
 * Reads a trace, a plan or a schedule, by the document's first line, and sets one of the three.
 * Tables that one of the doors knows are refused.
 */
int pd_trace_or_lists_read(const char *file, const struct pd_table_door *const *doors,
			   struct pd_trace **trace_p, struct pd_plan **plan_p,
			   struct pd_lists **lists_p, struct pd_error *err);

/*
 * These write the header line (the trace's fields without the records), and then records, line by
 * line.
 */
int pd_trace_write_header(FILE *out, const struct pd_trace *trace, struct pd_error *err);
void pd_trace_write_record(FILE *out, const struct pd_record *record);
int pd_trace_write(const struct pd_trace *trace, FILE *out, struct pd_error *err);
