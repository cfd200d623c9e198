/* SPDX-License-Identifier: Apache-2.0 */
#include "doors/torch/complete.h"

#include "base/mem.h"
#include "schedule/buffer_counts.h"
#include "schedule/check.h"

#include <stdlib.h>

/* One direction of a link. */
struct way {
	uint8_t *state;                 /* per microbatch */
	int64_t *queue;                 /* microbatches in the order in which they are made */
	int64_t made, moved;            /* entries of the queue; of these, moved from its beginning on */
	int waiting;                    /* moved and not used */
};

enum { UNMADE, MADE, MOVED };

struct adding {
	struct pd_lists *lists;         /* of computations */
	struct pd_list *to;             /* per rank: the list with transfers */
	size_t *next;                   /* per rank: the next operation to be done */
	struct way *ways;               /* 2 link + gradient */
	int64_t seq;
};

/* Returns the rank that has a microbatch at a stage. */
static int rank_of(const struct adding *a, int stage, int64_t microbatch)
{
	const struct pd_stage *at = &a->lists->plan->stages[stage];

	return at->ranks[microbatch % at->replicas];
}

/* Adds one end of a transfer to a rank's list, at the cell where the rank is. */
static void add_end(struct adding *a, enum pd_op_kind kind, int stage, int far, int link,
		    int64_t microbatch)
{
	int rank = rank_of(a, stage, microbatch);
	const struct pd_list *from = &a->lists->ranks[rank];
	size_t at = a->next[rank] < from->count ? a->next[rank] : from->count - 1;
	struct pd_op op = { .kind = kind,
			    .rank = rank,
			    .stage = stage,
			    .peer = rank_of(a, far, microbatch),
			    .link = link,
			    .microbatch = microbatch,
			    .version = -1,
			    .keep = -1,
			    .seq = a->seq };

	pd_list_add(&a->to[rank], &op, &from->notes[at]);
}

static void move(struct adding *a, int w, int64_t microbatch)
{
	const struct pd_link *link = &a->lists->wiring->links[w / 2];
	bool gradient = w % 2;
	int from = gradient ? link->to : link->from, to = gradient ? link->from : link->to;

	add_end(a, gradient ? PD_OP_send_gradient : PD_OP_send_activation, from, to, w / 2, microbatch);
	add_end(a, gradient ? PD_OP_recv_gradient : PD_OP_recv_activation, to, from, w / 2, microbatch);
	a->ways[w].state[microbatch] = MOVED;
	a->ways[w].waiting++;
	a->seq++;
}

/* Moves what has been made while there is room. */
static void move_some(struct adding *a, int w)
{
	struct way *way = &a->ways[w];

	for (; way->moved < way->made; way->moved++) {
		int64_t microbatch = way->queue[way->moved];

		if (way->state[microbatch] == MOVED)
			continue;
		if (way->waiting >= (w % 2 ? PD_PASSAGES : 1))
			return;
		move(a, w, microbatch);
	}
}

static void make(struct adding *a, int w, int64_t microbatch)
{
	a->ways[w].state[microbatch] = MADE;
	a->ways[w].queue[a->ways[w].made++] = microbatch;
	move_some(a, w);
}

/* Sets the ways from which an operation takes something, or into which it gives something. */
static int ways_of(const struct adding *a, const struct pd_op *op, bool takes, const int **links_p)
{
	const struct pd_wiring *wiring = a->lists->wiring;
	bool forward = op->kind == PD_OP_forward;

	if (!forward && op->kind != PD_OP_backward && op->kind != PD_OP_backward_input)
		return 0;
	*links_p = forward == takes ? wiring->in[op->stage] : wiring->out[op->stage];
	return forward == takes ? wiring->in_count[op->stage] : wiring->out_count[op->stage];
}

/* Returns the way from which an operation lacks something, or -1. */
static int lacks(const struct adding *a, const struct pd_op *op)
{
	const int *links;
	int count = ways_of(a, op, true, &links);

	for (int i = 0; i < count; i++) {
		int w = 2 * links[i] + (op->kind != PD_OP_forward);

		if (a->ways[w].state[op->microbatch] == UNMADE)
			return w;
	}
	return -1;
}

/* Moves what an operation needs and has not been moved. */
static void bring(struct adding *a, const struct pd_op *op)
{
	const int *links;
	int count = ways_of(a, op, true, &links), gradient = op->kind != PD_OP_forward;

	for (int i = 0; i < count; i++)
		if (a->ways[2 * links[i] + gradient].state[op->microbatch] == MADE)
			move(a, 2 * links[i] + gradient, op->microbatch);
}

/* Moves what there is room for behind an operation, and what it has made. */
static void pass_on(struct adding *a, const struct pd_op *op)
{
	const int *links;
	int count = ways_of(a, op, true, &links), gradient = op->kind != PD_OP_forward;

	for (int i = 0; i < count; i++) {
		a->ways[2 * links[i] + gradient].waiting--;
		move_some(a, 2 * links[i] + gradient);
	}
	count = ways_of(a, op, false, &links);
	for (int i = 0; i < count; i++)
		make(a, 2 * links[i] + gradient, op->microbatch);
}

/* Does a rank's next operation, or a pair, between whose two nothing is moved. */
static void do_op(struct adding *a, int rank)
{
	const struct pd_list *from = &a->lists->ranks[rank];
	const struct pd_op *op = &from->ops[a->next[rank]];

	for (int half = 0; half <= op->beside; half++)
		bring(a, op + half);
	for (int half = 0; half <= op->beside; half++)
		pd_list_add(&a->to[rank], op + half, &from->notes[a->next[rank] + (size_t)half]);
	for (int half = 0; half <= op->beside; half++)
		pass_on(a, op + half);
	a->next[rank] += 1 + (size_t)op->beside;
}

/* Returns the end of the operations of a rank's next cell, all of which begin together. */
static size_t end_of_cell(const struct adding *a, int rank)
{
	const struct pd_list *from = &a->lists->ranks[rank];
	size_t n = a->next[rank], end = n;

	while (end < from->count && from->notes[end].cell == from->notes[n].cell)
		end++;
	return end;
}

/* Does a rank's next cell, if it has one and all that it needs; else says what it waits for. */
static bool do_cell(struct adding *a, int rank, struct pd_torch_wait *wait)
{
	const struct pd_list *from = &a->lists->ranks[rank];
	size_t end = end_of_cell(a, rank);

	wait->rank = -1;
	for (size_t n = a->next[rank]; n < end; n++) {
		const struct pd_op *op = &from->ops[n];
		int w = lacks(a, op);

		if (w >= 0) {
			const struct pd_link *link = &a->lists->wiring->links[w / 2];
			int stage = w % 2 ? link->to : link->from;

			*wait = (struct pd_torch_wait){ n, rank_of(a, stage, op->microbatch),
				{ .kind = op->kind, .stage = stage, .microbatch = op->microbatch } };
			return false;
		}
	}
	if (a->next[rank] == from->count)
		return false;
	while (a->next[rank] < end)
		do_op(a, rank);
	return true;
}

/* Names the operation that is waited for as its own rank does it: a backward may be in two parts
 * there. */
static void name_awaited(const struct adding *a, struct pd_torch_wait *wait)
{
	const struct pd_list *list = wait->rank >= 0 ? &a->lists->ranks[wait->rank] : NULL;

	for (size_t n = 0; list && n < list->count; n++) {
		const struct pd_op *op = &list->ops[n];

		if (op->stage == wait->op.stage && op->microbatch == wait->op.microbatch &&
		    (op->kind == PD_OP_backward || op->kind == PD_OP_backward_input) &&
		    wait->op.kind != PD_OP_forward)
			wait->op.kind = op->kind;
	}
}

/* Does a cell of each rank in turn, as PyTorch does. */
static int do_all(struct adding *a, struct pd_error *err)
{
	int ranks = a->lists->rank_count, result = 0;
	struct pd_torch_wait *waits = pd_calloc((size_t)ranks, sizeof(*waits));
	bool more = true, left;

	while (more) {
		more = left = false;
		for (int r = 0; r < ranks; r++) {
			more |= do_cell(a, r, &waits[r]);
			left |= a->next[r] < a->lists->ranks[r].count;
		}
	}
	for (int r = 0; r < ranks && left; r++)
		name_awaited(a, &waits[r]);
	if (left)
		result = pd_torch_deadlock(a->lists, waits, "", err);
	free(waits);
	return result;
}

int pd_torch_add_transfers(struct pd_lists *lists, struct pd_error *err)
{
	size_t ranks = (size_t)lists->rank_count, ways = 2 * (size_t)lists->wiring->link_count;
	size_t microbatches = (size_t)lists->microbatches;
	struct adding a = { .lists = lists, .to = pd_calloc(ranks, sizeof(*a.to)),
			    .next = pd_calloc(ranks, sizeof(*a.next)),
			    .ways = pd_calloc(ways, sizeof(*a.ways)) };
	int result;

	for (size_t w = 0; w < ways; w++) {
		a.ways[w].state = pd_calloc(microbatches, sizeof(uint8_t));
		a.ways[w].queue = pd_calloc(microbatches, sizeof(int64_t));
	}
	result = do_all(&a, err);
	for (size_t r = 0; r < ranks; r++) {
		pd_list_release(result == 0 ? &lists->ranks[r] : &a.to[r]);
		if (result == 0)
			lists->ranks[r] = a.to[r];
	}
	if (result == 0)
		pd_torch_number_ends(lists, a.seq);
	for (size_t w = 0; w < ways; w++) {
		free(a.ways[w].state);
		free(a.ways[w].queue);
	}
	free(a.to);
	free(a.next);
	free(a.ways);
	return result;
}
