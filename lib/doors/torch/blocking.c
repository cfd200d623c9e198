/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Does a table as PyTorch 2.15 does: sends and receives begin and go on beside what follows; a
 * forward or a backward waits for what it receives, and WAIT_SEND for what was sent.  With NCCL the
 * transfers of two ranks are done one after the other, in the order of each of the two; with gloo
 * those of one direction.
 */
#include "doors/torch/table.h"

#include "base/mem.h"

#include <stdlib.h>

/* One end of a transfer. */
struct transfer_end {
	int row, peer;
	bool sends;
	size_t cell;                    /* its place in the table */
	int64_t transfer;               /* what is transferred: both its ends have the same number */
};

struct doing {
	const struct pd_torch_table *table;
	bool directions;                /* of two ranks both go on beside each other */
	size_t end_count;
	struct transfer_end *ends;      /* those of two ranks, and direction, in the order of the row */
	size_t *next;                   /* per row: the cell that it is at */
	bool *done;                     /* per transfer */
};

static int64_t transfer_of(const struct pd_torch_table *table, int lower_stage, bool gradient,
			   int64_t microbatch)
{
	return ((int64_t)2 * lower_stage + gradient) * table->microbatches + microbatch;
}

/* Tells whether a cell begins a transfer, and sets its end. */
static bool end_of_cell(const struct pd_torch_table *table, size_t i, struct transfer_end *end_p)
{
	const struct pd_torch_cell *cell = &table->cells[i];
	bool gradient = cell->action == PD_TORCH_SEND_B || cell->action == PD_TORCH_RECV_B;
	bool sends = cell->action == PD_TORCH_SEND_F || cell->action == PD_TORCH_SEND_B;
	int far = sends == gradient ? cell->stage - 1 : cell->stage + 1;

	if (!sends && cell->action != PD_TORCH_RECV_F && cell->action != PD_TORCH_RECV_B)
		return false;
	*end_p = (struct transfer_end){ cell->row, table->row_of[far], sends, i,
		transfer_of(table, far < cell->stage ? far : cell->stage, gradient, cell->microbatch) };
	return true;
}

static int by_peer(const void *a, const void *b)
{
	const struct transfer_end *x = a, *y = b;

	if (x->row != y->row)
		return x->row < y->row ? -1 : 1;
	if (x->peer != y->peer)
		return x->peer < y->peer ? -1 : 1;
	return (x->cell > y->cell) - (x->cell < y->cell);
}

static int by_peer_and_direction(const void *a, const void *b)
{
	const struct transfer_end *x = a, *y = b;

	if (x->row == y->row && x->peer == y->peer && x->sends != y->sends)
		return x->sends ? 1 : -1;
	return by_peer(a, b);
}

static int64_t waits_for(const struct pd_torch_table *table, const struct pd_torch_cell *cell)
{
	int s = cell->stage;

	switch (cell->action) {
	case PD_TORCH_F:
		return s > 0 && table->row_of[s - 1] != cell->row
			? transfer_of(table, s - 1, false, cell->microbatch) : -1;
	case PD_TORCH_B:
	case PD_TORCH_I:
		return s + 1 < table->stage_count && table->row_of[s + 1] != cell->row
			? transfer_of(table, s, true, cell->microbatch) : -1;
	case PD_TORCH_WAIT_SEND_F:
		return transfer_of(table, s, false, cell->microbatch);
	case PD_TORCH_WAIT_SEND_B:
		return transfer_of(table, s - 1, true, cell->microbatch);
	default:
		return -1;
	}
}

/* Goes on in a row to what has to wait; tells whether it went on. */
static bool go_on(struct doing *d, int row)
{
	const struct pd_torch_table *table = d->table;
	size_t begin = d->next[row];

	for (size_t *i = &d->next[row]; *i < table->count && table->cells[*i].row == row; ++*i) {
		int64_t transfer = waits_for(table, &table->cells[*i]);

		if (transfer >= 0 && !d->done[transfer])
			break;
	}
	return d->next[row] > begin;
}

/* Tells whether an end has begun and those before it are done. */
static bool is_ready(const struct doing *d, size_t e)
{
	const struct transfer_end *end = &d->ends[e], *before = end - 1;

	if (d->next[end->row] <= end->cell)
		return false;
	return e == 0 || before->row != end->row || before->peer != end->peer ||
	       (d->directions && before->sends != end->sends) || d->done[before->transfer];
}

/* Does the transfers of which both ends are ready; tells whether there were any. */
static bool transfer_some(struct doing *d, size_t *ready)
{
	bool any = false;

	for (size_t e = 0; e < d->end_count; e++) {
		int64_t transfer = d->ends[e].transfer;

		if (d->done[transfer] || !is_ready(d, e))
			continue;
		if (ready[transfer] != 0 && ready[transfer] != e + 1)
			d->done[transfer] = any = true;
		ready[transfer] = e + 1;
	}
	return any;
}

static bool can_be_done(const struct pd_torch_table *table, bool directions)
{
	size_t transfers = 2 * (size_t)table->stage_count * (size_t)table->microbatches;
	size_t *ready = pd_calloc(transfers, sizeof(*ready));
	struct doing d = { .table = table, .directions = directions,
			   .ends = pd_calloc(table->count, sizeof(*d.ends)),
			   .next = pd_calloc((size_t)table->row_count, sizeof(*d.next)),
			   .done = pd_calloc(transfers, sizeof(*d.done)) };
	bool more = true, left = false;

	for (size_t i = table->count; i-- > 0;)
		d.next[table->cells[i].row] = i;
	for (size_t i = 0; i < table->count; i++)
		d.end_count += end_of_cell(table, i, &d.ends[d.end_count]);
	qsort(d.ends, d.end_count, sizeof(*d.ends), directions ? by_peer_and_direction : by_peer);
	while (more) {
		more = transfer_some(&d, ready);
		for (int row = 0; row < table->row_count; row++)
			more |= go_on(&d, row);
	}
	for (int row = 0; row < table->row_count; row++)
		left |= d.next[row] < table->count && table->cells[d.next[row]].row == row;
	free(ready);
	free(d.ends);
	free(d.next);
	free(d.done);
	return !left;
}

const char *pd_torch_who_blocks(const struct pd_torch_table *table)
{
	if (can_be_done(table, false))
		return "; this is so if every transfer blocks both its ranks; PyTorch 2.15, whose transfers "
		       "block only those of the same two ranks, does not wait for ever";
	if (can_be_done(table, true))
		return "; this is so if transfers of two ranks are done in their order, as NCCL's are; with "
		       "gloo PyTorch does not wait for ever";
	return "";
}
