/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/arrivals.h"

#include "base/mem.h"
#include "base/sort.h"

#include <stdlib.h>
#include <string.h>

static int compare_keys(const struct pd_op *x, const struct pd_op *y)
{
	PD_ORDER(x->rank, y->rank);
	PD_ORDER(x->kind, y->kind);
	PD_ORDER(x->evaluate, y->evaluate);
	return (x->microbatch > y->microbatch) - (x->microbatch < y->microbatch);
}

static int by_key(const void *a, const void *b)
{
	const struct pd_record *x = *(const struct pd_record *const *)a;
	const struct pd_record *y = *(const struct pd_record *const *)b;
	int order = compare_keys(&x->op, &y->op);

	return order ? order : (x->end_ns > y->end_ns) - (x->end_ns < y->end_ns);
}

static int by_end(const void *a, const void *b)
{
	const struct pd_record *x = *(const struct pd_record *const *)a;
	const struct pd_record *y = *(const struct pd_record *const *)b;

	PD_ORDER(x->op.rank, y->op.rank);
	return (x->end_ns > y->end_ns) - (x->end_ns < y->end_ns);
}

static bool gives_back(enum pd_op_kind kind)
{
	return kind == PD_OP_send_activation || kind == PD_OP_send_gradient || pd_op_of_all(kind);
}

struct pd_arrivals pd_arrivals_of(const struct pd_trace *trace)
{
	struct pd_arrivals arrivals = { .list = pd_calloc(trace->count, sizeof(*arrivals.list)),
					.left = pd_calloc(trace->count, sizeof(*arrivals.left)) };

	for (size_t i = 0; i < trace->count; i++) {
		if (pd_lane_of(trace->records[i].op.kind) != PD_LANE_COMPUTE)
			arrivals.list[arrivals.count++] = &trace->records[i];
		if (gives_back(trace->records[i].op.kind))
			arrivals.left[arrivals.left_count++] = &trace->records[i];
	}
	qsort(arrivals.list, arrivals.count, sizeof(*arrivals.list), by_key);
	qsort(arrivals.left, arrivals.left_count, sizeof(*arrivals.left), by_end);
	arrivals.most_launch_ns = strcmp(trace->device, "sim") == 0 ? trace->plan->profile->launch_ns : INT64_MAX;
	return arrivals;
}

void pd_arrivals_release(struct pd_arrivals *arrivals)
{
	free(arrivals->list);
	free(arrivals->left);
}

/* Orders a record of `left` and an operation that began. */
static int compare_start(const void *element, const void *key)
{
	const struct pd_record *left = *(const struct pd_record *const *)element, *begun = key;

	PD_ORDER(left->op.rank, begun->op.rank);
	return (left->end_ns > begun->start_ns) - (left->end_ns < begun->start_ns);
}

int64_t pd_arrivals_launch_ns(const struct pd_arrivals *arrivals, const struct pd_record *record,
			      int64_t from_ns)
{
	size_t before = pd_count_below(record, arrivals->left, arrivals->left_count, sizeof(*arrivals->left),
				       compare_start, 0);
	const struct pd_record *last = before > 0 ? arrivals->left[before - 1] : NULL;
	int64_t ns;

	if (last && last->op.rank == record->op.rank && last->end_ns > from_ns)
		from_ns = last->end_ns;
	ns = record->start_ns - from_ns;
	return ns < arrivals->most_launch_ns ? ns : arrivals->most_launch_ns;
}

static int compare_key(const void *record, const void *key)
{
	return compare_keys(&(*(const struct pd_record *const *)record)->op, key);
}

/* Returns the first with that rank, kind, evaluation and microbatch. */
static size_t first_like(const struct pd_arrivals *arrivals, const struct pd_op *key)
{
	return pd_count_below(key, arrivals->list, arrivals->count, sizeof(*arrivals->list), compare_key,
			      -1);
}

/* Returns the last arrival of a kind that an operation can have waited for, or NULL. */
static const struct pd_record *arrival(const struct pd_arrivals *arrivals,
				       const struct pd_record *record, enum pd_op_kind kind)
{
	struct pd_op key = record->op;
	const struct pd_record *last = NULL;

	key.kind = kind;
	for (size_t i = first_like(arrivals, &key);
	     i < arrivals->count && compare_keys(&arrivals->list[i]->op, &key) == 0; i++)
		if (arrivals->list[i]->op.stage == record->op.stage
		    && arrivals->list[i]->end_ns <= record->start_ns)
			last = arrivals->list[i];
	return last;
}

int64_t pd_arrivals_began_ns(const struct pd_arrivals *arrivals, const struct pd_record *recv)
{
	struct pd_op key = recv->op;
	int64_t start = recv->start_ns;

	key.rank = recv->op.peer;
	key.kind = recv->op.kind == PD_OP_recv_gradient ? PD_OP_send_gradient
							: PD_OP_send_activation;
	for (size_t i = first_like(arrivals, &key);
	     i < arrivals->count && compare_keys(&arrivals->list[i]->op, &key) == 0; i++) {
		const struct pd_record *send = arrivals->list[i];

		if (send->op.peer == recv->op.rank && send->op.link == recv->op.link
		    && send->start_ns > start && send->start_ns <= recv->end_ns)
			start = send->start_ns;
	}
	return start;
}

const struct pd_record *pd_arrivals_awaited(const struct pd_arrivals *arrivals,
					    const struct pd_record *record)
{
	const struct pd_record *a, *b;

	switch (record->op.kind) {
	case PD_OP_forward:
		a = arrival(arrivals, record, PD_OP_recv_activation);
		b = arrival(arrivals, record, PD_OP_load);
		return !a || (b && b->end_ns > a->end_ns) ? b : a;
	case PD_OP_backward:
	case PD_OP_backward_input:
		return arrival(arrivals, record, PD_OP_recv_gradient);
	case PD_OP_step:
		a = arrival(arrivals, record, PD_OP_agree);
		return a ? a : arrival(arrivals, record, PD_OP_allreduce);
	default:
		return NULL;
	}
}
