/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks that ranks match.  All lists are walked at once, in the order of the sequence numbers. 
 * All ranks that take part in the next operation must have it next.
 */
#include "schedule/check.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static bool is_exchange(const struct pd_op *op)
{
	return pd_op_transfers(op->kind) || pd_op_of_all(op->kind);
}

/* Returns why the number of an operation cannot follow `before`, or NULL if it can. */
static const char *number_fault(const struct pd_lists *lists, const struct pd_op *op,
				int64_t before)
{
	if (!is_exchange(op))
		return op->seq < 0 ? NULL : "has a seq and meets no other rank";
	if (pd_op_transfers(op->kind) && (op->peer < 0 || op->peer >= lists->rank_count))
		return "expected a peer in the plan";
	/* Both ends of a transfer within a rank have the same number. */
	return op->seq > before || (op->seq == before && op->peer == op->rank)
		? NULL : "expected a seq above all before it";
}

bool pd_check_numbers(struct pd_fault *fault, int rank)
{
	struct pd_op_source source;
	const char *why = NULL;
	int64_t before = -1;
	struct pd_op op;

	pd_op_source_begin(&source, fault->schedule, fault->lists, rank,
			   fault->lists->microbatches);
	for (size_t n = 0; !why && pd_op_source_next(&source, &op); n++) {
		why = number_fault(fault->lists, &op, before);
		if (why)
			pd_fault(fault, rank, n, &op, "%s; found %" PRId64 ", before it %" PRId64,
				 why, op.seq, before);
		if (op.seq >= 0)
			before = op.seq;
	}
	pd_op_source_end(&source);
	return !why;
}

/* A rank's way through its operations in which other ranks take part. */
struct exchanges {
	struct pd_op_source source;
	struct pd_op current, last;
	size_t current_n, last_n, taken; /* positions in the list; SIZE_MAX: none */
};

struct walk {
	struct pd_fault *fault;
	struct exchanges *ranks;
	int64_t agreed;                 /* seq of the last agree that all ranks have; -1 */
	int *heap;                      /* ranks that have not ended, the lowest number on top */
	int count;
};

/* Goes to the next one; returns false at the end. */
static bool next_exchange(struct exchanges *m)
{
	m->last = m->current;
	m->last_n = m->current_n;
	m->current_n = SIZE_MAX;
	while (pd_op_source_next(&m->source, &m->current))
		if (m->taken++, is_exchange(&m->current)) {
			m->current_n = m->taken - 1;
			return true;
		}
	return false;
}

/* Returns the operation with that number, if the rank is at it or has just done it; else NULL. */
static const struct pd_op *with_number(const struct exchanges *m, int64_t seq)
{
	if (m->current_n != SIZE_MAX && m->current.seq == seq)
		return &m->current;
	return m->last_n != SIZE_MAX && m->last.seq == seq ? &m->last : NULL;
}

static bool is_pair(const struct pd_op *a, const struct pd_op *b)
{
	static const enum pd_op_kind other[PD_OP_KINDS] = {
		[PD_OP_send_activation] = PD_OP_recv_activation,
		[PD_OP_recv_activation] = PD_OP_send_activation,
		[PD_OP_send_gradient] = PD_OP_recv_gradient,
		[PD_OP_recv_gradient] = PD_OP_send_gradient,
	};

	return b->kind == other[a->kind] && b->seq == a->seq && b->peer == a->rank &&
	       b->link == a->link && b->microbatch == a->microbatch;
}

static void sift_down(struct walk *walk, int at)
{
	int rank = walk->heap[at];
	int64_t seq = walk->ranks[rank].current.seq;

	for (int child; (child = 2 * at + 1) < walk->count; at = child) {
		if (child + 1 < walk->count && walk->ranks[walk->heap[child + 1]].current.seq <
						walk->ranks[walk->heap[child]].current.seq)
			child++;
		if (walk->ranks[walk->heap[child]].current.seq >= seq)
			break;
		walk->heap[at] = walk->heap[child];
	}
	walk->heap[at] = rank;
}

static bool check_allreduce(struct walk *walk, const struct exchanges *m)
{
	const struct pd_op *op = &m->current;
	const struct pd_stage *stage = &walk->fault->lists->plan->stages[op->stage];

	for (int r = 0; r < stage->replicas; r++) {
		const struct pd_op *other = with_number(&walk->ranks[stage->ranks[r]], op->seq);

		if (other && other->kind == op->kind && other->stage == op->stage &&
		    other->microbatch == op->microbatch)
			continue;
		pd_fault(walk->fault, op->rank, m->current_n, op,
			 "rank %d of the group is not at an "
			 "allreduce with its seq, %" PRId64 "; expected the same at all",
			 stage->ranks[r], op->seq);
		return false;
	}
	return true;
}

/* Checks, once for each agree, that all ranks are at it. */
static bool check_agree(struct walk *walk, const struct exchanges *m)
{
	const struct pd_op *op = &m->current;

	for (int r = 0; r < walk->fault->lists->rank_count && walk->agreed != op->seq; r++) {
		const struct pd_op *other = with_number(&walk->ranks[r], op->seq);

		if (other && other->kind == PD_OP_agree && other->microbatch == op->microbatch)
			continue;
		pd_fault(walk->fault, op->rank, m->current_n, op,
			 "rank %d is not at an agree with its"
			 " seq, %" PRId64 "; expected the same at all", r, op->seq);
		return false;
	}
	walk->agreed = op->seq;
	return true;
}

/*
 * Checks that both ends of a transfer within a rank stand in its list one after the other, since
 * nothing that one of them needs can be between them.  Called when both have been read.
 */
static bool check_own(struct walk *walk, const struct exchanges *m, const struct pd_op *op)
{
	if (m->last_n != SIZE_MAX && m->last_n + 1 == m->current_n &&
	    is_pair(&m->last, &m->current))
		return true;
	pd_fault(walk->fault, op->rank, op == &m->current ? m->current_n : m->last_n, op,
		 "its other end "
		 "does not stand beside it with the same seq, %" PRId64, op->seq);
	return false;
}

static bool check_exchange(struct walk *walk, const struct exchanges *m)
{
	const struct pd_op *op = &m->current, *other;
	const struct exchanges *peer;
	char place[80] = "at its end";

	if (op->kind == PD_OP_allreduce || op->kind == PD_OP_norms)
		return check_allreduce(walk, m);
	if (op->kind == PD_OP_agree)
		return check_agree(walk, m);
	peer = &walk->ranks[op->peer];
	other = with_number(peer, op->seq);
	if (other && is_pair(op, other))
		return true;
	if (peer->current_n != SIZE_MAX)
		snprintf(place, sizeof(place), "at %s of microbatch %" PRId64,
			 pd_op_kind_name[peer->current.kind], peer->current.microbatch);
	pd_fault(walk->fault, op->rank, m->current_n, op,
		 "its peer, rank %d, is not at the other end "
		 "of it with the same seq, %" PRId64 ", but %s", op->peer, op->seq, place);
	return false;
}

/* Goes past an operation of several ranks, or past both ends of a transfer within the rank. */
static bool pass(struct walk *walk, struct exchanges *m, bool *more_p)
{
	if (!pd_op_of_all(m->current.kind) && m->current.peer == m->current.rank) {
		next_exchange(m);
		if (!check_own(walk, m, &m->last))
			return false;
	} else if (!check_exchange(walk, m)) {
		return false;
	}
	*more_p = next_exchange(m);
	return true;
}

void pd_check_exchanges(struct pd_fault *fault)
{
	int n = fault->lists->rank_count;
	struct walk walk = { .fault = fault, .agreed = -1,
			     .ranks = pd_calloc((size_t)n, sizeof(*walk.ranks)),
			     .heap = pd_calloc((size_t)n, sizeof(*walk.heap)) };
	bool right = true;

	for (int r = 0; r < n; r++) {
		walk.ranks[r].current_n = SIZE_MAX;
		pd_op_source_begin(&walk.ranks[r].source, fault->schedule, fault->lists, r,
				   fault->lists->microbatches);
		if (next_exchange(&walk.ranks[r]))
			walk.heap[walk.count++] = r;
	}
	for (int at = walk.count / 2; at-- > 0;)
		sift_down(&walk, at);
	while (walk.count > 0 && right) {
		bool more = false;

		right = pass(&walk, &walk.ranks[walk.heap[0]], &more);
		if (!more)
			walk.heap[0] = walk.heap[--walk.count];
		if (walk.count > 0)
			sift_down(&walk, 0);
	}
	for (int r = 0; r < n; r++)
		pd_op_source_end(&walk.ranks[r].source);
	free(walk.ranks);
	free(walk.heap);
}
