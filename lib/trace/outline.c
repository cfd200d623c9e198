/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/outline.h"

#include "base/mem.h"
#include "base/sort.h"

#include <stdlib.h>

#define SHORT_PART 0.03
#define MOST_UNEVEN 2.5         /* usual operations are so many times as long as short ones, at most */

static int by_ns(const void *a, const void *b)
{
	const struct pd_moment *x = a, *y = b;

	PD_ORDER(x->ns, y->ns);
	return y->by - x->by;           /* what begins comes first, so that something runs */
}

/* Returns the start of the first forward of training or evaluation at or after a moment. */
static int64_t first_forward(const struct pd_trace *trace, bool evaluate, int64_t from_ns)
{
	int64_t first = INT64_MAX;

	for (size_t i = 0; i < trace->count; i++) {
		const struct pd_record *record = &trace->records[i];

		if (record->op.kind == PD_OP_forward && record->op.evaluate == evaluate &&
		    record->start_ns >= from_ns && record->start_ns < first)
			first = record->start_ns;
	}
	return first;
}

/* A duration of an operation of one kind and stage. */
struct duration {
	int64_t key, ns;
	const struct pd_record *record;
};

static int by_key(const void *a, const void *b)
{
	const struct duration *x = a, *y = b;

	PD_ORDER(x->key, y->key);
	return (x->ns > y->ns) - (x->ns < y->ns);
}

/* Moves slow operations among n of one kind and stage, sorted, to the outline; returns how many are left. */
static size_t take_slow(struct pd_outline *outline, const struct duration *list, size_t n)
{
	int64_t median = list[(n - 1) / 2].ns;

	for (; list[n - 1].ns > PD_SLOW * median; n--)
		outline->slow[outline->slow_count++] = (struct pd_cut){
			list[n - 1].record->start_ns, list[n - 1].record->end_ns };
	return n;
}

/* Returns how long operations are, of n, ascending, that take together a part of the time of all. */
static int64_t at_part(const int64_t *sorted, size_t n, double part)
{
	double all = 0, sum = 0;
	size_t i = 0;

	for (size_t k = 0; k < n; k++)
		all += (double)sorted[k];
	while (i + 1 < n && (sum += (double)sorted[i]) < part * all)
		i++;
	return n > 0 ? sorted[i] : 0;
}

/* Sets what is slow, and what computing operations usually take: those of training, if there are any. */
static void look_at_durations(struct pd_outline *outline)
{
	const struct pd_trace *trace = outline->timeline->trace;
	struct duration *list = pd_calloc(trace->count, sizeof(*list));
	int64_t *computing = pd_calloc(trace->count, sizeof(*computing));
	bool evaluates = first_forward(trace, false, INT64_MIN) == INT64_MAX;
	size_t n = 0, count = 0;

	for (size_t i = 0; i < trace->count; i++) {
		const struct pd_record *record = &trace->records[i];

		if (record->end_ns > record->start_ns && record->op.evaluate == evaluates)
			list[n++] = (struct duration){
				(int64_t)record->op.stage * PD_OP_KINDS + record->op.kind,
				record->end_ns - record->start_ns, record };
	}
	qsort(list, n, sizeof(*list), by_key);
	for (size_t i = 0, j; i < n; i = j) {
		enum pd_op_kind kind = list[i].record->op.kind;
		size_t left;

		for (j = i; j < n && list[j].key == list[i].key;)
			j++;
		left = take_slow(outline, list + i, j - i);
		for (size_t k = i; k < i + left; k++)
			if (kind != PD_OP_step && pd_lane_of(kind) == PD_LANE_COMPUTE)
				computing[count++] = list[k].ns;
	}
	qsort(computing, count, sizeof(*computing), pd_by_value);
	outline->usual_ns = at_part(computing, count, 0.5);
	outline->short_ns = pd_clamp(at_part(computing, count, SHORT_PART),
				     (int64_t)((double)outline->usual_ns / MOST_UNEVEN),
				     outline->usual_ns);
	free(computing);
	free(list);
}

/* Counts the computing operations of the rank that has most of them before a moment. */
static int64_t most_operations(const struct pd_timeline *timeline, int64_t end_ns)
{
	int64_t most = 0;

	for (int r = 0; r < timeline->rank_count; r++) {
		const struct pd_lane *lane = pd_timeline_lane(timeline, r, PD_LANE_COMPUTE);
		int64_t count = 0;

		for (size_t i = 0; i < lane->count && lane->bars[i].record->start_ns < end_ns; i++)
			count += lane->bars[i].record->op.kind != PD_OP_step;
		most = count > most ? count : most;
	}
	return most;
}

static void look_at_moments(struct pd_outline *outline)
{
	const struct pd_trace *trace = outline->timeline->trace;

	for (size_t i = 0; i < trace->count; i++) {
		const struct pd_record *record = &trace->records[i];

		if (record->end_ns == record->start_ns)
			continue;
		outline->moments[outline->count++] = (struct pd_moment){ record->start_ns, 1 };
		outline->moments[outline->count++] = (struct pd_moment){ record->end_ns, -1 };
	}
	qsort(outline->moments, outline->count, sizeof(*outline->moments), by_ns);
}

/* Sets when the operations of training or evaluation that begin before a moment begin and end. */
static void span(const struct pd_trace *trace, bool evaluate, int64_t before_ns, int64_t *begin_p,
		 int64_t *end_p)
{
	*begin_p = *end_p = 0;
	for (size_t i = 0, n = 0; i < trace->count; i++) {
		const struct pd_record *record = &trace->records[i];

		if (record->op.evaluate != evaluate || record->start_ns >= before_ns)
			continue;
		*begin_p = n == 0 || record->start_ns < *begin_p ? record->start_ns : *begin_p;
		*end_p = n == 0 || record->end_ns > *end_p ? record->end_ns : *end_p;
		n++;
	}
}

/*
 * Finds training up to the first evaluation behind it, and this evaluation.  What is loaded ahead belongs
 * to neither.
 */
static void look_at_phases(struct pd_outline *outline)
{
	const struct pd_trace *trace = outline->timeline->trace;
	int64_t trained = first_forward(trace, false, INT64_MIN), loaded, again;
	int64_t evaluated = first_forward(trace, true, trained == INT64_MAX ? INT64_MIN : trained);

	again = evaluated == INT64_MAX ? INT64_MAX : first_forward(trace, false, evaluated);
	span(trace, false, evaluated, &outline->begin_ns, &outline->end_ns);
	outline->goes_on = again < INT64_MAX;
	if (evaluated == INT64_MAX)
		return;
	span(trace, true, again, &loaded, &outline->evaluated_ns);
	outline->evaluate_ns = evaluated;
}

void pd_outline_init(struct pd_outline *outline, const struct pd_timeline *timeline)
{
	*outline = (struct pd_outline){ .timeline = timeline };
	outline->moments = pd_calloc(2 * timeline->trace->count, sizeof(*outline->moments));
	outline->slow = pd_calloc(timeline->trace->count, sizeof(*outline->slow));
	look_at_durations(outline);
	look_at_moments(outline);
	look_at_phases(outline);
	outline->operations = most_operations(timeline, outline->end_ns);
}

void pd_outline_release(struct pd_outline *outline)
{
	free(outline->moments);
	free(outline->slow);
}
