/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/compare.h"

#include "base/mem.h"
#include "base/sort.h"

#include <stdlib.h>

struct pair {                           /* one operation that both traces have */
	enum pd_op_kind kind;
	int stage;
	int64_t ns[2];
};

static int compare_ops(const struct pd_op *x, const struct pd_op *y)
{
	PD_ORDER(x->rank, y->rank);
	PD_ORDER(x->kind, y->kind);
	PD_ORDER(x->stage, y->stage);
	PD_ORDER(x->microbatch, y->microbatch);
	PD_ORDER(x->peer, y->peer);
	PD_ORDER(x->bucket, y->bucket);
	return (x->link > y->link) - (x->link < y->link);
}

static int by_op(const void *a, const void *b)
{
	const struct pd_record *x = *(const struct pd_record *const *)a;
	const struct pd_record *y = *(const struct pd_record *const *)b;
	int order = compare_ops(&x->op, &y->op);

	if (order)
		return order;
	PD_ORDER(x->start_ns, y->start_ns);
	return (x > y) - (x < y);
}

static const struct pd_record **sorted(const struct pd_trace *trace, size_t *count_p)
{
	const struct pd_record **list = pd_calloc(trace->count, sizeof(*list));
	size_t n = 0;

	for (size_t i = 0; i < trace->count; i++)
		if (!trace->records[i].op.evaluate)
			list[n++] = &trace->records[i];
	qsort(list, n, sizeof(*list), by_op);
	*count_p = n;
	return list;
}

struct extent {
	int64_t first, last;            /* microbatches */
};

static struct extent extent_of(const struct pd_trace *trace)
{
	struct extent extent = { INT64_MAX, -1 };

	for (size_t i = 0; i < trace->count; i++) {
		const struct pd_op *op = &trace->records[i].op;

		if (op->evaluate || op->kind != PD_OP_forward)
			continue;
		extent.first = op->microbatch < extent.first ? op->microbatch : extent.first;
		extent.last = op->microbatch > extent.last ? op->microbatch : extent.last;
	}
	return extent;
}

static void add_only(struct pd_compare *compare, int which, const struct pd_op *op,
		     struct extent other)
{
	compare->only[which]++;
	if (op->microbatch < other.first || op->microbatch > other.last)
		return;
	compare->missing[which]++;
	if (compare->shown[which] < PD_COMPARE_SHOWN)
		compare->some[which][compare->shown[which]++] = *op;
}

/* Matches the two sorted lists; both[w][i] says whether the other trace has record i of trace w. */
static struct pair *match(struct pd_compare *compare, const struct pd_trace *const trace[2],
			  bool *const both[2])
{
	size_t n[2], i = 0, j = 0;
	const struct pd_record **a = sorted(trace[0], &n[0]), **b = sorted(trace[1], &n[1]);
	struct extent extent[2] = { extent_of(trace[0]), extent_of(trace[1]) };
	struct pair *pairs = pd_calloc(n[0] < n[1] ? n[0] : n[1], sizeof(*pairs));

	while (i < n[0] || j < n[1]) {
		int order = i == n[0] ? 1 : j == n[1] ? -1 : compare_ops(&a[i]->op, &b[j]->op);

		if (order < 0) {
			add_only(compare, 0, &a[i++]->op, extent[1]);
		} else if (order > 0) {
			add_only(compare, 1, &b[j++]->op, extent[0]);
		} else {
			both[0][a[i] - trace[0]->records] = true;
			both[1][b[j] - trace[1]->records] = true;
			pairs[compare->matched++] = (struct pair){
				a[i]->op.kind, a[i]->op.stage,
				{ a[i]->end_ns - a[i]->start_ns, b[j]->end_ns - b[j]->start_ns } };
			i++;
			j++;
		}
	}
	free(a);
	free(b);
	return pairs;
}

static int by_place(const void *a, const void *b)
{
	const struct pair *x = a, *y = b;

	PD_ORDER(x->kind, y->kind);
	return (x->stage > y->stage) - (x->stage < y->stage);
}

/* Returns a quantile of n sorted values: the value below which a share of them lies. */
static int64_t quantile(const int64_t *values, size_t n, double share)
{
	return values[(size_t)((double)(n - 1) * share + 0.5)];
}

static void add_residual(struct pd_compare *compare, const struct pair *pairs, size_t n,
			 int64_t *values)
{
	struct pd_residual *residual = &compare->residuals[compare->residual_count++];

	*residual = (struct pd_residual){ .kind = pairs->kind, .stage = pairs->stage,
					  .count = (int64_t)n };
	for (int which = 0; which < 2; which++) {
		for (size_t i = 0; i < n; i++)
			values[i] = pairs[i].ns[which];
		qsort(values, n, sizeof(*values), pd_by_value);
		residual->median_ns[which] = quantile(values, n, 0.5);
	}
	for (size_t i = 0; i < n; i++)
		values[i] = pairs[i].ns[0] - pairs[i].ns[1];
	qsort(values, n, sizeof(*values), pd_by_value);
	residual->low_ns = quantile(values, n, 0.05);
	residual->middle_ns = quantile(values, n, 0.5);
	residual->high_ns = quantile(values, n, 0.95);
}

static void add_residuals(struct pd_compare *compare, struct pair *pairs)
{
	size_t n = (size_t)compare->matched, places = 0;
	int64_t *values = pd_calloc(n, sizeof(*values));

	qsort(pairs, n, sizeof(*pairs), by_place);
	for (size_t i = 0; i < n; i++)
		places += i == 0 || by_place(&pairs[i - 1], &pairs[i]) != 0;
	compare->residuals = pd_calloc(places, sizeof(*compare->residuals));
	for (size_t i = 0, j; i < n; i = j) {
		for (j = i; j < n && by_place(&pairs[i], &pairs[j]) == 0;)
			j++;
		add_residual(compare, pairs + i, j - i, values);
	}
	free(values);
}

/* Returns the next operation from *at_p on that both traces have, or NULL. */
static const struct pd_op *next_both(const struct pd_timeline *timeline, int rank,
				     const bool *both, size_t *at_p)
{
	const struct pd_lane *lane = pd_timeline_lane(timeline, rank, PD_LANE_COMPUTE);

	while (*at_p < lane->count) {
		const struct pd_record *record = lane->bars[(*at_p)++].record;

		if (both[record - timeline->trace->records])
			return &record->op;
	}
	return NULL;
}

static void compare_rank(struct pd_compare *compare, const struct pd_timeline *const of[2],
			 bool *const both[2], int rank)
{
	const struct pd_op *a, *b;
	size_t i = 0, j = 0;
	int64_t position = 0;

	while ((a = next_both(of[0], rank, both[0], &i))
	       && (b = next_both(of[1], rank, both[1], &j))) {
		if (compare_ops(a, b) != 0) {
			compare->disorders[compare->disorder_count++] =
				(struct pd_disorder){ rank, position, { *a, *b } };
			return;
		}
		position++;
	}
}

struct pd_compare *pd_compare_new(const struct pd_timeline *first,
				  const struct pd_timeline *second)
{
	struct pd_compare *compare = pd_zalloc(sizeof(*compare));
	const struct pd_timeline *const of[2] = { first, second };
	const struct pd_trace *const trace[2] = { first->trace, second->trace };
	bool *const both[2] = { pd_calloc(trace[0]->count, sizeof(bool)),
				pd_calloc(trace[1]->count, sizeof(bool)) };
	int ranks = first->rank_count < second->rank_count ? first->rank_count
							   : second->rank_count;
	struct pair *pairs = match(compare, trace, both);

	add_residuals(compare, pairs);
	compare->disorders = pd_calloc((size_t)ranks, sizeof(*compare->disorders));
	for (int rank = 0; rank < ranks; rank++)
		compare_rank(compare, of, both, rank);
	free(pairs);
	free(both[0]);
	free(both[1]);
	return compare;
}

void pd_compare_free(struct pd_compare *compare)
{
	if (!compare)
		return;
	free(compare->disorders);
	free(compare->residuals);
	free(compare);
}

bool pd_compare_same(const struct pd_compare *compare)
{
	return compare->disorder_count == 0 && compare->missing[0] == 0 && compare->missing[1] == 0;
}
