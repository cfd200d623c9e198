/* SPDX-License-Identifier: Apache-2.0 */
/* Removes from both sides of a transfer the time in which they waited for one another. */
#include "trace/trace.h"

#include "base/mem.h"
#include "base/sort.h"

#include <stdlib.h>

/* Both sides of a transfer are equal. */
static int compare_transfers(const struct pd_op *x, const struct pd_op *y)
{
	PD_ORDER(pd_op_sends(x->kind) ? x->rank : x->peer, pd_op_sends(y->kind) ? y->rank : y->peer);
	PD_ORDER(pd_op_sends(x->kind) ? x->peer : x->rank, pd_op_sends(y->kind) ? y->peer : y->rank);
	PD_ORDER(x->link, y->link);
	PD_ORDER(pd_op_of_gradient(x->kind), pd_op_of_gradient(y->kind));
	PD_ORDER(x->evaluate, y->evaluate);
	PD_ORDER(x->microbatch, y->microbatch);
	return 0;
}

/* Orders transfers.  Minibatches of evaluations come again, and stay in their order. */
static int by_transfer(const void *a, const void *b)
{
	const struct pd_record *x = *(const struct pd_record *const *)a;
	const struct pd_record *y = *(const struct pd_record *const *)b;
	int order = compare_transfers(&x->op, &y->op);

	if (order)
		return order;
	PD_ORDER(pd_op_sends(x->op.kind), pd_op_sends(y->op.kind));
	PD_ORDER(x->start_ns, y->start_ns);
	return x < y ? -1 : x > y;
}

static void begin_at(struct pd_record *record, int64_t ns)
{
	if (record->start_ns < ns)
		record->start_ns = ns < record->end_ns ? ns : record->end_ns;
}

/*
 * Joins n records of one transfer, or one of every evaluation: first the receives, then the sends.
 */
static void join(struct pd_record **list, size_t n)
{
	size_t receives = 0;

	while (receives < n && !pd_op_sends(list[receives]->op.kind))
		receives++;
	for (size_t i = 0; i < receives && receives + i < n; i++) {
		struct pd_record *recv = list[i], *send = list[receives + i];

		begin_at(recv, send->start_ns);
		begin_at(send, recv->start_ns);
	}
}

void pd_trace_join_transfers(struct pd_trace *trace)
{
	struct pd_record **list = pd_calloc(trace->count, sizeof(struct pd_record *));
	size_t n = 0;

	for (size_t i = 0; i < trace->count; i++)
		if (pd_op_transfers(trace->records[i].op.kind))
			list[n++] = &trace->records[i];
	qsort(list, n, sizeof(struct pd_record *), by_transfer);
	for (size_t i = 0, j; i < n; i = j) {
		for (j = i; j < n && compare_transfers(&list[i]->op, &list[j]->op) == 0;)
			j++;
		join(list + i, j - i);
	}
	free(list);
}
