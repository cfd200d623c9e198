/* SPDX-License-Identifier: Apache-2.0 */
/* A schedule as a document, pd-schedule(5): JSON Lines. */
#ifndef PD_SCHEDULE_FILE_H
#define PD_SCHEDULE_FILE_H

#include "schedule/list.h"

#include <stdio.h>

/*
 * Is the document's first line a schedule's (pd-schedule) or a plan?  Reads either: exactly
 * one of *lists_p and *plan_p is set; the lists own their plan.  A schedule that is read is
 * one whose every operation can be of its plan; pd_check says whether it is right.
 */
int pd_schedule_or_plan_read(const char *file, struct pd_lists **lists_p, struct pd_plan **plan_p,
			     struct pd_error *err);
/* A schedule of which the header has been read: root is its place. */
struct pd_place;
struct pd_lists *pd_lists_read_at(FILE *in, const struct pd_place *root, struct pd_error *err);
/* The "op" of an operation; manual: where its words are explained. */
int pd_op_kind_read(const struct pd_place *place, const char *manual, enum pd_op_kind *kind_p,
		    struct pd_error *err);

/*
 * Writes what the generator makes for so many minibatches, rank after rank; of the
 * operations none is kept.  compact: what repeats is written once, so that the length does
 * not depend on the number of minibatches.
 */
int pd_schedule_write(FILE *out, const struct pd_schedule *schedule, int64_t minibatches,
		      bool compact, struct pd_error *err);
/* The same for lists; durations that were read stay as they are. */
int pd_lists_write(FILE *out, const struct pd_lists *lists, bool compact, struct pd_error *err);

/* The operations of one rank as they are stored, as text, the header left empty; free() it. */
char *pd_lists_text(const struct pd_lists *lists, int rank);
/* Such text, into lists that have no operations of its ranks yet. */
int pd_lists_read_text(struct pd_lists *lists, const char *text, struct pd_error *err);

#endif
