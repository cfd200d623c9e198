/* SPDX-License-Identifier: Apache-2.0 */
/* The cells of a table that was read (doors/torch/torch.h), before it becomes lists. */
#pragma once

#include "doors/torch/torch.h"

struct pd_torch_cell {
	int row;                        /* from 0 */
	int64_t number;                 /* of the cell in its row, from 1 */
	enum pd_torch_action action;
	int stage;
	int64_t microbatch;             /* -1: the action has none */
};

struct pd_torch_table {
	char *name;                     /* of the document, for messages; owned */
	size_t count, capacity;
	struct pd_torch_cell *cells;    /* by row and number; the parts of an OVERLAP_F_B share one */
	int row_count, stage_count;
	int64_t microbatches;
	int *row_of;                    /* per stage: the row that computes it */
	bool shared, splits, comms;     /* some row has several stages; backwards come in two parts; there
					   are transfers */
	int idle_row;                   /* the first empty cell, or -1 */
	int64_t idle_number;
};

/*
 * Reads cells.  Fails if a cell is none (usage), or if the table cannot be one of stages: a stage
 * in two rows or in none, a row without one (PD_EXIT_NO).
 */
int pd_torch_table_read(FILE *in, const char *name, struct pd_torch_table *out_p,
			struct pd_error *err);
/* What PyTorch does where the last stage computes microbatches out of order. */
#define PD_TORCH_LOSS_RULE \
	"PyTorch numbers losses in the order of these forwards, so that backwards would " \
	"take the loss of another microbatch; expected them in the order of microbatches"
/* Checks that the last stage does the forwards of microbatches in their order. */
int pd_torch_check_losses(const struct pd_torch_table *table, struct pd_error *err);
/* Checks the waits and the reductions of a table with transfers, which lists do not have. */
int pd_torch_check_comms(const struct pd_torch_table *table, struct pd_error *err);
/* Says what is wrong with a cell (PD_EXIT_NO) and returns -1. */
int pd_torch_no(const struct pd_torch_table *table, const struct pd_torch_cell *cell,
		struct pd_error *err, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/*
 * Of a table with transfers that cannot be done if every one blocks both its ranks: returns what to
 * add to that, which says whether PyTorch 2.15 can do it, whose transfers block less.
 */
const char *pd_torch_who_blocks(const struct pd_torch_table *table);
void pd_torch_table_release(struct pd_torch_table *table);
