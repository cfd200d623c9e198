/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/whole.h"

#include "base/error.h"
#include "base/mem.h"
#include "base/sort.h"

#include <inttypes.h>
#include <stdlib.h>

/* What tells an operation from others of its rank. */
struct operation {
	int64_t microbatch;
	int kind, stage, link, bucket;
	int64_t start_ns;               /* of an evaluation, whose microbatches come again; else 0 */
	size_t record;
};

struct trace_faults {
	int64_t expected;               /* operations of training that the plan has */
	int64_t missing, doubled, strange;
	struct pd_op first_missing;     /* of the earliest microbatch */
	/* Places among the records, in the order of the file. */
	size_t first_doubled, first_strange;
};

struct holding {
	const struct pd_trace *trace;
	const struct pd_schedule *schedule;
	bool ours;                      /* the trace has all kinds of operations */
	int64_t first, last;            /* microbatches that it has, and the end */
	size_t *by_rank, *first_of;     /* records by rank; per rank and one more: the first of them */
	size_t had_capacity, wanted_capacity;
	struct operation *had, *wanted; /* of one rank */
	struct trace_faults *faults;
};

static int compare_operations(const void *a, const void *b)
{
	const struct operation *x = a, *y = b;

	PD_ORDER(x->microbatch, y->microbatch);
	PD_ORDER(x->kind, y->kind);
	PD_ORDER(x->stage, y->stage);
	PD_ORDER(x->link, y->link);
	PD_ORDER(x->bucket, y->bucket);
	PD_ORDER(x->start_ns, y->start_ns);
	return 0;
}

/* Orders equal ones as the file does. */
static int compare_records(const void *a, const void *b)
{
	const struct operation *x = a, *y = b;
	int order = compare_operations(a, b);

	return order ? order : (x->record > y->record) - (x->record < y->record);
}

/* Tells whether operations of a kind are compared, and sets which. */
static bool operation_of(const struct holding *h, const struct pd_op *op, struct operation *out_p)
{
	enum pd_op_kind kind = op->kind;

	if (!h->ours && kind == PD_OP_backward_input)
		kind = PD_OP_backward;
	if (!h->ours && kind != PD_OP_forward && kind != PD_OP_backward)
		return false;
	*out_p = (struct operation){ .microbatch = op->microbatch, .kind = kind, .stage = op->stage,
				     .link = op->link, .bucket = op->bucket };
	return true;
}

/* Sorts the records by rank. */
static void sort_by_rank(struct holding *h)
{
	const struct pd_trace *trace = h->trace;
	size_t ranks = (size_t)trace->plan->rank_count, *next = pd_calloc(ranks + 1, sizeof(*next));

	h->by_rank = pd_calloc(trace->count + 1, sizeof(*h->by_rank));
	h->first_of = pd_calloc(ranks + 1, sizeof(*h->first_of));
	for (size_t i = 0; i < trace->count; i++)
		h->first_of[trace->records[i].op.rank + 1]++;
	for (size_t r = 0; r < ranks; r++) {
		h->first_of[r + 1] += h->first_of[r];
		next[r] = h->first_of[r];
	}
	for (size_t i = 0; i < trace->count; i++)
		h->by_rank[next[trace->records[i].op.rank]++] = i;
	free(next);
}

/* Takes the operations that a rank had; counts those that stand twice. */
static size_t take_had(struct holding *h, int rank)
{
	size_t count = 0, kept = 0;

	for (size_t n = h->first_of[rank]; n < h->first_of[rank + 1]; n++) {
		const struct pd_record *record = &h->trace->records[h->by_rank[n]];
		struct operation it;

		if (!operation_of(h, &record->op, &it))
			continue;
		it.record = h->by_rank[n];
		if (record->op.evaluate) {
			it.microbatch = -1 - it.microbatch;
			it.start_ns = record->start_ns;
		}
		h->had = pd_grow(h->had, &h->had_capacity, count + 1, sizeof(*h->had));
		h->had[count++] = it;
	}
	if (count > 0)
		qsort(h->had, count, sizeof(*h->had), compare_records);
	for (size_t n = 0; n < count; n++) {
		if (kept == 0 || compare_operations(&h->had[kept - 1], &h->had[n]) != 0) {
			h->had[kept++] = h->had[n];
			continue;
		}
		if (h->faults->doubled++ == 0 || h->had[n].record < h->faults->first_doubled)
			h->faults->first_doubled = h->had[n].record;
	}
	return kept;
}

/* Takes the operations that the plan has for a rank, from one time at which the pipeline is empty to the next. */
static size_t take_wanted(struct holding *h, int rank)
{
	int64_t epoch = pd_trace_epoch(h->trace), left;
	size_t count = 0;

	for (int64_t b = h->first; b < h->last; b = left < h->last - b ? b + left : h->last) {
		struct pd_phase phase = { .first = b };
		struct pd_op_source source;
		struct pd_op op;

		left = epoch - b % epoch;
		phase.last = left < h->last - b ? b + left : h->last;
		pd_op_source_init(&source, h->schedule, NULL, rank, &phase, b);
		while (pd_op_source_next(&source, &op)) {
			struct operation it;

			if (!operation_of(h, &op, &it))
				continue;
			h->wanted = pd_grow(h->wanted, &h->wanted_capacity, count + 1, sizeof(*h->wanted));
			h->wanted[count++] = it;
		}
		pd_op_source_end(&source);
	}
	if (count > 0)
		qsort(h->wanted, count, sizeof(*h->wanted), compare_operations);
	return count;
}

static void note_missing(struct holding *h, int rank, const struct operation *it)
{
	struct trace_faults *faults = h->faults;

	if (faults->missing++ == 0 || it->microbatch < faults->first_missing.microbatch)
		faults->first_missing = (struct pd_op){ .kind = (enum pd_op_kind)it->kind, .rank = rank,
							.stage = it->stage, .microbatch = it->microbatch };
}

static void note_strange(struct holding *h, const struct operation *it)
{
	if (it->microbatch >= 0 && (h->faults->strange++ == 0 || it->record < h->faults->first_strange))
		h->faults->first_strange = it->record;
}

static void hold_rank(struct holding *h, int rank)
{
	size_t had = take_had(h, rank), wanted = take_wanted(h, rank), i = 0, k = 0;

	h->faults->expected += (int64_t)wanted;
	while (i < had || k < wanted) {
		int order = i == had ? 1 : k == wanted ? -1 : compare_operations(&h->had[i], &h->wanted[k]);

		if (order < 0)
			note_strange(h, &h->had[i]);
		else if (order > 0)
			note_missing(h, rank, &h->wanted[k]);
		i += order <= 0;
		k += order >= 0;
	}
}

/* Finds which microbatches a trace has, whole updates of them. */
static void find_microbatches(struct holding *h)
{
	int64_t unit = h->trace->plan->microbatches;

	h->first = INT64_MAX;
	for (size_t i = 0; i < h->trace->count; i++) {
		const struct pd_op *op = &h->trace->records[i].op;

		if (op->evaluate)
			continue;
		h->first = op->microbatch < h->first ? op->microbatch : h->first;
		if (op->microbatch >= h->last)
			h->last = op->microbatch < INT64_MAX ? op->microbatch + 1 : INT64_MAX;
	}
	if (h->last == 0) {
		h->first = 0;
		return;
	}
	h->first -= h->first % unit;
	if (h->last % unit > 0 && h->last < INT64_MAX - unit)
		h->last += unit - h->last % unit;
}

/*
 * Counts what a trace lacks, has twice, and has although its plan does not.  The records are in the
 * order in which they were read.  Of a plan whose profile has no model, as traces of other programs
 * have one, only forwards and backwards count.  Fails if the plan has no schedule.
 */
static int find_faults(const struct pd_trace *trace, struct trace_faults *out_p,
		       struct pd_error *err)
{
	struct holding h = { .trace = trace, .ours = trace->plan->profile->model, .faults = out_p };
	struct pd_schedule *schedule = pd_schedule_new(trace->plan, err);

	if (!schedule)
		return -1;
	*out_p = (struct trace_faults){ 0 };
	h.schedule = schedule;
	find_microbatches(&h);
	/* Of microbatches so far apart most are missing, and nobody wants to count them all. */
	if (h.last - h.first > 2 * (int64_t)trace->count + 2 * trace->plan->microbatches)
		h.last = h.first + 2 * (int64_t)trace->count + 2 * trace->plan->microbatches;
	sort_by_rank(&h);
	for (int r = 0; r < trace->plan->rank_count; r++)
		hold_rank(&h, r);
	pd_schedule_free(schedule);
	free(h.by_rank);
	free(h.first_of);
	free(h.had);
	free(h.wanted);
	return 0;
}

void pd_trace_tell_faults(const struct pd_trace *trace, const char *name)
{
	const struct pd_op *op;
	struct trace_faults faults;
	struct pd_error err;

	if (find_faults(trace, &faults, &err) < 0) {
		pd_say("%s: whether it is whole is not known: %s", name, err.text);
		return;
	}
	op = &faults.first_missing;
	if (faults.missing > 0)
		pd_say("warning: %s: it lacks %" PRId64 " of %" PRId64 " operations that its plan has for its "
		       "microbatches, the first: %s of microbatch %" PRId64 " at stage %d by rank %d; times and "
		       "shares are those of the rest", name, faults.missing, faults.expected,
		       pd_op_kind_name[op->kind], op->microbatch, op->stage, op->rank);
	if (faults.doubled > 0) {
		op = &trace->records[faults.first_doubled].op;
		pd_say("warning: %s:%zu: rank %d has %s of microbatch %" PRId64 " at stage %d twice; so it is with "
		       "%" PRId64 " of %zu operations", name, faults.first_doubled + 2, op->rank,
		       pd_op_kind_name[op->kind], op->microbatch, op->stage, faults.doubled, trace->count);
	}
	if (faults.strange > 0) {
		op = &trace->records[faults.first_strange].op;
		pd_say("warning: %s:%zu: its plan has no %s of microbatch %" PRId64 " at stage %d by rank %d; so it "
		       "is with %" PRId64 " of %zu operations", name, faults.first_strange + 2,
		       pd_op_kind_name[op->kind], op->microbatch, op->stage, op->rank, faults.strange,
		       trace->count);
	}
}
