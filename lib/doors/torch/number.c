/* SPDX-License-Identifier: Apache-2.0 */
#include "doors/torch/complete.h"

#include "base/mem.h"
#include "doors/torch/torch.h"
#include "schedule/check.h"

#include <stdio.h>
#include <stdlib.h>

#define MOST_SAID 3     /* ranks of a deadlock that a message names */

/* Returns a rank of a circle of ranks that wait for each other, or one that waits for what nobody
 * does. */
static int stuck_rank(const struct pd_lists *lists, const struct pd_torch_wait *waits)
{
	int rank = 0;

	while (waits[rank].rank < 0)
		rank++;
	for (int r = 0; r < lists->rank_count && waits[waits[rank].rank].rank >= 0; r++)
		rank = waits[rank].rank;
	return rank;
}

/* Says what a rank waits for, what the rank that should do it waits for, and so on. */
static void say_waits(const struct pd_lists *lists, const struct pd_torch_wait *waits, int first,
		      FILE *out)
{
	int rank = first;
	char what[40];

	for (int k = 0; k < MOST_SAID; k++) {
		const struct pd_torch_wait *wait = &waits[rank], *other = &waits[wait->rank];

		fprintf(out, "%s waits for %s of rank %d", k > 0 ? " and" : "it", pd_torch_short(&wait->op, what),
			wait->rank);
		rank = wait->rank;
		if (other->rank < 0 || rank == first) {
			fputs(other->rank < 0 ? ", which does not do it" : k > 0 ? ", so that none goes on"
			      : ", which stands behind it", out);
			return;
		}
		fprintf(out, ", which is at %s", pd_torch_short(&lists->ranks[rank].ops[other->n], what));
	}
	fputs(" and waits", out);
}

int pd_torch_deadlock(const struct pd_lists *lists, const struct pd_torch_wait *waits,
		      const char *assumed, struct pd_error *err)
{
	struct pd_fault fault = { .lists = lists, .line = INT64_MAX, .err = err };
	int rank = stuck_rank(lists, waits);
	char *text = NULL;
	size_t size, n = waits[rank].n;
	FILE *out = pd_mem_stream(&text, &size);

	say_waits(lists, waits, rank, out);
	pd_mem_stream_close(out);
	pd_fault(&fault, rank, n, &lists->ranks[rank].ops[n], "deadlock: %s%s", text, assumed);
	free(text);
	return -1;
}

/* Lists while their exchanges are done. */
struct numbering {
	struct pd_lists *lists;
	size_t *next;                   /* per rank */
	int64_t seq;
};

static struct pd_op *current(const struct numbering *a, int rank)
{
	struct pd_list *list = &a->lists->ranks[rank];

	return a->next[rank] < list->count ? &list->ops[a->next[rank]] : NULL;
}

/* Sets the operation that is the other end of a transfer. */
static struct pd_op other_end(const struct pd_op *op)
{
	static const enum pd_op_kind kinds[PD_OP_KINDS] = {
		[PD_OP_send_activation] = PD_OP_recv_activation,
		[PD_OP_recv_activation] = PD_OP_send_activation,
		[PD_OP_send_gradient] = PD_OP_recv_gradient,
		[PD_OP_recv_gradient] = PD_OP_send_gradient,
	};
	bool up = op->kind == PD_OP_send_activation || op->kind == PD_OP_recv_gradient;

	return (struct pd_op){ .kind = kinds[op->kind], .rank = op->peer, .microbatch = op->microbatch,
			       .stage = up ? op->stage + 1 : op->stage - 1, .link = op->link };
}

static bool meets(const struct pd_op *op, const struct pd_op *end)
{
	return op && op->kind == end->kind && op->link == end->link && op->microbatch == end->microbatch;
}

void pd_torch_number_ends(struct pd_lists *lists, int64_t seq)
{
	for (int r = 0; r < lists->rank_count; r++)
		for (size_t n = 0; n < lists->ranks[r].count; n++) {
			struct pd_op *op = &lists->ranks[r].ops[n];

			if (op->kind == PD_OP_allreduce)
				op->seq = seq + op->stage;
			else if (op->kind == PD_OP_agree)
				op->seq = seq + lists->plan->stage_count;
		}
	lists->lack = PD_LACK_NOTHING;
}

/* Does a rank's next operation, if it can; else says what it waits for. */
static bool go_on(struct numbering *a, int rank, struct pd_torch_wait *wait)
{
	struct pd_op *op = current(a, rank), *peer, end;

	wait->rank = -1;
	if (!op)
		return false;
	if (!pd_op_transfers(op->kind)) {
		a->next[rank]++;
		return true;
	}
	end = other_end(op);
	peer = op->peer == rank ? op + 1
				: current(a, op->peer); /* within a rank both stand together */
	if (!meets(peer, &end)) {
		*wait = (struct pd_torch_wait){ a->next[rank], op->peer, end };
		return false;
	}
	op->seq = peer->seq = a->seq++;
	a->next[rank]++;
	a->next[op->peer]++;
	return true;
}

/* A rank that waits for what the other's list does not have waits for nothing that could go on. */
static void find_missing(const struct numbering *a, struct pd_torch_wait *waits)
{
	for (int r = 0; r < a->lists->rank_count; r++) {
		struct pd_torch_wait *wait = &waits[r];
		const struct pd_list *list = wait->rank >= 0 ? &a->lists->ranks[wait->rank] : NULL;
		bool there = !list;

		for (size_t n = 0; list && n < list->count; n++)
			there |= meets(&list->ops[n], &wait->op);
		if (there)
			continue;
		waits[wait->rank].rank = -1;
		for (int k = 0; k < r; k++)
			waits[k].rank = -1;
		return;
	}
}

int pd_torch_number(struct pd_lists *lists, const struct pd_torch_table *table,
		    struct pd_error *err)
{
	int ranks = lists->rank_count, result = 0;
	struct numbering a = { .lists = lists, .next = pd_calloc((size_t)ranks, sizeof(*a.next)) };
	struct pd_torch_wait *waits = pd_calloc((size_t)ranks, sizeof(*waits));
	bool more = true, left;

	while (more) {
		more = left = false;
		for (int r = 0; r < ranks; r++) {
			while (go_on(&a, r, &waits[r]))
				more = true;
			left |= current(&a, r) != NULL;
		}
	}
	if (left) {
		find_missing(&a, waits);
		result = pd_torch_deadlock(lists, waits, pd_torch_who_blocks(table), err);
	} else {
		pd_torch_number_ends(lists, a.seq);
	}
	free(waits);
	free(a.next);
	return result;
}
