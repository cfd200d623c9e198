/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Computes the memory of a rank over time: the schedule's account, entered at the times of a trace.
 */
#include "base/mem.h"
#include "base/sort.h"
#include "schedule/price.h"
#include "trace/timeline.h"

#include <stdlib.h>

/*
 * Orders operations as the rank's stream does them: by their ends, and what brings a microbatch
 * first.
 */
static int by_end(const void *a, const void *b)
{
	const struct pd_record *x = *(const struct pd_record *const *)a;
	const struct pd_record *y = *(const struct pd_record *const *)b;

	PD_ORDER(x->end_ns, y->end_ns);
	if (x->op.kind != y->op.kind)
		return (int)x->op.kind - (int)y->op.kind;
	return (x > y) - (x < y);
}

static int by_when(const void *a, const void *b)
{
	const struct pd_memory_point *x = a, *y = b;

	PD_ORDER(x->when_ns, y->when_ns);
	return (x->bytes > y->bytes) - (x->bytes < y->bytes);   /* frees come before allocations */
}

/* Gathers the rank's operations of training that use memory. */
static size_t gather(const struct pd_timeline *timeline, int rank,
		     const struct pd_record **records)
{
	size_t n = 0;

	for (int l = 0; l < PD_TRACK_LANES; l++) {
		const struct pd_lane *lane = pd_timeline_lane(timeline, rank, l);

		for (size_t i = 0; i < lane->count; i++) {
			const struct pd_op *op = &lane->bars[i].record->op;

			if (!op->evaluate)
				records[n++] = lane->bars[i].record;
		}
	}
	qsort(records, n, sizeof(*records), by_end);
	return n;
}

/* Returns the versions that are read or written, ascending; those of a resumed run are high. */
static int64_t *versions_of(const struct pd_record **records, size_t n, size_t *count_p)
{
	int64_t *versions = pd_calloc(n, sizeof(*versions));
	size_t count = 0, kept = 0;

	for (size_t i = 0; i < n; i++)
		if (records[i]->op.version >= 0)
			versions[count++] = records[i]->op.version;
	qsort(versions, count, sizeof(*versions), pd_by_value);
	for (size_t i = 0; i < count; i++)
		if (i == 0 || versions[i] != versions[i - 1])
			versions[kept++] = versions[i];
	*count_p = kept;
	return versions;
}

/*
 * Returns the operation with the index of its version in place of the version; an account needs no
 * more.
 */
static struct pd_op numbered(const struct pd_op *op, const int64_t *versions, size_t count)
{
	struct pd_op out = *op;
	const int64_t *found = op->version < 0 ? NULL
		: bsearch(&op->version, versions, count, sizeof(*versions), pd_by_value);

	out.version = found ? found - versions : -1;
	return out;
}

/* Turns changes into sums, and joins changes at the same moment; returns how many are left. */
static size_t add_up(struct pd_memory_point *points, size_t count, int64_t begin_ns,
		     int64_t fixed_bytes)
{
	size_t n = 0;

	qsort(points + 1, count, sizeof(*points), by_when);
	points[0] = (struct pd_memory_point){ begin_ns, fixed_bytes };
	for (size_t i = 1; i <= count; i++) {
		struct pd_memory_point next = { points[i].when_ns, points[n].bytes +
						points[i].bytes };

		n += next.when_ns > points[n].when_ns;
		points[n] = next;
	}
	return n + 1;
}

/* Begins with the versions that no step of the trace wrote, as in a resumed run. */
static void begin_versions(struct pd_account *account, const struct pd_op *ops, size_t n)
{
	for (size_t i = n; i-- > 0;)
		if (ops[i].version >= 0 && ops[i].kind != PD_OP_step)
			account->newest[ops[i].stage] = ops[i].version;
}

/* Sets held[1] and on to what each of n operations allocates or frees; returns how many do. */
static size_t changes(const struct pd_prices *prices, const struct pd_record **records, size_t n,
		      struct pd_memory_point *points)
{
	struct pd_account account;
	struct pd_op *ops = pd_calloc(n, sizeof(*ops));
	size_t versions, count = 0;
	int64_t *version = versions_of(records, n, &versions);

	pd_account_init(&account, prices, (int64_t)versions);
	for (size_t i = 0; i < n; i++) {
		ops[i] = numbered(&records[i]->op, version, versions);
		pd_account_expect(&account, &ops[i]);
	}
	points[0].bytes = (int64_t)account.held_bytes;
	begin_versions(&account, ops, n);
	for (size_t i = 0; i < n; i++) {
		int64_t delta = pd_account_enter(&account, &ops[i]);

		if (delta != 0)
			points[++count] = (struct pd_memory_point){ delta > 0 ? records[i]->start_ns
								    : records[i]->end_ns, delta };
	}
	pd_account_release(&account);
	free(version);
	free(ops);
	return count;
}

size_t pd_timeline_memory(const struct pd_timeline *timeline, int rank,
			  struct pd_memory_point **points_p)
{
	const struct pd_trace *trace = timeline->trace;
	const struct pd_record **records = pd_calloc(trace->count, sizeof(const void *));
	struct pd_memory_point *points = pd_calloc(trace->count + 1, sizeof(*points));
	struct pd_wiring *wiring = pd_wiring_new(trace->plan);
	struct pd_prices prices;
	size_t count;

	pd_prices_init(&prices, trace->plan, wiring);
	count = changes(&prices, records, gather(timeline, rank, records), points);
	pd_prices_release(&prices);
	pd_wiring_free(wiring);
	free(records);
	*points_p = points;
	return add_up(points, count, timeline->begin_ns, points[0].bytes);
}
