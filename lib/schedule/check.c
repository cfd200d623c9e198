/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/check.h"

#include "base/mem.h"
#include "schedule/price.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

int64_t pd_lists_count(const struct pd_lists *lists)
{
	int64_t count = 0;

	for (int r = 0; r < lists->rank_count; r++)
		count += (int64_t)lists->ranks[r].count;
	return count;
}

void pd_fault(struct pd_fault *fault, int rank, size_t n, const char *fmt, ...)
{
	const struct pd_lists *lists = fault->lists;
	const struct pd_list *list = &lists->ranks[rank];
	char what[80] = "no operation", wrong[300];
	size_t at = n < list->count ? n : list->count - 1;
	int64_t line = list->count > 0 ? pd_lists_line(lists, rank, at) : 1;
	va_list ap;

	if (line >= fault->line)
		return;
	fault->line = line;
	if (list->count > 0)
		snprintf(what, sizeof(what), "%s of microbatch %" PRId64 " at stage %d",
			 pd_op_kind_name[list->ops[at].kind], list->ops[at].microbatch,
			 list->ops[at].stage);
	va_start(ap, fmt);
	vsnprintf(wrong, sizeof(wrong), fmt, ap);
	va_end(ap);
	pd_error_no(fault->err, "%.60s:%" PRId64 ": rank %d, %s: %s", lists->name, line, rank, what,
		    wrong);
}

/* A rank's way through its operations that meet another rank. */
struct meetings {
	const struct pd_list *list;
	size_t next;                    /* at or after it */
	size_t last;                    /* the one before, or SIZE_MAX */
};

static bool meets(const struct pd_op *op)
{
	return pd_op_transfers(op->kind) || op->kind == PD_OP_allreduce;
}

static const struct pd_op *next_meeting(struct meetings *m)
{
	while (m->next < m->list->count && !meets(&m->list->ops[m->next]))
		m->next++;
	return m->next < m->list->count ? &m->list->ops[m->next] : NULL;
}

/* The operation with that number that the rank is at, or has just done; NULL: none. */
static const struct pd_op *with_number(struct meetings *m, int64_t seq)
{
	const struct pd_op *op = next_meeting(m);

	if (op && op->seq == seq)
		return op;
	op = m->last == SIZE_MAX ? NULL : &m->list->ops[m->last];
	return op && op->seq == seq ? op : NULL;
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

struct merge {
	const struct pd_lists *lists;
	struct pd_fault *fault;
	struct meetings *ranks;
	int *heap;                      /* ranks with something left, the lowest number on top */
	int count;
};

static int64_t number_of(struct merge *merge, int rank)
{
	return next_meeting(&merge->ranks[rank])->seq;
}

static void sift_down(struct merge *merge, int at)
{
	int rank = merge->heap[at];
	int64_t seq = number_of(merge, rank);

	for (int child; (child = 2 * at + 1) < merge->count; at = child) {
		if (child + 1 < merge->count && number_of(merge, merge->heap[child + 1]) <
						number_of(merge, merge->heap[child]))
			child++;
		if (number_of(merge, merge->heap[child]) >= seq)
			break;
		merge->heap[at] = merge->heap[child];
	}
	merge->heap[at] = rank;
}

static bool check_allreduce(struct merge *merge, int rank, const struct pd_op *op)
{
	const struct pd_stage *stage = &merge->lists->plan->stages[op->stage];

	for (int r = 0; r < stage->replicas; r++) {
		const struct pd_op *other = with_number(&merge->ranks[stage->ranks[r]], op->seq);

		if (other && other->kind == PD_OP_allreduce && other->stage == op->stage &&
		    other->microbatch == op->microbatch)
			continue;
		pd_fault(merge->fault, rank, merge->ranks[rank].next, "rank %d of the group is not "
			 "at an allreduce with its seq, %" PRId64 "; expected the same at all",
			 stage->ranks[r], op->seq);
		return false;
	}
	return true;
}

/*
 * Both ends of a transfer that stays on a rank stand in its list, one after the other:
 * nothing that one of them needs can be between them.
 */
static bool check_own(struct merge *merge, int rank, const struct pd_op *op)
{
	struct meetings *m = &merge->ranks[rank];
	const struct pd_list *list = m->list;

	if ((m->next + 1 < list->count && is_pair(op, &list->ops[m->next + 1])) ||
	    (m->next > 0 && is_pair(op, &list->ops[m->next - 1])))
		return true;
	pd_fault(merge->fault, rank, m->next, "its other end does not stand beside it with the "
		 "same seq, %" PRId64, op->seq);
	return false;
}

static bool check_meeting(struct merge *merge, int rank, const struct pd_op *op)
{
	struct meetings *m = &merge->ranks[rank];
	const struct pd_op *other;

	if (op->kind == PD_OP_allreduce)
		return check_allreduce(merge, rank, op);
	if (op->peer == rank)
		return check_own(merge, rank, op);
	other = with_number(&merge->ranks[op->peer], op->seq);
	if (other && is_pair(op, other))
		return true;
	pd_fault(merge->fault, rank, m->next, "its peer, rank %d, is not at the other end of it "
		 "with the same seq, %" PRId64, op->peer, op->seq);
	return false;
}

/* Is the number of an operation one that can follow `before`?  Why not, else NULL. */
static const char *number_fault(const struct pd_lists *lists, const struct pd_op *op,
				int64_t before)
{
	if (!meets(op))
		return op->seq < 0 ? NULL : "has a seq and meets no other rank";
	if (pd_op_transfers(op->kind) && (op->peer < 0 || op->peer >= lists->rank_count))
		return "expected a peer in the plan";
	/* both ends of what stays on the rank have the same */
	return op->seq > before || (op->seq == before && op->peer == op->rank)
		? NULL : "expected a seq above all before it";
}

/* Whatever meets another rank has a number, and a rank's numbers ascend. */
static bool check_numbers(const struct pd_lists *lists, struct pd_fault *fault)
{
	bool right = true;

	for (int r = 0; r < lists->rank_count; r++) {
		const struct pd_list *list = &lists->ranks[r];
		const char *why = NULL;
		int64_t before = -1;

		for (size_t n = 0; n < list->count && !why; n++) {
			why = number_fault(lists, &list->ops[n], before);
			if (why)
				pd_fault(fault, r, n, "%s; found %" PRId64 ", before it %" PRId64,
					 why, list->ops[n].seq, before);
			if (list->ops[n].seq >= 0)
				before = list->ops[n].seq;
		}
		right = right && !why;
	}
	return right;
}

/* In the order of the numbers: whoever is next has all its parties at the same place. */
static void check_meetings(const struct pd_lists *lists, struct pd_fault *fault)
{
	size_t n = (size_t)lists->rank_count;
	struct merge merge = { .lists = lists, .fault = fault,
			       .ranks = pd_calloc(n, sizeof(*merge.ranks)),
			       .heap = pd_calloc(n, sizeof(*merge.heap)) };
	bool right = true;

	for (int r = 0; r < lists->rank_count; r++) {
		merge.ranks[r] = (struct meetings){ .list = &lists->ranks[r], .last = SIZE_MAX };
		if (next_meeting(&merge.ranks[r]))
			merge.heap[merge.count++] = r;
	}
	for (int at = merge.count / 2; at-- > 0;)
		sift_down(&merge, at);
	while (merge.count > 0 && right) {
		int rank = merge.heap[0];
		struct meetings *m = &merge.ranks[rank];

		right = check_meeting(&merge, rank, next_meeting(m));
		m->last = m->next++;
		if (!next_meeting(m))
			merge.heap[0] = merge.heap[--merge.count];
		if (merge.count > 0)
			sift_down(&merge, 0);
	}
	free(merge.ranks);
	free(merge.heap);
}

static int check_plan(const struct pd_plan *plan, struct pd_error *err)
{
	for (int s = 0; s < plan->stage_count && plan->microbatches > 1; s++)
		if (plan->microbatches % plan->stages[s].replicas != 0)
			return pd_error_input(err, "plan: microbatches: expected a multiple of the"
					      " %d replicas of stages[%d], found %" PRId64,
					      plan->stages[s].replicas, s, plan->microbatches);
	return 0;
}

int pd_check(const struct pd_lists *lists, struct pd_error *err)
{
	struct pd_fault fault = { .lists = lists, .line = INT64_MAX, .err = err };
	struct pd_prices prices;

	if (check_plan(lists->plan, err) < 0)
		return -1;
	pd_prices_init(&prices, lists->plan, lists->wiring);
	for (int r = 0; r < lists->rank_count; r++)
		pd_check_rank(&fault, &prices, r);
	pd_prices_release(&prices);
	if (check_numbers(lists, &fault))
		check_meetings(lists, &fault);
	return fault.line == INT64_MAX ? 0 : -1;
}
