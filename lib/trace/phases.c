/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the phases of a training run. */
#include "trace/compare.h"

#include "base/mem.h"

#include <stdlib.h>

static int by_rank_and_microbatch(const void *a, const void *b)
{
	const struct pd_record *x = *(const struct pd_record *const *)a;
	const struct pd_record *y = *(const struct pd_record *const *)b;

	if (x->op.rank != y->op.rank)
		return x->op.rank < y->op.rank ? -1 : 1;
	return (x->op.microbatch > y->op.microbatch) - (x->op.microbatch < y->op.microbatch);
}

/* Forbids each bound that an operation of one rank, list[0] to list[n - 1], crosses. */
static void forbid(const struct pd_record **list, size_t n, int64_t first, bool *forbidden)
{
	int64_t *least = pd_calloc(n + 1, sizeof(*least)), most = INT64_MIN;

	least[n] = INT64_MAX;           /* earliest start from here on */
	for (size_t i = n; i-- > 0;)
		least[i] = list[i]->start_ns < least[i + 1] ? list[i]->start_ns : least[i + 1];
	for (size_t i = 0; i + 1 < n; i++) {
		int64_t from = list[i]->op.microbatch, to = list[i + 1]->op.microbatch;

		most = list[i]->end_ns > most ? list[i]->end_ns : most;
		for (int64_t b = from + 1; b <= to && most > least[i + 1]; b++)
			forbidden[b - first] = true;
	}
	free(least);
}

/* A phase begins with the first replica of each stage. */
static void forbid_later_replicas(const struct pd_trace *trace, int64_t first, bool *forbidden)
{
	for (size_t i = 0; i < trace->count; i++) {
		const struct pd_op *op = &trace->records[i].op;

		if (!op->evaluate && op->kind == PD_OP_forward
		    && op->rank != trace->plan->stages[op->stage].ranks[0])
			forbidden[op->microbatch - first] = true;
	}
}

int pd_trace_phases(const struct pd_trace *trace, int64_t **bounds_p)
{
	const struct pd_record **list = pd_calloc(trace->count, sizeof(*list));
	int64_t first = INT64_MAX, last = -1, *bounds = NULL;
	size_t n = 0, capacity = 0;
	bool *forbidden;
	int count = 0;

	for (size_t i = 0; i < trace->count; i++) {
		const struct pd_op *op = &trace->records[i].op;

		if (op->evaluate)
			continue;
		list[n++] = &trace->records[i];
		first = op->microbatch < first ? op->microbatch : first;
		last = op->microbatch > last ? op->microbatch : last;
	}
	if (n == 0 || last - first >= (int64_t)n) {
		free(list);
		return 0;
	}
	qsort(list, n, sizeof(*list), by_rank_and_microbatch);
	forbidden = pd_calloc((size_t)(last - first) + 1, sizeof(*forbidden));
	for (size_t i = 0, j; i < n; i = j) {
		for (j = i; j < n && list[j]->op.rank == list[i]->op.rank;)
			j++;
		forbid(list + i, j - i, first, forbidden);
	}
	forbid_later_replicas(trace, first, forbidden);
	for (int64_t b = first; b <= last + 1; b++)
		if (b == first || b == last + 1 || !forbidden[b - first]) {
			bounds = pd_grow(bounds, &capacity, (size_t)count + 1, sizeof(*bounds));
			bounds[count++] = b;
		}
	free(forbidden);
	free(list);
	*bounds_p = bounds;
	return count - 1;
}
