/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of actions of torch.distributed.pipelining: a row for each rank, a cell for each action,
 * "2F0" for the forward of microbatch 0 at stage 2, "(0F8;7B0)OVERLAP_F_B" for two at once.  A step()
 * there is one minibatch, with one version of the weights.
 */
#pragma once

#include "schedule/list.h"

#include <stdio.h>

enum pd_torch_action {
#define TORCH_ACTION(name, has_microbatch, what) PD_TORCH_##name,
#include "schedule/torch_action.def"
#undef TORCH_ACTION
	PD_TORCH_ACTIONS
};

extern const char *const pd_torch_action_name[PD_TORCH_ACTIONS + 1];    /* NULL-terminated */

struct pd_torch_named {
	enum pd_torch_action action;
	int64_t stage, microbatch;      /* microbatch -1: the action has none */
};
/* Reads "2F0" or "2REDUCE_GRAD"; returns false if the text is no action.  Numbers have nine digits at most. */
bool pd_torch_action_read(const char *text, struct pd_torch_named *out_p);

/* Writes "2F0" into buf (at least 40 bytes) and returns it. */
const char *pd_torch_short(const struct pd_op *op, char *buf);

/* Tells whether what is to be read begins as a table does, and not as JSON; reads blanks alone. */
bool pd_torch_begins(FILE *in);
/*
 * Reads a table and checks it (PD_EXIT_NO with "FILE:ROW, cell N: rank R, OPERATION: what is wrong").
 * Returns its lists, of one minibatch, with the transfers, loads and updates that a run has.  They own their plan: the stages, times and machine of `plan`, whose name messages about it
 * have, with the ranks of the table and weights flush; or without a plan (NULL) a made-up one, for which
 * times and bytes mean nothing.
 */
struct pd_lists *pd_torch_read(FILE *in, const char *name, const struct pd_plan *plan, struct pd_error *err);
struct pd_lists *pd_torch_read_file(const char *file, const struct pd_plan *plan, struct pd_error *err);

/*
 * Refuses a plan whose schedule such a table cannot say, and says what to do instead.  Says on standard
 * error what the table leaves to the user.
 */
int pd_torch_sayable(const struct pd_plan *plan, const struct pd_wiring *wiring, struct pd_error *err);
/*
 * Writes the lists, of one minibatch, or what schedule makes for one if that is not NULL.  With comms
 * there are transfers, their waits and the reductions of gradients, as PyTorch 2.15 wants them; without,
 * computations alone, and PyTorch adds the rest.
 */
int pd_torch_write(FILE *out, const struct pd_lists *lists, const struct pd_schedule *schedule, bool comms,
		   struct pd_error *err);
