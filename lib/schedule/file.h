/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes a schedule as a document, pd-schedule(5): JSON Lines. */
#pragma once

#include "base/rows.h"
#include "schedule/table_door.h"

#include <stdio.h>

/* Of the header, a struct pd_lists; of a line for one operation, and of one for operations that are repeated. */
extern const struct pd_key_row pd_schedule_rows[], pd_schedule_op_rows[], pd_schedule_block_rows[];

/*
 * Reads a schedule or a plan, by the document's first line, and sets one of *lists_p and *plan_p. 
 * The lists own their plan.  Every operation of a schedule fits its plan; pd_check says whether the
 * schedule is right.  Tables that one of the doors knows are refused.
 */
int pd_schedule_or_plan_read(const char *file, const struct pd_table_door *const *doors,
			     struct pd_lists **lists_p, struct pd_plan **plan_p,
			     struct pd_error *err);
/* Does the same, and reads such tables, for a plan or, if that is NULL, a made-up one. */
int pd_schedule_table_or_plan_read(const char *file, const struct pd_table_door *const *doors,
				   const struct pd_plan *of_table, struct pd_lists **lists_p,
				   struct pd_plan **plan_p, struct pd_error *err);
/* Reads a schedule whose header has been read; root is its place. */
struct pd_place;
struct pd_lists *pd_lists_read_at(FILE *in, const struct pd_place *root, struct pd_error *err);
/* Reads the "op" of an operation; `manual` is the page that explains the kinds. */
int pd_op_kind_read(const struct pd_place *place, const char *manual, enum pd_op_kind *kind_p,
		    struct pd_error *err);
/* Reads the "bucket" of an operation of the plan, if it has one; sets op->more, too. */
int pd_op_bucket_read(const struct pd_place *place, const struct pd_plan *plan, struct pd_op *op,
		      struct pd_error *err);

/*
 * Writes what the generator makes for a number of minibatches, rank after rank, and keeps no
 * operation.  With compact it writes repetitions once, so that the length does not depend on the
 * number of minibatches.
 */
int pd_schedule_write(FILE *out, const struct pd_schedule *schedule, int64_t minibatches,
		      bool compact, struct pd_error *err);
/* Writes lists in the same way; durations that were read stay as they are. */
int pd_lists_write(FILE *out, const struct pd_lists *lists, bool compact, struct pd_error *err);

/*
 * Returns the operations of one rank as they are stored, as text with an empty header; free() it.
 */
char *pd_lists_text(const struct pd_lists *lists, int rank);
/* Reads such text into lists that have no operations of these ranks yet. */
int pd_lists_read_text(struct pd_lists *lists, const char *text, struct pd_error *err);
