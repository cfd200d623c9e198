/* SPDX-License-Identifier: Apache-2.0 */
/* Divides the time of each rank into computing and kinds of waiting. */
#include "trace/compare.h"

#include "base/mem.h"
#include "base/sort.h"

#include <stdlib.h>

struct index {                          /* records of transfers and all-reduces */
	size_t count;
	const struct pd_record **list;
};

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

static struct index index_of(const struct pd_trace *trace)
{
	struct index index = { .list = pd_calloc(trace->count, sizeof(*index.list)) };

	for (size_t i = 0; i < trace->count; i++)
		if (pd_lane_of(trace->records[i].op.kind) != PD_LANE_COMPUTE)
			index.list[index.count++] = &trace->records[i];
	qsort(index.list, index.count, sizeof(*index.list), by_key);
	return index;
}

static int compare_key(const void *record, const void *key)
{
	return compare_keys(&(*(const struct pd_record *const *)record)->op, key);
}

/* Returns the first with that rank, kind, evaluation and microbatch. */
static size_t find(const struct index *index, const struct pd_op *key)
{
	return pd_count_below(key, index->list, index->count, sizeof(*index->list), compare_key, -1);
}

/* Returns the last arrival of a kind that an operation can have waited for, or NULL. */
static const struct pd_record *arrival(const struct index *index, const struct pd_record *record,
				       enum pd_op_kind kind)
{
	struct pd_op key = record->op;
	const struct pd_record *last = NULL;

	key.kind = kind;
	for (size_t i = find(index, &key);
	     i < index->count && compare_keys(&index->list[i]->op, &key) == 0; i++)
		if (index->list[i]->op.stage == record->op.stage
		    && index->list[i]->end_ns <= record->start_ns)
			last = index->list[i];
	return last;
}

/* Returns when a transfer began: when both its sides were ready. */
static int64_t set_out_ns(const struct index *index, const struct pd_record *recv)
{
	struct pd_op key = recv->op;
	int64_t start = recv->start_ns;

	key.rank = recv->op.peer;
	key.kind = recv->op.kind == PD_OP_recv_gradient ? PD_OP_send_gradient
							: PD_OP_send_activation;
	for (size_t i = find(index, &key);
	     i < index->count && compare_keys(&index->list[i]->op, &key) == 0; i++) {
		const struct pd_record *send = index->list[i];

		if (send->op.peer == recv->op.rank && send->op.link == recv->op.link
		    && send->start_ns > start && send->start_ns <= recv->end_ns)
			start = send->start_ns;
	}
	return start;
}

static const struct pd_record *awaited_by(const struct index *index,
					  const struct pd_record *record)
{
	const struct pd_record *a, *b;

	switch (record->op.kind) {
	case PD_OP_forward:
		a = arrival(index, record, PD_OP_recv_activation);
		b = arrival(index, record, PD_OP_load);
		return !a || (b && b->end_ns > a->end_ns) ? b : a;
	case PD_OP_backward:
	case PD_OP_backward_input:
		return arrival(index, record, PD_OP_recv_gradient);
	case PD_OP_step:
		a = arrival(index, record, PD_OP_agree);
		return a ? a : arrival(index, record, PD_OP_allreduce);
	default:
		return NULL;
	}
}

static void add_awaited(struct pd_time_spent *spent, size_t *capacity, int rank,
			const struct pd_record *recv, int64_t ns)
{
	bool gradient = recv->op.kind == PD_OP_recv_gradient;
	struct pd_awaited *one;

	spent->ns[rank][gradient ? PD_SPENT_GRADIENT : PD_SPENT_ACTIVATION] += ns;
	for (int i = spent->awaited_count; i-- > 0 && spent->awaited[i].rank == rank;) {
		one = &spent->awaited[i];
		if (one->peer == recv->op.peer && one->gradient == gradient) {
			one->ns += ns;
			return;
		}
	}
	if (ns == 0)
		return;
	spent->awaited = pd_grow(spent->awaited, capacity, (size_t)spent->awaited_count + 1,
				 sizeof(*spent->awaited));
	spent->awaited[spent->awaited_count++] =
		(struct pd_awaited){ rank, recv->op.peer, gradient, ns };
}

/* Adds the idle time from `from` to the start of record, clamped to `to`. */
static void add_gap(struct pd_time_spent *spent, size_t *capacity, const struct index *index,
		    const struct pd_record *record, int64_t from, int64_t to)
{
	const struct pd_record *what = awaited_by(index, record);
	int rank = record->op.rank;
	int64_t until = what ? pd_clamp(what->end_ns, from, to) : from, set_out;

	spent->ns[rank][PD_SPENT_OTHER] += to - until;
	if (!what)
		return;
	if (pd_op_of_all(what->op.kind)) {
		spent->ns[rank][PD_SPENT_ALLREDUCE] += until - from;
	} else if (what->op.kind == PD_OP_load) {
		spent->ns[rank][PD_SPENT_OTHER] += until - from;
	} else {
		set_out = pd_clamp(set_out_ns(index, what), from, until);
		add_awaited(spent, capacity, rank, what, set_out - from);
		spent->ns[rank][PD_SPENT_TRANSFER] += until - set_out;
	}
}

static void add_rank(struct pd_time_spent *spent, size_t *capacity, const struct index *index,
		     const struct pd_timeline *timeline, int rank)
{
	const struct pd_lane *lane = pd_timeline_lane(timeline, rank, PD_LANE_COMPUTE);
	int64_t at = spent->begin_ns, end = spent->end_ns;

	for (size_t i = 0; i < lane->count && at < end; i++) {
		const struct pd_record *record = lane->bars[i].record;
		int64_t start = pd_clamp(record->start_ns, at, end);
		int64_t stop = pd_clamp(record->end_ns, start, end);

		if (record->end_ns < at)
			continue;
		if (start > at)
			add_gap(spent, capacity, index, record, at, start);
		spent->ns[rank][PD_SPENT_COMPUTE] += stop - start;
		at = stop;
	}
	spent->ns[rank][PD_SPENT_OTHER] += end - at;
}

struct pd_time_spent *pd_time_spent_new(const struct pd_timeline *timeline)
{
	struct pd_time_spent *spent = pd_zalloc(sizeof(*spent));
	struct index index = index_of(timeline->trace);
	struct pd_steady steady;
	size_t capacity = 0;

	spent->begin_ns = timeline->begin_ns;
	spent->end_ns = timeline->end_ns;
	spent->rank_count = timeline->rank_count;
	spent->has_steady = pd_trace_steady(timeline->trace, &steady)
			    && steady.end_ns > steady.begin_ns;
	if (spent->has_steady) {
		spent->begin_ns = steady.begin_ns;
		spent->end_ns = steady.end_ns;
	}
	spent->ns = pd_calloc((size_t)spent->rank_count, sizeof(*spent->ns));
	for (int rank = 0; rank < spent->rank_count; rank++)
		add_rank(spent, &capacity, &index, timeline, rank);
	free(index.list);
	return spent;
}

void pd_time_spent_free(struct pd_time_spent *spent)
{
	if (!spent)
		return;
	free(spent->ns);
	free(spent->awaited);
	free(spent);
}
