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

static bool meets(const struct pd_op *op)
{
	return pd_op_transfers(op->kind) || op->kind == PD_OP_allreduce ||
	       op->kind == PD_OP_agree;
}

/* Returns why the number of an operation cannot follow `before`, or NULL if it can. */
static const char *number_fault(const struct pd_lists *lists, const struct pd_op *op,
				int64_t before)
{
	if (!meets(op))
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
struct meetings {
	struct pd_op_source source;
	struct pd_op now, last;
	size_t now_n, last_n, taken;    /* positions in the list; SIZE_MAX: none */
};

struct merge {
	struct pd_fault *fault;
	struct meetings *ranks;
	int64_t agreed;                 /* seq of the last agree that all ranks have; -1 */
	int *heap;                      /* ranks that have not ended, the lowest number on top */
	int count;
};

/* Goes to the next one; returns false at the end. */
static bool next_meeting(struct meetings *m)
{
	m->last = m->now;
	m->last_n = m->now_n;
	m->now_n = SIZE_MAX;
	while (pd_op_source_next(&m->source, &m->now))
		if (m->taken++, meets(&m->now)) {
			m->now_n = m->taken - 1;
			return true;
		}
	return false;
}

/* Returns the operation with that number, if the rank is at it or has just done it; else NULL. */
static const struct pd_op *with_number(const struct meetings *m, int64_t seq)
{
	if (m->now_n != SIZE_MAX && m->now.seq == seq)
		return &m->now;
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

static void sift_down(struct merge *merge, int at)
{
	int rank = merge->heap[at];
	int64_t seq = merge->ranks[rank].now.seq;

	for (int child; (child = 2 * at + 1) < merge->count; at = child) {
		if (child + 1 < merge->count && merge->ranks[merge->heap[child + 1]].now.seq <
						merge->ranks[merge->heap[child]].now.seq)
			child++;
		if (merge->ranks[merge->heap[child]].now.seq >= seq)
			break;
		merge->heap[at] = merge->heap[child];
	}
	merge->heap[at] = rank;
}

static bool check_allreduce(struct merge *merge, const struct meetings *m)
{
	const struct pd_op *op = &m->now;
	const struct pd_stage *stage = &merge->fault->lists->plan->stages[op->stage];

	for (int r = 0; r < stage->replicas; r++) {
		const struct pd_op *other = with_number(&merge->ranks[stage->ranks[r]], op->seq);

		if (other && other->kind == PD_OP_allreduce && other->stage == op->stage &&
		    other->microbatch == op->microbatch)
			continue;
		pd_fault(merge->fault, op->rank, m->now_n, op, "rank %d of the group is not at an "
			 "allreduce with its seq, %" PRId64 "; expected the same at all",
			 stage->ranks[r], op->seq);
		return false;
	}
	return true;
}

/* Checks, once for each agree, that all ranks are at it. */
static bool check_agree(struct merge *merge, const struct meetings *m)
{
	const struct pd_op *op = &m->now;

	for (int r = 0; r < merge->fault->lists->rank_count && merge->agreed != op->seq; r++) {
		const struct pd_op *other = with_number(&merge->ranks[r], op->seq);

		if (other && other->kind == PD_OP_agree && other->microbatch == op->microbatch)
			continue;
		pd_fault(merge->fault, op->rank, m->now_n, op, "rank %d is not at an agree with its"
			 " seq, %" PRId64 "; expected the same at all", r, op->seq);
		return false;
	}
	merge->agreed = op->seq;
	return true;
}

/*
 * Checks that both ends of a transfer within a rank stand in its list one after the other, since
 * nothing that one of them needs can be between them.  Called when both have been read.
 */
static bool check_own(struct merge *merge, const struct meetings *m, const struct pd_op *op)
{
	if (m->last_n != SIZE_MAX && m->last_n + 1 == m->now_n && is_pair(&m->last, &m->now))
		return true;
	pd_fault(merge->fault, op->rank, op == &m->now ? m->now_n : m->last_n, op, "its other end "
		 "does not stand beside it with the same seq, %" PRId64, op->seq);
	return false;
}

static bool check_meeting(struct merge *merge, const struct meetings *m)
{
	const struct pd_op *op = &m->now, *other;
	const struct meetings *peer;
	char place[80] = "at its end";

	if (op->kind == PD_OP_allreduce)
		return check_allreduce(merge, m);
	if (op->kind == PD_OP_agree)
		return check_agree(merge, m);
	peer = &merge->ranks[op->peer];
	other = with_number(peer, op->seq);
	if (other && is_pair(op, other))
		return true;
	if (peer->now_n != SIZE_MAX)
		snprintf(place, sizeof(place), "at %s of microbatch %" PRId64,
			 pd_op_kind_name[peer->now.kind], peer->now.microbatch);
	pd_fault(merge->fault, op->rank, m->now_n, op, "its peer, rank %d, is not at the other end "
		 "of it with the same seq, %" PRId64 ", but %s", op->peer, op->seq, place);
	return false;
}

/* Goes past an operation of several ranks, or past both ends of a transfer within the rank. */
static bool pass(struct merge *merge, struct meetings *m, bool *more_p)
{
	if (m->now.kind != PD_OP_allreduce && m->now.peer == m->now.rank) {
		next_meeting(m);
		if (!check_own(merge, m, &m->last))
			return false;
	} else if (!check_meeting(merge, m)) {
		return false;
	}
	*more_p = next_meeting(m);
	return true;
}

void pd_check_meetings(struct pd_fault *fault)
{
	int n = fault->lists->rank_count;
	struct merge merge = { .fault = fault, .agreed = -1,
			       .ranks = pd_calloc((size_t)n, sizeof(*merge.ranks)),
			       .heap = pd_calloc((size_t)n, sizeof(*merge.heap)) };
	bool right = true;

	for (int r = 0; r < n; r++) {
		merge.ranks[r].now_n = SIZE_MAX;
		pd_op_source_begin(&merge.ranks[r].source, fault->schedule, fault->lists, r,
				   fault->lists->microbatches);
		if (next_meeting(&merge.ranks[r]))
			merge.heap[merge.count++] = r;
	}
	for (int at = merge.count / 2; at-- > 0;)
		sift_down(&merge, at);
	while (merge.count > 0 && right) {
		bool more = false;

		right = pass(&merge, &merge.ranks[merge.heap[0]], &more);
		if (!more)
			merge.heap[0] = merge.heap[--merge.count];
		if (merge.count > 0)
			sift_down(&merge, 0);
	}
	for (int r = 0; r < n; r++)
		pd_op_source_end(&merge.ranks[r].source);
	free(merge.ranks);
	free(merge.heap);
}
