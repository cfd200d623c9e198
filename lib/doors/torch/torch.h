/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of actions of torch.distributed.pipelining: a row for each rank, a cell for each
 * action, "2F0" for the forward of microbatch 0 at stage 2, "(0F8;7B0)OVERLAP_F_B" for two at once.
 * A step() there is one minibatch, with one version of the weights.
 */
#pragma once

#include "schedule/table_door.h"

#include <stdio.h>

enum pd_torch_action {
#define TORCH_ACTION(name, has_microbatch, what) PD_TORCH_##name,
#include "doors/torch/action.def"
#undef TORCH_ACTION
	PD_TORCH_ACTIONS
};

extern const char *const pd_torch_action_name[PD_TORCH_ACTIONS + 1];    /* NULL-terminated */

struct pd_torch_named {
	enum pd_torch_action action;
	int64_t stage, microbatch;      /* microbatch -1: the action has none */
};
/* Reads "2F0" or "2REDUCE_GRAD"; returns false if the text is no action.  Numbers have nine digits
 * at most. */
bool pd_torch_action_read(const char *text, struct pd_torch_named *out_p);

/* Writes "2F0" into buf (at least 40 bytes) and returns it. */
const char *pd_torch_short(const struct pd_op *op, char *buf);

/*
 * The doors for tables, which NULL ends.  Reading one checks it (PD_EXIT_NO with "FILE:ROW, cell N:
 * rank R, OPERATION: what is wrong"), and makes lists with the transfers, loads and updates that a
 * run has, and weights flush.
 */
extern const struct pd_table_door *const pd_table_doors[];

/*
 * Refuses a plan whose schedule such a table cannot say, and says what to do instead.  Says on
 * standard error what the table leaves to the user.
 */
int pd_torch_sayable(const struct pd_plan *plan, const struct pd_wiring *wiring,
		     struct pd_error *err);
/*
 * Writes the lists, of one minibatch, or what schedule makes for one if that is not NULL.  With
 * comms there are transfers, their waits and the reductions of gradients, as PyTorch 2.15 wants
 * them; without, computations alone, and PyTorch adds the rest.
 */
int pd_torch_write(FILE *out, const struct pd_lists *lists, const struct pd_schedule *schedule,
		   bool comms, struct pd_error *err);
